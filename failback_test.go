package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// twins are two clusters in memory, with the state store of the mirrors into each.
type twins struct {
	t                *testing.T
	a, b             *memory.Cluster
	storeA, storeB   *coordinator.Memory
	running          []func()
	tails, truncated []cluster.Span
}

func newTwins(t *testing.T) *twins {
	w := &twins{
		t: t, a: memory.New(memory.Options{ID: "a"}), b: memory.New(memory.Options{ID: "b"}),
		storeA: coordinator.NewMemory(), storeB: coordinator.NewMemory(),
	}
	if err := w.a.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	return w
}

// mirror runs a mirror of orders until the test ends, or until stop is called.
func (w *twins) mirror(name string, from, to *memory.Cluster, change func(*mirror.Options)) (m *mirror.Mirror, stop func()) {
	w.t.Helper()
	o := &mirror.Options{
		Store: w.storeB, Positions: w.storeA,
		Salvage: func(_ context.Context, tail mirror.Tail) error {
			w.tails = append(w.tails, tail.Span)
			return nil
		},
		Events: mirror.Events{Truncated: func(e mirror.TruncatedEvent) { w.truncated = append(w.truncated, e.Span) }},
	}
	if to == w.a {
		o.Store, o.Positions = w.storeA, w.storeB
	}
	if change != nil {
		change(o)
	}
	return w.mirrorTo(name, from.Client(name), to.Client(name), o)
}

// mirrorTo runs a mirror between any two ends.
func (w *twins) mirrorTo(name string, from mirror.Source, to mirror.Destination, o *mirror.Options) (m *mirror.Mirror, stop func()) {
	w.t.Helper()
	if len(o.Topics.Include) == 0 {
		o.Topics.Include = []string{"orders"}
	}
	m, err := mirror.New(name, from, to, o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-ran; err != nil {
			w.t.Errorf("%s: %v", name, err)
		}
	}
	w.running = append(w.running, stop)
	return m, stop
}

func (w *twins) end() {
	for _, stop := range w.running {
		stop()
	}
	w.a.Close()
	w.b.Close()
}

func (w *twins) write(c *memory.Cluster, values ...string) {
	w.t.Helper()
	for _, v := range values {
		if _, err := c.Produce(orders, memory.Values(v)...); err != nil {
			w.t.Fatal(err)
		}
	}
}

// settle lets virtual time pass until everything has come to rest.
func settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *twins) equal() {
	w.t.Helper()
	if !bytes.Equal(w.a.Log(orders), w.b.Log(orders)) {
		w.t.Errorf("logs differ\na:\n%s\nb:\n%s", w.a.Dump(orders), w.b.Dump(orders))
	}
}

func (w *twins) state(m *mirror.Mirror) mirror.PartitionStatus {
	w.t.Helper()
	t, _ := m.Topic("orders")
	if len(t.Partitions) == 0 {
		w.t.Fatal("orders is not known")
	}
	return t.Partitions[0]
}

// follower is a broker that follows.
func (w *twins) follower(t *testing.T, c *memory.Cluster) int32 {
	t.Helper()
	s, err := c.State(orders)
	if err != nil {
		t.Fatal(err)
	}
	if s.Leader.Broker == 1 {
		return 2
	}
	return 1
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(*testing.T, *twins)) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwins(t)
		defer w.end()
		f(t, w)
	})
}

// failover stops the mirror, ends its process, and writes at the destination.
func (w *twins) failover(m *mirror.Mirror, end func(), at *memory.Cluster, values ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Stop(ctx, "orders"); err != nil {
		w.t.Fatal(err)
	}
	end()
	w.write(at, values...)
}

// TestFailback: a tail that was not mirrored is saved and cut, and only then the
// delta comes (E2).
func TestFailback(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a", "b")
		m, end := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		w.equal()
		w.b.SetFault(nil)
		if err := m.Pause(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "lost", "lost too")
		groups := map[string]int64{"behind": 4, "at": 2, "before": 1, "reading": 4}
		for g, at := range groups {
			if err := w.a.CommitAs(g, cluster.Committed{Partition: orders, Offset: at}); err != nil {
				t.Fatal(err)
			}
		}
		w.a.SetMembers("reading", 1)
		w.failover(m, end, w.b, "c", "d")
		back, _ := w.mirror("ba", w.b, w.a, nil)
		settle(time.Second)
		w.equal()
		if s := w.state(back); s.State != coordinator.StateMirroring || s.Lag != 0 || s.Truncated != 2 {
			t.Errorf("%s", show(s))
		}
		if want := (cluster.Span{From: 2, To: 4}); len(w.tails) != 1 || w.tails[0] != want || len(w.truncated) != 1 || w.truncated[0] != want {
			t.Errorf("saved %v, told %v, want %v", w.tails, w.truncated, want)
		}
		groups["behind"] = 2 // what it has read there is gone
		for g, want := range groups {
			if got, err := w.a.Committed(context.Background(), []string{g}); err != nil || got[0].Offsets[0].Offset != want {
				t.Errorf("group %s: %+v, %v, want it at %d", g, got, err, want)
			}
		}
	})
}

// TestThreeFailbacks: only the delta moves (E5).
func TestThreeFailbacks(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a", "b", "c", "d", "e", "f", "g", "h")
		from, to, name := w.a, w.b, "ab"
		for round := range 6 {
			m, end := w.mirror(name, from, to, nil)
			if round > 0 { // a new process: the topic was stopped before
				if err := m.Start(context.Background(), "orders"); err != nil {
					t.Fatal(err)
				}
			}
			settle(time.Second)
			w.write(from, "x")
			settle(time.Second)
			w.equal()
			if s := w.state(m); s.State != coordinator.StateMirroring || s.Truncated != 0 || round > 0 && s.Records > 10 {
				t.Fatalf("round %d: %s", round, show(s))
			}
			w.failover(m, end, to, "y", "z")
			from, to = to, from
			if name = "ab"; from == w.b {
				name = "ba"
			}
		}
	})
}

// TestUncleanElection: what the source lost is cut where that is allowed, and
// refused by name where it is not (E4, C10.3).
func TestUncleanElection(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *twins) {
			w.write(w.a, "a", "b", "c")
			m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) {
				if allowed {
					o.UncleanRecovery = []string{"ord.*"}
				}
			})
			settle(time.Second)
			other := w.follower(t, w.a)
			if err := w.a.Lag(orders, other, true); err != nil {
				t.Fatal(err)
			}
			w.write(w.a, "d", "e")
			settle(time.Second)
			w.equal()
			if err := w.a.ElectUnclean(orders, other); err != nil {
				t.Fatal(err)
			}
			w.write(w.a, "other d")
			settle(time.Minute)
			got := w.state(m)
			if allowed {
				w.equal()
				if got.State != coordinator.StateMirroring || got.Truncated != 2 {
					t.Errorf("%s", show(got))
				}
				return
			}
			var at *cluster.OffsetError
			if got.State != coordinator.StateFailed || got.Retriable || !errors.Is(got.Err, mirror.ErrTruncated) ||
				!errors.As(got.Err, &at) || at.Span != (cluster.Span{From: 3, To: 5}) || got.DestinationEnd != 5 {
				t.Errorf("%s", show(got))
			}
		})
	}
}

// TestMirrorOfTheMirrored: a mirror of what comes from here is refused, and nothing is
// appended (C9.7).
func TestMirrorOfTheMirrored(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		back, _ := w.mirror("ba", w.b, w.a, nil)
		settle(time.Minute)
		if s := w.state(back); s.State != coordinator.StateFailed || !errors.Is(s.Err, mirror.ErrActive) || s.Retriable {
			t.Errorf("%s", show(s))
		}
		w.write(w.a, "b")
		settle(time.Second)
		w.equal()
	})
}

// TestNoPosition: a log of which nothing is known is not emptied unless that is
// asked for (C10.5).
func TestNoPosition(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *twins) {
			w.write(w.a, "a", "b")
			if err := w.b.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}); err != nil {
				t.Fatal(err)
			}
			w.write(w.b, "x", "y", "z")
			m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.Scratch = allowed })
			settle(time.Minute)
			s := w.state(m)
			if allowed {
				w.equal()
				if s.State != coordinator.StateMirroring || len(w.tails) != 1 {
					t.Errorf("%s, saved %v", show(s), w.tails)
				}
				return
			}
			if s.State != coordinator.StateFailed || s.Retriable || !errors.Is(s.Err, mirror.ErrDiverged) || s.Truncated != 0 {
				t.Errorf("%s", show(s))
			}
		})
	}
}
