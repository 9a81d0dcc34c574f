package acceptance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/clustermirror/mirror/verify"
)

// stocked is a source in memory whose topics hold batches as they are given: shapes that
// no client can bring a broker to.
func stocked(t *testing.T, logs map[cluster.Partition][][]byte) *memory.Cluster {
	t.Helper()
	c := memory.New(memory.Options{ID: "memory-" + t.Name()})
	t.Cleanup(func() { c.Close() })
	parts := map[string]int32{}
	for p := range logs {
		parts[p.Topic] = max(parts[p.Topic], p.Partition+1)
	}
	for topic, n := range parts {
		if err := c.CreateTopic(cluster.NewTopic{Name: topic, Partitions: n}); err != nil {
			t.Fatal(err)
		}
	}
	for p, batches := range logs {
		if err := c.Inject(p, batches...); err != nil {
			t.Fatalf("%v: %v", p, err)
		}
	}
	return c
}

// reaches waits until the destination ends where it is said.
func reaches(t *testing.T, dst *kafkatest.Cluster, p cluster.Partition, end int64) {
	t.Helper()
	cl := dst.Client(t)
	var last error
	kafkatest.Eventually(t, sized(time.Minute, 5*time.Minute), func(ctx context.Context) error {
		at, err := highWatermarks(ctx, cl, p.Topic)
		switch {
		case err != nil && ctx.Err() != nil && last != nil: // it says nothing but that time is over
			return last
		case err == nil && at[p.Partition] != end:
			err = fmt.Errorf("%v ends at %v, want %d", p, at[p.Partition], end)
		}
		last = err
		return err
	})
}

// TestSeeds: logs that were made up, with all shapes at all places, are mirrored to a
// real cluster in both ways. Verify finds them equal.
func TestSeeds(t *testing.T) {
	logs, animals := map[cluster.Partition][][]byte{}, map[cluster.Partition]*zoo.Log{}
	for seed := range sized[uint64](12, 400) {
		p := cluster.Partition{Topic: fmt.Sprint("seed-", seed)}
		animals[p] = zoo.Generate(seed, zoo.Options{
			Batches: 60, MaxValue: 2000, Settled: seed%3 > 0, Trim: seed%4 == 1, Start: int64(seed%5) * 1000, Plain: seed%7 == 3,
		})
		logs[p] = animals[p].Bytes()
	}
	src := stocked(t, logs)
	for p, l := range animals {
		if err := src.DeleteRecords(p, l.Start); err != nil {
			t.Fatal(err)
		}
	}
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			dst := zooDestination(t, way)
			end := connect(t, dst, filling(way))
			m := run(t, "seeds", src, end, mirror.Options{Topics: mirror.Topics{Include: []string{"seed-.*"}}, Fetch: fetcher.Options{PartitionBytes: 8 << 10}})
			complain(t, way, m)
			var ps []cluster.Partition
			for p, l := range animals {
				reaches(t, dst, p, l.LastStable())
				ps = append(ps, p)
			}
			reports, err := verify.Topics(t.Context(), src, end, ps, nil)
			if err != nil {
				t.Fatal(err)
			}
			records := int64(0)
			for _, r := range reports {
				records += r.Records
				if want := int64(len(animals[r.Partition].Visible(true))); !r.Equal || r.Records != want || r.Source.LogStart != r.Destination.LogStart {
					t.Errorf("%v; want %d records; differences: %v", r, want, r.Differences)
				}
			}
			t.Logf("%d logs, %d records", len(reports), records)
		})
	}
}

// complain shows how a mirror stands when a test has failed.
func complain(t *testing.T, way string, m *running) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, p := range m.Status().Worst {
			t.Logf("%s: %v %s %d of [%d,%d): %s", way, p.Partition, p.State, p.DestinationEnd, p.SourceStart, p.SourceEnd, p.Reason)
		}
	})
}

// one is a batch of records with a key and a value each.
func one(base int64, n int, change func(s *batch.Spec)) []byte {
	s := batch.Spec{Base: base, Next: base + int64(n), Codec: batch.LZ4}
	for i := range n {
		s.Records = append(s.Records, batch.Record{
			Offset: base + int64(i), Timestamp: 1_700_000_000_000 + base + int64(i), Key: fmt.Append(nil, "key ", i), Value: fmt.Append(nil, "value ", base+int64(i)),
		})
	}
	if change != nil {
		change(&s)
	}
	return batch.Encode(s)
}
