package fetcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// sourceCluster is a Kafka cluster in memory, as a Source sees it.
type sourceCluster struct {
	t  testing.TB
	mu sync.Mutex
	// changed is closed and made anew whenever a long poll may have something.
	changed chan struct{}
	logs    map[cluster.Partition]*sourceLog
	brokers map[int32]*sourceBroker

	looks       int // calls of Leaders
	leadersErr  error
	staleLeader map[cluster.Partition]cluster.Leader // what Leaders answers instead
	held, most  int                                  // bytes of answers not released, and their maximum
	answers     int
	retained    map[cluster.Partition][]sourceBatch // compacted away
	compares    bool                                // diverging epochs are answered (Fetch v12)
	byName      bool                                // the fetch knows no topic ids (before v13)
	epochCalls  int
}

type sourceBroker struct {
	down, blackholed bool
	rtt              time.Duration
	bytesPerSecond   int
	gate             chan struct{} // answers wait for it
	sessions         map[*sourceSession]bool
	fetches, changes int // requests, partitions in them
	opened           int
	maxWaits         []time.Duration
}

type sourceLog struct {
	id             cluster.TopicID
	leader         cluster.Leader
	start          int64
	batches        []sourceBatch
	faults         []Fetched // answered instead, one each fetch
	hint           *cluster.Leader
	spoil          int // answers whose first payload byte is flipped
	spoilAt        int64
	offsetsErr     error
	highWatermark  int64 // what Offsets answers; -1: the end
	leaderErr      error
	divergingEpoch bool
	epochErrs      []error // answered to EpochEnds first
	epochAsked     []int32
	reads          int
	all            []sourceBatch // with what compaction has removed; nil: the same as batches
}

type sourceBatch struct {
	base, next int64
	epoch      int32
	bytes      []byte
}

func newSource(t testing.TB, brokers ...int32) *sourceCluster {
	s := &sourceCluster{
		t: t, changed: make(chan struct{}), logs: map[cluster.Partition]*sourceLog{}, brokers: map[int32]*sourceBroker{},
		staleLeader: map[cluster.Partition]cluster.Leader{},
	}
	for _, b := range brokers {
		s.brokers[b] = &sourceBroker{sessions: map[*sourceSession]bool{}}
	}
	return s
}

// update changes the cluster and wakes long polls.
func (s *sourceCluster) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *sourceCluster) create(p cluster.Partition, leader int32) {
	s.update(func() {
		s.logs[p] = &sourceLog{leader: cluster.Leader{Broker: leader}, id: cluster.TopicID{1, byte(len(p.Topic))}, highWatermark: -1}
	})
}

// elect makes a broker the leader, with the next epoch.
func (s *sourceCluster) elect(p cluster.Partition, broker int32) {
	s.update(func() {
		l := s.logs[p]
		l.leader = cluster.Leader{Broker: broker, Epoch: l.leader.Epoch + 1}
	})
}

// produce appends batches of n records with values of size bytes.
func (s *sourceCluster) produce(p cluster.Partition, batches, n, size int) {
	s.update(func() {
		l := s.logs[p]
		for range batches {
			l.append(plain(l.end(), n, size, l.leader.Epoch))
		}
	})
}

// put appends batches as they are.
func (s *sourceCluster) put(p cluster.Partition, specs ...batch.Spec) {
	s.update(func() {
		for _, spec := range specs {
			s.logs[p].append(batch.Encode(spec))
		}
	})
}

func plain(base int64, n, size int, epoch int32) []byte {
	rs := make([]batch.Record, n)
	for i := range rs {
		v := make([]byte, size)
		copy(v, fmt.Sprint(base+int64(i)))
		rs[i] = batch.Record{Offset: base + int64(i), Timestamp: 1_700_000_000_000 + base + int64(i), Value: v}
	}
	return batch.Encode(batch.Spec{Base: base, LeaderEpoch: epoch, Records: rs})
}

func (l *sourceLog) end() int64 {
	if len(l.all) > 0 {
		return l.all[len(l.all)-1].next
	}
	if len(l.batches) == 0 {
		return l.start
	}
	return l.batches[len(l.batches)-1].next
}

func (l *sourceLog) append(b []byte) {
	h := batch.Header(b)
	l.batches = append(l.batches, sourceBatch{h.Base(), h.Next(), h.LeaderEpoch(), b})
	if l.all != nil {
		l.all = append(l.all, l.batches[len(l.batches)-1])
	}
}

// cut drops the tail from offset on, as an unclean election does.
func (s *sourceCluster) cut(p cluster.Partition, offset int64) {
	s.update(func() {
		l := s.logs[p]
		for len(l.batches) > 0 && l.batches[len(l.batches)-1].next > offset {
			l.batches = l.batches[:len(l.batches)-1]
		}
	})
}

func (s *sourceCluster) end(p cluster.Partition) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[p].end()
}

func (s *sourceCluster) setDown(broker int32, down bool) {
	s.update(func() {
		b := s.brokers[broker]
		b.down = down
	})
}

func (s *sourceCluster) Leaders(ctx context.Context, ps []cluster.Partition, _ bool) ([]LeaderAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.leadersErr != nil {
		return nil, s.leadersErr
	}
	out := make([]LeaderAnswer, len(ps))
	for i, p := range ps {
		l := s.logs[p]
		if l == nil {
			out[i].Err = cluster.ErrUnknownTopic
			continue
		}
		out[i] = LeaderAnswer{Leader: l.leader, TopicID: l.id, Err: l.leaderErr}
		if stale, ok := s.staleLeader[p]; ok {
			out[i].Leader = stale
		}
	}
	return out, ctx.Err()
}

func (s *sourceCluster) Offsets(_ context.Context, ps []cluster.Partition) ([]OffsetsAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]OffsetsAnswer, len(ps))
	for i, p := range ps {
		l := s.logs[p]
		if l == nil {
			out[i].Err = cluster.ErrUnknownTopic
			continue
		}
		out[i] = OffsetsAnswer{Offsets: cluster.Offsets{LogStart: l.start, HighWatermark: l.end()}, Err: l.offsetsErr}
		if l.highWatermark >= 0 {
			out[i].HighWatermark = l.highWatermark
		}
	}
	return out, nil
}

// EpochEnds answers as a leader does: it knows its own epoch before it has a batch.
func (s *sourceCluster) EpochEnds(ctx context.Context, qs []EpochQuery) ([]EpochAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]EpochAnswer, len(qs))
	s.epochCalls++
	for i, q := range qs {
		l := s.logs[q.Partition]
		l.epochAsked = append(l.epochAsked, q.Epoch)
		switch {
		case len(l.epochErrs) > 0:
			out[i].Err, l.epochErrs = l.epochErrs[0], l.epochErrs[1:]
		case q.Current >= 0 && q.Current != l.leader.Epoch:
			out[i].Err = cluster.ErrLeaderEpoch
		default:
			out[i].EpochEnd = l.epochEnd(q.Epoch)
		}
	}
	return out, ctx.Err()
}

func (l *sourceLog) epochEnd(asked int32) cluster.EpochEnd {
	if asked > l.leader.Epoch {
		return cluster.EpochEnd{Epoch: -1, EndOffset: -1}
	}
	e := cluster.EpochEnd{Epoch: asked, EndOffset: l.end()}
	if asked == l.leader.Epoch {
		return e
	}
	below := false
	for _, b := range l.batches {
		if b.epoch > asked {
			e.EndOffset = b.base
			break
		}
		e.Epoch, below = b.epoch, true
	}
	if !below {
		e.Epoch = asked
	}
	return e
}

func (s *sourceCluster) Read(_ context.Context, p cluster.Partition, offset int64, _ int32) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[p]
	l.reads++
	for _, b := range l.batches {
		if l.highWatermark >= 0 && b.next > l.highWatermark {
			break
		}
		if b.next > offset {
			return b.bytes, nil
		}
	}
	return nil, nil
}

func (s *sourceCluster) Open(ctx context.Context, broker int32) (Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.brokers[broker]
	b.opened++
	if b.down {
		return nil, fmt.Errorf("%w: broker %d", cluster.ErrUnreachable, broker)
	}
	session := &sourceSession{cluster: s, id: broker, broker: b, parts: map[cluster.Partition]*member{}, closed: make(chan struct{})}
	b.sessions[session] = true
	return session, ctx.Err()
}
