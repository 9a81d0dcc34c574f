package acceptance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// highWatermarks of a topic's partitions.
func highWatermarks(ctx context.Context, cl *kgo.Client, topic string) ([]int64, error) {
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = append(meta.Topics, one)
	m, err := meta.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(m.Topics[0].ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	ask := kmsg.NewListOffsetsRequestTopic()
	ask.Topic = topic
	for i := range m.Topics[0].Partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = int32(i), -1
		ask.Partitions = append(ask.Partitions, p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.Topics = append(req.Topics, ask)
	out := make([]int64, len(ask.Partitions))
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("%s-%d: %w", topic, p.Partition, err)
				}
				out[p.Partition] = p.Offset
			}
		}
	}
	return out, nil
}

// put writes n records of an application to one partition and gives the first
// offset. They are as old as age says.
func put(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, n int, age ...time.Duration) int64 {
	t.Helper()
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("of an application")}
		if len(age) > 0 {
			r.Timestamp = time.Now().Add(-age[0])
		}
		records = append(records, r)
	}
	results := cl.ProduceSync(t.Context(), records...)
	if err := results.FirstErr(); err != nil {
		t.Fatal(err)
	}
	return results[0].Record.Offset
}

// writer writes records of 1 KB to all partitions until the test ends or stop
// is called, a hundred a second each (two hundred in the long run).
func writer(t *testing.T, c *kafkatest.Cluster, topic string, partitions int32, age time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cl, err := kgo.NewClient(append(c.ClientOpts(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(2*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cl.Close()
		tick := time.NewTicker(sized(10*time.Millisecond, 5*time.Millisecond))
		defer tick.Stop()
		value := make([]byte, 1000)
		for i := 0; ctx.Err() == nil; i++ {
			for p := range partitions {
				cl.Produce(context.Background(), &kgo.Record{
					Topic: topic, Partition: p, Value: value, Timestamp: time.Now().Add(-age),
				}, nil)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		cl.Flush(context.Background())
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// trim deletes the records of a partition before an offset.
func trim(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, to int64) {
	t.Helper()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, to
	one := kmsg.NewDeleteRecordsRequestTopic()
	one.Topic = topic
	one.Partitions = append(one.Partitions, p)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Topics = append(req.Topics, one)
	req.TimeoutMillis = 10_000
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("delete records: %v %+v", err, resp)
	}
}

func startsAt(ctx context.Context, t *testing.T, c *kafkatest.Cluster, topic string, want []int64) error {
	if got := c.Starts(ctx, t, topic); fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("log starts are %v, want %v", got, want)
	}
	return nil
}

// wait lets time pass for the sake of the scenario, not to wait for something.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// ends of a topic's partitions; nil while it does not exist.
func ends(t *testing.T, c *kafkatest.Cluster, topic string) []int64 {
	t.Helper()
	got, err := highWatermarks(t.Context(), c.Client(t), topic)
	if err != nil {
		return nil
	}
	return got
}

func sum(of []int64) (total int64) {
	for _, n := range of {
		total += n
	}
	return total
}

// moving waits until a topic's ends are beyond what they were.
func moving(t *testing.T, c *kafkatest.Cluster, topic string, before []int64) {
	t.Helper()
	cl := c.Client(t)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		now, err := highWatermarks(ctx, cl, topic)
		if err == nil && sum(now) <= sum(before) {
			err = fmt.Errorf("ends stay at %v", now)
		}
		return err
	})
}

func kcat(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, from int64, n int) []kafkatest.Line {
	t.Helper()
	return c.KcatConsume(t.Context(), t, kafkatest.ConsumeSpec{Topic: topic, Partition: partition, From: from, Max: n})
}

// leaders of a topic's partitions.
func leaders(t *testing.T, c *kafkatest.Cluster, topic string) []int {
	t.Helper()
	out, err := leadersNow(t.Context(), c.Client(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func leadersNow(ctx context.Context, cl *kgo.Client, topic string) ([]int, error) {
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, one)
	m, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(m.Topics[0].Partitions))
	for _, p := range m.Topics[0].Partitions {
		out[p.Partition] = int(p.Leader)
	}
	return out, kerr.ErrorForCode(m.Topics[0].ErrorCode)
}

// newLeaders waits until every partition is led by a broker other than the dead
// one, and says when.
func newLeaders(t *testing.T, c *kafkatest.Cluster, topic string, dead int, within time.Duration) time.Time {
	t.Helper()
	cl := c.Client(t)
	kafkatest.Eventually(t, within, func(ctx context.Context) error {
		led, err := leadersNow(ctx, cl, topic)
		if err == nil && (slices.Contains(led, dead) || slices.Contains(led, -1)) {
			err = fmt.Errorf("leaders are %v", led)
		}
		return err
	})
	return time.Now()
}

// watch looks at the copy of every partition until it is asked for the longest
// time that each stood still.
func watch(t *testing.T, m *running, topic string, parts int) (longest func() []time.Duration) {
	still := make([]time.Duration, parts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		last, moved := make([]int64, parts), make([]time.Time, parts)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			top, _ := m.Topic(topic)
			for i, p := range top.Partitions {
				if now := time.Now(); p.DestinationEnd != last[i] || moved[i].IsZero() {
					last[i], moved[i] = p.DestinationEnd, now
				} else {
					still[i] = max(still[i], now.Sub(moved[i]))
				}
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	longest = func() []time.Duration {
		cancel()
		<-done
		return still
	}
	t.Cleanup(func() { longest() })
	return longest
}
