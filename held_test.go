package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// fillers are two clusters that take what readers of committed records see, and fill the
// rest.
func (w *twins) fillers() {
	w.t.Helper()
	w.a.Close()
	w.b.Close()
	w.a = memory.New(memory.Options{ID: "a", Produce: true, Fills: true})
	w.b = memory.New(memory.Options{ID: "b", Produce: true, Fills: true})
	if err := w.a.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}); err != nil {
		w.t.Fatal(err)
	}
}

// send writes values in a producer's transaction, each in a batch.
func (w *twins) send(by *memory.Producer, values ...string) {
	w.t.Helper()
	for _, v := range values {
		if _, err := by.Send(orders, memory.Values(v)...); err != nil {
			w.t.Fatal(err)
		}
	}
}

// begun is a producer of a with a transaction in orders.
func (w *twins) begun(values ...string) *memory.Producer {
	w.t.Helper()
	by := w.a.Producer()
	by.Begin()
	w.send(by, values...)
	return by
}

func (w *twins) equalCommitted() {
	w.t.Helper()
	a, errA := w.a.Records(orders, true)
	b, errB := w.b.Records(orders, true)
	if diff := cmp.Diff(a, b); diff != "" || errA != nil || errB != nil {
		w.t.Errorf("%v %v (-a +b):\n%s", errA, errB, diff)
	}
}

// TestHeldByAnOpenTransaction: what waits for a transaction of the source says so, and is
// no stall. A stop does not wait for it; what waits for its end says what it waits for.
func TestHeldByAnOpenTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.fillers()
		w.write(w.a, "a", "b")
		by := w.begun("c")
		w.write(w.a, "d")
		var held []mirror.HeldEvent
		stalls := 0
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) {
			o.Events.Held = func(e mirror.HeldEvent) { held = append(held, e) }
			o.Events.Stalled = func(mirror.StalledEvent) { stalls++ }
		})
		settle(2 * time.Minute)
		s := w.state(m)
		if s.State != coordinator.StateMirroring || s.DestinationEnd != 2 || s.Lag != 2 || s.Reason != "" || s.Held == nil || s.Held.Offset != 2 || s.Held.Producer != by.ID() || s.Held.Since.IsZero() {
			t.Errorf("%s", show(s))
		}
		if st := m.Status(); st.Held != 1 || st.Health != "ok" {
			t.Errorf("%s", show(st))
		}
		if len(held) != 1 || held[0].Partition != orders || held[0].Held != *s.Held || stalls != 0 {
			t.Errorf("events: %+v, %d stalls", held, stalls)
		}
		for name, wait := range map[string]func(context.Context) error{
			"promote": func(ctx context.Context) error { return m.Promote(ctx, "orders") },
			"wait":    func(ctx context.Context) error { return m.WaitMirrored(ctx, orders, 3) },
		} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if err := wait(ctx); err == nil || !strings.Contains(err.Error(), s.Held.String()) {
				t.Errorf("%s: %v, want %q in it", name, err, s.Held)
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := m.Stop(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
		if s := w.state(m); s.Position == nil || s.Position.Offset != 2 || s.Held != nil {
			t.Errorf("stopped: %s", show(s))
		}
	})
}

// TestHeldIsOver: when the transaction ends, all of it is copied.
func TestHeldIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.fillers()
		by := w.begun("a")
		w.write(w.a, "b")
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(time.Minute)
		if err := by.Abort(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.WaitMirrored(ctx, orders, 2); err != nil {
			t.Fatal(err)
		}
		w.equalCommitted()
		if s := w.state(m); s.Held != nil || s.Filled != 2 || s.Records != 1 || s.Lag != 0 {
			t.Errorf("%s", show(s))
		}
		if err := m.Promote(ctx, "orders"); err != nil {
			t.Error(err)
		}
	})
}

// TestFailbackWithTransactions: fillers on one side stand where the other has markers and
// aborted records; a restart and a failback take both for the same.
func TestFailbackWithTransactions(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.fillers()
		w.write(w.a, "a")
		aborted, committed := w.begun("x", "y"), w.begun("b")
		w.send(aborted, "z")
		for _, end := range []func() error{committed.Commit, aborted.Abort} {
			if err := end(); err != nil {
				t.Fatal(err)
			}
		}
		m, end := w.mirror("ab", w.a, w.b, nil)
		settle(time.Minute)
		end()
		w.write(w.a, "c")
		m, end = w.mirror("ab", w.a, w.b, nil)
		settle(time.Minute)
		w.equalCommitted()
		if s := w.state(m); s.State != coordinator.StateMirroring || s.Lag != 0 {
			t.Fatalf("%s", show(s))
		}
		w.failover(m, end, w.b, "d", "e")
		back, _ := w.mirror("ba", w.b, w.a, nil)
		settle(time.Minute)
		if s := w.state(back); s.State != coordinator.StateMirroring || s.Lag != 0 {
			t.Fatalf("%s", show(s))
		}
		w.equalCommitted()
	})
}
