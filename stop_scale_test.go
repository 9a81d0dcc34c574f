package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/memory"
)

// dead makes every call of a cluster fail, as when it is gone.
func dead(c *memory.Cluster) {
	c.SetFault(func(memory.Op) memory.Fault {
		return memory.Fault{Kind: memory.LoseRequest, Err: fmt.Errorf("%w: nobody is there", cluster.ErrUnreachable)}
	})
}

// holdUp makes one kind of call of a cluster wait until the function given back is
// called.
func holdUp(c *memory.Cluster, call memory.Call) (release func()) {
	gate := make(chan struct{})
	c.SetFault(func(op memory.Op) memory.Fault {
		if op.Call == call {
			return memory.Fault{Kind: memory.DelayRequest, Until: gate}
		}
		return memory.Fault{}
	})
	return func() { close(gate) }
}

// TestStopFromEveryState: with the source dead a stop answers, and works, whatever
// the partition was doing; so does a pause where there is something to pause.
func TestStopFromEveryState(t *testing.T) {
	bring := map[coordinator.State]func(*testing.T, *twins, *mirror.Mirror){
		coordinator.StateMirroring: func(*testing.T, *twins, *mirror.Mirror) {},
		coordinator.StateLogAlignment: func(_ *testing.T, w *twins, _ *mirror.Mirror) {
			holdUp(w.a, memory.CallOffsets) // the first look of the alignment
		},
		coordinator.StateEpochFencing: func(_ *testing.T, w *twins, _ *mirror.Mirror) {
			gate, ahead := make(chan struct{}), true
			w.b.SetFault(func(op memory.Op) memory.Fault {
				if op.Call != memory.CallRaiseEpochs {
					return memory.Fault{}
				}
				if ahead { // the try before anything is fetched
					ahead = false
					return memory.Fault{Kind: memory.LoseRequest}
				}
				return memory.Fault{Kind: memory.DelayRequest, Until: gate}
			})
		},
		coordinator.StateULERecovery: func(t *testing.T, w *twins, _ *mirror.Mirror) {
			settle(time.Second)
			holdUp(w.b, memory.CallTruncate)
			follower := w.follower(t, w.a)
			if err := w.a.Lag(orders, follower, true); err != nil {
				t.Fatal(err)
			}
			w.write(w.a, "lost")
			settle(time.Second)
			if err := w.a.ElectUnclean(orders, follower); err != nil {
				t.Fatal(err)
			}
			w.write(w.a, "another")
		},
		coordinator.StatePaused: func(t *testing.T, _ *twins, m *mirror.Mirror) {
			settle(time.Second)
			if err := m.Pause(context.Background(), "orders"); err != nil {
				t.Fatal(err)
			}
		},
		coordinator.StateFailed: func(t *testing.T, w *twins, m *mirror.Mirror) {
			settle(time.Second)
			if err := w.a.DeleteTopic("orders"); err != nil {
				t.Fatal(err)
			}
			if err := w.a.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}); err != nil {
				t.Fatal(err)
			}
			settle(2 * time.Minute)
		},
	}
	for state, to := range bring {
		for _, op := range []string{"stop", "pause"} {
			t.Run(fmt.Sprintf("%s of %s", op, state), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *twins) {
					w.write(w.a, "a", "b", "c")
					if state == coordinator.StateLogAlignment || state == coordinator.StateEpochFencing {
						to(t, w, nil)
					}
					m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.UncleanRecovery = []string{".*"} })
					if state != coordinator.StateLogAlignment && state != coordinator.StateEpochFencing {
						settle(time.Second)
						to(t, w, m)
					}
					settle(time.Second)
					if s := w.state(m); s.State != state {
						t.Fatalf("it is %s: %s", s.State, show(s))
					}
					dead(w.a)
					w.b.SetFault(nil)
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					defer cancel()
					do, want := m.Stop, coordinator.StateStopped
					if op == "pause" {
						do, want = m.Pause, coordinator.StatePaused
					}
					began := time.Now()
					if err := do(ctx, "orders"); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > 20*time.Second {
						t.Errorf("it took %v", took)
					}
					if s := w.state(m); s.State != want {
						t.Errorf("it is %s: %s", s.State, show(s))
					}
					mirrored := w.b.Log(orders) != nil // before the first append nothing tells the destination
					if _, err := w.b.Produce(orders, memory.Values("local")...); err == nil && op == "pause" && mirrored || err != nil && op == "stop" {
						t.Errorf("a local record: %v", err)
					}
				})
			})
		}
	}
}

// TestStopFiveThousand: one call stops 5,000 topics, and one that is given up and
// made again goes on.
func TestStopFiveThousand(t *testing.T) {
	const n = 5000
	w := &twins{
		t: t, a: memory.New(memory.Options{ID: "a", Brokers: 3}), b: memory.New(memory.Options{ID: "b", Brokers: 3}),
		storeA: coordinator.NewMemory(), storeB: coordinator.NewMemory(),
	}
	defer w.end()
	for i := range n {
		p := cluster.Partition{Topic: fmt.Sprintf("orders-%04d", i)}
		if err := w.a.CreateTopic(cluster.NewTopic{Name: p.Topic, Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.a.Produce(p, memory.Values("x")...); err != nil {
			t.Fatal(err)
		}
	}
	m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.Topics.Include = []string{"orders-.*"} })
	began := time.Now()
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if s := m.Status(); s.States[coordinator.StateMirroring] != n || s.Lag != 0 || s.Records != n {
			return fmt.Errorf("%v, lag %d, %d records", s.States, s.Lag, s.Records)
		}
		return nil
	})
	t.Logf("%d topics mirrored after %v", n, time.Since(began))
	began = time.Now()
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := m.Stop(short); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("stopped after %v", took)
	if took > 50*time.Second { // five times the bar: machines are shared
		t.Errorf("stopping took %v", took)
	}
	if s := m.Status(); s.States[coordinator.StateStopped] != n {
		t.Errorf("%v", s.States)
	}
	for i := range n {
		if _, err := w.b.Produce(cluster.Partition{Topic: fmt.Sprintf("orders-%04d", i)}, memory.Values("local")...); err != nil {
			t.Fatal(err)
		}
	}
}
