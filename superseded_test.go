package mirror_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// filling is a pair in which the topic slow has to be filled up to offset 5, which
// lasts until release is closed, whatever its context says.
func filling(names ...string) (source, destination *hooked) {
	source, destination = &hooked{mock: newMock("A", names...)}, &hooked{mock: newMock("B")}
	source.offsets = func(p cluster.Partition) cluster.Offsets {
		if p.Topic == "slow" {
			return cluster.Offsets{LogStart: 5, HighWatermark: 5}
		}
		return cluster.Offsets{}
	}
	return source, destination
}

// TestStopDuringFill: what fills a log start is over when its topic is reported
// STOPPED or PAUSED, even if it does not listen.
func TestStopDuringFill(t *testing.T) {
	for name, c := range map[string]struct {
		op    func(*mirror.Mirror) func(context.Context, ...string) error
		state coordinator.State
	}{
		"stop":  {func(m *mirror.Mirror) func(context.Context, ...string) error { return m.Stop }, coordinator.StateStopped},
		"pause": {func(m *mirror.Mirror) func(context.Context, ...string) error { return m.Pause }, coordinator.StatePaused},
	} {
		t.Run(name, func(t *testing.T) {
			source, destination := filling("slow")
			inBubble(t, source, destination, mirror.Options{}, func(t *testing.T, m *mirror.Mirror) {
				release, appended := make(chan struct{}), 0
				destination.startAt = func(ctx context.Context, _ cluster.Partition) error {
					appended++
					<-release
					if ctx.Err() == nil {
						appended++
					}
					return ctx.Err()
				}
				if err := m.Start(context.Background(), "slow"); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				wantState(t, m, "slow", coordinator.StateLogAlignment)
				op := async(func() error { return c.op(m)(context.Background(), "slow") })
				pending(t, time.Minute, op)
				if s := stateOf(t, m, "slow"); s.State == c.state {
					t.Errorf("%s while the log is being filled", s.State)
				}
				close(release)
				if err := <-op; err != nil {
					t.Error(err)
				}
				wantState(t, m, "slow", c.state)
				pass(5 * time.Minute)
				wantState(t, m, "slow", c.state)
				if appended != 1 {
					t.Errorf("the fill went on after the %s", name)
				}
			})
		})
	}
}

// TestSlowAlignmentKeepsNobodyWaiting: one of a batch is being filled, the others
// are copied (I10).
func TestSlowAlignmentKeepsNobodyWaiting(t *testing.T) {
	source, destination := filling("slow", "one", "two")
	destination.startAt = func(ctx context.Context, _ cluster.Partition) error {
		<-ctx.Done()
		return ctx.Err()
	}
	inBubble(t, source, destination, everything(), func(t *testing.T, m *mirror.Mirror) {
		pass(time.Second)
		wantState(t, m, "slow", coordinator.StateLogAlignment)
		wantState(t, m, "one", coordinator.StateMirroring)
		wantState(t, m, "two", coordinator.StateMirroring)
	})
}

// TestSupersededFetch: a fetch that was overtaken by a pause and a resume, and
// learns of its log end only then, leaves the newer one alone.
func TestSupersededFetch(t *testing.T) {
	source, destination := &hooked{mock: newMock("A", "orders")}, &hooked{mock: newMock("B")}
	inBubble(t, source, destination, mirror.Options{}, func(t *testing.T, m *mirror.Mirror) {
		release, asked := make(chan struct{}), 0
		destination.set(func(*mock) {
			destination.ends = func([]fetcher.Stretch) {
				destination.mu.Lock()
				asked++
				second := asked == 2 // the first is the alignment's
				destination.mu.Unlock()
				if second {
					<-release
				}
			}
		})
		ctx := context.Background()
		if err := m.Start(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		wantState(t, m, "orders", coordinator.StateMirroring)
		if got := source.fetched(); len(got) != 0 {
			t.Fatalf("the case does not happen: %v are fetched", got)
		}
		if err := errors.Join(m.Pause(ctx, "orders"), m.Resume(ctx, "orders")); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		close(release)
		pass(10 * time.Second)
		wantState(t, m, "orders", coordinator.StateMirroring)
		if diff := cmp.Diff([]cluster.Partition{orders}, source.fetched()); diff != "" {
			t.Errorf("fetched (-want +got):\n%s", diff)
		}
	})
}

// slowStore takes its time to save.
type slowStore struct{ *coordinator.Memory }

func (s slowStore) Save(ctx context.Context, mirror string, records []coordinator.Record) []error {
	<-time.After(50 * time.Millisecond)
	return s.Memory.Save(ctx, mirror, records)
}

// TestWaitsForTheWishItself: a pause right after a resume, and a stop right after
// a start, do not take the state from before for theirs.
func TestWaitsForTheWishItself(t *testing.T) {
	for name, ops := range map[string]func(m *mirror.Mirror) (to, away func(context.Context, ...string) error){
		"pause": func(m *mirror.Mirror) (to, away func(context.Context, ...string) error) { return m.Pause, m.Resume },
		"stop":  func(m *mirror.Mirror) (to, away func(context.Context, ...string) error) { return m.Stop, m.Start },
	} {
		t.Run(name, func(t *testing.T) {
			var log journal
			o := everything()
			o.Store, o.Events = slowStore{coordinator.NewMemory()}, log.events()
			inBubble(t, newMock("A", "orders"), newMock("B"), o, func(t *testing.T, m *mirror.Mirror) {
				pass(time.Second)
				to, away := ops(m)
				ctx := context.Background()
				if err := to(ctx, "orders"); err != nil {
					t.Fatal(err)
				}
				want := stateOf(t, m, "orders").State
				if err := errors.Join(away(ctx, "orders"), to(ctx, "orders")); err != nil {
					t.Fatal(err)
				}
				wantState(t, m, "orders", want)
				pass(0)
				before := log.count()
				pass(5 * time.Second)
				wantState(t, m, "orders", want)
				if after := log.count(); after != before {
					t.Errorf("%d changes of state after it had returned", after-before)
				}
			})
		})
	}
}

func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.states)
}

// TestAfterRun: what needs Run says so when Run has ended, and what waits then is
// told.
func TestAfterRun(t *testing.T) {
	destination := newMock("B")
	var m *mirror.Mirror
	var waiting []<-chan error
	inBubble(t, newMock("A", "orders", "other"), destination, everything(), func(t *testing.T, running *mirror.Mirror) {
		m = running
		pass(time.Second)
		destination.set(func(m *mock) { m.hang = true })
		for _, op := range []func(context.Context, ...string) error{m.Pause, m.Stop} {
			waiting = append(waiting, async(func() error { return op(hour(t), "orders") }))
			pending(t, time.Second, waiting[len(waiting)-1])
		}
		waiting = append(waiting, async(func() error { return m.WaitMirrored(hour(t), orders, 7) }))
		pending(t, time.Second, waiting[2])
		t.Cleanup(func() { // still in the bubble, after Run
			for i, w := range waiting {
				if err := <-w; !errors.Is(err, mirror.ErrNotRunning) {
					t.Errorf("operation %d that waited: %v", i, err)
				}
			}
			ctx := hour(t)
			for name, err := range map[string]error{
				"stop": m.Stop(ctx, "orders"), "stop all": m.Stop(ctx), "pause": m.Pause(ctx, "other"), "promote": m.Promote(ctx, "orders"),
				"wait": m.WaitMirrored(ctx, orders, 7), "wait for an unknown": m.WaitMirrored(ctx, at("nowhere", 0), 7),
			} {
				if !errors.Is(err, mirror.ErrNotRunning) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	})
}

// TestPromoteAtOnce: a promote before topics are known waits for them and for lag
// 0; names that turn out to be nothing are refused.
func TestPromoteAtOnce(t *testing.T) {
	source, destination := &hooked{mock: newMock("A", "orders")}, &hooked{mock: newMock("B")}
	lag := func(m *hooked, high int64) {
		m.set(func(*mock) {
			m.offsets = func(cluster.Partition) cluster.Offsets { return cluster.Offsets{HighWatermark: high} }
		})
	}
	lag(source, 10)
	source.down = cluster.ErrUnreachable
	inBubble(t, source, destination, everything(), func(t *testing.T, m *mirror.Mirror) {
		ctx := hour(t)
		op := async(func() error { return m.Promote(ctx, "orders") })
		unknown := async(func() error { return m.Promote(ctx, "nowhere") })
		nothing := async(func() error { return m.Promote(ctx, "nothing.*") })
		pending(t, 10*time.Second, op)
		source.set(func(m *mock) { m.down = nil })
		pending(t, 2*time.Minute, op)
		wantState(t, m, "orders", coordinator.StateMirroring)
		for _, refused := range []<-chan error{unknown, nothing} {
			if err := <-refused; !errors.Is(err, mirror.ErrUnknownTopic) {
				t.Errorf("unknown: %v", err)
			}
		}
		lag(destination, 10)
		if err := <-op; err != nil {
			t.Fatal(err)
		}
		wantState(t, m, "orders", coordinator.StateStopped)
		destination.set(func(m *mock) {
			if !slices.Contains(m.fenced, orders) {
				t.Error("not fenced")
			}
		})
	})
}

// TestPromoteNothing: without a topic to be promoted nothing is stopped, not even
// what the destination has left of one.
func TestPromoteNothing(t *testing.T) {
	inBubble(t, newMock("A"), newMock("B", "orders"), everything(), func(t *testing.T, m *mirror.Mirror) {
		if err := m.Promote(context.Background()); err != nil {
			t.Error(err)
		}
		if got := topicNames(m); len(got) != 0 {
			t.Errorf("%v were stopped", got)
		}
	})
}

// TestClusterReplacedWhileStopping: another cluster at the source's address does
// not keep a topic from being stopped.
func TestClusterReplacedWhileStopping(t *testing.T) {
	source, destination := newMock("A", "orders", "other"), newMock("B")
	o := everything()
	o.GroupTimeout = 3 * time.Minute
	inBubble(t, source, destination, o, func(t *testing.T, m *mirror.Mirror) {
		pass(time.Second)
		source.set(func(m *mock) { m.groups = make(chan struct{}) })
		op := async(func() error { return m.Stop(hour(t), "orders") })
		pending(t, time.Second, op)
		source.set(func(m *mock) { m.id = "another" })
		pending(t, 2*time.Minute, op)
		wantState(t, m, "other", coordinator.StateFailed)
		wantState(t, m, "orders", coordinator.StateStopping)
		if err := <-op; err != nil {
			t.Error(err)
		}
		wantState(t, m, "orders", coordinator.StateStopped)
	})
}

// TestAbsentForAnInterval: looks that are closer together than SyncInterval, as
// operators ask for them, do not make a topic gone.
func TestAbsentForAnInterval(t *testing.T) {
	source := newMock("A", "orders", "other")
	inBubble(t, source, newMock("B"), everything(), func(t *testing.T, m *mirror.Mirror) {
		pass(time.Second)
		source.set(func(m *mock) { delete(m.topics, "orders") })
		for range 5 {
			if err := m.Start(context.Background(), "other"); err != nil {
				t.Fatal(err)
			}
			pass(10 * time.Second)
			wantState(t, m, "orders", coordinator.StateMirroring)
		}
		source.set(func(m *mock) {
			if n := len(m.looks); n < 6 {
				t.Errorf("looked %d times", n)
			}
		})
		pass(time.Minute)
		wantState(t, m, "orders", coordinator.StateFailed)
	})
}
