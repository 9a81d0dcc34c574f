package fetcher

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

func (w *world) fetches(broker int32) int {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	return w.src.brokers[broker].fetches
}

func (w *world) opened(broker int32) int {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	return w.src.brokers[broker].opened
}

func (w *world) looked() int {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	return w.src.looks
}

// steady has a partition produced to all the time, and checks that it is copied
// all the time (I10).
func (w *world) steady(p cluster.Partition, during func()) {
	w.t.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				w.src.produce(p, 1, 1, 5)
				if lag := w.src.end(p) - w.dst.end(p); lag > 60 { // a long poll's worth
					w.t.Errorf("%v: %d records behind", p, lag)
					return
				}
			}
		}
	}()
	during()
	close(stop)
	<-stopped
	w.same(time.Second, p)
}

func TestLeaderMoves_C11_5_I10(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault *Fetched
	}{
		{"named by the answer", nil},
		{"looked up", &Fetched{Err: cluster.ErrNotLeader, Leader: cluster.Leader{Broker: -1}, Diverging: cluster.EpochEnd{EndOffset: -1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p, other := part(0), part(1)
				w.assign(1, p, other)
				w.src.produce(p, 5, 5, 5)
				w.same(time.Second, p)
				looks := w.looked()
				w.steady(other, func() {
					for i := range 6 {
						if c.fault != nil {
							w.src.mu.Lock()
							w.src.logs[p].faults = []Fetched{*c.fault}
							w.src.mu.Unlock()
						}
						w.src.elect(p, int32(i%3+1))
						w.src.produce(p, 5, 5, 5)
						w.same(time.Second, p)
					}
				})
				if n := w.looked() - looks; c.fault == nil && n != 1 { // the first goes to the same broker
					t.Errorf("%d looks for leaders, want 1", n)
				}
				if err := w.notes.failure(p); err != nil {
					t.Errorf("failed: %v", err)
				}
				if n := w.notes.stalled[p] + w.notes.stalled[other]; n != 0 {
					t.Errorf("%d stalls told", n)
				}
			})
		})
	}
}

func TestMoveWhileAppendsAreUnderWay_I4(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.dst.with(p, func(l *destinationLog) { l.delay = 30 * time.Millisecond })
		for i := range 20 {
			w.src.produce(p, 2, 5, 5)
			pass(11 * time.Millisecond)
			w.src.elect(p, int32(i%3+1))
		}
		w.same(20*time.Second, p)
	})
}

func TestHintsThatPointAtEachOther(t *testing.T) {
	inWorld(t, Options{RetryBudget: time.Minute}, func(w *world) {
		p, other := part(0), part(1)
		w.assign(1, p, other)
		w.src.update(func() { w.src.logs[p].hint = &cluster.Leader{Broker: 2} })
		w.src.produce(p, 5, 5, 5)
		w.steady(other, func() {
			one, two, looks, ends := w.fetches(1), w.fetches(2), w.looked(), w.dst.asked()
			pass(20 * time.Second)
			// other's records come in 100 answers a second
			if n := w.fetches(1) - one; n > 20*100+100 {
				t.Errorf("%d requests to broker 1 in 20 s", n)
			}
			if n := w.fetches(2) - two; n > 60 {
				t.Errorf("%d requests to broker 2 in 20 s", n)
			}
			if n := w.looked() - looks; n > 30 {
				t.Errorf("%d looks for leaders in 20 s", n)
			}
			if n := w.dst.asked() - ends; n > 60 {
				t.Errorf("%d looks at the destination in 20 s", n)
			}
			if !errors.Is(w.boards[p].Trouble(), cluster.ErrNotLeader) {
				t.Errorf("trouble is %v", w.boards[p].Trouble())
			}
			w.fails(p, cluster.ErrNotLeader)
		})
	})
}

// Partitions that look for their leader again and again do not keep a new one
// from being found.
func TestPartitionsWithoutLeaderDoNotHoldUpOthers_I10(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		var lost []cluster.Partition
		for i := range 50 {
			p := part(i)
			lost = append(lost, p)
			w.src.create(p, 1)
			w.src.update(func() { w.src.logs[p].hint = &cluster.Leader{Broker: -1} })
			w.assign(1, p)
			pass(7 * time.Millisecond)
		}
		pass(10 * time.Second)
		p := part(100)
		w.src.create(p, 2)
		w.src.produce(p, 5, 5, 5)
		w.assign(2, p)
		w.same(300*time.Millisecond, p)
		w.src.update(func() {
			for _, p := range lost {
				w.src.logs[p].hint = nil
			}
		})
		for _, p := range lost {
			w.src.produce(p, 1, 1, 1)
		}
		w.same(3*time.Second, lost...)
	})
}

func TestMetadataThatLagsBehind(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 5, 5, 5)
		w.same(time.Second, p)
		w.src.update(func() {
			w.src.staleLeader[p] = cluster.Leader{Broker: 1, Epoch: 0}
			w.src.logs[p].leader = cluster.Leader{Broker: 1, Epoch: 1} // UNKNOWN or FENCED epoch, no hint
		})
		w.src.produce(p, 5, 5, 5)
		looks := w.looked()
		pass(10 * time.Second)
		if n := w.looked() - looks; n > 20 || n < 8 {
			t.Errorf("%d looks for leaders in 10 s", n)
		}
		w.src.update(func() { delete(w.src.staleLeader, p) })
		w.same(3*time.Second, p)
	})
}

func TestBrokerLostAndBack_I10(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		stays, moves, other := part(0), part(1), part(2)
		w.assign(1, stays, moves)
		w.assign(2, other)
		w.src.produce(stays, 5, 5, 5)
		w.src.produce(moves, 5, 5, 5)
		w.same(time.Second, stays, moves)
		w.steady(other, func() {
			w.src.setDown(1, true)
			w.src.elect(moves, 2)
			w.src.produce(moves, 5, 5, 5)
			w.src.produce(stays, 5, 5, 5)
			w.same(time.Second, moves)
			opened := w.opened(1)
			pass(time.Minute)
			if n := w.opened(1) - opened; n > 30 {
				t.Errorf("%d connections in a minute to a broker that is down", n)
			}
			if !errors.Is(w.boards[stays].Trouble(), cluster.ErrUnreachable) {
				t.Errorf("trouble is %v, want unreachable", w.boards[stays].Trouble())
			}
			if err := w.notes.failure(stays); err != nil {
				t.Fatalf("failed: %v", err)
			}
			if w.notes.stalled[stays] != 0 {
				t.Error("told as stalled though the error is known")
			}
			w.src.setDown(1, false)
			w.same(6*time.Second, stays)
			w.within(time.Second, "no trouble", func() bool { return w.boards[stays].Trouble() == nil })
		})
	})
}

func TestBrokerThatStaysAwayFailsItsPartitions(t *testing.T) {
	inWorld(t, Options{RetryBudget: time.Minute}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.setDown(1, true)
		began := time.Now()
		w.fails(p, cluster.ErrUnreachable)
		if took := time.Since(began); took < time.Minute || took > 70*time.Second {
			t.Errorf("after %v, want a minute", took)
		}
		w.src.setDown(1, false)
		w.reassign(p)
		w.src.produce(p, 5, 5, 5)
		w.same(10*time.Second, p)
	})
}

func TestNoLeaderToBeFound(t *testing.T) {
	for _, c := range []struct {
		name        string
		spoil, mend func(w *world, l *sourceLog)
		want        error
	}{
		{"cluster away", func(w *world, l *sourceLog) { w.src.leadersErr = cluster.ErrUnreachable }, func(w *world, l *sourceLog) { w.src.leadersErr = nil }, cluster.ErrUnreachable},
		{"partition's error", func(w *world, l *sourceLog) { l.leaderErr = cluster.ErrUnavailable }, func(w *world, l *sourceLog) { l.leaderErr = nil }, cluster.ErrUnavailable},
		{"nobody leads", func(w *world, l *sourceLog) { l.leader.Broker = -1 }, func(w *world, l *sourceLog) { l.leader.Broker = 2 }, cluster.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{RetryBudget: time.Minute}, func(w *world) {
				p := part(0)
				w.src.create(p, 1)
				w.src.produce(p, 1, 1, 1)
				w.src.update(func() { c.spoil(w, w.src.logs[p]) })
				w.assign(1, p)
				pass(30 * time.Second)
				if !errors.Is(w.boards[p].Trouble(), c.want) {
					t.Errorf("trouble is %v, want %v", w.boards[p].Trouble(), c.want)
				}
				w.src.update(func() { c.mend(w, w.src.logs[p]) })
				w.same(6*time.Second, p)
				w.remove(p)
				w.src.update(func() { c.spoil(w, w.src.logs[p]) })
				looks := w.looked()
				w.reassign(p)
				w.fails(p, c.want)
				if n := w.looked() - looks; n > 30 {
					t.Errorf("%d looks in a minute", n)
				}
			})
		})
	}
}

func TestTopicReplacedAtALook_C2_1(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world, p cluster.Partition)
		want   error
	}{
		{"another id", func(w *world, p cluster.Partition) { w.src.logs[p].id[5] = 9 }, cluster.ErrTopicReplaced},
		{"forbidden", func(w *world, p cluster.Partition) { w.src.logs[p].leaderErr = cluster.ErrAuthorization }, cluster.ErrAuthorization},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p := part(0)
				w.assign(1, p)
				w.src.produce(p, 1, 1, 1)
				w.same(time.Second, p)
				w.src.update(func() { c.change(w, p); w.src.brokers[1].down = true })
				w.fails(p, c.want)
				w.src.setDown(1, false)
				w.src.produce(p, 1, 1, 1)
				pass(10 * time.Second)
				if w.dst.end(p) != 1 {
					t.Error("appended after it failed")
				}
			})
		})
	}
}
