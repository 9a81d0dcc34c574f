package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// TestForeignRecordBeforeTheFirst: a record of somebody else that stands where the
// mirror's first one belongs is not taken for it, nor after a restart (I1, I4).
func TestForeignRecordBeforeTheFirst(t *testing.T) {
	for name, restart := range map[string]bool{"while it runs": false, "before a restart": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *twins) {
				w.b = memory.New(memory.Options{ID: "b", Produce: true})
				m, end := w.mirror("ab", w.a, w.b, nil)
				settle(time.Second)
				w.write(w.b, "not the source's")
				if restart {
					end()
					m, _ = w.mirror("ab", w.a, w.b, nil)
					settle(time.Second)
				}
				w.write(w.a, "the source's")
				settle(10 * time.Minute)
				s := w.state(m)
				if s.State != coordinator.StateFailed || s.Retriable {
					t.Errorf("%s\na:\n%s\nb:\n%s", show(s), w.a.Dump(orders), w.b.Dump(orders))
				}
				at, stands := &cluster.OffsetError{}, 1
				if !restart { // a client can only detect it: ours landed behind it
					at.Span.From, stands = 1, 2
				}
				if want := at.Span.From; !errors.As(s.Err, &at) || at.Span.From != want {
					t.Errorf("the error does not name offset %d: %v", want, s.Err)
				}
				if got, err := w.b.Records(orders, false); err != nil || len(got) != stands || string(got[0].Value) != "not the source's" {
					t.Errorf("destination has %v, %v", got, err)
				}
			})
		})
	}
}

// TestReadOnlyFromTheStart: where clients can be kept out, they are as soon as the
// topic is the mirror's.
func TestReadOnlyFromTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		if _, err := w.b.Produce(orders, memory.Values("x")...); !errors.Is(err, memory.ErrReadOnly) {
			t.Errorf("a write into a mirror topic: %v", err)
		}
		if err := m.Stop(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		w.write(w.b, "local")
	})
}

// TestPauseRightAfterTheStart: a pause holds for what is on record, although this
// process has not seen the topic at the source yet.
func TestPauseRightAfterTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		_, end := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		w.equal()
		end()
		w.a.SetFault(func(op memory.Op) memory.Fault {
			if op.Call == memory.CallTopics {
				return memory.Fault{Kind: memory.DelayRequest, Delay: time.Hour}
			}
			return memory.Fault{}
		})
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(0)
		if err := m.Pause(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		if s := w.state(m); s.State != coordinator.StatePaused {
			t.Errorf("%s", show(s))
		}
		w.write(w.a, "b")
		settle(time.Minute)
		if s := w.state(m); s.State != coordinator.StatePaused || len(w.b.Log(orders)) >= len(w.a.Log(orders)) {
			t.Errorf("%s\n%s", show(s), w.b.Dump(orders))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Stop(ctx); err != nil { // all that is on record
			t.Fatal(err)
		}
		if s := w.state(m); s.State != coordinator.StateStopped {
			t.Errorf("%s", show(s))
		}
	})
}

// TestPartitionsAreAdded: what the source has more of, the destination gets, from its
// first record (C2.5).
func TestPartitionsAreAdded(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		grown := 0
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) {
			o.Events.Topic = func(e mirror.TopicEvent) {
				if e.Grown && e.Topic == "orders" && e.Err == nil {
					grown++
				}
			}
		})
		settle(time.Second)
		if err := w.a.CreatePartitions("orders", 6); err != nil {
			t.Fatal(err)
		}
		p5 := cluster.Partition{Topic: "orders", Partition: 5}
		for range 10 {
			if _, err := w.a.Produce(p5, memory.Values("x")...); err != nil {
				t.Fatal(err)
			}
		}
		settle(2 * time.Minute)
		if got, err := w.b.Records(p5, false); err != nil || len(got) != 10 || got[9].Offset != 9 {
			t.Errorf("%v, %v", got, err)
		}
		if grown != 1 {
			t.Errorf("told %d times", grown)
		}
		if s := m.Status(); s.Partitions != 6 || s.Health != "ok" || s.States[coordinator.StateMirroring] != 6 {
			t.Errorf("%s", show(s))
		}
		w.equal()
	})
}

// TestDestinationLosesItsTail: an unclean election at the destination takes records
// that the mirror has appended. They come again, although the source is idle (I3).
func TestDestinationLosesItsTail(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		follower := w.follower(t, w.b)
		if err := w.b.Lag(orders, follower, true); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "b", "c")
		settle(time.Second)
		w.equal()
		if err := w.b.ElectUnclean(orders, follower); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(w.a.Log(orders), w.b.Log(orders)) {
			t.Fatal("nothing was lost")
		}
		settle(3 * time.Minute)
		w.equal()
		if s := w.state(m); s.State != coordinator.StateMirroring || s.Lag != 0 {
			t.Errorf("%s", show(s))
		}
	})
}

// TestStopThatCannotBeStored: the topic stays the mirror's, and what somebody else
// writes is noticed.
func TestStopThatCannotBeStored(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.b = memory.New(memory.Options{ID: "b", Produce: true})
		w.write(w.a, "a")
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		w.storeB.SetFault(func(op string, _ coordinator.Record) error {
			if op == "intent" {
				return errors.New("disk full")
			}
			return nil
		})
		if err := m.Stop(context.Background(), "orders"); err == nil {
			t.Fatal("stopped without a store")
		}
		w.storeB.SetFault(nil)
		w.write(w.b, "foreign")
		settle(3 * time.Minute)
		if s := w.state(m); s.State != coordinator.StateFailed || !errors.Is(s.Err, cluster.ErrForeignWrite) {
			t.Errorf("%s", show(s))
		}
	})
}

// TestStopOfADeletedTopic: what the destination does not have any more needs no stop.
func TestStopOfADeletedTopic(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.b = memory.New(memory.Options{ID: "b", Produce: true})
		w.write(w.a, "a")
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		if err := w.b.DeleteTopic("orders"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Stop(ctx, "orders"); err != nil {
			t.Error(err)
		}
		if s := w.state(m); s.State != coordinator.StateStopped {
			t.Errorf("%s", show(s))
		}
	})
}

// TestLoopAtTheSameMoment: mirrors that begin together may not see each other; the next
// look does (C9.7).
func TestLoopAtTheSameMoment(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		blind := coordinator.NewMemory() // as if nothing were on record yet
		seeing := &late{now: blind}
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.Positions = seeing })
		settle(time.Second)
		if s := w.state(m); s.State != coordinator.StateMirroring {
			t.Fatalf("%s", show(s))
		}
		rec := coordinator.Record{
			Partition: orders, State: coordinator.StateMirroring, Previous: coordinator.StateLogAlignment, Desired: coordinator.WantMirroring,
			Sources: []string{"c", "b"}, StateEpoch: 1, OwnerEpoch: 1, Cut: -1,
		}
		if errs := w.storeA.Save(t.Context(), "ca", []coordinator.Record{rec}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		seeing.set(w.storeA)
		settle(2 * time.Minute)
		if s := w.state(m); s.State != coordinator.StateFailed || !errors.Is(s.Err, mirror.ErrLoop) {
			t.Errorf("%s", show(s))
		}
	})
}

// late is a Positions that becomes another one.
type late struct {
	mu  sync.Mutex
	now coordinator.Positions
}

func (l *late) set(p coordinator.Positions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = p
}

func (l *late) Positions(ctx context.Context, source string, ps []cluster.Partition) ([]coordinator.PositionAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now.Positions(ctx, source, ps)
}

// TestDestinationTopicMadeAnew: somebody deletes the mirror topic, creates it again and
// writes as many records as had been copied. The log ends where it should, and is
// another (I1).
func TestDestinationTopicMadeAnew(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.b = memory.New(memory.Options{ID: "b", Produce: true})
		w.write(w.a, "a", "b")
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(2 * time.Minute)
		w.equalRecords()
		if err := w.b.DeleteTopic("orders"); err != nil {
			t.Fatal(err)
		}
		if err := w.b.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		w.write(w.b, "x", "y")
		settle(3 * time.Minute)
		if s := w.state(m); s.State != coordinator.StateFailed || s.Retriable || !errors.Is(s.Err, cluster.ErrDiverged) {
			t.Errorf("%s", show(s))
		}
	})
}

// equalRecords compares what consumers see.
func (w *twins) equalRecords() {
	w.t.Helper()
	a, errA := w.a.Records(orders, false)
	b, errB := w.b.Records(orders, false)
	if diff := cmp.Diff(a, b); diff != "" || errA != nil || errB != nil {
		w.t.Errorf("%v %v (-a +b):\n%s", errA, errB, diff)
	}
}

// TestPauseBeforeTheTopicIsFound: the topic is not known yet. The pause holds for it from
// its first moment on.
func TestPauseBeforeTheTopicIsFound(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		release := holdUp(w.a, memory.CallTopics)
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(0)
		if err := m.Pause(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		release()
		settle(time.Minute)
		if s := w.state(m); s.State != coordinator.StatePaused || len(w.b.Log(orders)) > 0 {
			t.Errorf("%s", show(s))
		}
	})
}
