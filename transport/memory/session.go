package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// session is an incremental fetch session as a broker keeps it (KIP-227): an answer
// leaves out the partitions that have nothing new, and what a partition is asked for
// is what the last request said of it.
type session struct {
	cl     *Client
	broker int32
	life   int // of the broker
	wants  []*wanted
	known  map[cluster.Partition]*wanted
	once   sync.Once
	closed chan struct{}
	// committed: what readers of committed records see is asked for
	committed bool
}

// wanted is a partition of a session and what was told of it last.
type wanted struct {
	fetcher.Want
	told                bool
	high, start, stable int64
}

// Open starts a fetch session with a broker.
func (cl *Client) Open(ctx context.Context, broker int32) (fetcher.Session, error) {
	return call(ctx, cl, Op{Call: CallOpen, Broker: broker}, func() (fetcher.Session, error) {
		if !cl.c.up(broker) {
			return nil, fmt.Errorf("broker %d: %w", broker, cluster.ErrUnreachable)
		}
		return &session{
			cl: cl, broker: broker, life: cl.c.brokers[broker-1].life, known: map[cluster.Partition]*wanted{},
			closed: make(chan struct{}),
		}, nil
	})
}

// Close ends the session, and a Fetch that waits in it.
func (s *session) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Fetch asks for what is new.
func (s *session) Fetch(ctx context.Context, req *fetcher.FetchRequest) (*fetcher.FetchResponse, error) {
	s.update(req)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := s.cl.judge(s.op())
	switch f.Kind {
	case LoseRequest:
		s.Close()
		return nil, f.err()
	case DelayRequest:
		if err := s.rest(ctx, f); err != nil {
			return nil, err
		}
	}
	resp, err := s.poll(ctx, req)
	if err != nil {
		s.Close()
		return nil, err
	}
	switch f.Kind {
	case LoseAnswer:
		resp.Release()
		s.Close()
		return nil, f.err()
	case CrashAfter:
		resp.Release()
		s.cl.Crash()
		return nil, errClosed
	case DelayAnswer:
		if err := s.rest(ctx, f); err != nil {
			resp.Release()
			return nil, err
		}
	}
	return resp, nil
}

// rest waits for what a fault has said.
func (s *session) rest(ctx context.Context, f Fault) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan bool, 1)
	go func() { done <- f.wait(ctx, s.closed) }()
	select {
	case over := <-done:
		if over {
			return nil
		}
		return gone(ctx)
	case <-s.cl.c.quit:
		return gone(context.Background())
	}
}

// op describes a fetch to the fault function, if there is one.
func (s *session) op() Op {
	op := Op{Call: CallFetch, Broker: s.broker}
	s.cl.c.mu.Lock()
	defer s.cl.c.mu.Unlock()
	if s.cl.c.fault != nil {
		for _, w := range s.wants {
			op.Partitions = append(op.Partitions, w.Partition)
		}
	}
	return op
}

// update carries the changes of a request out.
func (s *session) update(req *fetcher.FetchRequest) {
	s.cl.c.mu.Lock()
	defer s.cl.c.mu.Unlock()
	s.committed = req.Committed
	for _, p := range req.Forgotten {
		if w := s.known[p]; w != nil {
			delete(s.known, p)
			for i := range s.wants {
				if s.wants[i] == w {
					s.wants = append(s.wants[:i], s.wants[i+1:]...)
					break
				}
			}
		}
	}
	for _, w := range req.Changed {
		if k := s.known[w.Partition]; k != nil {
			k.Want = w
			continue
		}
		k := &wanted{Want: w}
		s.known[w.Partition] = k
		s.wants = append(s.wants, k)
	}
}

// poll answers as soon as there is something to tell, or when the time is over.
func (s *session) poll(ctx context.Context, req *fetcher.FetchRequest) (*fetcher.FetchResponse, error) {
	var timer *time.Timer
	over := req.MaxWait <= 0
	for {
		resp, change, err := s.answer(int(req.MaxBytes), over, int(req.MinBytes))
		if err != nil || resp != nil {
			return resp, err
		}
		if timer == nil {
			timer = time.NewTimer(req.MaxWait)
			defer timer.Stop()
		}
		select {
		case <-change:
		case <-timer.C:
			over = true
		case <-s.closed:
			return nil, errClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

var errClosed = fmt.Errorf("%w: the session is closed", cluster.ErrUnreachable)

// answer is the broker's answer; nil when there is nothing to tell yet, and then the
// channel tells when to look again.
func (s *session) answer(maxBytes int, over bool, least int) (*fetcher.FetchResponse, <-chan struct{}, error) {
	c := s.cl.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.lost(); err != nil {
		return nil, nil, err
	}
	resp := &fetcher.FetchResponse{Compares: true, ByID: true}
	var buf []byte
	full := 0
	urgent := over
	for i, w := range s.wants {
		f, records := s.fetch(w, buf, maxBytes-len(buf))
		if f.Err == nil && f.HighWatermark < 0 {
			continue // frozen
		}
		got := len(records) - len(buf)
		buf = records
		urgent = urgent || f.Err != nil || f.Diverging.EndOffset >= 0
		news := got > 0 || f.Err != nil || f.Diverging.EndOffset >= 0
		if f.Err == nil && w.told && w.high == f.HighWatermark && w.start == f.LogStart && w.stable == f.LastStable && !news {
			continue
		}
		if got > 0 {
			full = i + 1
		}
		// Kafka answers an empty fetch only when its time is over; a changed high
		// watermark or log start is worth an answer here, so that idle mirrors need not
		// wait for it.
		urgent = urgent || !news
		resp.Partitions = append(resp.Partitions, f)
		resp.Size = len(buf)
	}
	if !urgent && len(buf) < max(least, 1) {
		return nil, c.change(), nil
	}
	s.settle(resp, buf, full)
	return resp, nil, nil
}

// settle gives the parts of an answer their pieces of the buffer, and notes what was
// told. The next answer begins with the partitions that had no room in this one.
func (s *session) settle(resp *fetcher.FetchResponse, buf []byte, full int) {
	at := 0
	for i := range resp.Partitions {
		f := &resp.Partitions[i]
		n := len(f.Records)
		f.Records = buf[at : at+n : at+n]
		at += n
		w := s.known[f.Partition]
		w.told, w.high, w.start, w.stable = f.Err == nil, f.HighWatermark, f.LogStart, f.LastStable
	}
	if full > 0 && full < len(s.wants) {
		s.wants = append(append(make([]*wanted, 0, len(s.wants)), s.wants[full:]...), s.wants[:full]...)
	}
	resp.Release = func() {}
}

// lost is why the session is of no more use.
func (s *session) lost() error {
	if err := s.cl.reach(); err != nil {
		return err
	}
	select {
	case <-s.closed:
		return errClosed
	default:
	}
	if b := s.cl.c.brokers[s.broker-1]; !b.up || b.life != s.life {
		return fmt.Errorf("broker %d: %w", s.broker, cluster.ErrUnreachable)
	}
	return nil
}

// fetch is what the broker says of one partition, in Kafka's order of checks. The
// records are appended to buf, and f.Records has their length.
func (s *session) fetch(w *wanted, buf []byte, room int) (f fetcher.Fetched, out []byte) {
	f = fetcher.Fetched{
		Partition: w.Partition, HighWatermark: -1, LogStart: -1, LastStable: -1,
		Diverging: cluster.EpochEnd{Epoch: cluster.NoEpoch, EndOffset: -1}, Leader: cluster.Leader{Broker: -1, Epoch: cluster.NoEpoch},
	}
	p, err := s.cl.c.find(w.Partition)
	switch {
	case err == nil && !w.TopicID.IsZero() && w.TopicID != p.topic.id:
		err = fmt.Errorf("%v: %w: id is %v, asked for %v", w.Partition, cluster.ErrTopicReplaced, p.topic.id, w.TopicID)
	case err == nil && p.frozen:
		return f, buf
	case err == nil:
		err = s.check(p, w)
	}
	if err != nil {
		f.Err = err
		if p != nil && (errors.Is(err, cluster.ErrNotLeader) || errors.Is(err, cluster.ErrLeaderEpoch)) {
			f.Leader = p.leads() // KIP-951
		}
		return f, buf
	}
	r := p.lead()
	f.HighWatermark, f.LogStart = r.high, r.log.start
	if d, parted := r.diverges(w); parted {
		f.Diverging = d
		return f, buf
	}
	limit := r.high
	if s.committed {
		f.LastStable = p.stable()
		limit = f.LastStable
	}
	if w.Offset >= limit || room <= 0 {
		return f, buf
	}
	out = r.log.read(buf, w.Offset, limit, min(room, int(w.MaxBytes)), len(buf) == 0)
	f.Records = out[len(buf):]
	if s.committed {
		f.Aborted = p.abortedIn(w.Offset, upTo(f.Records, w.Offset))
	}
	return f, out
}

// check is everything that Kafka looks at before it reads.
func (s *session) check(p *partition, w *wanted) error {
	if err := p.checkEpoch(w.LeaderEpoch); err != nil {
		return err
	}
	r := p.lead()
	if r == nil || r.broker != s.broker {
		return fmt.Errorf("%v: %w: broker %d", p.id, cluster.ErrNotLeader, s.broker)
	}
	if w.LastEpoch >= 0 && w.Offset >= r.log.start {
		if d := r.log.epochs.endOf(w.LastEpoch, r.log.end); d.EndOffset >= 0 && d.Epoch >= 0 {
			if d.Epoch < w.LastEpoch || d.EndOffset < w.Offset {
				return nil // diverges says so
			}
		} else {
			return &cluster.OffsetError{
				Partition: p.id, Span: cluster.Span{From: w.Offset, To: w.Offset}, Err: cluster.ErrOutOfRange,
				Detail: fmt.Sprintf("the end of epoch %d is not known", w.LastEpoch),
			}
		}
	}
	return r.inRange(p.id, w.Offset)
}

// diverges is where the log of who asks parts from this one (KIP-595): its last
// epoch ends elsewhere.
func (r *replica) diverges(w *wanted) (cluster.EpochEnd, bool) {
	if w.LastEpoch < 0 {
		return cluster.EpochEnd{}, false
	}
	d := r.log.epochs.endOf(w.LastEpoch, r.log.end)
	return d, d.Epoch < w.LastEpoch || d.EndOffset < w.Offset
}
