package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/lead"
)

// askedOften is enough connections that each real broker is behind one of them.
const askedOften = 6

// producersAreDescribed: who has written to what we lead is told over every connection,
// also where the real broker behind it has no replica.
func producersAreDescribed(t *testing.T, k *kafkatest.Cluster, p *lead.Partition) {
	t.Helper()
	_, name := p.ID()
	next := p.State().Next
	b := batch.Encode(batch.Spec{Base: next, Producer: &batch.Producer{ID: 77}, Records: []batch.Record{{Offset: next, Timestamp: time.Now().UnixMilli(), Value: []byte("of a producer")}}})
	done := make(chan error, 1)
	p.Append([]cluster.Batch{{Base: next, Next: next + 1, Bytes: b}}, nil, func(_ int64, _ int, err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = name.Topic, []int32{name.Partition}
	req.Topics = append(req.Topics, topic)
	for range askedOften {
		cl := k.Client(t)
		resp, err := cl.Broker(100).RetriableRequest(within(t, time.Minute), req)
		if err != nil {
			t.Fatal(err)
		}
		got := resp.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
		if got.ErrorCode != 0 || len(got.ActiveProducers) != 1 || got.ActiveProducers[0].ProducerID != 77 {
			t.Errorf("producers: %+v", got)
		}
		cl.Close()
	}
}

// shareGroupsWait: a share group is refused what we lead, and not at once.
func shareGroupsWait(t *testing.T, k *kafkatest.Cluster, p *lead.Partition) {
	t.Helper()
	id, name := p.ID()
	group, member := "sharing", "AAAAAAAAAAAAAAAAAAAAAQ"
	for range askedOften {
		cl := k.Client(t)
		req := kmsg.NewPtrShareFetchRequest()
		req.GroupID, req.MemberID, req.MaxWaitMillis, req.MaxRecords, req.BatchSize = &group, &member, 100, 10, 10
		topic := kmsg.NewShareFetchRequestTopic()
		topic.TopicID = id
		part := kmsg.NewShareFetchRequestTopicPartition()
		part.Partition = name.Partition
		topic.Partitions = append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		began := time.Now()
		resp, err := cl.Broker(100).Request(within(t, time.Minute), req)
		if err != nil {
			t.Fatal(err)
		}
		got, took := resp.(*kmsg.ShareFetchResponse), time.Since(began)
		if got.ErrorCode != 0 || len(got.Topics) != 1 || !absent(got.Topics[0].Partitions[0].ErrorCode) || len(got.Topics[0].Partitions[0].Records) > 0 || took < shareWait {
			t.Errorf("a share group gets %+v after %v", got, took)
		}
		cl.Close()
	}
}
