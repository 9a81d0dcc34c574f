package mirror_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// hooked is a mock of which a test answers some questions itself. The functions
// are set before it is used, or under set.
type hooked struct {
	*mock
	offsets func(cluster.Partition) cluster.Offsets
	ends    func(ss []fetcher.Stretch)                           // before Ends is answered
	startAt func(ctx context.Context, p cluster.Partition) error // what StartAt does
	fills   func(p cluster.Partition) (fetcher.Filling, bool)    // nil: nothing is being filled
	traits  fetcher.Traits

	members sync.Map // cluster.Partition: in a fetch session
}

func (h *hooked) Offsets(ctx context.Context, ps []cluster.Partition) ([]fetcher.OffsetsAnswer, error) {
	out, err := h.mock.Offsets(ctx, ps)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, p := range ps {
		if h.offsets != nil {
			out[i].Offsets = h.offsets(p)
		}
	}
	return out, err
}

func (h *hooked) Ends(ctx context.Context, ss []fetcher.Stretch) ([]fetcher.End, error) {
	h.mu.Lock()
	before := h.ends
	h.mu.Unlock()
	if before != nil {
		before(ss)
	}
	return h.mock.Ends(ctx, ss)
}

func (h *hooked) StartAt(ctx context.Context, s fetcher.Stretch, _ int64, _ func(int64)) error {
	return h.startAt(ctx, s.Partition)
}

func (h *hooked) Traits() fetcher.Traits { return h.traits }

func (h *hooked) Filling(p cluster.Partition) (fetcher.Filling, bool) {
	if h.fills == nil {
		return fetcher.Filling{}, false
	}
	return h.fills(p)
}

func (h *hooked) Open(ctx context.Context, broker int32) (fetcher.Session, error) {
	s, err := h.mock.Open(ctx, broker)
	return &hookedSession{Session: s, h: h}, err
}

// fetched are the partitions that fetch sessions have now.
func (h *hooked) fetched() []cluster.Partition {
	out := map[cluster.Partition]bool{}
	h.members.Range(func(p, _ any) bool { out[p.(cluster.Partition)] = true; return true })
	return slices.Collect(maps.Keys(out))
}

type hookedSession struct {
	fetcher.Session
	h *hooked
}

func (s *hookedSession) Fetch(ctx context.Context, req *fetcher.FetchRequest) (*fetcher.FetchResponse, error) {
	for _, w := range req.Changed {
		s.h.members.Store(w.Partition, true)
	}
	for _, p := range req.Forgotten {
		s.h.members.Delete(p)
	}
	return s.Session.Fetch(ctx, req)
}

func (s *hookedSession) Close() error {
	s.h.members.Clear()
	return s.Session.Close()
}

// everything is a mirror's option to mirror all there is.
func everything() mirror.Options {
	return mirror.Options{Topics: mirror.Topics{Include: []string{".*"}}}
}

// stateOf is the state of a topic's first partition.
func stateOf(t testing.TB, m *mirror.Mirror, topic string) mirror.PartitionStatus {
	t.Helper()
	top, ok := m.Topic(topic)
	if !ok || len(top.Partitions) == 0 {
		t.Fatalf("topic %s is not known", topic)
	}
	return top.Partitions[0]
}

func wantState(t testing.TB, m *mirror.Mirror, topic string, want coordinator.State) {
	t.Helper()
	if s := stateOf(t, m, topic); s.State != want {
		t.Errorf("%s is %s, want %s: %s", topic, s.State, want, show(s))
	}
}

// async runs an operation and gives its outcome when it has one.
func async(op func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- op() }()
	return done
}

// pending fails when an operation has returned after some time already.
func pending(t testing.TB, after time.Duration, op <-chan error) {
	t.Helper()
	select {
	case err := <-op:
		t.Fatalf("returned already: %v", err)
	case <-time.After(after):
	}
}

// hour is for what should return: in a bubble it costs nothing.
func hour(t testing.TB) context.Context { return within(t, time.Hour) }
