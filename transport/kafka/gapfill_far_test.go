package kafka

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// A gap of 100,000 offsets beside partitions that go on.
func TestRealLongHole(t *testing.T) {
	eachWay(t, func(t *testing.T, k *kafkatest.Cluster, way GapFill) {
		const long = 100_000
		p := realTopic(t, k, "long", nil)
		c := open(t, k.Bootstrap(), filledBy(way))
		beginAt(t, c, stretchOf(p))
		began := time.Now()
		got := make(chan fetcher.Result, 1)
		c.Append(p, append([]cluster.Batch{hole(0, long)}, batchesAt(long, 1, 5, now())...), nil, func(r fetcher.Result) { got <- r })
		var last fetcher.Filling
		until(t, func() bool {
			f, ok := c.Filling(p)
			if ok {
				last = f
			}
			return !ok && len(got) > 0
		})
		if r := <-got; r.Err != nil {
			t.Fatal(r.Err)
		}
		took := time.Since(began)
		rate := long / took.Seconds()
		if last.To != long || took > 2*measurable && (!last.Measured || float64(last.Rate) < rate/2 || float64(last.Rate) > rate*2) {
			t.Errorf("%d offsets in %v, and the last that was seen of it: %+v", long, took, last)
		}
		size := len(readAll(t, c, p))
		t.Logf("%d offsets in %v: %.0f a second, %.1f bytes each", long, took, long/took.Seconds(), float64(size)/long)
		beginAtEnd(t, open(t, k.Bootstrap(), filledBy(way)), p, long+5)
		holds(t, c, p, cluster.Span{From: long, To: long + 5})
	})
}

// The start of a log at 2 * 10^7 (with MIRROR_LONG=1 10^8), killed on the way; compact,delete too. With only compact
// nothing can be deleted: refused before anything is appended.
func TestRealStartFar(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		far := int64(20_000_000)
		if os.Getenv("MIRROR_LONG") != "" {
			far = 100_000_000
		}
		p := realTopic(t, k, "far", map[string]string{"cleanup.policy": "compact,delete"})
		half, cancel := context.WithCancel(within(t, 60*time.Second))
		d := &deadly{at: -1}
		dying := open(t, k.Bootstrap(), func(cfg *Config) { cfg.Dial = d.dial })
		began := time.Now()
		_ = dying.StartAt(half, stretchOf(p), far, func(done int64) {
			if done > far/2 {
				d.mu.Lock()
				d.kill()
				d.mu.Unlock()
				cancel()
			}
		})
		c := open(t, k.Bootstrap())
		if e := beginAt(t, c, stretchOf(p)); e.LogEnd <= far/2 || e.LogEnd >= far || e.LogStart < e.LogEnd-2*startTrims {
			t.Errorf("killed: %+v", e)
		}
		told := int64(0)
		if err := c.StartAt(within(t, 60*time.Second), stretchOf(p), far, func(done int64) { told = done }); err != nil || told != far {
			t.Fatal(told, err)
		}
		t.Logf("%d offsets in %v: %.1f M/s", far, time.Since(began), float64(far)/1e6/time.Since(began).Seconds())
		if e := beginAt(t, c, stretchOf(p)); e.LogEnd != far || e.LogStart != far {
			t.Errorf("%+v", e)
		}
		mustAppend(t, c, p, batchesAt(far, 1, 5, now()))
		holds(t, c, p, cluster.Span{From: far, To: far + 5})

		kept := realTopic(t, k, "kept", map[string]string{"cleanup.policy": "compact"})
		if err := c.StartAt(within(t, 20*time.Second), stretchOf(kept), 500_000, nil); !errors.Is(err, cluster.ErrRefused) {
			t.Errorf("compact: %v", err)
		}
		if e := beginAt(t, c, stretchOf(kept)); e.LogEnd != 0 {
			t.Errorf("compact: refused, and yet %+v", e)
		}
	})
}

// What lies below the source's log start is filled cheaply, and can be trimmed.
func TestRealGoneHole(t *testing.T) {
	eachWay(t, func(t *testing.T, k *kafkatest.Cluster, way GapFill) {
		for _, policy := range []string{"delete", "compact,delete", "compact"} {
			p := realTopic(t, k, "gone", map[string]string{"cleanup.policy": policy})
			c := open(t, k.Bootstrap(), filledBy(way))
			beginAt(t, c, stretchOf(p))
			n := int64(1_000_000)
			if policy == "compact" {
				n = 5000 // as any other hole: what cannot be deleted is not shown
			}
			gone := cluster.Batch{Base: 5, Next: n, Gone: true}
			mustAppend(t, c, p, append(append(batchesAt(0, 1, 5, now()), gone), batchesAt(n, 1, 5, now())...))
			beginAtEnd(t, open(t, k.Bootstrap(), filledBy(way)), p, n+5)
			records := []cluster.Span{{From: n, To: n + 5}}
			if policy == "compact" {
				records = append(records, cluster.Span{From: 0, To: 5})
			} else if err := c.Trim(within(t, 20*time.Second), []fetcher.Cut{{Partition: p, Offset: n}})[0]; err != nil {
				t.Fatal(policy, err)
			}
			holds(t, c, p, records...)
		}
	})
}
