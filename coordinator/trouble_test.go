package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

var errDown = errors.New("store is down")

// TestStoreDown: nothing is performed that is not stored (I7), and everything
// is done once the store is back.
func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, perf := NewMemory(), &stage{}
		var down atomic.Bool
		store.SetFault(func(string, Record) error {
			if down.Load() {
				return errDown
			}
			return nil
		})
		down.Store(true)
		c := New("m", store, perf, nil)
		defer start(t, c)() // cannot even load
		pass(time.Minute)
		down.Store(false)
		post(c, Event{Kind: EventWant, Desired: WantMirroring})
		pass(20 * time.Second)
		wantState(t, c, StateLogAlignment)

		down.Store(true)
		acked := 0
		count := func(err error) {
			if err == nil {
				acked++
			}
		}
		post(c, Event{Kind: EventAligned, Ack: count}, Event{Kind: EventEpochSeen, Epoch: 3, Start: 0, Ack: count})
		pass(time.Hour)
		wantState(t, c, StateLogAlignment)
		if diff := cmp.Diff([]EffectKind{EffectAlign}, perf.kinds()); diff != "" || acked != 0 {
			t.Fatalf("with the store down %d were acknowledged, effects (-want +got):\n%s", acked, diff)
		}
		down.Store(false)
		pass(20 * time.Second)
		s := wantState(t, c, StateMirroring)
		if diff := cmp.Diff([]EffectKind{EffectAlign, EffectFetch}, perf.kinds()); diff != "" || acked != 2 || len(s.Epochs) != 1 {
			t.Errorf("with the store back %d were acknowledged, history %v, effects (-want +got):\n%s", acked, s.Epochs, diff)
		}
	})
}

// TestOneRecordThatIsNotTaken keeps nobody else waiting (I10).
func TestOneRecordThatIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory()
		bad := cluster.Partition{Topic: "bad"}
		store.SetFault(func(op string, rec Record) error {
			if op == "save" && rec.Partition == bad {
				return errDown
			}
			return nil
		})
		c := New("m", store, &stage{}, nil)
		defer start(t, c)()
		post(c, Event{Partition: bad, Kind: EventWant, Desired: WantMirroring},
			Event{Kind: EventWant, Desired: WantMirroring})
		wantState(t, c, StateLogAlignment)
		post(c, Event{Kind: EventAligned})
		wantState(t, c, StateMirroring)
		if s, ok := c.Snapshot(bad); ok {
			t.Errorf("%v is shown though it was never stored", s)
		}
		store.SetFault(nil)
		pass(20 * time.Second)
		if s, _ := c.Snapshot(bad); s.State != StateLogAlignment {
			t.Errorf("state %q once the store takes it", s.State)
		}
	})
}

// lostAnswers is a store whose next answers do not arrive.
type lostAnswers struct {
	*Memory
	lose atomic.Int32
}

func (s *lostAnswers) Save(ctx context.Context, mirror string, records []Record) []error {
	errs := s.Memory.Save(ctx, mirror, records)
	if s.lose.Add(-1) >= 0 {
		for i := range errs {
			errs[i] = cluster.ErrUnknownOutcome
		}
	}
	return errs
}

func TestOwnWriteIsRecognised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, perf := &lostAnswers{Memory: NewMemory()}, &stage{}
		c := New("m", store, perf, nil)
		defer start(t, c)()
		store.lose.Store(1)
		acked := errors.New("not acknowledged")
		post(c, Event{Kind: EventWant, Desired: WantMirroring, Ack: func(err error) { acked = err }})
		pass(20 * time.Second)
		if s := wantState(t, c, StateLogAlignment); s.StateEpoch != 1 || s.OwnerEpoch != 1 || acked != nil {
			t.Errorf("state epoch %d, owner epoch %d, acknowledged with %v", s.StateEpoch, s.OwnerEpoch, acked)
		}
		if diff := cmp.Diff([]EffectKind{EffectAlign}, perf.kinds()); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
	})
}

// TestTakeover: the later worker owns the partitions, the earlier one notices
// at its next write, gives up that partition, and keeps the others.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, perf1, perf2 := NewMemory(), &stage{}, &stage{}
		first := New("m", store, perf1, nil)
		defer start(t, first)()
		post(first, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventAligned})
		fetch := perf1.last(t)

		second := New("m", store, perf2, nil)
		defer start(t, second)()
		if s := wantState(t, second, StateMirroring); s.OwnerEpoch != 2 || !s.Owned {
			t.Errorf("owner epoch %d, owned %v after the takeover", s.OwnerEpoch, s.Owned)
		}
		if diff := cmp.Diff([]EffectKind{EffectFetch}, perf2.kinds()); diff != "" {
			t.Errorf("effects of the second (-want +got):\n%s", diff)
		}

		var fenced error
		mine := cluster.Partition{Topic: "mine"}
		post(first, Event{Kind: EventEpochSeen, Epoch: 1, Ack: func(err error) { fenced = err }},
			Event{Partition: mine, Kind: EventWant, Desired: WantMirroring})
		if !errors.Is(fenced, cluster.ErrFenced) || fetch.ctx.Err() == nil {
			t.Errorf("the first worker goes on: acknowledged with %v, fetch ctx %v", fenced, fetch.ctx.Err())
		}
		if s := state(t, first); s.Owned || !errors.Is(s.Err, cluster.ErrFenced) {
			t.Errorf("the first worker shows owned %v, err %v", s.Owned, s.Err)
		}
		if s, _ := first.Snapshot(mine); s.State != StateLogAlignment {
			t.Errorf("the other partition of the batch is %q", s.State)
		}
		post(first, Event{Kind: EventWant, Desired: WantStopped, Ack: func(err error) { fenced = err }})
		if !errors.Is(fenced, cluster.ErrFenced) {
			t.Errorf("a lost partition takes another event: %v", fenced)
		}
		post(second, Event{Kind: EventEpochSeen, Epoch: 1, Ack: func(err error) { fenced = err }})
		if fenced != nil {
			t.Errorf("the second worker is refused: %v", fenced)
		}
	})
}

// TestWrittenByAnother under the same owner epoch: read again, decided again.
func TestWrittenByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, perf := NewMemory(), &stage{}
		c := New("m", store, perf, nil)
		defer start(t, c)()
		post(c, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventAligned})
		rec := state(t, c).Record
		rec.StateEpoch++
		rec.Desired = WantStopped
		if errs := store.Save(t.Context(), "m", []Record{rec}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		var acked error
		post(c, Event{Kind: EventEpochSeen, Epoch: 1, Ack: func(err error) { acked = err }})
		wantState(t, c, StateStopping)
		if !errors.Is(acked, ErrUnfit) {
			t.Errorf("an epoch was taken while stopping: %v", acked)
		}
	})
}

func TestRecordThatWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, perf := NewMemory(), &stage{}
		c := New("m", store, perf, nil)
		defer start(t, c)()
		post(c, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventAligned})
		fetch := perf.last(t)
		if err := store.Delete(t.Context(), "m", []cluster.Partition{testPartition}); err != nil {
			t.Fatal(err)
		}
		var acked error
		post(c, Event{Kind: EventProgress, Ack: func(err error) { acked = err }})
		if !errors.Is(acked, cluster.ErrFenced) {
			t.Errorf("acknowledged with %v", acked)
		}
		if _, ok := c.Snapshot(testPartition); ok || fetch.ctx.Err() == nil {
			t.Error("the partition goes on without a record")
		}
	})
}

// TestIntents: what operators store is followed by whoever owns the partitions,
// once, also over a restart, and by partitions that come later.
func TestIntents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, perf := NewMemory(), &stage{}
		c := New("m", store, perf, nil)
		stop := start(t, c)
		intend := func(in Intent) {
			if _, err := store.SaveIntents(t.Context(), "m", []Intent{in}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		post(c, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventAligned})
		intend(Intent{Topic: testPartition.Topic, Desired: WantPaused})
		wantState(t, c, StatePausing)
		post(c, Event{Kind: EventDrained})
		post(c, Event{Kind: EventWant, Desired: WantMirroring}) // discovery does not overrule the operator
		wantState(t, c, StatePaused)
		intend(Intent{Topic: testPartition.Topic, Desired: WantMirroring})
		wantState(t, c, StateMirroring)
		stop()
		c = New("m", store, perf, nil)
		stop = start(t, c)
		wantState(t, c, StateMirroring) // the intent was followed once
		post(c, Event{Kind: EventFailed, Err: cluster.ErrTruncated})
		intend(Intent{Topic: testPartition.Topic, Desired: WantMirroring, Recover: true})
		wantState(t, c, StateLogAlignment)
		stop()
		intend(Intent{Topic: testPartition.Topic, Desired: WantStopped})
		intend(Intent{Topic: "later", Desired: WantStopped})

		c = New("m", store, perf, nil)
		defer start(t, c)()
		wantState(t, c, StateStopping)
		later := cluster.Partition{Topic: "later"}
		post(c, Event{Partition: later, Kind: EventWant, Desired: WantMirroring})
		if s, _ := c.Snapshot(later); s.Desired != WantStopped {
			t.Errorf("a topic that an operator stopped is started: %s, wanted %s", s.State, s.Desired)
		}
		if in, ok := c.Intent("later"); !ok || in.Desired != WantStopped {
			t.Errorf("intent %v, %v", in, ok)
		}
	})
}

func TestOnChangeIsToldInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []State
		c := New("m", NewMemory(), &stage{}, &Options{OnChange: func(before, after Record, err error) {
			if len(told) > 0 && told[len(told)-1] != before.State {
				t.Errorf("%s after %s", before.State, told[len(told)-1])
			}
			if (err != nil) != (after.Reason != "") {
				t.Errorf("%s: err %v, reason %q", after.State, err, after.Reason)
			}
			told = append(told, after.State)
		}})
		defer start(t, c)()
		post(c, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventAligned},
			Event{Kind: EventFailed, Err: errDown}, Event{Kind: EventWant, Desired: WantStopped}, Event{Kind: EventStopped})
		want := []State{StateLogAlignment, StateMirroring, StateFailed, StateStopping, StateStopped}
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
