package kafka

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Trim moves log starts up with DeleteRecords. An offset above the high watermark
// means the high watermark.
func (c *Cluster) Trim(ctx context.Context, cuts []fetcher.Cut) []error {
	partitions := make([]cluster.Partition, len(cuts))
	for i, cut := range cuts {
		partitions[i] = cut.Partition
	}
	now := make([]cluster.Offsets, len(cuts))
	return c.atLeaders(ctx, partitions, slotAsk, func(ctx context.Context, conn *wire.Conn, idx []int, errs []error) error {
		if err := listOffsets(ctx, conn, partitions, idx, errs, earliest, consumer, func(i int, o int64) { now[i].LogStart = o }); err != nil {
			return err
		}
		if err := listOffsets(ctx, conn, partitions, idx, errs, latest, consumer, func(i int, o int64) { now[i].HighWatermark = o }); err != nil {
			return err
		}
		var due []int
		for _, i := range idx {
			if errs[i] == nil && min(cuts[i].Offset, now[i].HighWatermark) > now[i].LogStart {
				due = append(due, i)
			}
		}
		if len(due) == 0 {
			return nil
		}
		return c.deleteRecords(ctx, conn, partitions, due, errs, func(i int) int64 { return min(cuts[i].Offset, now[i].HighWatermark) })
	})
}

func (c *Cluster) deleteRecords(ctx context.Context, conn *wire.Conn, partitions []cluster.Partition, idx []int, errs []error, before func(i int) int64) error {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32((c.cfg.RequestTimeout - c.cfg.RequestTimeout/4).Milliseconds())
	for _, g := range byTopic(partitions, idx) {
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = g.topic
		for _, i := range g.idx {
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = partitions[i].Partition, before(i)
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	want := expect(partitions, idx)
	for _, t := range answer.(*kmsg.DeleteRecordsResponse).Topics {
		for _, p := range t.Partitions {
			if i, ok := want.take(t.Topic, p.Partition); ok {
				errs[i] = wire.CodeError(p.ErrorCode)
			}
		}
	}
	want.missing(errs)
	return nil
}
