package batch

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// These tests hold the codec against another implementation: what franz-go
// writes is read here, and what is written here is read by franz-go.

func fake(t *testing.T, topics ...string) (context.Context, *kfake.Cluster) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx, c
}

func client(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// consume gives the first n records as franz-go's consumer sees them.
func consume(ctx context.Context, t *testing.T, c *kfake.Cluster, topic string, n int) []Record {
	t.Helper()
	cl := client(t, c, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []Record
	for len(got) < n {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(got), n, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			o := Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				o.Headers = append(o.Headers, RecordHeader{[]byte(h.Key), h.Value})
			}
			got = append(got, o)
		})
	}
	return got
}

// fetch gives the raw bytes of a whole partition.
func fetch(ctx context.Context, t *testing.T, cl *kgo.Client, topic string) []byte {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MaxWaitMillis, req.MinBytes = 100<<20, 1000, 1
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.TopicID = topic, topicID(ctx, t, cl, topic)
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes = 100 << 20
	ft.Partitions = append(ft.Partitions, fp)
	req.Topics = append(req.Topics, ft)
	resp, err := cl.Broker(0).Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	p := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		t.Fatal(err)
	}
	return p.RecordBatches
}

func topicID(ctx context.Context, t *testing.T, cl *kgo.Client, topic string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, mt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || len(resp.Topics) != 1 {
		t.Fatal(resp, err)
	}
	return resp.Topics[0].TopicID
}

// produce appends one raw batch.
func produce(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, raw []byte) int64 {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	pt := kmsg.NewProduceRequestTopic()
	pt.Topic, pt.TopicID = topic, topicID(ctx, t, cl, topic)
	pp := kmsg.NewProduceRequestTopicPartition()
	pp.Records = raw
	pt.Partitions = append(pt.Partitions, pp)
	req.Topics = append(req.Topics, pt)
	resp, err := cl.Broker(0).Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		t.Fatal(err, p.ErrorMessage)
	}
	return p.BaseOffset
}

func TestDecodesWhatFranzWrites(t *testing.T) {
	kinds := map[Codec]kgo.CompressionCodec{
		None: kgo.NoCompression(), Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	}
	for codec, kind := range kinds {
		t.Run(codec.String(), func(t *testing.T) {
			ctx, c := fake(t, "foo")
			cl := client(t, c, kgo.ProducerBatchCompression(kind), kgo.DefaultProduceTopic("foo"))
			const n = 300
			for round := range 3 { // three batches at least
				var rs []*kgo.Record
				for i := range n / 3 {
					r := &kgo.Record{Value: bytes.Repeat(fmt.Appendf(nil, "value %d of round %d", i, round), 1+i%50)}
					r.Timestamp = time.UnixMilli(1_700_000_000_000 + int64(i*7919%1000) - int64(round)*30*86_400_000)
					switch i % 4 {
					case 0:
						r.Key = []byte{}
					case 1:
						r.Key, r.Value = fmt.Appendf(nil, "key %d", i), nil
					case 2:
						r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}, {Key: "", Value: []byte{}}}
					}
					rs = append(rs, r)
				}
				if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			var d Decoder
			var got []Record
			seen := map[Codec]int{}
			w := Walk(fetch(ctx, t, cl, "foo"))
			for w.Next() {
				h := w.Header()
				if err := h.Check(); err != nil {
					t.Fatal(err)
				}
				seen[h.Codec()]++
				rs, err := all(&d, h)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rs...)
			}
			if w.Err() != nil || len(w.Rest()) > 0 || seen[codec] < 3 || len(seen) != 1 {
				t.Fatalf("walk: %v, rest %d, batches by codec %v", w.Err(), len(w.Rest()), seen)
			}
			if d := cmp.Diff(consume(ctx, t, c, "foo", n), got, bytesEqual); d != "" {
				t.Errorf("records (-franz-go +this):\n%s", d)
			}
		})
	}
}

func TestFranzReadsWhatIsEncoded(t *testing.T) {
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			ctx, c := fake(t, "foo")
			cl := client(t, c)
			want := []Record{
				{Offset: 0, Timestamp: 5, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 100_000)},
				{Offset: 1, Timestamp: 1 << 40, Value: []byte{}, Headers: []RecordHeader{{[]byte("b"), []byte{}}, {[]byte("a"), nil}}},
				{Offset: 2, Timestamp: 4, Key: []byte{}},
			}
			if at := produce(ctx, t, cl, "foo", Encode(Spec{Codec: codec, Records: want})); at != 0 {
				t.Fatalf("landed at %d", at)
			}
			// Fillers are records; phantoms take their place and are not seen.
			produce(ctx, t, cl, "foo", NewFiller(10, codec, nil).Append(nil, 77))
			h := Header(AppendPhantoms(nil, 5, 78, nil))
			h.SetProducer(1<<62|99, 0, 0)
			if at := produce(ctx, t, cl, "foo", h); at != 13 {
				t.Fatalf("phantoms landed at %d", at)
			}
			last := Record{Offset: 18, Timestamp: 79, Value: []byte("after the phantoms")}
			produce(ctx, t, cl, "foo", Encode(Spec{Codec: codec, Records: []Record{{Timestamp: 79, Value: last.Value}}}))
			for i := range int64(10) {
				want = append(want, Record{Offset: 3 + i, Timestamp: 77})
			}
			want = append(want, last)
			if d := cmp.Diff(want, consume(ctx, t, c, "foo", len(want)), bytesEqual); d != "" {
				t.Errorf("records (-encoded +franz-go):\n%s", d)
			}
		})
	}
}
