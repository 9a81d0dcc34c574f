package kafka

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	consumer  = int32(-1) // replica id of a client: the end is the high watermark
	debugging = int32(-2) // replica id of Kafka's debugging consumer: the end is the log end

	latest   = int64(-1)
	earliest = int64(-2)
)

// Offsets gives log start and high watermark at the leaders.
func (c *Cluster) Offsets(ctx context.Context, partitions []cluster.Partition) ([]fetcher.OffsetsAnswer, error) {
	answers := make([]fetcher.OffsetsAnswer, len(partitions))
	errs := c.atLeaders(ctx, partitions, slotAsk, func(ctx context.Context, conn *wire.Conn, idx []int, errs []error) error {
		if err := listOffsets(ctx, conn, partitions, idx, errs, earliest, consumer, func(i int, o int64) { answers[i].LogStart = o }); err != nil {
			return err
		}
		return listOffsets(ctx, conn, partitions, idx, errs, latest, consumer, func(i int, o int64) { answers[i].HighWatermark = o })
	})
	for i, err := range errs {
		answers[i].Err = err
	}
	return answers, ctx.Err()
}

// LogOffsets is Offsets of one partition.
func (c *Cluster) LogOffsets(ctx context.Context, p cluster.Partition) (cluster.Offsets, error) {
	answers, err := c.Offsets(ctx, []cluster.Partition{p})
	if answers[0].Err != nil {
		err = answers[0].Err
	}
	return answers[0].Offsets, err
}

// listOffsets asks for one kind of offset. A request cannot ask a partition for
// two kinds.
func listOffsets(ctx context.Context, conn *wire.Conn, partitions []cluster.Partition, idx []int, errs []error, kind int64, replica int32, found func(i int, offset int64)) error {
	answer, err := conn.Do(ctx, listOffsetsRequest(partitions, idx, kind, replica))
	if err != nil {
		return err
	}
	want := expect(partitions, idx)
	for _, t := range answer.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			i, ok := want.take(t.Topic, p.Partition)
			if !ok {
				continue
			}
			if err := wire.CodeError(p.ErrorCode); err != nil {
				errs[i] = err
				continue
			}
			found(i, p.Offset)
		}
	}
	want.missing(errs)
	return nil
}

func listOffsetsRequest(partitions []cluster.Partition, idx []int, kind int64, replica int32) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = replica
	for _, g := range byTopic(partitions, idx) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = g.topic
		for _, i := range g.idx {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = partitions[i].Partition, kind
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// EpochEnds asks the leaders where epochs end.
func (c *Cluster) EpochEnds(ctx context.Context, queries []fetcher.EpochQuery) ([]fetcher.EpochAnswer, error) {
	answers := make([]fetcher.EpochAnswer, len(queries))
	partitions := make([]cluster.Partition, len(queries))
	for i, q := range queries {
		partitions[i] = q.Partition
	}
	errs := c.atLeaders(ctx, partitions, slotAsk, func(ctx context.Context, conn *wire.Conn, idx []int, errs []error) error {
		return epochEnds(ctx, conn, queries, partitions, idx, errs, answers)
	})
	for i, err := range errs {
		answers[i].Err = err
	}
	return answers, ctx.Err()
}

func epochEnds(ctx context.Context, conn *wire.Conn, queries []fetcher.EpochQuery, partitions []cluster.Partition, idx []int, errs []error, answers []fetcher.EpochAnswer) error {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = consumer
	for _, g := range byTopic(partitions, idx) {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = g.topic
		for _, i := range g.idx {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partitions[i].Partition, queries[i].Current, queries[i].Epoch
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	want := expect(partitions, idx)
	for _, t := range answer.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range t.Partitions {
			i, ok := want.take(t.Topic, p.Partition)
			if !ok {
				continue
			}
			errs[i] = wire.CodeError(p.ErrorCode)
			answers[i].EpochEnd = cluster.EpochEnd{Epoch: p.LeaderEpoch, EndOffset: p.EndOffset}
		}
	}
	want.missing(errs)
	return nil
}
