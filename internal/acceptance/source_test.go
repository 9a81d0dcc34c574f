package acceptance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestSource: what else a mirror asks its source for, of whichever release: settings,
// the offset of a time, zstd (which needs Fetch v10, C5.7), the place of a group, the
// ends of epochs.
func TestSource(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic, group = "source", "source-group"
	src.CreateTopic(t, topic, 1, 1, map[string]string{"retention.ms": "-1", "max.message.bytes": "2000000"})
	put(t, src, topic, 0, 50, 48*time.Hour)
	src.Load(t.Context(), t, kafkatest.LoadSpec{Topic: topic, Records: 50, Codecs: []kgo.CompressionCodec{kgo.ZstdCompression()}})
	commit(t, src, group, topic, 0, 70)
	m := run(t, "source", connect(t, src), connect(t, dst), mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, Start: mirror.Start{Time: time.Now().Add(-24 * time.Hour)},
	})
	caughtUp(t, time.Minute, src, dst, topic)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error { return startsAt(ctx, t, dst, topic, []int64{50}) })
	if diff := cmp.Diff(kcat(t, src, topic, 0, 50, 50), kcat(t, dst, topic, 0, 50, 50)); diff != "" {
		t.Errorf("kcat reads different records (-source +destination):\n%.2000s", diff)
	}
	if err := m.Promote(timeout(t, time.Minute), topic); err != nil {
		t.Fatal(err)
	}
	stands(t, dst, group, topic, 0, 70)
	if got := setting(t, dst, topic, "max.message.bytes"); got != "2000000" {
		t.Errorf("max.message.bytes is %q", got)
	}
	m.end()

	end, p := connect(t, src), cluster.Partition{Topic: topic}
	leaders, err := end.Leaders(t.Context(), []cluster.Partition{p}, true)
	if err != nil || leaders[0].Err != nil || leaders[0].Epoch < 0 {
		t.Fatalf("leader %+v, %v", leaders, err)
	}
	e := leaders[0].Epoch
	ends, err := end.EpochEnds(t.Context(), []fetcher.EpochQuery{{Partition: p, Current: e, Epoch: e}})
	if want := (cluster.EpochEnd{Epoch: e, EndOffset: 100}); err != nil || ends[0].Err != nil || ends[0].EpochEnd != want {
		t.Errorf("epoch %d ends at %+v, %v", e, ends, err)
	}
	ends, err = end.EpochEnds(t.Context(), []fetcher.EpochQuery{{Partition: p, Current: e + 1, Epoch: e}})
	if err != nil || !errors.Is(ends[0].Err, cluster.ErrLeaderEpoch) {
		t.Errorf("asked with an epoch that is not there yet: %+v, %v", ends, err)
	}
}

// fillTo writes empty records up to an offset and deletes them, so that the log starts
// there.
func fillTo(t *testing.T, c *kafkatest.Cluster, topic string, to int64) {
	t.Helper()
	const most = 100_000 // what remains is a batch of its own
	cl := c.Client(t)
	var filler []byte
	for at, n := int64(0), int64(0); at < to; at += n {
		if size := min(most, to-at); size != n {
			n, filler = size, fillerOf(size)
		}
		one := kmsg.NewProduceRequestTopic()
		p := kmsg.NewProduceRequestTopicPartition()
		one.Topic, p.Records = topic, filler
		one.Partitions = append(one.Partitions, p)
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis, req.Topics = -1, 30_000, append(req.Topics, one)
		resp, err := req.RequestWith(t.Context(), cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		if err != nil {
			t.Fatalf("filling from %d: %v", at, err)
		}
	}
	trim(t, c, topic, 0, to)
}

func fillerOf(n int64) []byte {
	records := make([]batch.Record, n)
	for i := range records {
		records[i].Offset, records[i].Timestamp = int64(i), time.Now().UnixMilli()
	}
	return batch.Encode(batch.Spec{Codec: batch.Zstd, LeaderEpoch: -1, Records: records})
}

// TestOldDestination: a cluster that is too old to mirror into says so, of its own topics
// and of those that would have to be created, and nothing is written there.
func TestOldDestination(t *testing.T) {
	old, good := sourceOf(t, "2.1.1"), destination(t)
	const topic, absent = "old-destination", "old-destination-absent"
	for _, name := range []string{topic, absent} {
		good.CreateTopic(t, name, 1, 1, nil)
		put(t, good, name, 0, 10)
	}
	old.CreateTopic(t, topic, 1, 1, nil)
	m := run(t, "old", connect(t, good), connect(t, old), mirror.Options{Topics: mirror.Topics{Include: []string{topic, absent}}})
	e := m.event(time.Minute, "refused", failed)
	t.Logf("%v", e.Err)
	if !errors.Is(e.Err, errors.ErrUnsupported) || cluster.Retriable(e.Err) {
		t.Errorf("failed with: %v", e.Err)
	}
	s := m.Status()
	t.Logf("%v", s.Refused)
	if len(s.Refused) != 1 || s.States[coordinator.StateFailed] != 1 {
		t.Errorf("refused %v, states %v", s.Refused, s.States)
	}
	if now := ends(t, old, topic); now[0] != 0 {
		t.Errorf("the destination ends at %v", now)
	}
	if _, err := highWatermarks(t.Context(), old.Client(t, kgo.RetryTimeout(time.Second)), absent); err == nil {
		t.Errorf("topic %s was created", absent)
	}
}
