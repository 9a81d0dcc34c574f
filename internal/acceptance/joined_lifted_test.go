package acceptance

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/logdir"
	"github.com/clustermirror/mirror/internal/zoo/live"
	"github.com/clustermirror/mirror/transport/broker"
)

// TestJoinedLifted: producers of the source that are too far ahead of the destination have other
// ids there. All else is the same, byte for byte: while it is mirrored, over a failover without the
// source, and on the way back, where their records are known again and only the delta is shipped.
// Transactions end as they did, and new producers lose nothing.
func TestJoinedLifted(t *testing.T) {
	for _, version := range patientVersions {
		t.Run(version, func(t *testing.T) {
			src := kafkatest.Start(t, kafkatest.Options{Version: version, Config: map[string]string{"broker.session.timeout.ms": "3000"}})
			dst := joinable(t, version)
			topic := "lifted-" + version[:1]
			v := &voyage{t: t, topic: topic, parts: 1, us: map[*kafkatest.Cluster]*member{
				src: {t: t, k: src, first: 190}, dst: {t: t, k: dst, first: 190},
			}, change: func(c *broker.DestinationConfig) { c.ProducerIDBudget = 2_000 }, alike: grounded}
			src.CreateTopic(t, topic, 1, 1, nil)
			inTransaction(t, src, topic, "near", true)
			pass(t, src, nextID(t, dst)+10_000)
			for n, value := range []string{"far", "", "farther"} {
				inTransaction(t, src, topic, value, n != 1)
			}
			open := begin(t, src, topic, "open")
			defer open.Close()

			there := v.sail("lifted-there", src, dst)
			if s := there.Status(); s.ProducersFrom == nil {
				t.Fatal("no producer has another id: the test shows nothing")
			}
			if n := far(t, dst, topic); n < 4 {
				t.Errorf("%d batches have other ids", n)
			}
			for _, link := range there.network.Links(src.Bootstrap()...) {
				link.Blackhole(true)
			}
			lost := note(t, src, topic, "lost", 30, 0)[0][0].Offset
			there.land(topic, true)
			closed(t, dst, live.Topic{Name: topic, Partitions: 1})
			want := []string{"near", "far", "farther"}
			for n := range 20 {
				before := ends(t, dst, topic)[0]
				if at := write(t, dst, topic, 0, 1); at < before {
					t.Errorf("new producer %d: a record written behind %d is said to stand at %d", n, before, at)
				}
				want = append(want, "here")
			}
			read := commits(t, dst, topic)
			if !slices.Equal(read, want) {
				t.Errorf("after the failover readers of committed records read %q, want %q", read, want)
			}

			back := v.sail("lifted-back", dst, src)
			back.land(topic, false)
			if want := []cluster.Span{{From: lost, To: lost + 30}}; !slices.Equal(v.cut, want) {
				t.Errorf("cut were %v, want %v", v.cut, want)
			}
			closed(t, src, live.Topic{Name: topic, Partitions: 1})
			if read := commits(t, src, topic); !slices.Equal(read, want) {
				t.Errorf("after the failback readers of committed records read %q, want %q", read, want)
			}
			for _, us := range v.us {
				us.away()
			}
		})
	}
}

// grounded gives producers the ids that they had where they come from.
func grounded(l logdir.Log) {
	for _, b := range l.Batches {
		if h := batch.Header(b.Bytes); h.ProducerID() >= 0 {
			h.SetProducer(batch.Grounded(h.ProducerID()), h.ProducerEpoch(), h.BaseSequence())
		}
	}
}

// far counts the batches of a topic's partition 0 of producers with ids that no cluster counts to.
func far(t *testing.T, c *kafkatest.Cluster, topic string) (n int) {
	t.Helper()
	l, err := logdir.Read(c.LogDir(1), cluster.Partition{Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range l.Batches {
		if id := batch.Header(b.Bytes).ProducerID(); id >= 0 && !batch.Counted(id) {
			n++
		}
	}
	return n
}

// begin writes a record in a transaction, which stays open until the client is closed.
func begin(t *testing.T, c *kafkatest.Cluster, topic, value string) *kgo.Client {
	t.Helper()
	cl := c.Client(t, kgo.TransactionalID(topic+value), kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return cl
}

// inTransaction writes a record in a transaction of its own.
func inTransaction(t *testing.T, c *kafkatest.Cluster, topic, value string, commit bool) {
	t.Helper()
	cl := begin(t, c, topic, value)
	defer cl.Close()
	if err := cl.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
		t.Fatal(err)
	}
}

// take takes a producer id from a broker.
func take(ctx context.Context, cl *kgo.Client, broker int) (int64, error) {
	resp, err := cl.Broker(broker).RetriableRequest(ctx, kmsg.NewPtrInitProducerIDRequest())
	if err != nil {
		return 0, err
	}
	answer := resp.(*kmsg.InitProducerIDResponse)
	return answer.ProducerID, kerr.ErrorForCode(answer.ErrorCode)
}

// nextID is one that no broker of a cluster has handed out yet.
func nextID(t *testing.T, c *kafkatest.Cluster) (next int64) {
	t.Helper()
	cl := c.Client(t)
	for n := range c.Nodes() {
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { // a block may be on its way
			id, err := take(ctx, cl, n+1)
			next = max(next, id+1)
			return err
		})
	}
	return next
}

// pass has a cluster of one node hand out ids until one is reached.
func pass(t *testing.T, c *kafkatest.Cluster, id int64) {
	t.Helper()
	cl := c.Client(t)
	var taking sync.WaitGroup
	var highest atomic.Int64
	ctx := timeout(t, 2*time.Minute)
	for range 8 {
		taking.Go(func() {
			for highest.Load() < id && ctx.Err() == nil {
				if got, err := take(ctx, cl, 1); err == nil && got > highest.Load() {
					highest.Store(got)
				}
			}
		})
	}
	taking.Wait()
	if ctx.Err() != nil {
		t.Fatalf("ids came to %d, want %d", highest.Load(), id)
	}
}

// commits are the values that readers of committed records read of a topic's partition 0.
func commits(t *testing.T, c *kafkatest.Cluster, topic string) (values []string) {
	t.Helper()
	cl := c.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	for next, end := int64(0), ends(t, c, topic)[0]; next < end; {
		fetches := cl.PollFetches(timeout(t, time.Minute))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if next = r.Offset + 1; !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	return values
}
