package fetcher

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/clustermirror/mirror/cluster"
)

// ackOf waits until the sink was told of n epochs, and gives the last one's ack.
func (w *world) ackOf(n int) func(error) {
	w.t.Helper()
	w.within(10*time.Second, "the epoch is told", func() bool { return len(w.notes.told()) >= n })
	return w.notes.told()[n-1].ack
}

func heldWorld(t *testing.T, test func(w *world, p cluster.Partition)) {
	inWorld(t, Options{}, func(w *world) {
		w.notes.hold = true
		p := part(0)
		w.src.create(p, 1)
		w.src.produce(p, 2, 5, 5)
		w.src.elect(p, 1)
		w.src.produce(p, 2, 5, 5)
		w.src.elect(p, 1)
		w.src.produce(p, 2, 5, 5)
		w.assign(1, p)
		test(w, p)
	})
}

func TestNothingOfAnEpochIsAppendedBeforeItIsStored_I7(t *testing.T) {
	heldWorld(t, func(w *world, p cluster.Partition) {
		for i, end := range []int64{0, 10, 20} {
			ack := w.ackOf(i + 1)
			if i > 0 {
				w.ackOf(i)(nil) // a sink that says it twice does not release the next one
			}
			pass(10 * time.Second)
			w.dst.with(p, func(l *destinationLog) {
				if l.end != end || l.waiting != 0 {
					t.Errorf("before epoch %d is stored the end is %d, want %d", i, l.end, end)
				}
			})
			ack(nil)
		}
		w.same(10*time.Second, p)
		want := []epochTold{{p: p, epoch: 0}, {p: p, epoch: 1, start: 10}, {p: p, epoch: 2, start: 20}}
		if diff := cmp.Diff(want, w.notes.told(), cmp.AllowUnexported(epochTold{}), cmpopts.IgnoreFields(epochTold{}, "ack")); diff != "" {
			t.Errorf("epochs told (-want +got):\n%s", diff)
		}
	})
}

func TestEpochThatCannotBeStoredFailsThePartition(t *testing.T) {
	heldWorld(t, func(w *world, p cluster.Partition) {
		w.ackOf(1)(errSilly)
		w.fails(p, errSilly)
		if w.dst.end(p) != 0 {
			t.Error("something was appended")
		}
	})
}

func TestRemovedWhileHeld_I7(t *testing.T) {
	heldWorld(t, func(w *world, p cluster.Partition) {
		ack := w.ackOf(1)
		w.remove(p)
		w.dst.with(p, func(l *destinationLog) { l.forbidden = true })
		ack(nil)
		pass(time.Minute)
		w.dst.with(p, func(l *destinationLog) { l.forbidden = false })
		w.reassign(p)
		w.ackOf(2)
		ack(nil) // the old word says nothing of the new assignment
		pass(time.Second)
		if w.dst.end(p) != 0 {
			t.Error("the ack of an assignment that ended released the new one")
		}
		w.notes.note(func() { w.notes.hold = false })
		w.ackOf(2)(nil)
		w.same(10*time.Second, p)
	})
}

func TestEpochHeldWhenAnAppendFailsIsToldAgain(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.produce(p, 2, 5, 5)
		w.assign(1, p)
		w.same(time.Second, p)
		w.notes.note(func() { w.notes.hold = true })
		w.dst.with(p, func(l *destinationLog) {
			l.delay = 50 * time.Millisecond
			l.faults = []fault{{err: cluster.ErrUnavailable}}
		})
		w.src.mu.Lock() // one answer with the rest of one epoch and a new one
		l := w.src.logs[p]
		l.append(plain(10, 5, 5, 0))
		l.leader.Epoch = 1
		l.append(plain(15, 5, 5, 1))
		w.src.mu.Unlock()
		w.src.update(func() {})
		late := w.ackOf(2) // held while the run before it is in flight
		w.ackOf(3)         // told again when that one has failed
		late(nil)
		pass(time.Second)
		if got := w.dst.end(p); got != 15 {
			t.Errorf("destination ends at %d, want 15", got)
		}
		w.ackOf(3)(nil)
		w.same(10*time.Second, p)
		if got := w.notes.told(); got[1].epoch != 1 || got[2].epoch != 1 || got[2].start != 15 {
			t.Errorf("told %v", got)
		}
	})
}

func TestBatchOfAnEpochThatTheLeaderDoesNotKnowYet(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.produce(p, 2, 5, 5)
		w.src.update(func() { // the broker has a later epoch than it admits
			l := w.src.logs[p]
			l.append(plain(10, 5, 5, 7))
		})
		w.assign(1, p)
		w.within(time.Second, "the batches before land", func() bool { return w.dst.end(p) == 10 })
		pass(2 * time.Second)
		if got := w.dst.end(p); got != 10 {
			t.Errorf("destination ends at %d, want 10", got)
		}
		w.src.update(func() { w.src.logs[p].leader.Epoch = 7 })
		w.same(5*time.Second, p)
	})
}
