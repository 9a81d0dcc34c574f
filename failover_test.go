package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestStopWithoutSource: failover works and is bounded when the source has died,
// however it died.
func TestStopWithoutSource(t *testing.T) {
	for name, die := range map[string]func(p *pair){
		"refused": func(p *pair) {
			refuse(p.toSource(), true)
			for _, l := range p.toSource() {
				l.Cut()
			}
		},
		"black hole": func(p *pair) {
			for _, l := range p.toSource() {
				l.Blackhole(true)
			}
		},
		"closed": func(p *pair) { p.a.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 2, "orders")
			last := map[cluster.Partition]int64{}
			for part := range int32(2) {
				last[at("orders", part)] = write(t, p.a, "orders", part, 100) + 99
			}
			r := run(t, p, quick("orders"))
			mirrored(t, r, last)
			die(p)
			began := time.Now()
			if err := r.Stop(within(t, patience), "orders"); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d > 8*time.Second { // GroupTimeout is 2 s
				t.Errorf("stop took %v", d)
			}
			for q := range last {
				if s, _ := r.partition(q); s.State != coordinator.StateStopped || s.Position.Offset != 100 {
					t.Errorf("stopped: %s", show(s))
				}
				if got := write(t, p.b, "orders", q.Partition, 1); got != 101 {
					t.Errorf("%v: local record at %d, want 101", q, got)
				}
			}
		})
	}
}

// TestStopWithoutDestination: Stop returns when its time is over and names what is
// left; the stopping goes on by itself.
func TestStopWithoutDestination(t *testing.T) {
	p := newPair(t, 2, "orders")
	last := map[cluster.Partition]int64{}
	for part := range int32(2) {
		last[at("orders", part)] = write(t, p.a, "orders", part, 100) + 99
	}
	r := run(t, p, quick("orders"))
	mirrored(t, r, last)
	for _, l := range p.toDestination() {
		l.Blackhole(true)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	err := r.Stop(ctx, "orders")
	wantIs(t, err, context.DeadlineExceeded)
	for q := range last {
		if err == nil || !strings.Contains(err.Error(), q.String()) {
			t.Errorf("error does not name %v: %v", q, err)
		}
	}
	for _, l := range p.toDestination() {
		l.Blackhole(false)
	}
	for q := range last {
		if s := r.reach(t, q, coordinator.StateStopped); s.Position.Offset != 100 {
			t.Errorf("stopped: %s", show(s))
		}
	}
}

// TestStopAfterRestart: a process that knows nothing of a topic, with a source
// that is dead, stops and fences what another process had mirrored.
func TestStopAfterRestart(t *testing.T) {
	p := newPair(t, 2, "orders")
	last := map[cluster.Partition]int64{}
	for part := range int32(2) {
		last[at("orders", part)] = write(t, p.a, "orders", part, 100) + 99
	}
	first := run(t, p, quick("orders"))
	mirrored(t, first, last)
	first.stop(t)
	refuse(p.toSource(), true)

	second := run(t, p, quick())
	for range 2 {
		if err := second.Stop(within(t, patience), "orders"); err != nil {
			t.Fatal(err)
		}
	}
	for q := range last {
		if s, _ := second.partition(q); s.State != coordinator.StateStopped || s.Position == nil || s.Position.Offset != 100 {
			t.Errorf("stopped: %s", show(s))
		}
		if got := write(t, p.b, "orders", q.Partition, 1); got != 101 { // exactly one fence, at 100
			t.Errorf("%v: local record at %d, want 101", q, got)
		}
	}
	second.stop(t)

	// A third process, in which the topic is still to be mirrored, appends nothing.
	refuse(p.toSource(), false)
	write(t, p.a, "orders", 0, 100)
	third := run(t, p, quick("orders"))
	s := third.reach(t, orders, coordinator.StateFailed)
	wantIs(t, s.Err, mirror.ErrDiverged)
	if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != 102 {
		t.Errorf("destination ends at %d, want 102", got)
	}
}

// TestStopBeforeRun: the same, asked for before Run.
func TestStopBeforeRun(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 100)
	first := run(t, p, quick("orders"))
	mirrored(t, first, map[cluster.Partition]int64{orders: 99})
	first.stop(t)
	refuse(p.toSource(), true)
	m := newMirror(t, p.source, p.destination, quick("orders"))
	if err := m.Stop(context.Background(), "orders"); err != nil {
		t.Fatal(err)
	}
	r := start(t, m)
	if s := r.reach(t, orders, coordinator.StateStopped); s.Position == nil || s.Position.Offset != 100 {
		t.Errorf("stopped: %s", show(s))
	}
	if got := write(t, p.b, "orders", 0, 1); got != 101 {
		t.Errorf("local record at %d, want 101", got)
	}
}

// TestStartAfterStopDiverged: what was written at the destination since the stop
// is not cut: the start fails and says where the logs part.
func TestStartAfterStopDiverged(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 100)
	var log journal
	o := quick("orders")
	o.Events = log.events()
	r := run(t, p, o)
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	ctx := within(t, patience)
	if err := r.Stop(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	write(t, p.b, "orders", 0, 5)
	write(t, p.a, "orders", 0, 50)
	if err := r.Start(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	s := r.reach(t, orders, coordinator.StateFailed)
	wantIs(t, s.Err, mirror.ErrLocalWrites)
	var where *cluster.OffsetError
	if !errors.As(s.Err, &where) || where.Span.From < 100 || where.Span.From > 106 || s.Retriable {
		t.Errorf("failed: %s", show(s))
	}
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if e, ok := log.failure(orders); !ok || e.Offset != where.Span.From || !errors.Is(e.Err, mirror.ErrLocalWrites) {
			return fmt.Errorf("event %+v", e)
		}
		return nil
	})
	if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != 106 {
		t.Errorf("destination ends at %d, want 106", got)
	}
	if err := r.Stop(ctx, "orders"); err != nil { // and can be given up again
		t.Fatal(err)
	}
	if s, _ := r.partition(orders); s.State != coordinator.StateStopped {
		t.Errorf("stopped: %s", show(s))
	}
}

// TestStartBehindFence: the fence of a stop stands where the source has a record
// by now. It is no hole that could be left: the start fails and says where.
func TestStartBehindFence(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 100)
	r := run(t, p, quick("orders"))
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	ctx := within(t, patience)
	if err := r.Stop(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	write(t, p.a, "orders", 0, 50)
	if err := r.Start(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	s := r.reach(t, orders, coordinator.StateFailed)
	var where *cluster.OffsetError
	if !errors.Is(s.Err, mirror.ErrLocalWrites) || !errors.As(s.Err, &where) || where.Span.From != 100 || s.Retriable {
		t.Errorf("failed: %s", show(s))
	}
	if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != 101 {
		t.Errorf("destination ends at %d, want 101", got)
	}
}

// TestSecondStretch: where the logs agree, a start after a stop goes on. Here
// the destination's topic was made anew, so that the fence is gone.
func TestSecondStretch(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 100)
	r := run(t, p, quick("orders"))
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	ctx := within(t, patience)
	if err := r.Stop(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := p.b.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Start(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	write(t, p.a, "orders", 0, 50)
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if info := p.b.PartitionInfo("orders", 0); info == nil || info.HighWatermark != 150 {
			return fmt.Errorf("%+v %s", info, r.describe(orders))
		}
		return nil
	})
	equal(t, p.source, p.destination, orders)
	if s, _ := r.partition(orders); s.State != coordinator.StateMirroring || s.Position != nil {
		t.Errorf("second stretch: %s", show(s))
	}
	if err := r.Stop(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if s, _ := r.partition(orders); s.Position == nil || s.Position.Offset != 150 {
		t.Errorf("stopped again: %s", show(s))
	}
}

// TestReverseIsRefused is C9.7's outcome where clusters keep no record of mirrors:
// the way back finds the fence and appends nothing.
func TestReverseIsRefused(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 100)
	r := run(t, p, quick("orders"))
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	if err := r.Stop(within(t, patience), "orders"); err != nil {
		t.Fatal(err)
	}
	write(t, p.a, "orders", 0, 3) // a tail that was never mirrored
	back := start(t, newMirror(t, connect(t, p.b, p.net), connect(t, p.a, p.net), quick("orders")))
	s := back.reach(t, orders, coordinator.StateFailed)
	wantIs(t, s.Err, mirror.ErrDiverged)
	if got := p.a.PartitionInfo("orders", 0).HighWatermark; got != 103 {
		t.Errorf("old source ends at %d, want 103", got)
	}
}

// TestStopEverythingAfterRestart: a stop without names, or with a pattern, finds
// what another process had mirrored though the source is dead, and fences it.
// What is not of this mirror is left alone.
func TestStopEverythingAfterRestart(t *testing.T) {
	for name, entries := range map[string][]string{"all": nil, "pattern": {"orders.*"}} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 1, "orders-1", "orders-2")
			last := map[cluster.Partition]int64{}
			for _, topic := range []string{"orders-1", "orders-2"} {
				last[at(topic, 0)] = write(t, p.a, topic, 0, 100) + 99
			}
			first := run(t, p, quick("orders.*"))
			mirrored(t, first, last)
			first.stop(t)
			refuse(p.toSource(), true)
			for _, topic := range []string{"orders-9", "local"} {
				if err := p.b.CreateTopic(topic, 1, nil); err != nil {
					t.Fatal(err)
				}
				write(t, p.b, topic, 0, 5)
			}

			second := run(t, p, quick("orders.*"))
			if err := second.Stop(within(t, patience), entries...); err != nil {
				t.Fatal(err)
			}
			for q := range last {
				if s, _ := second.partition(q); s.State != coordinator.StateStopped || s.Position == nil || s.Position.Offset != 100 {
					t.Errorf("stopped: %s", show(s))
				}
				if got := write(t, p.b, q.Topic, 0, 1); got != 101 {
					t.Errorf("%v: local record at %d, want 101", q, got)
				}
			}
			for _, topic := range []string{"orders-9", "local"} {
				if got := p.b.PartitionInfo(topic, 0).HighWatermark; got != 5 {
					t.Errorf("%s ends at %d: it is not this mirror's", topic, got)
				}
			}
			wantIs(t, second.Stop(within(t, patience), "nothing.*"), mirror.ErrUnknownTopic)
		})
	}
}

// TestStopOfAForeignTopic: the destination has a topic of that name that has
// nothing to do with the source's. A stop appends nothing to it and moves no group.
func TestStopOfAForeignTopic(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 100)
	commit(t, p.a, "billing", orders, 60)
	if err := p.b.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	write(t, p.b, "orders", 0, 50)
	r := run(t, p, quick("orders"))
	s := r.reach(t, orders, coordinator.StateFailed)
	wantIs(t, s.Err, mirror.ErrDiverged)
	for range 2 {
		if err := r.Stop(within(t, patience), "orders"); err != nil {
			t.Fatal(err)
		}
	}
	if s, _ := r.partition(orders); s.State != coordinator.StateStopped {
		t.Errorf("stopped: %s", show(s))
	}
	if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != 50 {
		t.Errorf("destination ends at %d, want 50", got)
	}
	if got := committed(t, p.b, "billing", orders); got != -1 {
		t.Errorf("the group is at %d", got)
	}
}
