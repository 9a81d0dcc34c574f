package fetcher

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

func TestAppendThatLandsAndTimesOutIsNotRepeated_C3_9_I4(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.produce(p, 1, 10, 5)
		w.dst.with(p, func(l *destinationLog) { l.faults = []fault{{err: cluster.ErrTimeout, lands: true}} })
		w.assign(1, p)
		before := w.dst.asked()
		w.same(time.Second, p)
		w.within(5*time.Second, "no trouble is left on a partition that has caught up", func() bool { return w.boards[p].Trouble() == nil })
		if w.dst.asked() == before {
			t.Error("the log end was not read again")
		}
		if got := w.boards[p].LogEnd.Load(); got != 10 {
			t.Errorf("LogEnd %d, want 10", got)
		}
		w.src.produce(p, 1, 10, 5)
		w.same(time.Second, p)
		w.dst.with(p, func(l *destinationLog) {
			if l.misplaced != 0 {
				t.Errorf("%d appends were repeated", l.misplaced)
			}
		})
	})
}

func TestOldErrorDoesNotShortenTheNextRetryBudget(t *testing.T) {
	inWorld(t, Options{RetryBudget: time.Minute}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.assign(1, p)
		for range 3 {
			w.dst.with(p, func(l *destinationLog) { l.faults = []fault{{err: cluster.ErrTimeout, lands: true}} })
			w.src.produce(p, 1, 10, 5)
			w.same(time.Second, p)
			pass(2 * time.Minute)
		}
		if err := w.notes.failure(p); err != nil {
			t.Errorf("failed: %v", err)
		}
	})
}

func TestFirstOfSeveralAppendsFails_C11_11_I4(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.dst.with(p, func(l *destinationLog) {
			l.delay = 20 * time.Millisecond
			l.faults = []fault{{}, {err: cluster.ErrUnavailable}}
		})
		w.assign(1, p)
		for range 5 {
			w.src.produce(p, 1, 10, 5)
			pass(time.Millisecond)
		}
		w.same(10*time.Second, p)
		w.dst.with(p, func(l *destinationLog) {
			if l.misplaced != 0 {
				t.Errorf("%d appends at a wrong offset", l.misplaced)
			}
			if l.handed <= len(l.batches) {
				t.Error("the case did not happen: nothing was handed over twice")
			}
		})
		w.within(time.Second, "no trouble", func() bool { return w.boards[p].Trouble() == nil })
	})
}

func TestErrorsOfTheDestination(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		fails bool
	}{
		{"unavailable", cluster.ErrUnavailable, false},
		{"unreachable", cluster.ErrUnreachable, false},
		{"outcome not known", cluster.ErrUnknownOutcome, false},
		{"out of order", cluster.ErrOutOfOrder, false},
		{"fenced (C11.3)", cluster.ErrFenced, true},
		{"foreign write", cluster.ErrForeignWrite, true},
		{"displaced", cluster.ErrDisplaced, true},
		{"too large (C5.9)", cluster.ErrTooLarge, true},
		{"forbidden", cluster.ErrAuthorization, true},
		{"refused", cluster.ErrRefused, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p := part(0)
				w.src.create(p, 1)
				w.src.produce(p, 1, 10, 5)
				w.dst.with(p, func(l *destinationLog) { l.faults = []fault{{err: c.err}, {err: c.err}, {err: c.err}} })
				w.assign(1, p)
				if !c.fails {
					w.within(time.Second, "trouble shows", func() bool { return errors.Is(w.boards[p].Trouble(), c.err) })
					w.same(10*time.Second, p)
					return
				}
				w.fails(p, c.err)
				pass(time.Minute)
				w.dst.with(p, func(l *destinationLog) {
					if l.handed != 1 || l.end != 0 {
						t.Errorf("%d batches handed over, end %d; want 1 and 0", l.handed, l.end)
					}
				})
			})
		})
	}
}

func TestEndsThatFailAreAskedAgain_I3(t *testing.T) {
	for _, whole := range []bool{true, false} {
		inWorld(t, Options{}, func(w *world) {
			p := part(0)
			w.src.create(p, 1)
			w.assign(1, p)
			w.dst.with(p, func(l *destinationLog) {
				l.faults = []fault{{err: cluster.ErrUnknownOutcome, lands: true}}
				if whole {
					w.dst.endsErr = cluster.ErrUnreachable
				} else {
					l.endErr, l.endsLeft = cluster.ErrUnavailable, 5
				}
			})
			w.src.produce(p, 1, 10, 5)
			pass(time.Second)
			if w.boards[p].Trouble() == nil {
				t.Error("no trouble is shown")
			}
			w.dst.with(p, func(l *destinationLog) {
				w.dst.endsErr = nil
				if l.handed != 1 {
					t.Errorf("%d batches handed over while the end was not known, want 1", l.handed)
				}
			})
			w.src.produce(p, 1, 10, 5)
			w.same(time.Minute, p)
		})
	}
}

func TestStoppedLogIsFenced_I6(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.assign(1, p)
		w.dst.with(p, func(l *destinationLog) {
			l.faults = []fault{{err: cluster.ErrOutOfOrder}}
			l.stopped = true
		})
		w.src.produce(p, 1, 10, 5)
		w.fails(p, cluster.ErrFenced)
	})
}

func TestRetryBudgetOfAppends(t *testing.T) {
	inWorld(t, Options{RetryBudget: time.Minute}, func(w *world) {
		p, other := part(0), part(1)
		w.src.create(p, 1)
		w.src.produce(p, 1, 10, 5)
		w.dst.with(p, func(l *destinationLog) {
			for range 1000 {
				l.faults = append(l.faults, fault{err: cluster.ErrUnavailable})
			}
		})
		w.assign(1, p, other)
		began := time.Now()
		w.fails(p, cluster.ErrUnavailable)
		if took := time.Since(began); took < time.Minute || took > 70*time.Second {
			t.Errorf("failed after %v, want a minute", took)
		}
		w.dst.with(p, func(l *destinationLog) {
			if l.handed > 30 {
				t.Errorf("%d tries in a minute", l.handed)
			}
		})
		w.src.produce(other, 1, 10, 5)
		w.same(time.Second, other)
	})
}

// An error that is still going on is not hidden by what was on its way before it.
func TestLateSuccessDoesNotClearTrouble(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.dst.with(p, func(l *destinationLog) { l.delay = 300 * time.Millisecond })
		w.assign(1, p)
		w.src.produce(p, 1, 10, 5)
		pass(10 * time.Millisecond)
		w.src.setDown(1, true)
		w.within(5*time.Second, "landed", func() bool { return w.boards[p].LogEnd.Load() == 10 })
		if !errors.Is(w.boards[p].Trouble(), cluster.ErrUnreachable) {
			t.Errorf("trouble is %v, want unreachable", w.boards[p].Trouble())
		}
		w.src.setDown(1, false)
		w.within(10*time.Second, "no trouble", func() bool { return w.boards[p].Trouble() == nil })
	})
}

// An answer asked for before the position was set back is for another position.
func TestLateAnswerAfterAFailedAppend_C11_9(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 1, 10, 5)
		w.same(time.Second, p)
		w.dst.with(p, func(l *destinationLog) {
			l.delay, l.faults = 50*time.Millisecond, []fault{{err: cluster.ErrUnavailable}}
		})
		w.src.produce(p, 1, 10, 5) // fails
		pass(10 * time.Millisecond)
		gate := make(chan struct{})
		w.src.update(func() { w.src.brokers[1].gate = gate })
		w.src.produce(p, 1, 10, 5) // its answer comes when the position is 10 again
		pass(time.Second)
		w.src.mu.Lock()
		w.src.brokers[1].gate = nil
		w.src.mu.Unlock()
		close(gate)
		w.same(5*time.Second, p)
		if err := w.notes.failure(p); err != nil {
			t.Errorf("failed: %v", err)
		}
	})
}
