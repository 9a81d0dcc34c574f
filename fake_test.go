package mirror_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

// mock is a cluster without records, in memory and in no time: for what takes
// its time in a mirror itself. It is source and destination.
type mock struct {
	id string

	mu     sync.Mutex
	topics map[string]cluster.Topic
	down   error         // answers every question
	hang   bool          // no question is answered before its context ends
	groups chan struct{} // a question for groups waits for it, when not nil
	looks  []time.Time   // when topics were asked for
	fenced []cluster.Partition
}

func newMock(id string, names ...string) *mock {
	m := &mock{id: id, topics: map[string]cluster.Topic{}}
	for _, n := range names {
		m.add(n)
	}
	return m
}

func (m *mock) add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.topics[name] = cluster.Topic{Name: name, ID: cluster.TopicID{byte(len(m.topics) + 1)}, Partitions: 1}
}

func (m *mock) set(change func(m *mock)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// answer says whether a question is answered.
func (m *mock) answer(ctx context.Context) error {
	m.mu.Lock()
	down, hang := m.down, m.hang
	m.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.Join(down, ctx.Err())
}

func (m *mock) ID(ctx context.Context) (string, error) { return m.id, m.answer(ctx) }

func (m *mock) Topics(ctx context.Context) ([]cluster.Topic, error) {
	m.mu.Lock()
	m.looks = append(m.looks, time.Now())
	all := slices.Collect(maps.Values(m.topics))
	m.mu.Unlock()
	return all, m.answer(ctx)
}

func (m *mock) TopicConfigs(ctx context.Context, names []string) ([]topics.ConfigsAnswer, error) {
	return make([]topics.ConfigsAnswer, len(names)), m.answer(ctx)
}

func (m *mock) CreateTopics(_ context.Context, ts []cluster.NewTopic) []error {
	for _, t := range ts {
		m.add(t.Name)
	}
	return make([]error, len(ts))
}

func (m *mock) GrowTopics(_ context.Context, ts []cluster.Topic) []error {
	return make([]error, len(ts))
}

func (m *mock) Leaders(ctx context.Context, ps []cluster.Partition, _ bool) ([]fetcher.LeaderAnswer, error) {
	m.mu.Lock()
	out := make([]fetcher.LeaderAnswer, len(ps))
	for i, p := range ps {
		out[i] = fetcher.LeaderAnswer{Leader: cluster.Leader{Broker: 1, Epoch: 1}, TopicID: m.topics[p.Topic].ID}
	}
	m.mu.Unlock()
	return out, m.answer(ctx)
}

func (m *mock) Offsets(ctx context.Context, ps []cluster.Partition) ([]fetcher.OffsetsAnswer, error) {
	return make([]fetcher.OffsetsAnswer, len(ps)), m.answer(ctx)
}

func (m *mock) EpochEnds(ctx context.Context, qs []fetcher.EpochQuery) ([]fetcher.EpochAnswer, error) {
	return make([]fetcher.EpochAnswer, len(qs)), m.answer(ctx)
}

func (m *mock) Read(ctx context.Context, _ cluster.Partition, _ int64, _ int32) ([]byte, error) {
	return nil, m.answer(ctx)
}

func (m *mock) Open(ctx context.Context, _ int32) (fetcher.Session, error) {
	return &mockSession{m: m, closed: make(chan struct{})}, m.answer(ctx)
}

func (m *mock) Traits() fetcher.Traits { return fetcher.Traits{} }

func (m *mock) Ends(ctx context.Context, ss []fetcher.Stretch) ([]fetcher.End, error) {
	return make([]fetcher.End, len(ss)), m.answer(ctx)
}

func (m *mock) Append(p cluster.Partition, _ []cluster.Batch, free func(), done func(fetcher.Result)) {
	go func() {
		free()
		done(fetcher.Result{Partition: p, Err: cluster.ErrUnavailable})
	}()
}

func (m *mock) Truncate(_ context.Context, cuts []fetcher.Cut) []error {
	return make([]error, len(cuts))
}
func (m *mock) Trim(_ context.Context, cuts []fetcher.Cut) []error { return make([]error, len(cuts)) }

func (m *mock) Fence(ctx context.Context, ss []fetcher.Stretch) ([]fetcher.End, error) {
	m.mu.Lock()
	for _, s := range ss {
		m.fenced = append(m.fenced, s.Partition)
	}
	m.mu.Unlock()
	return make([]fetcher.End, len(ss)), m.answer(ctx)
}

func (m *mock) Groups(ctx context.Context) ([]cluster.Group, error) {
	m.mu.Lock()
	wait := m.groups
	m.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, m.answer(ctx)
}

func (m *mock) Committed(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	return make([]offsets.CommittedAnswer, len(groups)), m.answer(ctx)
}

func (m *mock) Commit(ctx context.Context, _ string, _ []cluster.Committed) error {
	return m.answer(ctx)
}

// mockSession answers that there is nothing new, as late as it may.
type mockSession struct {
	m      *mock
	once   sync.Once
	closed chan struct{}
}

func (s *mockSession) Fetch(ctx context.Context, req *fetcher.FetchRequest) (*fetcher.FetchResponse, error) {
	timer := time.NewTimer(max(req.MaxWait, time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closed:
		return nil, cluster.ErrUnreachable
	}
	if err := s.m.answer(ctx); err != nil {
		return nil, err
	}
	return &fetcher.FetchResponse{Release: func() {}}, nil
}

func (s *mockSession) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
