package fetcher

import (
	"container/heap"
	"context"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// A session fetches the partitions that one source broker leads. Its loop owns
// the trackers; a second goroutine (asker.go) waits for the broker, so that the
// loop answers at once whatever the broker does.
type session struct {
	f      *Fetcher
	broker int32
	box    *mailbox[message]

	trackers map[cluster.Partition]*tracker
	queue    []*tracker // to be looked at before the next request
	timers   timers     // partitions in backoff
	members  int        // partitions the broker's session knows
	gone     []cluster.Partition

	asking   bool // a request is under way
	asks     chan *FetchRequest
	retryAt  time.Time // no request before
	failures int       // of the broker, in a row
	respMax  int32     // bytes of one answer, grows with the round trip
	askedAt  time.Time
	request  FetchRequest
	checked  time.Time // last look for stalled partitions
}

// A message is one of these.
type message struct {
	add    []*tracker
	remove []cluster.Partition
	ack    func() // after remove
	run    *run   // answered by the destination
	answer *answer
	ends   *learnt
	epoch  *acked
	trim   *trimmed
	reason *judged
}

// acked says that the epoch of a tracker's held run was stored, or not. The
// generation tells whether it is still that run.
type acked struct {
	t   *tracker
	gen uint32
	err error
}

// trimmed says that the destination's log start was moved, or not.
type trimmed struct {
	t   *tracker
	to  int64
	err error
}

func newSession(f *Fetcher, broker int32) *session {
	return &session{
		f: f, broker: broker, box: newMailbox[message](), trackers: map[cluster.Partition]*tracker{},
		asks: make(chan *FetchRequest, 1), respMax: f.opts.ResponseBytes,
	}
}

// run is the session's loop.
func (s *session) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer s.end()
	for {
		for _, m := range s.box.take() {
			s.handle(ctx, m)
		}
		now := time.Now()
		s.wakeTimers(ctx, now)
		s.lookForStalls(now)
		s.ask(now)
		timer.Reset(s.sleep(now))
		select {
		case <-ctx.Done():
			return nil
		case <-s.box.wake:
		case <-timer.C:
		}
	}
}

// end gives back what is left: runs that wait for an epoch, and messages.
func (s *session) end() {
	for _, t := range s.trackers {
		if t.held != nil {
			t.held.drop()
		}
	}
	for _, m := range s.box.close() {
		switch {
		case m.run != nil:
			m.run.drop()
		case m.answer != nil && m.answer.resp != nil:
			m.answer.resp.Release()
		case m.ack != nil:
			m.ack()
		}
	}
}

func (s *session) handle(ctx context.Context, m message) {
	switch {
	case m.add != nil:
		s.adopt(ctx, m.add)
	case m.remove != nil || m.ack != nil:
		for _, p := range m.remove {
			if t := s.trackers[p]; t != nil {
				s.leave(t)
			}
		}
		if m.ack != nil {
			m.ack()
		}
	case m.run != nil:
		s.onResult(ctx, m.run)
	case m.answer != nil:
		s.onAnswer(ctx, m.answer)
	case m.ends != nil:
		s.onEnds(m.ends)
	case m.epoch != nil:
		s.onEpoch(m.epoch)
	case m.trim != nil:
		s.onTrimmed(m.trim)
	case m.reason != nil:
		s.onJudged(m.reason)
	}
}

// adopt takes partitions over. Those that were on their way elsewhere before
// ask the destination first.
func (s *session) adopt(ctx context.Context, ts []*tracker) {
	var learn []*tracker
	for _, t := range ts {
		s.trackers[t.partition] = t
		t.movedAt = time.Now()
		if t.phase == learning {
			learn = append(learn, t)
			continue
		}
		s.look(t)
	}
	s.learn(ctx, learn)
}

// leave takes a partition out of the session; nothing of it is appended any more.
func (s *session) leave(t *tracker) {
	delete(s.trackers, t.partition)
	t.gen++
	if t.held != nil {
		t.held.drop()
		t.held = nil
	}
	if t.member {
		t.member = false
		s.members--
		s.gone = append(s.gone, t.partition)
	}
}

// fail takes a partition out and reports it.
func (s *session) fail(t *tracker, err error) {
	s.leave(t)
	t.board.setTrouble(err)
	s.f.failed(t.partition, err)
}

// look has the partition considered for the next request.
func (s *session) look(t *tracker) {
	if !t.queued {
		t.queued = true
		s.queue = append(s.queue, t)
	}
}

// mine reports whether the tracker still belongs here: it may have left while
// something of it was under way.
func (s *session) mine(t *tracker) bool { return s.trackers[t.partition] == t }

// ask sends the next request, if none is under way and there is something to ask
// for. The request is the session's again when its answer has arrived.
func (s *session) ask(now time.Time) {
	if s.asking || now.Before(s.retryAt) {
		return
	}
	held := s.collect(now, s.f.share())
	if s.members == 0 && len(s.request.Forgotten) == 0 {
		return
	}
	req := &s.request
	req.MaxWait, req.MinBytes, req.MaxBytes = s.f.opts.MaxWait, 1, s.f.bound(s.respMax)
	if held || s.members == 0 { // somebody waits for room: do not sit on an idle answer meanwhile
		req.MaxWait = min(req.MaxWait, 5*time.Millisecond)
	}
	s.asking, s.askedAt = true, now
	s.asks <- req // has room: nothing else is under way
}

// collect moves what is queued into the request and reports whether a partition
// is left out only because it has too much in flight.
func (s *session) collect(now time.Time, share int64) (held bool) {
	req := &s.request
	req.Changed, req.Forgotten = req.Changed[:0], req.Forgotten[:0]
	for _, t := range s.queue {
		t.queued = false
		if !s.mine(t) {
			continue
		}
		ready := t.ready(now, share)
		switch {
		case ready && (t.dirty || !t.member):
			if !t.member {
				t.member = true
				s.members++
			}
			t.dirty, t.askedGen = false, t.gen
			req.Changed = append(req.Changed, Want{
				Partition: t.partition, TopicID: t.topicID, Offset: t.next,
				LeaderEpoch: t.leader.Epoch, LastEpoch: t.lastEpoch, MaxBytes: t.want,
			})
		case !ready && t.member:
			t.member, t.dirty = false, true
			s.members--
			req.Forgotten = append(req.Forgotten, t.partition)
		}
		held = held || !ready && t.phase == fetching
	}
	clear(s.queue)
	s.queue = s.queue[:0]
	for _, p := range s.gone {
		if t := s.trackers[p]; t == nil || !t.member {
			req.Forgotten = append(req.Forgotten, p)
		}
	}
	s.gone = s.gone[:0]
	return held
}

// sleep is how long the loop may rest.
func (s *session) sleep(now time.Time) time.Duration {
	rest := s.f.opts.StallAfter / 4
	if len(s.timers) > 0 {
		rest = min(rest, s.timers[0].resumeAt.Sub(now))
	}
	if s.retryAt.After(now) {
		rest = min(rest, s.retryAt.Sub(now))
	}
	return max(rest, time.Millisecond)
}

// pause puts a partition into backoff.
func (s *session) pause(t *tracker, err error) {
	now := time.Now()
	t.board.setTrouble(err)
	t.settled = false
	t.wait(now, s.f.opts.BackoffMin, s.f.opts.BackoffMax)
	if now.Sub(t.failedAt) > s.f.opts.RetryBudget {
		s.fail(t, err)
		return
	}
	heap.Push(&s.timers, t)
	s.look(t)
}

func (s *session) wakeTimers(ctx context.Context, now time.Time) {
	for len(s.timers) > 0 && !now.Before(s.timers[0].resumeAt) {
		t := heap.Pop(&s.timers).(*tracker)
		if !s.mine(t) || t.phase != backoff {
			continue
		}
		if t.unsure {
			t.phase = learning
			s.learn(ctx, []*tracker{t})
			continue
		}
		t.phase, t.dirty = fetching, true
		s.look(t)
	}
}

// timers is a heap of partitions by the end of their backoff.
type timers []*tracker

func (q timers) Len() int           { return len(q) }
func (q timers) Less(i, j int) bool { return q[i].resumeAt.Before(q[j].resumeAt) }
func (q timers) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *timers) Push(x any)        { *q = append(*q, x.(*tracker)) }
func (q *timers) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return t
}
