package fetcher

import (
	"container/heap"
	"time"
)

// pause puts a partition into backoff.
func (s *session) pause(t *tracker, err error) {
	now := time.Now()
	s.trouble(t, err)
	t.wait(now, s.f.opts.BackoffMin, s.f.opts.BackoffMax)
	if now.Sub(t.failedAt) > s.f.opts.RetryBudget {
		s.fail(t, err)
		return
	}
	heap.Push(&s.timers, alarm{t.resumeAt, t})
	s.look(t)
}

func (s *session) wakeTimers(now time.Time) {
	for len(s.timers) > 0 && !now.Before(s.timers[0].at) {
		a := heap.Pop(&s.timers).(alarm)
		t := a.t
		switch {
		case !s.mine(t) || t.phase != backoff || !t.resumeAt.Equal(a.at):
			// It left, or was set back meanwhile and has another alarm.
		case t.unsure:
			t.phase = learning
			s.unsure = append(s.unsure, t)
		default:
			t.phase, t.dirty = fetching, true
			s.look(t)
		}
	}
}

// recovered clears what an answer has shown to be over: of every partition that
// took part in the fetch just answered and was not refused. Brokers leave out of
// an answer what has nothing new. A destination's refusal is over when something
// has landed, or when there is nothing more to append.
func (s *session) recovered() {
	kept := s.troubled[:0]
	for _, t := range s.troubled {
		idle := t.runs == 0 && t.held == nil
		switch {
		case !s.mine(t) || t.board.Trouble() == nil:
			t.troubled = false
		case t.member && t.askedGen == t.gen && t.phase == fetching && (idle || !t.refused):
			t.troubled, t.refused, t.attempts = false, false, 0
			t.board.setTrouble(nil)
		default:
			kept = append(kept, t)
		}
	}
	clear(s.troubled[len(kept):])
	s.troubled = kept
}

// An alarm is the end of a partition's backoff.
type alarm struct {
	at time.Time
	t  *tracker
}

// timers is a heap of alarms.
type timers []alarm

func (q timers) Len() int           { return len(q) }
func (q timers) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q timers) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *timers) Push(x any)        { *q = append(*q, x.(alarm)) }
func (q *timers) Pop() any {
	old := *q
	a := old[len(old)-1]
	old[len(old)-1] = alarm{}
	*q = old[:len(old)-1]
	return a
}
