package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

// written is what a real log must hold.
type written struct{ committed, aborted, open int }

// write fills a partition of a real cluster: producers without and with ids, and
// three with transactions that end one way or the other and overlap; the last one
// stays open.
func write(t *testing.T, k *kafkatest.Cluster, topic string) (w written) {
	r := rand.New(rand.NewPCG(5, 5))
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	client := func(i int, opts ...kgo.Opt) *kgo.Client {
		return k.Client(t, append(opts, kgo.ProducerBatchCompression(codecs[i%len(codecs)]), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	}
	number := 0
	send := func(cl *kgo.Client, n int) int {
		var rs []*kgo.Record
		for range n {
			number++
			one := &kgo.Record{Topic: topic, Key: fmt.Append(nil, "key ", number%50), Value: fmt.Append(nil, "value ", number), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(number))}
			switch number % 9 {
			case 1:
				one.Value = nil
			case 2:
				one.Key = nil
			case 3:
				one.Headers = []kgo.RecordHeader{{Key: "h", Value: nil}, {Key: "h", Value: []byte{}}, {Key: "g", Value: []byte("x")}}
			}
			rs = append(rs, one)
		}
		if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	plain, idempotent := client(0, kgo.DisableIdempotentWrite()), client(1)
	var in [3]*kgo.Client
	var pending [3]int
	for i := range in {
		in[i] = client(2+i, kgo.TransactionalID(fmt.Sprint(topic, i)))
	}
	begin := func(i int) {
		if err := in[i].BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		pending[i] = 0
	}
	for i := range in {
		begin(i)
	}
	for range 40 {
		w.committed += send(plain, 1+r.IntN(20)) + send(idempotent, 1+r.IntN(20))
		i := r.IntN(3)
		pending[i] += send(in[i], 1+r.IntN(20))
		if i = r.IntN(3); pending[i] == 0 {
			continue
		}
		commit := r.IntN(2) == 0
		if err := in[i].EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
			t.Fatal(err)
		}
		if commit {
			w.committed += pending[i]
		} else {
			w.aborted += pending[i]
		}
		begin(i)
	}
	for i, n := range pending {
		if i == 0 && n == 0 {
			n = send(in[i], 3)
		}
		if i == 0 {
			w.open = n
			continue
		}
		if err := in[i].EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		w.aborted += n
	}
	w.committed += send(plain, 30)
	return w
}

// consumed is what franz-go reads of a partition up to an offset: records at their
// offsets.
func consumed(t *testing.T, k *kafkatest.Cluster, topic string, committed bool, end int64) (rs []batch.Record) {
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	cl := k.Client(t, kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for last := int64(-1); last < end-1; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read to %d of %d: %v", last, end, err)
		}
		for _, r := range fetches.Records() {
			if last = r.Offset; r.Attrs.IsControl() || r.Offset >= end {
				continue
			}
			one := batch.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				one.Headers = append(one.Headers, batch.RecordHeader{Key: []byte(h.Key), Value: h.Value})
			}
			rs = append(rs, one)
		}
	}
	return rs
}

// rewritten are records at their offsets, in batches of their own.
func rewritten(rs []batch.Record) (out [][]byte) {
	for _, r := range rs {
		out = append(out, batch.Encode(batch.Spec{Base: r.Offset, Records: []batch.Record{r}, Next: r.Offset + 1}))
	}
	return out
}

// On a real log verify sees what a foreign consumer sees, committed or not, and
// tells copies apart that are not that.
func TestRealTransactions(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{})
	k.CreateTopic(t, zoos.Topic, 1, 1, nil)
	w := write(t, k, zoos.Topic)
	source, err := kafka.New(kafka.Config{Bootstrap: k.Bootstrap()})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	for _, o := range []verify.Options{{}, {ChunkBytes: 1}, {Strict: true, Checksums: true}} {
		r := compare(t, source, source, o)
		if !r.Equal || r.Records != int64(w.committed) || r.Aborted != int64(w.aborted) || r.Undecided != int64(w.open) {
			t.Errorf("want %+v: %v, %d aborted, %d undecided", w, r, r.Aborted, r.Undecided)
		}
	}
	ends, err := source.LogOffsets(t.Context(), zoos)
	if err != nil {
		t.Fatal(err)
	}
	all := consumed(t, k, zoos.Topic, false, ends.HighWatermark)
	if len(all) != w.committed+w.aborted+w.open {
		t.Fatalf("%d records, want %+v", len(all), w)
	}
	// Aborting what is open lets readers of committed records go on to the end.
	abortOpen(t, k, zoos.Topic)
	w.aborted, w.open = w.aborted+w.open, 0
	committed := consumed(t, k, zoos.Topic, true, ends.HighWatermark)
	if len(committed) != w.committed {
		t.Fatalf("%d records, want %+v", len(committed), w)
	}
	r := compare(t, source, loaded(t, 0, rewritten(committed)), verify.Options{Checksums: true})
	if !r.Equal || r.Records != int64(w.committed) || r.LeftOut != int64(w.aborted) || r.SourceSum.Sum != r.DestinationSum.Sum {
		t.Errorf("committed records: %v, %d left out of %d", r, r.LeftOut, w.aborted)
	}
	r = compare(t, source, loaded(t, 0, rewritten(all)), verify.Options{})
	if r.Equal || r.Different != int64(w.aborted) || r.Differences[0].Kind != verify.Exposed {
		t.Errorf("all records: %v, want %d exposed", r, w.aborted)
	}
	r = compare(t, source, loaded(t, 0, produced(rand.New(rand.NewPCG(1, 1)), committed, 0)), verify.Options{})
	if r.Equal || r.Shift == nil || !strings.Contains(r.String(), "MirrorMaker") {
		t.Errorf("numbered anew: %v", r)
	}
	trimmed(t, k, source, w)
}

// abortOpen ends the transaction that write left open, as a new producer with the
// same id does when it begins.
func abortOpen(t *testing.T, k *kafkatest.Cluster, topic string) {
	t.Helper()
	cl := k.Client(t, kgo.TransactionalID(topic+"0"))
	if _, _, err := cl.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// trimmed moves the log start inside a batch.
func trimmed(t *testing.T, k *kafkatest.Cluster, source *kafka.Cluster, w written) {
	t.Helper()
	raw, err := source.Read(t.Context(), zoos, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	at, before := int64(-1), 0
	for b := batch.Walk(raw); b.Next(); {
		h := b.Header()
		if h.Count() > 3 && !h.Transactional() && h.Base() > 20 {
			at = h.Base() + 2
			break
		}
	}
	for _, r := range consumed(t, k, zoos.Topic, true, at+1) {
		if r.Offset < at {
			before++
		}
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: zoos.Topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: at}}}}
	answer, err := req.RequestWith(t.Context(), k.Client(t))
	if err != nil || answer.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(err, answer)
	}
	r := compare(t, source, source, verify.Options{Checksums: true})
	if want := (cluster.Span{From: at, To: r.Source.HighWatermark}); !r.Equal || r.Compared != want || r.Records != int64(w.committed-before) {
		t.Errorf("trimmed to %d: %v, want %d records", at, r, w.committed-before)
	}
}
