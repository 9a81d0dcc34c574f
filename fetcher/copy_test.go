package fetcher

import (
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

func TestCopiesInOrder_I1_I2(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		ps := []cluster.Partition{part(0), part(1), part(2)}
		for i, p := range ps {
			w.src.create(p, int32(i+1))
			w.src.produce(p, 50, 10, 100)
		}
		w.assign(0, ps...)
		w.same(time.Second, ps...)
		for _, p := range ps {
			w.src.produce(p, 7, 3, 10)
		}
		w.same(time.Second, ps...)
		for _, p := range ps {
			w.dst.with(p, func(l *destinationLog) {
				if l.misplaced != 0 {
					t.Errorf("%v: %d appends at a wrong offset", p, l.misplaced)
				}
			})
			if got, want := w.boards[p].LogEnd.Load(), w.src.end(p); got != want {
				t.Errorf("%v: LogEnd %d, want %d", p, got, want)
			}
			if got, want := w.boards[p].Records.Load(), w.src.end(p); got != want {
				t.Errorf("%v: Records %d, want %d", p, got, want)
			}
			if w.notes.landed[p] != 1 {
				t.Errorf("%v: Landed told %d times, want 1", p, w.notes.landed[p])
			}
		}
	})
}

func TestProgressOfEachPartitionIsItsOwn_C12_1(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		ps := []cluster.Partition{part(0), part(1), part(2)}
		w.assign(1, ps...)
		for range 10 {
			w.src.produce(ps[0], 1, 1, 10)
			w.src.produce(ps[1], 1, 10, 10)
			w.src.produce(ps[2], 10, 10, 10)
			pass(time.Second)
		}
		w.same(time.Second, ps...)
		for i, want := range []int64{10, 100, 1000} {
			if got := w.boards[ps[i]].Records.Load(); got != want {
				t.Errorf("%v: %d records, want %d", ps[i], got, want)
			}
		}
	})
}

func TestRestartGoesOnAtTheDestinationsEnd_C11_1(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.dst.with(p, func(l *destinationLog) { l.delay = 3 * time.Millisecond })
		for range 20 {
			w.src.produce(p, 20, 5, 10)
			pass(7 * time.Millisecond)
			w.remove(p)
			w.reassign(p)
		}
		w.same(10*time.Second, p)
	})
}

func TestProgressOfNobody(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.src.create(part(0), 1)
		w.src.produce(part(0), 1, 1, 1)
		w.f.Assign(Assignment{Stretch: Stretch{Partition: part(0)}, LastEpoch: cluster.NoEpoch})
		w.same(time.Second, part(0))
	})
}
