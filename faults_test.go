package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestC2_7_CreateFails: a refused creation is shown with Kafka's reason and tried
// again. C2.9: the topic is created by request, as the destination creates none by
// itself. C2.13: with the destination's own replication factor.
func TestC2_7_CreateFails(t *testing.T) {
	p := newPair(t, 2, "orders")
	write(t, p.a, "orders", 1, 10)
	var asked atomic.Pointer[kmsg.CreateTopicsRequest]
	var metadata atomic.Bool
	p.b.Fault(kfake.Fault{Observe: true, Count: -1, Keys: []kmsg.Key{kmsg.CreateTopics, kmsg.Metadata}, When: func(r kmsg.Request) bool {
		switch r := r.(type) {
		case *kmsg.CreateTopicsRequest:
			asked.Store(r)
		case *kmsg.MetadataRequest:
			if r.AllowAutoTopicCreation {
				metadata.Store(true)
			}
		}
		return false
	}})
	p.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidReplicationFactor, Count: 2})
	var log journal
	o := quick("orders")
	o.Events = log.events()
	o.RetryMin, o.RetryMax = 300*time.Millisecond, time.Second
	r := run(t, p, o)
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s := r.Status(); !strings.Contains(s.Refused["orders"], "INVALID_REPLICATION_FACTOR") || s.Health != "failed" {
			return errors.New(show(s))
		}
		return nil
	})
	mirrored(t, r, map[cluster.Partition]int64{at("orders", 1): 9})
	req := asked.Load()
	if req == nil || req.Topics[0].ReplicationFactor != -1 || req.Topics[0].NumPartitions != 2 {
		t.Errorf("asked for %+v", req)
	}
	if metadata.Load() {
		t.Error("asked the destination to create topics by itself")
	}
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s := r.Status(); len(s.Refused) > 0 || s.Health != "ok" {
			return errors.New(show(s))
		}
		return nil
	})
	log.mu.Lock()
	defer log.mu.Unlock()
	if n := len(log.topics); n != 2 || log.topics[0].Err == nil || log.topics[1].Err != nil { // refused (told once), created
		t.Errorf("topic events %+v", log.topics)
	}
}

// TestC3_9_AnswerLost: the append lands and its answer does not arrive, several
// times. Nothing is there twice.
func TestC3_9_AnswerLost(t *testing.T) {
	p := newPair(t, 1, "orders")
	write(t, p.a, "orders", 0, 100)
	r := run(t, p, quick("orders"))
	mirrored(t, r, map[cluster.Partition]int64{orders: 99})
	leader := p.net.Link(p.b.ListenAddrs()[p.b.LeaderFor("orders", 0)])
	value := bytes.Repeat([]byte("x"), 4000)
	last := int64(99)
	for range 5 {
		shot := leader.CutBeforeAnswer(2000)
		for range 10 {
			last = writeRecords(t, p.a, []*kgo.Record{{Topic: "orders", Value: value}}, kgo.ProducerBatchCompression(kgo.NoCompression()))
		}
		mirrored(t, r, map[cluster.Partition]int64{orders: last})
		select {
		case <-shot.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("no answer was lost")
		}
	}
	equal(t, p.source, p.destination, orders)
	if s := r.reach(t, orders, coordinator.StateMirroring); s.DestinationEnd != last+1 {
		t.Errorf("after lost answers: %s", show(s))
	}
}

// TestTimedOutAppend is C3.9 as a broker tells it: appended, and answered with a
// time-out.
func TestTimedOutAppend(t *testing.T) {
	p := newPair(t, 1, "orders")
	for _, e := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		f := p.b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: e, Count: 3})
		defer f.Remove()
	}
	r := run(t, p, quick("orders"))
	last := int64(0)
	for range 10 {
		last = write(t, p.a, "orders", 0, 20) + 19
	}
	mirrored(t, r, map[cluster.Partition]int64{orders: last})
	equal(t, p.source, p.destination, orders)
}

// TestBatches are C5.1 (timestamps 50 years apart in one batch) and C5.11 (a
// batch that is above the size limit raw and far below it compressed).
func TestBatches(t *testing.T) {
	p := newPair(t, 1, "orders", "big")
	writeRecords(t, p.a, []*kgo.Record{
		{Topic: "orders", Timestamp: time.UnixMilli(1), Value: []byte("old")},
		{Topic: "orders", Timestamp: time.Now().Add(20 * 365 * 24 * time.Hour), Value: []byte("new")},
		{Topic: "orders", Timestamp: time.UnixMilli(2), Value: []byte("old again")},
	}, kgo.ProducerLinger(50*time.Millisecond))
	if n := len(batchBytes(t, p.source.Read, orders)); n != 1 {
		t.Fatalf("%d batches, want 1", n)
	}
	writeRecords(t, p.a, []*kgo.Record{{Topic: "big", Value: bytes.Repeat([]byte("abcdefgh"), 300_000)}},
		kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(4<<20))
	r := run(t, p, quick(".*"))
	mirrored(t, r, map[cluster.Partition]int64{orders: 2, at("big", 0): 0})
	equal(t, p.source, p.destination, orders, at("big", 0))
	if s, _ := r.partition(at("big", 0)); s.Bytes > 1<<20 || s.Bytes == 0 {
		t.Errorf("%d bytes were copied", s.Bytes)
	}
}

// batchBytes reads a log as its batches.
func batchBytes(t testing.TB, read func(context.Context, cluster.Partition, int64, int32) ([]byte, error), p cluster.Partition) [][]byte {
	t.Helper()
	b, err := read(within(t, patience), p, 0, 10<<20)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for len(b) > 12 {
		n := 12 + int(b[8])<<24 + int(b[9])<<16 + int(b[10])<<8 + int(b[11])
		all, b = append(all, b[:n]), b[n:]
	}
	return all
}

// TestC5_7_Zstd: a source broker that knows Fetch up to version 9 cannot hand out
// zstd: the partition says so by type, the others go on.
func TestC5_7_Zstd(t *testing.T) {
	net := kafkatest.NewNetwork(t)
	old := kversion.Stable()
	old.SetMaxKeyVersion(1, 9)
	a := newCluster(t, "A", kfake.SeedTopics(1, "orders", "plain"), kfake.MaxVersions(old))
	b := newCluster(t, "B")
	write(t, a, "orders", 0, 100, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	write(t, a, "plain", 0, 100)
	// The fake hands out zstd whatever the version; a broker does not (KIP-110).
	a.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders", Err: kerr.UnsupportedCompressionType, Count: -1,
		When: func(r kmsg.Request) bool { return r.GetVersion() < 10 },
	})
	r := start(t, newMirror(t, connect(t, a, net), connect(t, b, net), quick(".*")))
	s := r.reach(t, orders, coordinator.StateFailed)
	wantIs(t, s.Err, mirror.ErrCompression)
	if s.Retriable || !strings.Contains(s.Reason, "UNSUPPORTED_COMPRESSION_TYPE") {
		t.Errorf("failed: %s", show(s))
	}
	mirrored(t, r, map[cluster.Partition]int64{at("plain", 0): 99})
}

// TestC5_15_FlippedBit: a bit that changes on the way is noticed before anything
// is appended, counted, and the batch is fetched again.
func TestC5_15_FlippedBit(t *testing.T) {
	p := newPair(t, 1, "orders")
	value := bytes.Repeat([]byte("y"), 30_000)
	r := run(t, p, quick("orders"))
	r.reach(t, orders, coordinator.StateMirroring)
	shot := p.net.Link(p.a.ListenAddrs()[p.a.LeaderFor("orders", 0)]).FlipBit(kafkatest.Read, 20_000)
	last := writeRecords(t, p.a, []*kgo.Record{{Topic: "orders", Value: value}}, kgo.ProducerBatchCompression(kgo.NoCompression()))
	mirrored(t, r, map[cluster.Partition]int64{orders: last})
	select {
	case <-shot.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("no bit was flipped")
	}
	equal(t, p.source, p.destination, orders)
	s, _ := r.partition(orders)
	if s.Corrupt != 1 || r.Status().Corrupt != 1 || s.Records != 1 {
		t.Errorf("after a flipped bit: %s", show(s))
	}
}

// shapes are logs that a destination which fills no gaps cannot take: why not, and from
// which offset on.
var shapes = []struct {
	name   string
	kind   error
	offset int64
	fill   func(t *testing.T, p *pair)
}{
	{
		name: "transaction", kind: mirror.ErrTransactional, offset: 10,
		fill: func(t *testing.T, p *pair) { transaction(t, p.a, "orders", 3, true) },
	},
	{
		name: "aborted transaction", kind: mirror.ErrTransactional, offset: 10,
		fill: func(t *testing.T, p *pair) { transaction(t, p.a, "orders", 3, false) },
	},
	{
		name: "gap", kind: mirror.ErrGap, offset: 10,
		fill: func(t *testing.T, p *pair) { gap(t, p.a, "orders") },
	},
}

// filling has the pair's destination fill gaps in one way.
func (p *pair) filling(t *testing.T, way kafka.GapFill) {
	p.destination = connect(t, p.b, p.net, func(cfg *kafka.Config) { cfg.GapFill = way })
}

// TestSourceShapesFilled: what readers of committed records see is at the destination,
// at its own offsets.
func TestSourceShapesFilled(t *testing.T) {
	for _, tc := range shapes {
		for _, way := range []kafka.GapFill{kafka.GapAuto, kafka.GapPhantoms} {
			t.Run(fmt.Sprint(tc.name, " by ", way), func(t *testing.T) {
				p := newPair(t, 1)
				p.filling(t, way)
				if err := p.a.CreateTopic("orders", 2, map[string]string{"cleanup.policy": "compact"}); err != nil {
					t.Fatal(err)
				}
				write(t, p.a, "orders", 0, 10)
				tc.fill(t, p)
				last := write(t, p.a, "orders", 0, 10) + 9
				r := run(t, p, quick("orders"))
				mirrored(t, r, map[cluster.Partition]int64{orders: last})
				equal(t, p.source, p.destination, orders)
			})
		}
	}
}

// TestSourceShapes: what the destination cannot take fails its partition, with the
// reason by type and the offset; the others go on.
func TestSourceShapes(t *testing.T) {
	for _, tc := range shapes {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t, 1)
			p.filling(t, kafka.GapFail)
			if err := p.a.CreateTopic("orders", 2, map[string]string{"cleanup.policy": "compact"}); err != nil {
				t.Fatal(err)
			}
			write(t, p.a, "orders", 0, 10)
			tc.fill(t, p)
			last := write(t, p.a, "orders", 1, 10) + 9
			var log journal
			o := quick("orders")
			o.Events = log.events()
			r := run(t, p, o)
			s := r.reach(t, orders, coordinator.StateFailed)
			wantIs(t, s.Err, tc.kind)
			var where *cluster.OffsetError
			if !errors.As(s.Err, &where) || where.Span.From != tc.offset || s.Retriable || s.RetryAt != nil {
				t.Errorf("failed: %s", show(s))
			}
			mirrored(t, r, map[cluster.Partition]int64{at("orders", 1): last})
			kafkatest.Eventually(t, patience, func(context.Context) error {
				if e, ok := log.failure(orders); !ok || e.Offset != tc.offset || !errors.Is(e.Err, tc.kind) {
					return fmt.Errorf("event %+v", e)
				}
				return nil
			})
			kafkatest.Eventually(t, patience, func(context.Context) error { // what came before it lands
				if got := p.b.PartitionInfo("orders", 0).HighWatermark; got != tc.offset {
					return fmt.Errorf("destination ends at %d, want %d", got, tc.offset)
				}
				return nil
			})
			if diff := cmp.Diff(map[coordinator.State]int{"FAILED": 1, "MIRRORING": 1}, r.Status().States); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func transaction(t *testing.T, c *kfake.Cluster, topic string, n int, good bool) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("tx"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx := within(t, patience)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("in a transaction")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(good)); err != nil {
		t.Fatal(err)
	}
}

// gap has compaction take a batch away.
func gap(t *testing.T, c *kfake.Cluster, topic string) {
	t.Helper()
	for _, key := range []string{"twice", "twice", "once"} {
		writeRecords(t, c, []*kgo.Record{{Topic: topic, Key: []byte(key), Value: []byte(key)}})
	}
	c.Compact()
}
