package acceptance

import (
	"context"
	"fmt"
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
// offset.
func put(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, n int) int64 {
	t.Helper()
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for range n {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte("of an application")})
	}
	results := cl.ProduceSync(t.Context(), records...)
	if err := results.FirstErr(); err != nil {
		t.Fatal(err)
	}
	return results[0].Record.Offset
}

// writer writes records of 1 KB to all partitions until the test ends or stop
// is called, some hundred a second each.
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
		tick := time.NewTicker(5 * time.Millisecond)
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

type contextT = context.Context

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
