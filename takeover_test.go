package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// noticed has the mirror's destination look at the log once: that another worker
// appended is told the first who looks, which need not be the one who goes on.
func (p *pair) noticed(t testing.TB) {
	t.Helper()
	ends, err := p.destination.Ends(within(t, patience), []fetcher.Stretch{{Mirror: "dr", Partition: orders}})
	if err != nil || !errors.Is(ends[0].Err, mirror.ErrFenced) {
		t.Fatalf("first look: %+v, %v", ends, err)
	}
}

// TestTakeOverAcrossAnEpoch: while a mirror is paused another worker goes on,
// across a change of the source's leader. The first one goes on behind that, with
// the source's epoch there and not with its own old one.
func TestTakeOverAcrossAnEpoch(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 10)
	var log journal
	o := quick("orders")
	o.Events, o.Store = log.events(), coordinator.NewMemory()
	one := run(t, p, o)
	mirrored(t, one, map[cluster.Partition]int64{orders: 9})
	ctx := within(t, patience)
	if err := one.Pause(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	write(t, p.a, "orders", 0, 10)
	if err := p.a.MoveTopicPartition("orders", 0, (p.a.LeaderFor("orders", 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	write(t, p.a, "orders", 0, 10)
	two := start(t, newMirror(t, connect(t, p.a, p.net), connect(t, p.b, p.net), quick("orders")))
	mirrored(t, two, map[cluster.Partition]int64{orders: 29})
	two.stop(t)
	p.noticed(t)
	if err := one.Resume(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	write(t, p.a, "orders", 0, 10)
	mirrored(t, one, map[cluster.Partition]int64{orders: 39})
	equal(t, p.source, p.destination, orders)
	// The epoch of the record before the take-over is on record, not only that of
	// the first one after it.
	records, err := o.Store.Load(ctx, one.Name())
	if err != nil || len(records) != 1 || len(records[0].Epochs) == 0 {
		t.Fatalf("%v: %+v", err, records)
	}
	if last := records[0].Epochs[len(records[0].Epochs)-1]; last.Start != 29 {
		t.Errorf("history ends with %+v, want the epoch at 29", last)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, e := range log.states {
		if e.Err != nil && !errors.Is(e.Err, mirror.ErrFenced) {
			t.Errorf("%s to %s: %v", e.From, e.To, e.Err)
		}
	}
}

// TestTakeOverIsCompared: what another worker appended is not the source's. It is
// found before anything is built upon it.
func TestTakeOverIsCompared(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 10)
	r := run(t, p, quick("orders"))
	mirrored(t, r, map[cluster.Partition]int64{orders: 9})
	ctx := within(t, patience)
	if err := r.Pause(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	write(t, p.a, "orders", 0, 10)
	other := connect(t, p.b, p.net)
	ends, err := other.Ends(ctx, []fetcher.Stretch{{Mirror: "dr", Partition: orders}})
	if err != nil || ends[0].Err != nil || ends[0].LogEnd != 10 {
		t.Fatal(ends, err)
	}
	records := make([]batch.Record, 10)
	for i := range records {
		records[i] = batch.Record{Offset: 10 + int64(i), Timestamp: time.Now().UnixMilli(), Value: []byte("not the source's")}
	}
	b := batch.Encode(batch.Spec{Base: 10, Records: records})
	done := make(chan fetcher.Result, 1)
	other.Append(orders, []cluster.Batch{{Base: 10, Next: 20, MaxTimestamp: batch.Header(b).MaxTimestamp(), Bytes: b}}, nil, func(r fetcher.Result) { done <- r })
	if res := <-done; res.Err != nil {
		t.Fatal(res.Err)
	}
	p.noticed(t)
	if err := r.Resume(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s, _ := r.partition(orders); s.State != coordinator.StateFailed || s.Retriable {
			return fmt.Errorf("%s", show(s))
		}
		return nil
	})
	s, _ := r.partition(orders)
	wantIs(t, s.Err, mirror.ErrDiverged)
	if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != 20 {
		t.Errorf("destination ends at %d, want 20", got)
	}
}

// handed is a destination whose logs come straight from another worker, or so it says.
type handed struct {
	*kafka.Cluster
	straight bool
	reads    atomic.Int32
}

func (h *handed) Ends(ctx context.Context, s []fetcher.Stretch) ([]fetcher.End, error) {
	ends, err := h.Cluster.Ends(ctx, s)
	for i := range ends {
		ends[i].Ours, ends[i].Inherited = false, h.straight
	}
	return ends, err
}

func (h *handed) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	h.reads.Add(1)
	return h.Cluster.Read(ctx, p, offset, maxBytes)
}

// TestInheritedIsNotCompared: a worker goes on with a log that comes straight from another one,
// by what is on record, and reads none of it. Any other one is compared before.
func TestInheritedIsNotCompared(t *testing.T) {
	for _, straight := range []bool{true, false} {
		p := newPair(t, 1, "orders")
		write(t, p.a, "orders", 0, 10)
		o := quick("orders")
		o.Store = coordinator.NewMemory()
		first := run(t, p, o)
		mirrored(t, first, map[cluster.Partition]int64{orders: 9})
		first.stop(t)
		write(t, p.a, "orders", 0, 10)
		d := &handed{Cluster: connect(t, p.b, p.net), straight: straight}
		next := start(t, newMirror(t, connect(t, p.a, p.net), d, o))
		mirrored(t, next, map[cluster.Partition]int64{orders: 19})
		if read := d.reads.Load() > 0; read == straight {
			t.Errorf("straight from another: %v, its log was read: %v", straight, read)
		}
		equal(t, p.source, p.destination, orders)
	}
}
