package fetcher

import (
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
	unsure   []*tracker // the destination is to be asked about
	claims   []claim    // the source is to be asked about
	compares bool       // the broker compares epochs itself
	troubled []*tracker // show an error; each at most once
	suspects []*tracker // may be at a trailing hole; each at most once
	holds    []*tracker // the source is to be asked what holds them
	seen     visibility // of the part of an answer that is being taken
	members  int        // partitions the broker's session knows
	gone     []cluster.Partition

	waiting      int       // members of the fetch that wait for room or for an epoch
	waitingSince time.Time // when the last of them began to

	asking    bool // a request is under way, and owns request
	opened    bool // the asker may hold a connection
	asks      chan *FetchRequest
	retryAt   time.Time // no request before
	failures  int       // of the broker, in a row
	lostSince time.Time // when they began
	respMax   int32     // bytes of one answer, grows with the round trip
	askedAt   time.Time
	answered  time.Time // when the last answer came
	request   FetchRequest
	checked   time.Time // last look for stalled partitions
}

// A message is one of these.
type message struct {
	add    *tracker
	remove []cluster.Partition
	ack    func() // after remove
	evict  *evicted
	run    *run // answered by the destination
	answer *answer
	ends   *learnt
	epoch  *acked
	trim   *trimmed
	reason *judged
	proof  *proven
	probe  *probed
	holder *holder
	known  *recognized

	converted *converted
}

// evicted is a partition that the router has to give up.
type evicted struct {
	t   *tracker
	err error
}

// acked says that an epoch of a tracker was stored, or not. Generation and epoch
// tell whether the held run is still that one.
type acked struct {
	t     *tracker
	gen   uint32
	epoch int32
	err   error
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
		asks:    make(chan *FetchRequest, 2), // a request, and before it the word to hang up
		respMax: f.opts.ResponseBytes, checked: time.Now(),
	}
}

// run is the session's loop.
func (s *session) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer s.end()
	for {
		for _, m := range s.box.take() {
			if ctx.Err() != nil { // what failed now failed because we end
				s.abandon(m)
				continue
			}
			s.handle(ctx, m)
		}
		now := time.Now()
		s.wakeTimers(now)
		s.learn(ctx)
		s.prove(ctx)
		s.recognize(ctx, now)
		s.lookForStalls(ctx, now)
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
			t.held = nil // a removal that is still in the box must not drop it again
		}
	}
	for _, m := range s.box.close() {
		s.abandon(m)
	}
}

// abandon takes a message that needs no decision any more.
func (s *session) abandon(m message) {
	switch {
	case m.run != nil:
		m.run.t.board.count(m.run)
		m.run.recycle()
	case m.answer != nil && m.answer.resp != nil:
		m.answer.resp.Release()
	case m.converted != nil:
		m.converted.from.done()
	case m.remove != nil || m.ack != nil:
		s.letGo(m)
	}
}

func (s *session) handle(ctx context.Context, m message) {
	switch {
	case m.add != nil:
		s.adopt(m.add)
	case m.remove != nil || m.ack != nil:
		s.letGo(m)
	case m.evict != nil:
		if s.mine(m.evict.t) {
			s.fail(m.evict.t, m.evict.err)
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
	case m.proof != nil:
		s.onProven(m.proof)
	case m.converted != nil:
		s.onConverted(ctx, m.converted)
	case m.probe != nil:
		s.onProbed(m.probe)
	case m.holder != nil:
		s.onHolder(m.holder)
	case m.known != nil:
		s.onRecognized(m.known)
	}
}

// adopt takes a partition over. One that was elsewhere before asks the
// destination first.
func (s *session) adopt(t *tracker) {
	s.trackers[t.partition] = t
	t.movedAt = time.Now()
	if t.board.Trouble() != nil {
		s.trouble(t, t.board.Trouble())
	}
	if t.phase == learning {
		s.unsure = append(s.unsure, t)
		return
	}
	s.look(t)
}

func (s *session) letGo(m message) {
	for _, p := range m.remove {
		if t := s.trackers[p]; t != nil {
			s.leave(t)
		}
	}
	if m.ack != nil {
		m.ack()
	}
}

// leave takes a partition out of the session; nothing of it is appended any more.
func (s *session) leave(t *tracker) {
	delete(s.trackers, t.partition)
	t.gen++
	t.letUp()
	s.dropHeld(t)
	s.setWaiting(t, false)
	if t.member {
		t.member = false
		s.members--
		s.gone = append(s.gone, t.partition)
	}
}

func (s *session) dropHeld(t *tracker) {
	if t.held != nil {
		t.held.drop()
		t.held = nil
	}
}

// fail takes a partition out and reports it.
func (s *session) fail(t *tracker, err error) {
	s.leave(t)
	t.board.setTrouble(err)
	s.f.failed(t, err)
}

// trouble shows why a partition does not go on just now.
func (s *session) trouble(t *tracker, err error) {
	t.board.setTrouble(err)
	if !t.troubled {
		t.troubled = true
		s.troubled = append(s.troubled, t)
	}
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

// sleep is how long the loop may rest.
func (s *session) sleep(now time.Time) time.Duration {
	rest := s.f.opts.StallAfter / 4
	if len(s.timers) > 0 {
		rest = min(rest, s.timers[0].at.Sub(now))
	}
	if s.retryAt.After(now) {
		rest = min(rest, s.retryAt.Sub(now))
	}
	return max(rest, time.Millisecond)
}
