package live_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo/live"
	"github.com/clustermirror/mirror/transport/kafka"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// Every shape is there, and what nobody but the producers had a part in is what they
// wrote.
func TestFill(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{Version: os.Getenv("MIRROR_SOURCE"), Config: live.BrokerConfig()})
	reader, err := kafka.New(kafka.Config{Bootstrap: k.Bootstrap()})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	began := time.Now()
	topics, err := live.Fill(ctx, live.Options{Client: k.ClientOpts(), Reader: reader, Release: k.Version(), Prefix: "zoo-", Seed: 1, Batches: 60})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("filled in %v", time.Since(began))
	known := 0
	for _, topic := range topics {
		t.Logf("%s: %v", topic.Name, topic.Census)
		for partition, l := range topic.Truth {
			known++
			p := cluster.Partition{Topic: topic.Name, Partition: partition}
			offsets, err := reader.LogOffsets(ctx, p)
			if err != nil || offsets != (cluster.Offsets{LogStart: l.Start, HighWatermark: l.End}) {
				t.Errorf("%v: %+v, %v, want [%d,%d)", p, offsets, err, l.Start, l.End)
			}
			want := l.Visible(true)
			for i := range want {
				if want[i].Timestamp > 1<<60 {
					want[i].Timestamp = -1 // franz-go counts in nanoseconds from the batch's first timestamp on
				}
			}
			if diff := cmp.Diff(want, consumed(ctx, t, k, p, len(want))); diff != "" {
				t.Errorf("%v (-want +got):\n%.2000s", p, diff)
			}
		}
	}
	if known < 5 {
		t.Errorf("the truth is known of %d partitions", known)
	}
}

// consumed is what a reader of committed records gets.
func consumed(ctx context.Context, t *testing.T, k *kafkatest.Cluster, p cluster.Partition, n int) (rs []batch.Record) {
	cl := k.Client(t, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.Topic: {p.Partition: kgo.NewOffset().AtStart()}}))
	for len(rs) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%v: %d of %d: %v", p, len(rs), n, err)
		}
		for _, r := range fetches.Records() {
			one := batch.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				one.Headers = append(one.Headers, batch.RecordHeader{Key: []byte(h.Key), Value: h.Value})
			}
			rs = append(rs, one)
		}
	}
	return rs
}
