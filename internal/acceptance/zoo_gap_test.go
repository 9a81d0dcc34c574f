package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// abortedRecords writes a transaction of n records and aborts it: a gap to those who
// read committed records.
func abortedRecords(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, n int) {
	t.Helper()
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(topic), kgo.MaxBufferedRecords(100_000))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range n {
		cl.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: partition}, nil)
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

// TestLongGap: one partition has a long gap, the others go on being written to and
// copied meanwhile, as if it were not there.
func TestLongGap(t *testing.T) {
	src := source(t)
	const parts = 4
	gap := sized(100_000, 2_000_000)
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			topic := "long-gap-" + way
			dst := zooDestination(t, way)
			src.CreateTopic(t, topic, parts, 1, nil)
			m := run(t, topic, connect(t, src), connect(t, dst, filling(way)), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
			stop := writer(t, src, topic, parts, 0)
			flowing(t, m, topic, parts, 20*time.Second)
			stop()
			caughtUp(t, time.Minute, src, dst, topic)

			abortedRecords(t, src, topic, 0, gap)
			last := put(t, src, topic, 0, 1)
			stop = writer(t, src, topic, parts, 0)
			still, began := watch(t, m, topic, parts), time.Now()
			seen := fillings(t, m, cluster.Partition{Topic: topic})
			if err := m.WaitMirrored(timeout(t, 10*time.Minute), cluster.Partition{Topic: topic}, last); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			stood := still()
			if took > 2*time.Second { // phantoms are through before they are seen
				progress(t, seen(), took)
			}
			stop()
			t.Logf("%d offsets in %v: %.0f a second; the others stood still for at most %v", gap, took.Round(time.Millisecond), float64(gap)/took.Seconds(), stood[1:])
			for i, d := range stood[1:] {
				if d > max(2*time.Second, took/2) { // a busy machine stops all for a while
					t.Errorf("partition %d stood still for %v", i+1, d)
				}
			}
			caughtUp(t, time.Minute, src, dst, topic)
			equal(t, src, dst, topic, parts)
			if bytes := logBytes(t, dst, fmt.Sprint(topic, "-0")); bytes > 0 {
				t.Logf("partition 0 takes %d bytes at the destination, %d at the source", bytes, logBytes(t, src, fmt.Sprint(topic, "-0")))
			}
		})
	}
}

// logBytes is the size of a partition's segments on the disk of node 1.
func logBytes(t *testing.T, c *kafkatest.Cluster, partition string) (n int64) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(c.LogDir(1), partition, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		info, err := os.Stat(s)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}
