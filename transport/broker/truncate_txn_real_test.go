package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
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
	c.forMirror(t)
}

// forMirror cuts as a mirror has it done: each partition by itself, nothing that was not
// seen, and transactions as a whole.
func (c *cutter) forMirror(t *testing.T) {
	t.Helper()
	const topic = "mirrored"
	c.k.CreateTopic(t, topic, 3, 3, nil)
	p := func(n int32) cluster.Partition { return cluster.Partition{Topic: topic, Partition: n} }
	for n := range int32(3) {
		c.produceBatches(t, topic, n, 1, "x")
	}
	cl := c.k.Client(t, kgo.TransactionalID("across"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(within(t, time.Minute), &kgo.Record{Topic: topic, Value: []byte("across")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for n := range int32(3) {
		c.produceBatches(t, topic, n, 1, "x")
	}
	if err := cl.EndTransaction(within(t, time.Minute), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	kept := new(saved)
	cfg := c.config(t)
	listeners := cfg.Listeners
	cfg.Listeners, cfg.Salvage = nil, kept.take
	tr, err := NewTruncater(cfg, func() ([]net.Listener, error) { return listeners, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Check(within(t, time.Minute)); err != nil {
		t.Errorf("the cluster can be joined: %v", err)
	}
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { // the marker comes by itself
		if end := c.k.Ends(ctx, t, topic)[0]; end != 22 {
			return fmt.Errorf("10 records, one, 10 records and a marker end at %d", end)
		}
		return nil
	})
	before := c.logs(t, p(0))
	errs := tr.Truncate(within(t, time.Minute), []fetcher.Cut{
		{Partition: p(0), Offset: 15, End: 22}, {Partition: p(1), Offset: 10, End: 15}, {Partition: p(2), Offset: 0, End: 20},
		{Partition: cluster.Partition{Topic: "absent"}, Offset: 1},
	})
	if errs[0] != nil || !errors.Is(errs[1], cluster.ErrUnavailable) || !strings.Contains(errs[1].Error(), "[15,20)") ||
		errs[2] != nil || !errors.Is(errs[3], cluster.ErrUnknownTopic) {
		t.Errorf("the answers are %v", errs)
	}
	for n, end := range map[int32]int64{0: 10, 1: 20, 2: 0} {
		if got := c.logs(t, p(n)).End(); got != end {
			t.Errorf("%v ends at %d, want %d", p(n), got, end)
		}
	}
	var lost []byte
	for _, b := range before.Batches[1:] {
		lost = append(lost, b.Bytes...)
	}
	if !bytes.Equal(kept.bytes, lost) || !slices.Equal(kept.spans, []cluster.Span{{From: 10, To: 22}}) {
		t.Errorf("%d bytes of %v saved, %d were there", len(kept.bytes), kept.spans, len(lost))
	}
	c.clean(t, topic)
	c.leftBehind(t, topic)
	// The listeners are closed: it does not become a broker again for nothing.
	if err := tr.Truncate(within(t, time.Minute), []fetcher.Cut{{Partition: p(2), Offset: 0}})[0]; err != nil {
		t.Errorf("what is cut already: %v", err)
	}
}

// leftBehind: what a dead process had in its hands is given back at the next start.
func (c *cutter) leftBehind(t *testing.T, topic string) {
	t.Helper()
	at := int32(0)
	cfg := c.config(t)
	cfg.Membership.Name = "left"
	d, err := NewDestination(DestinationConfig{Membership: cfg.Membership, Listeners: cfg.Listeners, Admin: nobody{}, Overrides: c.overrides, Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	p := &cutPlan{Truncation: Truncation{Partition: cluster.Partition{Topic: topic, Partition: at}, Offset: 5, At: 5}}
	ctx, die := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	if err := d.m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := writeNotes(within(t, time.Minute), d.own, []*cutPlan{p}, func(*cutPlan) int32 { return 0 }); err != nil {
		t.Fatal(err)
	}
	id := partitionsOf(d.m.log.Image(), topic)[at]
	if err := d.control.adoptSome(within(t, time.Minute), []metalog.PartitionID{id})[id]; err != nil {
		t.Fatal(err)
	}
	die()
	if err := <-done; err != nil {
		t.Error(err)
	}
	cfg = c.config(t)
	listeners := cfg.Listeners
	cfg.Listeners, cfg.Membership.Name = nil, "left"
	tr, err := NewTruncater(cfg, func() ([]net.Listener, error) { return listeners, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Check(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
	c.clean(t, topic)
}
