package fetcher

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// sourceSession is an incremental fetch session as a broker keeps it: the offset
// of a partition is what the last request said, and an answer leaves out what
// has nothing new.
type sourceSession struct {
	cluster *sourceCluster
	id      int32
	broker  *sourceBroker
	order   []*member
	parts   map[cluster.Partition]*member
	once    sync.Once
	closed  chan struct{}
	// committed: see FetchRequest
	committed bool
}

type member struct {
	Want
	told     bool
	toldHigh int64
	toldLSO  int64
	toldLow  int64
}

func (s *sourceSession) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.cluster.mu.Lock()
		delete(s.broker.sessions, s)
		s.cluster.mu.Unlock()
	})
	return nil
}

func (s *sourceSession) Fetch(ctx context.Context, req *FetchRequest) (*FetchResponse, error) {
	c, b := s.cluster, s.broker
	c.mu.Lock()
	b.fetches++
	b.changes += len(req.Changed)
	s.committed = req.Committed
	b.maxWaits = append(b.maxWaits, req.MaxWait)
	for _, w := range req.Changed {
		m := s.parts[w.Partition]
		if m == nil {
			m = &member{}
			s.parts[w.Partition] = m
			s.order = append(s.order, m)
		}
		m.Want = w
	}
	for _, p := range req.Forgotten {
		s.order = slices.DeleteFunc(s.order, func(m *member) bool { return m.Partition == p })
		delete(s.parts, p)
	}
	rtt, blackholed, perSecond := b.rtt, b.blackholed, b.bytesPerSecond
	maxBytes, deadline := int(req.MaxBytes), time.NewTimer(req.MaxWait)
	c.mu.Unlock()
	defer deadline.Stop()
	if blackholed {
		return nil, s.sit(ctx, nil)
	}
	if err := s.sit(ctx, after(rtt)); err != nil {
		return nil, err
	}
	resp, err := s.poll(ctx, maxBytes, deadline.C)
	if err != nil {
		return nil, err
	}
	resp.RoundTrip = rtt
	if perSecond > 0 && resp.Size > 0 {
		err = s.sit(ctx, after(time.Duration(resp.Size)*time.Second/time.Duration(perSecond)))
	}
	c.mu.Lock()
	gate := b.gate
	c.mu.Unlock()
	if err == nil && gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		resp.Release()
		return nil, err
	}
	return resp, nil
}

func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		c := make(chan time.Time, 1)
		c <- time.Time{}
		return c
	}
	return time.After(d)
}

// sit waits for until, the end of the session or of ctx.
func (s *sourceSession) sit(ctx context.Context, until <-chan time.Time) error {
	select {
	case <-until:
		return nil
	case <-s.closed:
		return cluster.ErrUnreachable
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sourceSession) poll(ctx context.Context, maxBytes int, deadline <-chan time.Time) (*FetchResponse, error) {
	for over := false; ; {
		s.cluster.mu.Lock()
		if s.broker.down {
			s.cluster.mu.Unlock()
			return nil, cluster.ErrUnreachable
		}
		resp := s.answer(maxBytes)
		changed := s.cluster.changed
		s.cluster.mu.Unlock()
		if over || len(resp.Partitions) > 0 {
			return resp, nil
		}
		resp.Release()
		select {
		case <-changed:
		case <-deadline:
			over = true
		case <-s.closed:
			return nil, cluster.ErrUnreachable
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// answer holds the lock of the cluster.
func (s *sourceSession) answer(maxBytes int) *FetchResponse {
	var buf []byte
	resp := &FetchResponse{Compares: s.cluster.compares, ByID: !s.cluster.byName}
	for _, m := range s.order {
		f := s.one(m, maxBytes-len(buf), len(buf) == 0)
		news := f.Err != nil || len(f.Records) > 0 || f.Diverging.EndOffset >= 0
		if !news && m.told && m.toldHigh == f.HighWatermark && m.toldLSO == f.LastStable && m.toldLow == f.LogStart {
			continue
		}
		m.told, m.toldHigh, m.toldLSO, m.toldLow = f.Err == nil, f.HighWatermark, f.LastStable, f.LogStart
		buf = append(buf, f.Records...)
		resp.Partitions = append(resp.Partitions, f)
	}
	for i, at := 0, 0; i < len(resp.Partitions); i++ {
		n := len(resp.Partitions[i].Records)
		resp.Partitions[i].Records = buf[at : at+n : at+n]
		at += n
	}
	if len(s.order) > 1 { // the next answer begins with another partition
		s.order = append(s.order[1:], s.order[0])
	}
	s.cluster.pool(resp, buf)
	return resp
}

// pool makes the buffer's Release: it spoils the bytes, so that a use after it is
// seen, and refuses to be called twice.
func (c *sourceCluster) pool(resp *FetchResponse, buf []byte) {
	resp.Size = len(buf)
	c.held += len(buf)
	c.most = max(c.most, c.held)
	c.answers++
	released := false
	resp.Release = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if released {
			c.t.Error("an answer was released twice")
		}
		released = true
		c.held -= len(buf)
		for i := range buf {
			buf[i] = 0xee
		}
	}
}

// one is what the broker says of one partition.
func (s *sourceSession) one(m *member, room int, first bool) Fetched {
	f := Fetched{Partition: m.Partition, Diverging: cluster.EpochEnd{EndOffset: -1}, Leader: cluster.Leader{Broker: -1}}
	l := s.cluster.logs[m.Partition]
	switch {
	case l == nil:
		f.Err = cluster.ErrUnknownTopic
	case len(l.faults) > 0:
		f, l.faults = l.faults[0], l.faults[1:]
		f.Partition = m.Partition
	case l.hint != nil:
		f.Err, f.Leader = cluster.ErrNotLeader, *l.hint
		if f.Leader.Broker == s.id { // brokers that point at each other
			f.Leader.Broker = 3 - s.id
		}
	case l.leader.Broker != s.id:
		f.Err, f.Leader = cluster.ErrNotLeader, l.leader
	case m.LeaderEpoch != l.leader.Epoch:
		f.Err = cluster.ErrLeaderEpoch
	case m.TopicID != l.id && !m.TopicID.IsZero():
		f.Err = cluster.ErrTopicReplaced
	case m.Offset < l.start || m.Offset > l.end():
		f.Err = cluster.ErrOutOfRange
	default:
		s.read(&f, l, m, room, first)
	}
	return f
}

func (s *sourceSession) read(f *Fetched, l *sourceLog, m *member, room int, first bool) {
	f.HighWatermark, f.LogStart = l.end(), l.start
	if d, ok := l.diverging(m); ok && (l.divergingEpoch || s.cluster.compares) {
		f.Diverging = d
		return
	}
	room = min(room, int(m.MaxBytes))
	i, _ := slices.BinarySearchFunc(l.batches, m.Offset, func(b sourceBatch, o int64) int {
		if b.next <= o {
			return -1
		}
		return 1
	})
	for _, b := range l.batches[i:] {
		if len(b.bytes) > room && (len(f.Records) > 0 || !first) {
			break
		}
		bytes := b.bytes
		if l.spoil > 0 && b.base == l.spoilAt {
			l.spoil--
			bytes = slices.Clone(bytes)
			bytes[len(bytes)-1] ^= 1
		}
		f.Records = append(f.Records, bytes...)
		room -= len(b.bytes)
	}
	if s.committed {
		l.committed(f, m.Offset)
	}
}

// diverging is KIP-595's answer: where the epoch of the asker's last batch ends.
func (l *sourceLog) diverging(m *member) (cluster.EpochEnd, bool) {
	if m.LastEpoch < 0 {
		return cluster.EpochEnd{}, false
	}
	d := cluster.EpochEnd{Epoch: -1, EndOffset: l.start}
	for _, b := range l.batches {
		if b.epoch <= m.LastEpoch {
			d = cluster.EpochEnd{Epoch: b.epoch, EndOffset: b.next}
		}
	}
	return d, d.Epoch < m.LastEpoch || d.EndOffset < m.Offset
}

var errSilly = errors.New("no error anybody knows")
