package kafka

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

// Bytes that were given back are somebody else's at once: what lands is what was
// handed over all the same, and every run is freed once, whatever became of it.
func TestFreedBytesAreNotReadAgain(t *testing.T) {
	const partitions, runs = 4, 50
	f := fake(t, 1, "t", partitions)
	c := open(t, f.ListenAddrs())
	results := make(chan fetcher.Result, partitions*runs)
	freed := make([]atomic.Int32, partitions*(runs+1))
	hand := func(p cluster.Partition, n int, batches []cluster.Batch) {
		c.Append(p, batches, func() {
			freed[n].Add(1)
			for _, b := range batches {
				clear(b.Bytes)
			}
		}, func(r fetcher.Result) { results <- r })
	}
	for i := range int32(partitions) {
		p := cluster.Partition{Topic: "t", Partition: i}
		beginAt(t, c, stretchOf(p))
		for n := range runs {
			hand(p, int(i)*runs+n, batchesAt(int64(n*4), 2, 2, now()))
		}
	}
	for range partitions * runs {
		if r := wait(t, results); r.Err != nil {
			t.Fatal(r.Partition, r.Err)
		}
	}
	for i := range int32(partitions) {
		p := cluster.Partition{Topic: "t", Partition: i}
		if err := intact(t, c, p, runs*4); err != nil {
			t.Error(err)
		}
		hand(p, partitions*runs+int(i), batchesAt(1, 1, 1, now()))
		if r := wait(t, results); r.Err == nil {
			t.Errorf("%v: a gap was appended", p)
		}
	}
	for n := range freed { // a write may return after the answer to it
		until(t, func() bool { return freed[n].Load() > 0 })
		if got := freed[n].Load(); got != 1 {
			t.Errorf("run %d was freed %d times", n, got)
		}
	}
}

// intact reads a log from 0 to end.
func intact(t *testing.T, c *Cluster, p cluster.Partition, end int64) error {
	ctx := within(t, 30*time.Second)
	for next := int64(0); next < end; {
		b, err := c.Read(ctx, p, next, 1<<20)
		if err != nil || len(b) == 0 {
			return fmt.Errorf("%v at %d: %d bytes, %w", p, next, len(b), err)
		}
		for w := batch.Walk(b); w.Next(); {
			h := w.Header()
			if err := h.Check(); err != nil {
				return err
			}
			if h.Base() != next {
				return fmt.Errorf("%v: a batch at %d, want %d", p, h.Base(), next)
			}
			next = h.Next()
		}
	}
	return nil
}
