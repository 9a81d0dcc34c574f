package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

var orders = at("orders", 0)

// TestBeforeRun: what is asked for before Run is what Run does.
func TestBeforeRun(t *testing.T) {
	p := newPair(t, 1, "started", "paused", "resumed", "stopped", "never")
	for _, topic := range []string{"started", "paused", "resumed", "stopped"} {
		write(t, p.a, topic, 0, 100)
	}
	m := newMirror(t, p.source, p.destination, quick("paused", "resumed", "stopped"))
	ctx := within(t, patience)
	for _, err := range []error{
		m.Start(ctx, "started"), m.Pause(ctx, "paused", "resumed"), m.Resume(ctx, "resumed"), m.Stop(ctx, "stopped"),
		m.Start(ctx, "started"), m.Pause(ctx, "paused"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, m)
	mirrored(t, r, map[cluster.Partition]int64{at("started", 0): 99, at("resumed", 0): 99})
	r.reach(t, at("paused", 0), coordinator.StatePaused)
	// C12.3: a partition that was never fetched has a lag too.
	kafkatest.Eventually(t, patience, func(context.Context) error {
		s, _ := r.partition(at("paused", 0))
		if s.Lag != 100 || s.SourceEnd != 100 || s.Desired != coordinator.WantPaused || r.Status().Lag != 100 {
			return fmt.Errorf("paused: %s, in all %d", show(s), r.Status().Lag)
		}
		return nil
	})
	if err := p.a.DeleteRecords("paused", 0, 60); err != nil { // what is gone does not have to be copied
		t.Fatal(err)
	}
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s, _ := r.partition(at("paused", 0)); s.Lag != 40 || s.SourceStart != 60 {
			return errors.New(show(s))
		}
		return nil
	})
	if p.b.TopicInfo("stopped") != nil || p.b.TopicInfo("never") != nil {
		t.Error("a topic was created that is not mirrored")
	}
	if err := r.Start(ctx, "stopped"); err != nil {
		t.Fatal(err)
	}
	mirrored(t, r, map[cluster.Partition]int64{at("stopped", 0): 99})
}

// TestPauseResume: after Pause has returned nothing is appended; Resume goes on
// from there; both can be repeated.
func TestPauseResume(t *testing.T) {
	p := newPair(t, 2, "orders")
	r := run(t, p, quick("orders"))
	last := map[cluster.Partition]int64{}
	for part := range int32(2) {
		last[at("orders", part)] = write(t, p.a, "orders", part, 50) + 49
	}
	mirrored(t, r, last)
	ctx := within(t, patience)
	for range 2 {
		if err := r.Pause(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
		for part := range int32(2) {
			if s, _ := r.partition(at("orders", part)); s.State != coordinator.StatePaused {
				t.Fatalf("after Pause: %s", show(s))
			}
		}
	}
	for q := range last {
		last[q] = write(t, p.a, "orders", q.Partition, 50) + 49
	}
	kafkatest.Eventually(t, patience, func(context.Context) error { // a sync shows the lag meanwhile
		if s := r.Status(); s.Lag != 100 {
			return fmt.Errorf("lag %d", s.Lag)
		}
		return nil
	})
	if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != 50 {
		t.Errorf("paused, but the destination ends at %d", got)
	}
	for range 2 {
		if err := r.Resume(ctx); err != nil {
			t.Fatal(err)
		}
	}
	mirrored(t, r, last)
	equal(t, p.source, p.destination, at("orders", 0), at("orders", 1))
}

// TestStop: the topic is writable when Stop returns, group offsets have come
// along, and what does not fit a stopped topic is refused by type.
func TestStop(t *testing.T) {
	p := newPair(t, 1, "orders", "other")
	write(t, p.a, "orders", 0, 100)
	commit(t, p.a, "billing", orders, 60)
	var log journal
	o := quick(".*")
	o.Events = log.events()
	r := run(t, p, o)
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	ctx := within(t, patience)
	for range 2 {
		if err := r.Stop(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := r.partition(orders)
	if s.State != coordinator.StateStopped || s.Position == nil || s.Position.Offset != 100 || s.Desired != coordinator.WantStopped {
		t.Errorf("stopped: %s", show(s))
	}
	if got := committed(t, p.b, "billing", orders); got != 60 {
		t.Errorf("the group is at %d, want 60", got)
	}
	if got := write(t, p.b, "orders", 0, 1); got != 101 { // the fence stands at 100
		t.Errorf("local record at %d, want 101", got)
	}
	wantIs(t, r.Pause(ctx, "orders"), mirror.ErrStopped)
	wantIs(t, r.Resume(ctx, "orders"), mirror.ErrStopped)
	var e *mirror.Error
	if err := r.Pause(ctx, "orders"); !errors.As(err, &e) || e.Op != "pause" || e.Partition.Topic != "orders" || e.Partition.Partition != -1 {
		t.Errorf("error %#v", err)
	}
	write(t, p.a, "other", 0, 5) // the rest goes on
	mirrored(t, r, map[cluster.Partition]int64{at("other", 0): 4})
	kafkatest.Eventually(t, patience, func(context.Context) error {
		log.mu.Lock()
		defer log.mu.Unlock()
		last := slices.DeleteFunc(slices.Clone(log.groups), func(e mirror.GroupsEvent) bool { return !e.Last })
		if len(last) != 1 || last[0].Matched != 1 || len(last[0].Held)+len(last[0].Clamped) > 0 || last[0].Err != nil {
			return fmt.Errorf("group events %+v", log.groups)
		}
		return nil
	})
	err := r.Stop(ctx, "nowhere")
	wantIs(t, err, mirror.ErrUnknownTopic)
}

func commit(t testing.TB, c *kfake.Cluster, group string, p cluster.Partition, offset int64) {
	t.Helper()
	err := connect(t, c, nil).Commit(within(t, patience), group, []cluster.Committed{{Partition: p, Offset: offset}})
	if err != nil {
		t.Fatal(err)
	}
}

func committed(t testing.TB, c *kfake.Cluster, group string, p cluster.Partition) int64 {
	t.Helper()
	answers, err := connect(t, c, nil).Committed(within(t, patience), []string{group})
	if err != nil || answers[0].Err != nil {
		t.Fatal(err, answers)
	}
	for _, o := range answers[0].Offsets {
		if o.Partition == p {
			return o.Offset
		}
	}
	return -1
}

// TestPromote is C10.11: Promote waits for lag 0; when its time is over it says
// what remains and has stopped nothing.
func TestPromote(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 10)
	r := run(t, p, quick("orders"))
	mirrored(t, r, map[cluster.Partition]int64{orders: 9})
	full := p.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	write(t, p.a, "orders", 0, 90)
	ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
	defer cancel()
	err := r.Promote(ctx, "orders")
	wantIs(t, err, context.DeadlineExceeded)
	if err == nil || !strings.Contains(err.Error(), "orders-0") || !strings.Contains(err.Error(), "90 records behind") {
		t.Errorf("error does not say what remains: %v", err)
	}
	if s, _ := r.partition(orders); s.Desired != coordinator.WantMirroring {
		t.Errorf("stopped all the same: %s", show(s))
	}
	full.Remove()
	if err := r.Promote(within(t, patience), "orders"); err != nil {
		t.Fatal(err)
	}
	if s, _ := r.partition(orders); s.State != coordinator.StateStopped || s.Position.Offset != 100 {
		t.Errorf("promoted: %s", show(s))
	}
}

// TestRecover: a failed partition that would wait for an hour is tried again now.
func TestRecover(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 10)
	o := quick("orders")
	o.RetryMin, o.RetryMax = time.Hour, time.Hour
	bad := p.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	r := run(t, p, o)
	s := r.reach(t, orders, coordinator.StateFailed)
	wantIs(t, s.Err, mirror.ErrAuthorization)
	if !s.Retriable || s.Attempts != 1 || s.RetryAt == nil || time.Until(*s.RetryAt) < 30*time.Minute || s.Reason == "" || r.Status().Health != "failed" {
		t.Errorf("failed: %s", show(s))
	}
	bad.Remove()
	if err := r.Recover(within(t, time.Second)); err != nil {
		t.Fatal(err)
	}
	mirrored(t, r, map[cluster.Partition]int64{orders: 9})
	if s := r.reach(t, orders, coordinator.StateMirroring); s.Attempts != 0 || s.Reason != "" || r.Status().Health != "ok" {
		t.Errorf("recovered: %s", show(s))
	}
}

// TestBadEntries: operations name a bad expression and do nothing.
func TestBadEntries(t *testing.T) {
	m := newMirror(t, undialled(t), undialled(t), mirror.Options{})
	ctx := context.Background()
	for op, f := range map[string]func(context.Context, ...string) error{
		"start": m.Start, "pause": m.Pause, "resume": m.Resume, "recover": m.Recover, "stop": m.Stop, "promote": m.Promote,
	} {
		var e *mirror.Error
		if err := f(ctx, "good", "bad("); !errors.As(err, &e) || e.Op != op || !strings.Contains(err.Error(), `"bad("`) {
			t.Errorf("%s: %v", op, err)
		}
	}
}
