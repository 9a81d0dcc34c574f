package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestRunMirrors: several topics, partitions and codecs, data from before and
// from meanwhile, end up identical.
func TestRunMirrors(t *testing.T) {
	p := newPair(t, 3, "orders", "payments")
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	last := map[cluster.Partition]int64{}
	var all []cluster.Partition
	load := func() {
		for i, codec := range codecs {
			for _, topic := range []string{"orders", "payments"} {
				for part := range int32(3) {
					n := 20 * (i + 1)
					last[at(topic, part)] = write(t, p.a, topic, part, n, kgo.ProducerBatchCompression(codec)) + int64(n) - 1
				}
			}
		}
	}
	load()
	r := run(t, p, quick("orders", "pay.*"))
	load()
	mirrored(t, r, last)
	for q := range last {
		all = append(all, q)
	}
	equal(t, p.source, p.destination, all...)
	if s := r.Status(); s.Health != "ok" || s.Topics != 2 || s.Partitions != 6 || s.Lag != 0 || s.Records != 6*600 || s.Source != "A" || s.Destination != "B" || !s.Running {
		t.Errorf("status %s", show(s))
	}
	r.stop(t)
	if r.Status().Running {
		t.Error("still running")
	}
}

func TestRunTwice(t *testing.T) {
	p := newPair(t, 1, "orders")
	r := run(t, p, quick("orders"))
	r.reach(t, at("orders", 0), coordinator.StateMirroring)
	err := r.Run(context.Background())
	wantIs(t, err, mirror.ErrRunning)
	r.stop(t)
	wantIs(t, r.Run(context.Background()), mirror.ErrRunning)
	var e *mirror.Error
	if !errors.As(err, &e) || e.Op != "run" || e.Mirror != "dr" {
		t.Errorf("error %#v", err)
	}
}

// TestRunSameCluster: one cluster behind two clients is found out, and Run ends.
func TestRunSameCluster(t *testing.T) {
	a := newCluster(t, "A", kfake.SeedTopics(1, "orders"))
	m := newMirror(t, connect(t, a, nil), connect(t, a, nil), quick("orders"))
	before := goleak.IgnoreCurrent()
	err := m.Run(within(t, runBound))
	wantIs(t, err, mirror.ErrSameCluster)
	noLeak(t, before)
	if m.Status().Running || m.Status().Partitions != 0 {
		t.Errorf("status %+v", m.Status())
	}
}

// noLeak fails when a goroutine is left of what ran since before.
func noLeak(t *testing.T, before goleak.Option) {
	t.Helper()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// TestRunEndsInEveryState is C11.13: whatever is under way, Run returns nil soon
// after its context has ended and leaves no goroutine.
func TestRunEndsInEveryState(t *testing.T) {
	orders := at("orders", 0)
	hole := func(links []*kafkatest.Link, on bool) {
		for _, l := range links {
			l.Blackhole(on)
		}
	}
	for _, tc := range []struct {
		name string
		// before is done before Run; reach brings the mirror to where it is ended.
		before func(t *testing.T, p *pair)
		reach  func(t *testing.T, p *pair, r *running)
	}{
		{name: "at once"},
		{
			name:   "source refuses",
			before: func(t *testing.T, p *pair) { refuse(p.toSource(), true) },
			reach:  func(t *testing.T, p *pair, r *running) { syncFails(t, r) },
		},
		{
			name:   "destination refuses",
			before: func(t *testing.T, p *pair) { refuse(p.toDestination(), true) },
			reach:  func(t *testing.T, p *pair, r *running) { syncFails(t, r) },
		},
		{
			name:   "source is a black hole",
			before: func(t *testing.T, p *pair) { hole(p.toSource(), true) },
			reach:  func(t *testing.T, p *pair, r *running) { dialled(t, p.toSource()) },
		},
		{
			name: "mirroring, then both are black holes",
			reach: func(t *testing.T, p *pair, r *running) {
				mirrored(t, r, map[cluster.Partition]int64{orders: 99})
				hole(p.toSource(), true)
				hole(p.toDestination(), true)
			},
		},
		{
			name:  "mirroring",
			reach: func(t *testing.T, p *pair, r *running) { mirrored(t, r, map[cluster.Partition]int64{orders: 99}) },
		},
		{
			name: "appends stand still",
			reach: func(t *testing.T, p *pair, r *running) {
				mirrored(t, r, map[cluster.Partition]int64{orders: 99})
				hole(p.toDestination(), true)
				write(t, p.a, "orders", 0, 100)
				kafkatest.Eventually(t, patience, func(context.Context) error {
					if s, _ := r.partition(orders); s.SourceEnd < 200 {
						return fmt.Errorf("source end %d", s.SourceEnd)
					}
					return nil
				})
			},
		},
		{
			name: "looking for topics stands still",
			reach: func(t *testing.T, p *pair, r *running) {
				r.reach(t, orders, coordinator.StateMirroring)
				hole(p.toSource(), true)
				if err := p.a.CreateTopic("late", 1, nil); err != nil {
					t.Fatal(err)
				}
				syncHangs(t, r)
			},
		},
		{
			name: "pausing",
			reach: func(t *testing.T, p *pair, r *running) {
				mirrored(t, r, map[cluster.Partition]int64{orders: 99})
				hole(p.toDestination(), true)
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				wantIs(t, r.Pause(ctx, "orders"), context.DeadlineExceeded)
				r.reach(t, orders, coordinator.StatePausing)
			},
		},
		{
			name: "stopping",
			reach: func(t *testing.T, p *pair, r *running) {
				mirrored(t, r, map[cluster.Partition]int64{orders: 99})
				hole(p.toDestination(), true)
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				wantIs(t, r.Stop(ctx, "orders"), context.DeadlineExceeded)
				r.reach(t, orders, coordinator.StateStopping)
			},
		},
		{
			name: "stopped",
			reach: func(t *testing.T, p *pair, r *running) {
				mirrored(t, r, map[cluster.Partition]int64{orders: 99})
				if err := r.Stop(within(t, patience), "orders"); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "failed",
			reach: func(t *testing.T, p *pair, r *running) {
				mirrored(t, r, map[cluster.Partition]int64{orders: 99})
				write(t, p.b, "orders", 0, 1)
				write(t, p.a, "orders", 0, 1)
				r.reach(t, orders, coordinator.StateFailed)
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t, 1, "orders")
			write(t, p.a, "orders", 0, 100)
			if tc.before != nil {
				tc.before(t, p)
			}
			m := newMirror(t, p.source, p.destination, quick(".*"))
			before := goleak.IgnoreCurrent()
			r := start(t, m)
			if tc.reach != nil {
				tc.reach(t, p, r)
			}
			began := time.Now()
			r.stop(t)
			if d := time.Since(began); d > 6*time.Second {
				t.Errorf("Run took %v to return", d)
			}
			hole(p.toSource(), false) // what stands in the net arrives, and its ends are seen
			hole(p.toDestination(), false)
			noLeak(t, before)
		})
	}
}

func refuse(links []*kafkatest.Link, on bool) {
	for _, l := range links {
		l.Refuse(on)
	}
}

func syncFails(t *testing.T, r *running) {
	t.Helper()
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s := r.Status(); s.SyncError == "" || s.Health != "troubled" {
			return fmt.Errorf("status %s", show(s))
		}
		return nil
	})
}

// syncHangs waits until looks for topics do not come back any more.
func syncHangs(t *testing.T, r *running) {
	t.Helper()
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s := r.Status(); s.Synced == nil || time.Since(*s.Synced) < 500*time.Millisecond {
			return errors.New("still synced")
		}
		return nil
	})
}

func dialled(t *testing.T, links []*kafkatest.Link) {
	t.Helper()
	kafkatest.Eventually(t, patience, func(context.Context) error {
		for _, l := range links {
			if l.Dials() > 0 {
				return nil
			}
		}
		return errors.New("nobody dials")
	})
}

// TestPartitionsGrow: a source topic that grew is refused by name, the rest goes
// on.
func TestPartitionsGrow(t *testing.T) {
	p := newPair(t, 1, "orders", "other")
	if err := p.b.CreateTopic("orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	var log journal
	o := quick(".*")
	o.Events = log.events()
	r := run(t, p, o)
	r.reach(t, at("other", 0), coordinator.StateMirroring)
	kafkatest.Eventually(t, patience, func(context.Context) error {
		top, ok := r.Topic("orders")
		if !ok || top.Refused == "" || r.Status().Refused["orders"] != top.Refused || r.Status().Health != "failed" {
			return fmt.Errorf("%+v", top)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, e := range log.topics {
			if e.Topic == "orders" && errors.Is(e.Err, cluster.ErrRefused) {
				return nil
			}
		}
		return fmt.Errorf("no event: %+v", log.topics)
	})
}
