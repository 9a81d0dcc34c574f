package coordinator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

func TestQueueCoalescesProgress(t *testing.T) {
	q := newQueue()
	progress := Event{Partition: testPartition, Kind: EventProgress, Seq: 1}
	later := Event{Partition: testPartition, Kind: EventProgress, Seq: 2}
	acked := Event{Partition: testPartition, Kind: EventProgress, Seq: 1, Ack: func(error) {}}
	for round := range 2 { // what was taken does not swallow what comes after it
		q.put([]Event{progress, progress, later, acked})
		if got := len(q.take()); got != 3 {
			t.Errorf("round %d: %d events are left of 4, want 3", round, got)
		}
	}
}

func TestBoardKeepsTheNewestIntent(t *testing.T) {
	b := newBoard()
	b.intend([]Intent{{Topic: "t", Desired: WantStopped, Revision: 4}})
	b.intend([]Intent{{Topic: "t", Desired: WantPaused, Revision: 3}})
	if in, _ := b.intent("t"); in.Desired != WantStopped {
		t.Errorf("an older intent replaced a newer one: %v", in)
	}
}

// TestEqualSeesEveryField, so that no change is taken for none and not stored.
func TestEqualSeesEveryField(t *testing.T) {
	base := newRecord(testPartition)
	for i := range reflect.TypeFor[Record]().NumField() {
		changed := base
		f := reflect.ValueOf(&changed).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("other")
		case reflect.Int, reflect.Int32, reflect.Int64:
			f.SetInt(f.Int() + 7)
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Struct:
			f.Field(1).SetInt(f.Field(1).Int() + 7)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Array:
			f.Index(3).SetUint(9)
		default:
			t.Fatalf("field %s has a kind this test does not know", reflect.TypeFor[Record]().Field(i).Name)
		}
		if base.equal(changed) {
			t.Errorf("field %s does not count", reflect.TypeFor[Record]().Field(i).Name)
		}
	}
	if !base.equal(base) {
		t.Error("a record is not equal to itself")
	}
}

func TestHistoryIsNeverChangedInPlace(t *testing.T) {
	rec := newRecord(testPartition)
	rec.State = StateMirroring
	rec.Epochs = epoch.History{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 50}}
	next, _, err := step(rec, Event{Kind: EventEpochSeen, Epoch: 3, Start: 40})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(epoch.History{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 40}}, next.Epochs); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(epoch.History{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 50}}, rec.Epochs); diff != "" {
		t.Errorf("the record before (-want +got):\n%s", diff)
	}
}

// TestDisarmedTimer: the timer of a failure that was recovered does not cut the
// wait of the next one short.
func TestDisarmedTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("m", NewMemory(), &stage{}, &Options{Jitter: -1})
		defer start(t, c)()
		post(c, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventFailed, Err: errDown})
		pass(500 * time.Millisecond)
		post(c, Event{Kind: EventRecover}, Event{Kind: EventFailed, Err: errDown})
		pass(900 * time.Millisecond)
		wantState(t, c, StateFailed)
		pass(100 * time.Millisecond)
		wantState(t, c, StateLogAlignment)
	})
}

// TestAwaitNeedsAllAtOnce: a partition that left the wanted state again counts
// as missing.
func TestAwaitNeedsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("m", NewMemory(), &stage{}, nil)
		defer start(t, c)()
		other := cluster.Partition{Topic: "other"}
		got := make(chan error, 1)
		go func() {
			got <- c.Await(t.Context(), []cluster.Partition{testPartition, other},
				func(s Snapshot) bool { return s.State == StateMirroring })
		}()
		post(c, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventAligned})
		post(c, Event{Kind: EventFailed, Err: cluster.ErrGap})
		post(c, Event{Partition: other, Kind: EventWant, Desired: WantMirroring}, Event{Partition: other, Kind: EventAligned})
		select {
		case err := <-got:
			t.Fatalf("Await returned %v with one of two failed", err)
		default:
		}
		post(c, Event{Kind: EventRecover}, Event{Kind: EventAligned})
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

// TestCreatedByAnother: two workers meet the same new partition; the later one
// takes it over.
func TestCreatedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, perf := NewMemory(), &stage{}
		first, second := New("m", store, &stage{}, nil), New("m", store, perf, nil)
		defer start(t, first)()
		defer start(t, second)()
		post(first, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventAligned})
		post(second, Event{Kind: EventWant, Desired: WantMirroring})
		if s := wantState(t, second, StateMirroring); s.OwnerEpoch != 2 || perf.last(t).Kind != EffectFetch {
			t.Errorf("owner epoch %d, effect %s", s.OwnerEpoch, perf.last(t).Kind)
		}
		var fenced error
		post(first, Event{Kind: EventProgress, Ack: func(err error) { fenced = err }})
		if !errors.Is(fenced, cluster.ErrFenced) {
			t.Errorf("the first worker goes on: %v", fenced)
		}
	})
}

// countingStore counts calls of Save.
type countingStore struct {
	*Memory
	saves atomic.Int32
}

func (s *countingStore) Save(ctx context.Context, mirror string, records []Record) []error {
	s.saves.Add(1)
	return s.Memory.Save(ctx, mirror, records)
}

// TestOutageIsNotHammered: what comes during an outage waits for the next
// attempt, and the first attempt of a second outage comes soon again.
func TestOutageIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Memory: NewMemory()}
		c := New("m", store, &stage{}, nil)
		defer start(t, c)()
		down := func(op string, _ Record) error { return errDown }
		for outage := range 2 {
			store.SetFault(down)
			before := store.saves.Load()
			for i := range 1000 {
				p := cluster.Partition{Topic: fmt.Sprint("outage-", outage), Partition: int32(i)}
				post(c, Event{Partition: p, Kind: EventWant, Desired: WantMirroring})
				pass(10 * time.Millisecond)
				if n := store.saves.Load() - before; i == 30 && n < 2 {
					t.Errorf("outage %d: %d attempts after 300 ms", outage, n)
				}
			}
			pass(time.Minute)
			if n := store.saves.Load() - before; n > 40 {
				t.Errorf("outage %d: %d attempts within 70 s", outage, n)
			}
			store.SetFault(nil)
			pass(20 * time.Second)
			if n := c.Counts()[StateLogAlignment]; n != 1000*(outage+1) {
				t.Errorf("outage %d: %d partitions are aligning afterwards", outage, n)
			}
		}
	})
}
