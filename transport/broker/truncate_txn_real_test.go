package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// TestRealTruncateTransactions: a transaction that loses its marker is named, and one that
// ends while we lead has its marker written afterwards.
func TestRealTruncateTransactions(t *testing.T) {
	c := startCutter(t, "4.4.0")
	c.k.CreateTopic(t, "orders", 2, 3, nil)
	ctx := within(t, time.Minute)
	begin := func(id string, partition int32) *kgo.Client {
		cl := c.k.Client(t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "orders", Partition: partition, Value: []byte(id)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		return cl
	}
	opened, whole := begin("opened", 0), begin("whole", 1)
	c.produceBatches(t, "orders", 0, 1, "x") // [1,11), and the marker at 11
	c.produceBatches(t, "orders", 1, 1, "x")
	if err := opened.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	producer, _, err := opened.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	out := c.truncate(t, func(cfg *TruncateConfig) {
		told := cfg.Progress
		cfg.Progress = func(p cluster.Partition, step TruncateStep) {
			if told(p, step); step == TruncateLed && p.Partition == 1 {
				go func() { ended <- whole.EndTransaction(ctx, kgo.TryCommit) }()
			}
		}
	}, fetcher.Cut{Partition: cluster.Partition{Topic: "orders"}, Offset: 1}, fetcher.Cut{Partition: cluster.Partition{Topic: "orders", Partition: 1}, Offset: 1})
	if len(out[0].Opened) != 1 || out[0].Opened[0] != producer || len(out[1].Opened) != 0 {
		t.Errorf("opened are %v and %v, want producer %d alone", out[0].Opened, out[1].Opened, producer)
	}
	if err := <-ended; err != nil {
		t.Errorf("the transaction that ended while we led: %v", err)
	}
	reader := c.k.Client(t, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {1: kgo.NewOffset().At(0)}}))
	for read := false; !read; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("what was committed is not read: %v", err)
		}
		fetches.EachRecord(func(r *kgo.Record) { read = read || string(r.Value) == "whole" })
	}
	c.clean(t, "orders")
}
