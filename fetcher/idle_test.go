package fetcher

import (
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

func TestStallIsTold_C11_5(t *testing.T) {
	for _, c := range []struct {
		name string
		stop func(w *world, p cluster.Partition)
		want int
	}{
		{"the destination does not answer", func(w *world, p cluster.Partition) {
			w.dst.with(p, func(l *destinationLog) { l.silent = true })
			w.src.produce(p, 5, 5, 5)
		}, 1},
		{"the source does not answer", func(w *world, p cluster.Partition) {
			w.src.update(func() { w.src.brokers[1].blackholed = true })
			w.src.produce(p, 5, 5, 5)
		}, 1},
		{"the epoch is not stored", func(w *world, p cluster.Partition) {
			w.notes.note(func() { w.notes.hold = true })
			w.src.elect(p, 1)
			w.src.produce(p, 5, 5, 5)
		}, 1},
		{"nothing to do", func(w *world, p cluster.Partition) {}, 0},
		{"the error is known", func(w *world, p cluster.Partition) {
			w.src.setDown(1, true)
			w.src.produce(p, 5, 5, 5)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{RetryBudget: time.Hour}, func(w *world) {
				p := part(0)
				w.assign(1, p)
				w.src.produce(p, 5, 5, 5)
				w.same(time.Second, p)
				pass(time.Minute) // idle
				c.stop(w, p)
				pass(25 * time.Second)
				told := func() (n int) {
					w.notes.note(func() { n = w.notes.stalled[p] })
					return n
				}
				if told() != 0 {
					t.Error("told before its time")
				}
				pass(35 * time.Second)
				if told() != c.want {
					t.Errorf("told %d times, want %d", told(), c.want)
				}
				pass(5 * time.Minute)
				if told() != c.want {
					t.Errorf("told %d times after a while, want %d", told(), c.want)
				}
			})
		})
	}
}

func TestStallIsToldAgainAfterItMoved(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		for i := range 2 {
			w.dst.with(p, func(l *destinationLog) { l.silent = true })
			w.src.produce(p, 5, 5, 5)
			pass(time.Minute)
			w.notes.note(func() {
				if w.notes.stalled[p] != i+1 {
					t.Errorf("told %d times, want %d", w.notes.stalled[p], i+1)
				}
			})
			w.dst.answer(p)
			w.same(time.Second, p)
		}
	})
}

// trimmedTo is the destination's log start.
func (w *world) trimmedTo(p cluster.Partition) (start int64) {
	w.dst.with(p, func(l *destinationLog) { start = l.start })
	return start
}

func TestLogStartFollowsTheSource_C1_3(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 400, 10, 5)
		w.same(time.Second, p)
		w.src.update(func() { w.src.logs[p].start = 1000 })
		w.within(time.Second, "trimmed while idle", func() bool { return w.trimmedTo(p) == 1000 })
		pass(time.Minute)
		if n := len(w.dst.trims); n != 1 || w.notes.trimmed[p] != 1000 {
			t.Errorf("%d trims, told %d; want 1 and 1000", n, w.notes.trimmed[p])
		}
	})
}

func TestTrimWaitsForWhatIsUnderWay(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 1, 10, 5)
		w.same(time.Second, p)
		w.dst.with(p, func(l *destinationLog) { l.delay = 100 * time.Millisecond })
		w.src.produce(p, 1, 10, 5)
		pass(10 * time.Millisecond)
		w.src.update(func() { w.src.logs[p].start = 15 })
		w.within(time.Second, "trimmed when it has landed", func() bool { return w.trimmedTo(p) == 15 })
		w.dst.with(p, func(*destinationLog) {
			if got := w.dst.trims[0].Offset; got != 15 {
				t.Errorf("first trim to %d, want 15", got)
			}
		})
	})
}

func TestTrimThatFailsIsTriedAgain(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 1, 10, 5)
		w.same(time.Second, p)
		w.dst.with(p, func(*destinationLog) { w.dst.trimErr = cluster.ErrUnavailable })
		w.src.update(func() { w.src.logs[p].start = 5 })
		pass(time.Second)
		w.dst.with(p, func(*destinationLog) { w.dst.trimErr = nil })
		w.within(time.Minute, "trimmed", func() bool { return w.trimmedTo(p) == 5 })
	})
}

// TestTrimThatIsFenced: another worker has taken the log over since, and an idle
// partition would not notice otherwise. It is given up: whose it is, is on record.
func TestTrimThatIsFenced(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 4, 10, 5)
		w.same(time.Second, p)
		w.dst.with(p, func(*destinationLog) { w.dst.trimErr = cluster.ErrFenced })
		w.src.update(func() { w.src.logs[p].start = 20 })
		w.fails(p, cluster.ErrFenced)
	})
}

func TestSessionWithoutPartitionsHangsUp_C13_5(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 1, 10, 5)
		w.same(time.Second, p)
		open := func() int {
			w.src.mu.Lock()
			defer w.src.mu.Unlock()
			return len(w.src.brokers[1].sessions)
		}
		if open() != 1 {
			t.Fatalf("%d sessions, want 1", open())
		}
		w.src.elect(p, 2)
		w.src.produce(p, 1, 10, 5)
		w.same(time.Second, p)
		w.within(time.Second, "the session is closed", func() bool { return open() == 0 })
		n := w.fetches(1)
		pass(time.Minute)
		if w.fetches(1) != n {
			t.Error("a broker without partitions is still asked")
		}
		w.src.elect(p, 1)
		w.src.produce(p, 1, 10, 5)
		w.same(time.Second, p)
	})
}

func TestIdleSourceIsAskedAtItsPace(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.assign(1, part(0), part(1))
		pass(time.Second)
		n := w.fetches(1)
		pass(10 * time.Second)
		if n = w.fetches(1) - n; n > 21 {
			t.Errorf("%d requests in 10 s, want 20", n)
		}
	})
}
