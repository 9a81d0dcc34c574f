package fetcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

func (w *world) forbid(p cluster.Partition, forbidden bool) {
	w.dst.with(p, func(l *destinationLog) { l.forbidden = forbidden })
}

// moments are the states in which a partition is removed.
var moments = []struct {
	name   string
	before func(w *world, p cluster.Partition)
}{
	{"while copying", func(w *world, p cluster.Partition) { w.src.produce(p, 200, 5, 5) }},
	{"while idle", func(w *world, p cluster.Partition) {}},
	{"while the broker is down", func(w *world, p cluster.Partition) { w.src.setDown(1, true); pass(3 * time.Second) }},
	{"while a fetch hangs", func(w *world, p cluster.Partition) {
		w.src.update(func() { w.src.brokers[1].blackholed = true })
		pass(time.Minute)
	}},
	{"while an answer is late (C11.9)", func(w *world, p cluster.Partition) {
		w.src.update(func() { w.src.brokers[1].gate = make(chan struct{}) })
		w.src.produce(p, 5, 5, 5)
		pass(time.Minute)
	}},
	{"while appends are under way", func(w *world, p cluster.Partition) {
		w.dst.with(p, func(l *destinationLog) { l.silent = true })
		w.src.produce(p, 5, 5, 5)
		pass(time.Minute)
	}},
	{"while the destination is asked", func(w *world, p cluster.Partition) {
		w.dst.with(p, func(l *destinationLog) {
			l.faults, l.endErr, l.endsLeft = []fault{{err: cluster.ErrUnavailable}}, cluster.ErrUnavailable, 8
		})
		w.src.produce(p, 5, 5, 5)
		pass(time.Second)
	}},
	{"while it moves", func(w *world, p cluster.Partition) {
		w.src.produce(p, 5, 5, 5)
		w.src.elect(p, 2)
		synctest.Wait()
	}},
	{"while nobody leads it", func(w *world, p cluster.Partition) {
		w.src.elect(p, -1)
		pass(5 * time.Second)
	}},
}

func TestNothingIsAppendedAfterRemove(t *testing.T) {
	for _, c := range moments {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p, other := part(0), part(1)
				w.assign(1, p)
				w.assign(3, other)
				w.src.produce(p, 5, 5, 5)
				w.same(time.Second, p)
				c.before(w, p)
				w.remove(p)
				w.forbid(p, true)
				w.src.update(func() { // whatever was late comes now
					for _, b := range w.src.brokers {
						b.down, b.blackholed = false, false
						if b.gate != nil {
							close(b.gate)
							b.gate = nil
						}
						for s := range b.sessions {
							s.once.Do(func() { close(s.closed) }) // the connection that hung is reset
							delete(b.sessions, s)
						}
					}
				})
				w.src.elect(p, 1)
				w.src.produce(p, 5, 5, 5)
				pass(time.Minute)
				w.src.produce(other, 5, 5, 5)
				w.same(10*time.Second, other)
				w.forbid(p, false)
				w.dst.answer(p)
				w.reassign(p)
				w.same(10*time.Second, p)
				w.remove(part(99)) // one that nobody knows
				if f := w.f.count.Load(); f != 2 {
					t.Errorf("%d partitions counted, want 2", f)
				}
			})
		})
	}
}

// The router has taken a partition from a session that has not said so yet.
func TestRemoveWaitsForASessionThatIsToLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(newSource(t, 1, 2), newDestination(t), newNotes(), Options{})
		p := part(0)
		s := newSession(f, 1)
		tr := newTracker(Assignment{Stretch: Stretch{Partition: p}}, 1)
		for name, leave := range map[string]func(){
			"moved by a look":   func() { f.settle(t.Context(), f.where[p], cluster.Leader{Broker: 2}) },
			"assigned anew":     func() { f.assign(Assignment{Stretch: Stretch{Partition: p}}) },
			"refused by a look": func() { f.evict(f.where[p], errSilly) },
		} {
			f.where[p] = &place{t: tr, session: s}
			leave()
			acked := false
			f.remove([]cluster.Partition{p}, func() { acked = true })
			synctest.Wait()
			if acked {
				t.Errorf("%s: Remove returned while the session could still append", name)
			}
			for _, m := range s.box.take() {
				s.handle(t.Context(), m)
			}
			synctest.Wait()
			if !acked {
				t.Errorf("%s: Remove has not returned", name)
			}
		}
	})
}

func TestFailureOfAnEarlierAssignmentDoesNotEndTheNext(t *testing.T) {
	f := New(newSource(t, 1), newDestination(t), newNotes(), Options{})
	a := Assignment{Stretch: Stretch{Partition: part(0)}}
	f.assign(a)
	old := f.where[part(0)].t
	f.assign(a)
	f.obey(t.Context(), command{failed: old})
	if f.where[part(0)] == nil {
		t.Error("the partition is forgotten")
	}
}

func TestAssignedAnewWithoutRemove_I4(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.dst.with(p, func(l *destinationLog) { l.delay = 10 * time.Millisecond })
		for i := range 30 {
			w.src.produce(p, 3, 5, 5)
			pass(3 * time.Millisecond)
			if i%4 == 0 {
				w.src.elect(p, int32(i%3+1))
			}
			w.reassign(p)
		}
		w.same(20*time.Second, p)
		if n := w.f.count.Load(); n != 1 {
			t.Errorf("%d partitions counted, want 1", n)
		}
	})
}

func TestLateAnswerAfterTheDestinationWasCut_C11_9(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 4, 5, 5)
		w.same(time.Second, p)
		gate := make(chan struct{})
		w.src.update(func() { w.src.brokers[1].gate = gate })
		w.src.produce(p, 1, 5, 5) // answered from 20, late
		pass(time.Second)
		w.remove(p)
		w.dst.with(p, func(l *destinationLog) {
			l.batches, l.end = l.batches[:2], 10
			delete(l.landed, 10)
			delete(l.landed, 15)
		})
		w.reassign(p)
		w.src.mu.Lock()
		w.src.brokers[1].gate = nil
		w.src.mu.Unlock()
		close(gate)
		w.same(5*time.Second, p)
		w.dst.with(p, func(l *destinationLog) {
			if l.misplaced != 0 {
				t.Errorf("%d appends from the late answer", l.misplaced)
			}
		})
	})
}

func TestRemoveEndsWithItsContext(t *testing.T) {
	f := New(newSource(t, 1), newDestination(t), newNotes(), Options{}) // does not run
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Remove(ctx, part(0)); err != context.Canceled {
		t.Errorf("Remove: %v", err)
	}
}

func TestRunEndsAtEveryMoment_C11_13(t *testing.T) {
	for at := range 120 {
		inWorld(t, Options{}, func(w *world) {
			ps := []cluster.Partition{part(0), part(1), part(2)}
			w.dst.with(ps[0], func(l *destinationLog) {
				l.delay = 20 * time.Millisecond
				l.faults = []fault{{}, {err: cluster.ErrTimeout, lands: true}}
			})
			w.dst.with(ps[1], func(l *destinationLog) { l.silent = true })
			w.notes.hold = at%3 == 0
			w.src.brokers[1].rtt = 5 * time.Millisecond
			w.assign(1, ps...)
			produced := make(chan struct{})
			go func() {
				defer close(produced)
				for i := range 10 {
					for _, p := range ps {
						w.src.produce(p, 2, 5, 50)
					}
					pass(10 * time.Millisecond)
					w.src.elect(ps[2], int32(i%3+1))
					if i == 5 {
						w.src.setDown(2, true)
					}
				}
			}()
			pass(time.Duration(at) * 1100 * time.Microsecond)
			removed := make(chan error, 1)
			go func() { removed <- w.f.Remove(context.Background(), ps[0]) }()
			w.stop()
			if err := <-removed; err != nil {
				t.Errorf("Remove: %v", err)
			}
			<-produced
			for _, p := range ps {
				if err := w.notes.failure(p); err != nil {
					t.Errorf("stopping at %d: %v failed: %v", at, p, err)
				}
				w.prefix(p)
			}
			if err := w.f.Remove(context.Background(), ps[0]); err != nil {
				t.Errorf("Remove after Run: %v", err)
			}
		})
	}
}
