package acceptance

import (
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

// TestStartInTheBillions: a partition whose first record has a very high offset is begun on
// a real broker, which has to be brought there. The source is in memory, where that
// costs nothing; the destination compiles its code as brokers do.
func TestStartInTheBillions(t *testing.T) {
	start := sized[int64](20_000_000, 5_000_000_000)
	p := cluster.Partition{Topic: "billions"}
	log := zoo.Generate(5, zoo.Options{Batches: 40, Start: start, Plain: true, Settled: true, Dense: true})
	src := stocked(t, map[cluster.Partition][][]byte{p: log.Bytes()})
	if err := src.DeleteRecords(p, start); err != nil {
		t.Fatal(err)
	}
	dst := kafkatest.Shared(t, kafkatest.Options{JVM: []string{"-Xmx768m", "-XX:TieredStopAtLevel=4"}})
	end := connect(t, dst, func(c *kafka.Config) { c.MaxStartFill = start })
	began := time.Now()
	m := run(t, "billions", src, end, mirror.Options{Topics: mirror.Topics{Include: []string{p.Topic}}})
	complain(t, "billions", m)
	if err := m.WaitMirrored(t.Context(), p, log.End-1); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("a log that starts at %d took %v, %.1f million offsets a second", start, took.Round(time.Millisecond), float64(start)/1e6/took.Seconds())
	reports, err := verify.Topics(t.Context(), src, end, []cluster.Partition{p}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		if !r.Equal || r.Records == 0 || r.Destination.LogStart != start {
			t.Errorf("%v; want a log start of %d; differences: %v", r, start, r.Differences)
		}
	}
}
