package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/verify"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var _ verify.Reader = (*Cluster)(nil)

// open makes a Cluster that is closed with the test.
func open(t testing.TB, bootstrap []string, change ...func(*Config)) *Cluster {
	t.Helper()
	cfg := Config{Bootstrap: bootstrap, RequestTimeout: 10 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// fake starts kfake with one topic.
func fake(t testing.TB, brokers int, topic string, partitions int32, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	f, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(brokers), kfake.SeedTopics(partitions, topic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// stretchOf is the stretch all tests append in, unless they need two mirrors.
func stretchOf(p cluster.Partition) fetcher.Stretch {
	return fetcher.Stretch{Mirror: "test", Partition: p}
}

// beginAt asks Ends of one partition and fails on an error.
func beginAt(t testing.TB, c *Cluster, s fetcher.Stretch) fetcher.End {
	t.Helper()
	end := endOf(t, c, s)
	if end.Err != nil {
		t.Fatalf("Ends: %v", end.Err)
	}
	return end
}

func endOf(t testing.TB, c *Cluster, s fetcher.Stretch) fetcher.End {
	t.Helper()
	ends, err := c.Ends(within(t, 30*time.Second), []fetcher.Stretch{s})
	if err != nil {
		t.Fatalf("Ends: %v", err)
	}
	return ends[0]
}

// batchesAt are n batches of size records each, one after the other, as a source
// would have them.
func batchesAt(base int64, n, size int, timestamp int64) []cluster.Batch {
	var all []cluster.Batch
	for range n {
		var records []batch.Record
		for i := range size {
			records = append(records, batch.Record{Offset: base + int64(i), Timestamp: timestamp,
				Key: fmt.Append(nil, "k", base+int64(i)), Value: fmt.Append(nil, "value of ", base+int64(i))})
		}
		b := batch.Encode(batch.Spec{Base: base, LeaderEpoch: 7, Records: records, Producer: &batch.Producer{ID: 12, Epoch: 3, Sequence: 99}})
		h := batch.Header(b)
		all = append(all, cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: 7, MaxTimestamp: h.MaxTimestamp(), Bytes: b})
		base = h.Next()
	}
	return all
}

// appendRun appends and waits for the result.
func appendRun(t testing.TB, c *Cluster, p cluster.Partition, batches []cluster.Batch) fetcher.Result {
	t.Helper()
	got := make(chan fetcher.Result, 1)
	c.Append(p, batches, nil, func(r fetcher.Result) { got <- r })
	return wait(t, got)
}

func wait(t testing.TB, got chan fetcher.Result) fetcher.Result {
	t.Helper()
	select {
	case r := <-got:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("no result")
	}
	panic("unreachable")
}

// mustAppend appends and fails on an error.
func mustAppend(t testing.TB, c *Cluster, p cluster.Partition, batches []cluster.Batch) {
	t.Helper()
	r := appendRun(t, c, p, batches)
	if want := batches[len(batches)-1].Next; r.Err != nil || r.Next != want || r.Batches != len(batches) {
		t.Fatalf("append: next %d of %d, %d batches of %d: %v", r.Next, want, r.Batches, len(batches), r.Err)
	}
}

// produceForeign appends as an ordinary producer does, without an id.
func produceForeign(t testing.TB, c *Cluster, p cluster.Partition, n int) int64 {
	t.Helper()
	bs := batchesAt(0, 1, n, time.Now().UnixMilli())
	batch.Header(bs[0].Bytes).Patch(batch.Patch{LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1})
	base, code := raw(t, c, p, bs[0].Bytes)
	if code != 0 {
		t.Fatalf("foreign producer: code %d", code)
	}
	return base
}

// raw sends one batch as it is, with acks=all.
func raw(t testing.TB, c *Cluster, p cluster.Partition, b []byte) (base int64, code int16) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	leaders, err := c.Leaders(ctx, []cluster.Partition{p}, true)
	if err != nil || leaders[0].Err != nil {
		t.Fatal(err, leaders)
	}
	conn, err := c.client.Conn(ctx, leaders[0].Broker, "raw")
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = p.Topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = p.Partition, b
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	answer, err := conn.DoVersion(ctx, req, produceVersion)
	if err != nil {
		t.Fatal(err)
	}
	got := answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return got.BaseOffset, got.ErrorCode
}

// readAll reads a partition from its log start to the high watermark.
func readAll(t testing.TB, c *Cluster, p cluster.Partition) []byte {
	t.Helper()
	ctx := within(t, 60*time.Second)
	ends, err := c.LogOffsets(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for at := ends.LogStart; at < ends.HighWatermark; {
		b, err := c.Read(ctx, p, at, 1<<20)
		if err != nil || len(b) == 0 {
			t.Fatalf("read at %d: %d bytes, %v", at, len(b), err)
		}
		for w := batch.Walk(b); w.Next(); {
			at = w.Header().Next()
		}
		all = append(all, b...)
	}
	return all
}

// copier copies a topic from one cluster to the other, one session a broker, until
// every partition has reached the source's high watermark.
type copier struct {
	t        testing.TB
	from, to *Cluster
	next     map[cluster.Partition]int64
}

func copyTopic(t testing.TB, from, to *Cluster, topic string, partitions int32) {
	t.Helper()
	ctx := within(t, 120*time.Second)
	k := &copier{t: t, from: from, to: to, next: map[cluster.Partition]int64{}}
	var ps []cluster.Partition
	var ss []fetcher.Stretch
	for i := range partitions {
		p := cluster.Partition{Topic: topic, Partition: i}
		ps, ss = append(ps, p), append(ss, stretchOf(p))
	}
	ends, err := to.Ends(ctx, ss)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range ends {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		k.next[ps[i]] = e.LogEnd
	}
	leaders, err := from.Leaders(ctx, ps, true)
	if err != nil {
		t.Fatal(err)
	}
	byBroker := map[int32][]fetcher.Want{}
	for i, l := range leaders {
		byBroker[l.Broker] = append(byBroker[l.Broker], fetcher.Want{Partition: ps[i], TopicID: l.TopicID, Offset: k.next[ps[i]],
			LeaderEpoch: l.Epoch, LastEpoch: cluster.NoEpoch, MaxBytes: 1 << 20})
	}
	for broker, wants := range byBroker {
		k.session(ctx, broker, wants)
	}
}

func (k *copier) session(ctx context.Context, broker int32, wants []fetcher.Want) {
	s, err := k.from.Open(ctx, broker)
	if err != nil {
		k.t.Fatal(err)
	}
	defer s.Close()
	req := &fetcher.FetchRequest{Changed: wants, MaxWait: 200 * time.Millisecond, MinBytes: 1, MaxBytes: 8 << 20}
	wantOf := map[cluster.Partition]fetcher.Want{}
	for _, w := range wants {
		wantOf[w.Partition] = w
	}
	left := len(wants)
	for done := map[cluster.Partition]bool{}; left > 0; {
		resp, err := s.Fetch(ctx, req)
		if err != nil {
			k.t.Fatal(err)
		}
		req.Changed = nil
		results := make(chan fetcher.Result, len(resp.Partitions))
		sent := 0
		for _, f := range resp.Partitions {
			if f.Err != nil {
				k.t.Fatal(f.Partition, f.Err)
			}
			if run := k.run(f); len(run) > 0 {
				sent++
				k.to.Append(f.Partition, run, nil, func(r fetcher.Result) { results <- r })
			}
			if k.next[f.Partition] >= f.HighWatermark && !done[f.Partition] {
				done[f.Partition] = true
				left--
			}
			w := wantOf[f.Partition]
			w.Offset = k.next[f.Partition]
			req.Changed = append(req.Changed, w)
		}
		for range sent {
			if r := wait(k.t, results); r.Err != nil {
				k.t.Fatal(r.Partition, r.Err)
			}
		}
		resp.Release()
	}
}

func (k *copier) run(f fetcher.Fetched) []cluster.Batch {
	var run []cluster.Batch
	for w := batch.Walk(f.Records); w.Next(); {
		h := w.Header()
		if err := h.Check(); err != nil {
			k.t.Fatal(err)
		}
		if h.Base() < k.next[f.Partition] {
			continue
		}
		run = append(run, cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: h.LeaderEpoch(), MaxTimestamp: h.MaxTimestamp(), Bytes: h})
		k.next[f.Partition] = h.Next()
	}
	return run
}

// sameRecords compares two partitions by verify.
func sameRecords(t testing.TB, a, b *Cluster, p cluster.Partition, records int64) {
	t.Helper()
	r, err := verify.Partition(within(t, 60*time.Second), a, b, p, nil)
	if err != nil || !r.Equal || !r.EndsEqual || r.Records != records {
		t.Fatalf("verify: %+v, %v, want %d records", r, err, records)
	}
}

func shuffled[T any](s []T) []T {
	s = slices.Clone(s)
	rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// eachRecord visits the records of many batches.
func eachRecord(t testing.TB, b []byte, visit func(offset int64, value string)) {
	t.Helper()
	for w := batch.Walk(b); w.Next(); {
		err := batch.Decode(w.Header(), func(r batch.Record) error {
			visit(r.Offset, string(r.Value))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
