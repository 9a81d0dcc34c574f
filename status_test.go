package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestStatusNeverBlocks: with both clusters behind black holes every look is
// answered at once.
func TestStatusNeverBlocks(t *testing.T) {
	p := newPair(t, 2, "orders")
	write(t, p.a, "orders", 0, 100)
	r := run(t, p, quick("orders"))
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	for _, l := range slices.Concat(p.toSource(), p.toDestination()) {
		l.Blackhole(true)
	}
	syncHangs(t, r)
	began := time.Now()
	const looks = 100
	for range looks {
		s := r.Status()
		if s.Partitions != 2 || len(r.Topics()) != 1 {
			t.Fatalf("status %s", show(s))
		}
		if top, ok := r.Topic("orders"); !ok || top.Partitions[0].DestinationEnd != 100 {
			t.Fatalf("topic %s", show(top))
		}
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("%d looks took %v", looks, d)
	}
}

// TestC12_1_Rates: three partitions at three rates have three figures.
func TestC12_1_Rates(t *testing.T) {
	p := newPair(t, 3, "orders")
	r := run(t, p, quick("orders"))
	last := map[cluster.Partition]int64{}
	for range 10 {
		for part, n := range []int{1, 10, 100} {
			q := at("orders", int32(part))
			last[q] = write(t, p.a, "orders", int32(part), n) + int64(n) - 1
		}
	}
	mirrored(t, r, last)
	var figures []int64
	top, _ := r.Topic("orders")
	for _, s := range top.Partitions {
		figures = append(figures, s.Records)
		if s.SourceEnd != s.Records || s.DestinationEnd != s.Records || s.Lag != 0 || s.LastAppend == nil || s.NewestRecord == nil || s.Bytes == 0 {
			t.Errorf("%s", show(s))
		}
	}
	if diff := cmp.Diff([]int64{10, 100, 1000}, figures); diff != "" {
		t.Error(diff)
	}
	if s := r.Status(); s.Records != 1110 || s.Batches == 0 || s.Bytes == 0 {
		t.Errorf("status %s", show(s))
	}
}

// TestWorst is C12.5: counts per state, health as the worst partition's, and the
// hundred that need looking at most, the failed ones first, then by lag.
func TestWorst(t *testing.T) {
	p := newPair(t, 120, "orders")
	if err := p.b.CreateTopic("orders", 120, nil); err != nil {
		t.Fatal(err)
	}
	write(t, p.b, "orders", 7, 3) // foreign records where nothing was mirrored yet
	for _, part := range []int32{3, 50, 90} {
		write(t, p.a, "orders", part, 10*int(part))
	}
	m := newMirror(t, p.source, p.destination, quick("orders"))
	r := start(t, m)
	r.reach(t, at("orders", 7), coordinator.StateFailed)
	mirrored(t, r, map[cluster.Partition]int64{at("orders", 90): 899, at("orders", 50): 499, at("orders", 3): 29})
	if err := r.Pause(within(t, patience), "orders"); err != nil && !errors.Is(err, mirror.ErrDiverged) {
		t.Fatal(err)
	}
	for _, part := range []int32{3, 50, 90} {
		write(t, p.a, "orders", part, int(part))
	}
	var s mirror.Status
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s = r.Status(); s.Lag != 143 {
			return errors.New(show(s.States) + fmt.Sprint(" lag ", s.Lag))
		}
		return nil
	})
	if len(s.Worst) != 100 || s.Partitions != 120 {
		t.Fatalf("%d worst of %d", len(s.Worst), s.Partitions)
	}
	var order []int32
	for _, w := range s.Worst[:5] {
		order = append(order, w.Partition.Partition)
	}
	if diff := cmp.Diff([]int32{90, 50, 3, 0, 1}, order); diff != "" {
		t.Error(diff)
	}
	if s.States[coordinator.StatePaused] != 120 || s.Health != "ok" {
		t.Errorf("%s %s", show(s.States), s.Health)
	}
	if err := r.Resume(within(t, patience), "orders"); err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s = r.Status(); s.Lag != 0 || s.States[coordinator.StateFailed] != 1 || s.States[coordinator.StateMirroring] != 119 {
			return errors.New(show(s.States))
		}
		return nil
	})
	if s.Worst[0].Partition != at("orders", 7) || s.Health != "failed" {
		t.Errorf("worst is %s, health %s", show(s.Worst[0]), s.Health)
	}
}

// TestStatusJSON holds the names hosts rely on.
func TestStatusJSON(t *testing.T) {
	when := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	s := mirror.Status{
		Mirror: "dr", Time: when, Running: true, Source: "A", Destination: "B", Topics: 1, Partitions: 1,
		States: map[coordinator.State]int{coordinator.StateFailed: 1}, Health: "failed",
		Lag: 1, Records: 2, Batches: 3, Bytes: 4, Corrupt: 5,
		Worst: []mirror.PartitionStatus{{
			Partition: orders, State: coordinator.StateFailed, Desired: coordinator.WantMirroring, Reason: "why", Err: mirror.ErrGap,
			Retriable: true, Attempts: 6, RetryAt: &when, SourceStart: 7, SourceEnd: 8, DestinationEnd: 9, Lag: 10, Records: 11,
			Batches: 12, Bytes: 13, Corrupt: 14, LastAppend: &when, NewestRecord: &when, Position: &cluster.Position{Epoch: 15, Offset: 16},
			Alignment: "empty destination",
		}},
		Refused: map[string]string{"x": "reason"}, Missing: []string{"y"}, Synced: &when, SyncError: "z", EventsDropped: 17,
		Syncs: []mirror.SyncStatus{{
			Kind: mirror.SyncTopics, Synced: &when, Error: "z", Err: mirror.ErrTimeout, Rounds: 18, Failures: 19, Idle: "idle",
			Done: map[string]int64{"created": 20}, Seen: map[string]int64{"matched": 21}, Refused: map[string]string{"x": "reason"},
		}},
	}
	got, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "mirror": "dr",
 "time": "2026-09-01T12:00:00Z",
 "running": true,
 "source": "A",
 "destination": "B",
 "topics": 1,
 "partitions": 1,
 "states": {
  "FAILED": 1
 },
 "health": "failed",
 "lag": 1,
 "records": 2,
 "batches": 3,
 "bytes": 4,
 "corrupt": 5,
 "worst": [
  {
   "topic": "orders",
   "partition": 0,
   "state": "FAILED",
   "desired": "MIRRORING",
   "reason": "why",
   "retriable": true,
   "attempts": 6,
   "retryAt": "2026-09-01T12:00:00Z",
   "sourceStart": 7,
   "sourceEnd": 8,
   "destinationEnd": 9,
   "lag": 10,
   "records": 11,
   "batches": 12,
   "bytes": 13,
   "corrupt": 14,
   "lastAppend": "2026-09-01T12:00:00Z",
   "newestRecord": "2026-09-01T12:00:00Z",
   "position": {
    "epoch": 15,
    "offset": 16
   },
   "alignment": "empty destination"
  }
 ],
 "refused": {
  "x": "reason"
 },
 "missing": [
  "y"
 ],
 "synced": "2026-09-01T12:00:00Z",
 "syncError": "z",
 "syncs": [
  {
   "kind": "topics",
   "synced": "2026-09-01T12:00:00Z",
   "error": "z",
   "rounds": 18,
   "failures": 19,
   "idle": "idle",
   "done": {
    "created": 20
   },
   "seen": {
    "matched": 21
   },
   "refused": {
    "x": "reason"
   }
  }
 ],
 "eventsDropped": 17
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// TestEvents: a function that does not come back holds up neither the copying nor
// the status; what nobody took is counted. And order: one partition's changes
// follow each other.
func TestEvents(t *testing.T) {
	const parts = 1500 // three changes each are more than may wait
	p := newPair(t, parts, "orders")
	release := make(chan struct{})
	var seen []mirror.StateEvent
	o := quick("orders")
	o.Events.State = func(e mirror.StateEvent) {
		<-release
		seen = append(seen, e)
	}
	r := run(t, p, o)
	write(t, p.a, "orders", 0, 100)
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s := r.Status(); s.States[coordinator.StateMirroring] != parts {
			return errors.New(show(s.States))
		}
		return nil
	})
	if err := r.Pause(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	if s := r.Status(); s.EventsDropped == 0 || s.States[coordinator.StatePaused] != parts {
		t.Errorf("%d dropped, %s", s.EventsDropped, show(s.States))
	}
	close(release)
	r.stop(t)
	way := []coordinator.State{coordinator.StateUnknown, coordinator.StateLogAlignment, coordinator.StateMirroring, coordinator.StatePausing, coordinator.StatePaused}
	before := map[cluster.Partition]coordinator.State{}
	for _, e := range seen { // some are missing, the others are in order
		if last, ok := before[e.Partition]; ok && slices.Index(way, e.From) < slices.Index(way, last) {
			t.Fatalf("%v went %s to %s after %s", e.Partition, e.From, e.To, last)
		}
		before[e.Partition] = e.To
	}
	if len(before) != parts || before[orders] != coordinator.StatePaused {
		t.Errorf("events of %d partitions, the first is %s", len(before), before[orders])
	}
}

// TestForeignWrite: a record of somebody else in the mirror topic displaces what
// is appended behind it, which this destination can only detect (I4): the
// partition fails and the event names the offsets. Looked at again, the foreign
// record is named; nothing more is appended.
func TestForeignWrite(t *testing.T) {
	p := newPair(t, 2, "orders")
	write(t, p.a, "orders", 0, 100)
	var log journal
	o := quick("orders")
	o.Events = log.events()
	r := run(t, p, o)
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	write(t, p.b, "orders", 0, 1)
	write(t, p.a, "orders", 0, 20)
	s := r.reach(t, orders, coordinator.StateFailed)
	var where *cluster.OffsetError
	if !errors.Is(s.Err, mirror.ErrDisplaced) || !errors.As(s.Err, &where) || where.Span != (cluster.Span{From: 101, To: 121}) || s.Retriable {
		t.Errorf("failed: %s", show(s))
	}
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if e, ok := log.failure(orders); !ok || e.Offset != 101 || !errors.Is(e.Err, mirror.ErrDisplaced) {
			return fmt.Errorf("event %+v", e)
		}
		return nil
	})
	mirrored(t, r, map[cluster.Partition]int64{at("orders", 1): write(t, p.a, "orders", 1, 1)})
	if err := r.Recover(within(t, time.Second), "orders"); err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, patience, func(context.Context) error {
		s, _ := r.partition(orders)
		if !errors.Is(s.Err, mirror.ErrForeignWrite) || !errors.As(s.Err, &where) || where.Span.From != 100 || s.State != coordinator.StateFailed {
			return errors.New(show(s))
		}
		return nil
	})
	write(t, p.a, "orders", 0, 20)
	if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != 121 {
		t.Errorf("destination ends at %d, want 121", got)
	}
}

// TestWaitMirrored: it waits for what is not there yet, and says where it stood
// when its time is over.
func TestWaitMirrored(t *testing.T) {
	p := newPair(t, 1, "orders")
	r := run(t, p, quick("orders"))
	r.reach(t, orders, coordinator.StateMirroring)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err := r.WaitMirrored(ctx, orders, 0)
	var e *mirror.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Op != "wait" || e.Partition != orders {
		t.Errorf("nothing is there, got %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- r.WaitMirrored(within(t, patience), orders, 9) }()
	write(t, p.a, "orders", 0, 10)
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != 10 {
		t.Errorf("destination ends at %d", got)
	}
	// Appended is not enough: the destination has to say that it is safe.
	bad := p.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	ctx, cancel = context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	wantIs(t, r.WaitMirrored(ctx, orders, 9), context.DeadlineExceeded)
	bad.Remove()
	if err := r.WaitMirrored(context.Background(), orders, -1); err == nil {
		t.Error("a negative offset is waited for")
	}
}
