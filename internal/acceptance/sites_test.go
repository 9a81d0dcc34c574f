package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// sites are two clusters of three brokers that fail over to each other. Brokers
// that die are noticed soon, and no leader moves back by itself.
func sites(t *testing.T) (a, b *kafkatest.Cluster) {
	site := func(rack, version string) *kafkatest.Cluster {
		return kafkatest.Shared(t, kafkatest.Options{Version: version, Nodes: 3, Config: map[string]string{
			"broker.rack": rack, "default.replication.factor": "3",
			"broker.session.timeout.ms": "4000", "auto.leader.rebalance.enable": "false",
		}})
	}
	return site("a", sourceVersion()), site("b", "")
}

// noted is a record as its producer knows it.
type noted struct {
	Partition int32
	Offset    int64
	Time      int64 // ms since 1970
	Key       string
	Value     string
}

// note writes n records to each of the partitions given, none like another, and
// gives them by partition, in the order of their offsets.
func note(t *testing.T, c *kafkatest.Cluster, topic, who string, n int, partitions ...int32) map[int32][]noted {
	t.Helper()
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(time.Minute),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	pad := strings.Repeat("x", 900)
	var records []*kgo.Record
	for i := range n {
		for _, p := range partitions {
			records = append(records, &kgo.Record{
				Topic: topic, Partition: p, Key: fmt.Append(nil, who), Value: fmt.Appendf(nil, "%s %d-%d %s", who, p, i, pad),
				Headers: []kgo.RecordHeader{{Key: "who", Value: []byte(who)}},
			})
		}
	}
	results := cl.ProduceSync(t.Context(), records...)
	if err := results.FirstErr(); err != nil {
		t.Fatal(err)
	}
	out := map[int32][]noted{}
	for _, r := range results {
		out[r.Record.Partition] = append(out[r.Record.Partition], noted{
			r.Record.Partition, r.Record.Offset, r.Record.Timestamp.UnixMilli(), string(r.Record.Key), string(r.Record.Value),
		})
	}
	for _, of := range out {
		slices.SortFunc(of, func(a, b noted) int { return int(a.Offset - b.Offset) })
	}
	return out
}

// consume lets a member of a group read n records, commit and leave. It gives them
// in the order they came.
func consume(t *testing.T, c *kafkatest.Cluster, group, topic string, n int) (got []noted) {
	t.Helper()
	cl, err := kgo.NewClient(append(c.ClientOpts(), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close() // leaves the group
	ctx := timeout(t, time.Minute)
	for len(got) < n {
		fetches := cl.PollRecords(ctx, n-len(got))
		if err := fetches.Err0(); err != nil {
			t.Fatalf("group %s has read %d of %d records: %v", group, len(got), n, err)
		}
		for _, r := range fetches.Records() {
			got = append(got, noted{r.Partition, r.Offset, r.Timestamp.UnixMilli(), string(r.Key), string(r.Value)})
		}
		if err := cl.CommitRecords(ctx, fetches.Records()...); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// commit writes an idle group's offset.
func commit(t *testing.T, c *kafkatest.Cluster, group, topic string, partition int32, offset int64) {
	t.Helper()
	end := connect(t, c)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		return end.Commit(ctx, group, []cluster.Committed{{Partition: cluster.Partition{Topic: topic, Partition: partition}, Offset: offset}})
	})
}

// committed is a group's offset; -1 when it has none.
func committed(ctx context.Context, end *kafka.Cluster, group, topic string, partition int32) (int64, error) {
	answers, err := end.Committed(ctx, []string{group})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return 0, err
	}
	for _, o := range answers[0].Offsets {
		if o.Partition == (cluster.Partition{Topic: topic, Partition: partition}) {
			return o.Offset, nil
		}
	}
	return -1, nil
}

// stands waits until an idle group has an offset committed.
func stands(t *testing.T, c *kafkatest.Cluster, group, topic string, partition int32, want int64) {
	t.Helper()
	end := connect(t, c)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // so that the last answer is not the end of ctx
		defer cancel()
		got, err := committed(ctx, end, group, topic, partition)
		if err == nil && got != want {
			err = fmt.Errorf("group %s is at %s-%d offset %d, want %d", group, topic, partition, got, want)
		}
		return err
	})
}

// shape is what a topic is, apart from its records.
type shape struct {
	ID         cluster.TopicID
	Partitions int
	Replicas   int
}

func shapeOf(ctx context.Context, cl *kgo.Client, topic string) (shape, error) {
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, one)
	m, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(m.Topics[0].ErrorCode)
	}
	if err != nil {
		return shape{}, err
	}
	top := m.Topics[0]
	return shape{ID: cluster.TopicID(top.TopicID), Partitions: len(top.Partitions), Replicas: len(top.Partitions[0].Replicas)}, nil
}

func shaped(t *testing.T, c *kafkatest.Cluster, topic string) shape {
	t.Helper()
	s, err := shapeOf(t.Context(), c.Client(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// setting is a topic's own value of a setting.
func setting(t *testing.T, c *kafkatest.Cluster, topic, name string) string {
	t.Helper()
	answers, err := connect(t, c).TopicConfigs(t.Context(), []string{topic})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range answers[0].Configs {
		if s.Name == name {
			return s.Value
		}
	}
	return ""
}

// all does something to every broker of a cluster at once.
func all(c *kafkatest.Cluster, do func(node int)) {
	var under sync.WaitGroup
	for n := range c.Nodes() {
		under.Go(func() { do(n + 1) })
	}
	under.Wait()
}

// died kills all brokers at once, and makes sure that they are back for the next test.
func died(t *testing.T, c *kafkatest.Cluster) (back func()) {
	t.Helper()
	back = sync.OnceFunc(func() { all(c, c.Restart) })
	t.Cleanup(back)
	all(c, c.Kill)
	return back
}

// salvaged reads what SalvageTo has kept of a partition from an offset on: record
// batches as Kafka stores them, of which the first may begin before it.
func salvaged(t *testing.T, dir, mirror string, p cluster.Partition, from int64) (out []noted) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, mirror, p.String(), fmt.Sprintf("%020d.log", from)))
	if err != nil {
		t.Fatal(err)
	}
	walk := batch.Walk(b)
	for walk.Next() {
		h := walk.Header()
		err := errors.Join(h.Check(), batch.Decode(h, func(r batch.Record) error {
			if r.Offset >= from && !r.Phantom {
				out = append(out, noted{p.Partition, r.Offset, r.Timestamp, string(bytes.Clone(r.Key)), string(r.Value)})
			}
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := walk.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func sameRecords(t *testing.T, what string, want, got []noted) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %d records, want %d (-want +got):\n%.2000s", what, len(got), len(want), diff)
	}
}

// upTo waits until both sites have the same records of topics.
func upTo(t *testing.T, within time.Duration, src, dst *kafkatest.Cluster, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		caughtUp(t, within, src, dst, topic)
		equal(t, src, dst, topic, int32(shaped(t, src, topic).Partitions))
	}
}
