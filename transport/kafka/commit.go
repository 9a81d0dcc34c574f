package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit is sent as version 2 to 4: these carry no leader epoch, which would
// be one of another cluster, and a retention of their own, so that the copy of an
// idle group does not expire earlier than the original.
const (
	commitVersion   = 4
	commitRetention = 10 * 365 * 24 * time.Hour
)

// refusals are the codes of a group that has members, or is of a kind that takes
// no offsets: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS,
// NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH.
var refusals = map[int16]bool{22: true, 25: true, 27: true, 68: true, 69: true, 113: true}

// Commit writes offsets of one group without members. Metadata is kept.
func (c *Cluster) Commit(ctx context.Context, group string, committed []cluster.Committed) error {
	if len(committed) == 0 {
		return nil
	}
	for try := 1; ; try++ {
		err := c.commitOnce(ctx, group, committed)
		if err == nil || !moved(err) || try == loadingTries || !sleep(ctx, pause(try)) {
			return err
		}
		c.client.ForgetCoordinator(group)
	}
}

func (c *Cluster) commitOnce(ctx context.Context, group string, committed []cluster.Committed) error {
	conn, err := c.client.Coordinator(ctx, group)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.RetentionTimeMillis = group, -1, commitRetention.Milliseconds()
	sorted := slices.SortedFunc(slices.Values(committed), func(a, b cluster.Committed) int { return a.Partition.Compare(b.Partition) })
	for i := range sorted {
		at := &sorted[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != at.Partition.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = at.Partition.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = at.Partition.Partition, at.Offset, &at.Metadata
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	answer, err := conn.DoVersion(ctx, req, min(commitVersion, conn.MaxVersion(req.Key())))
	if err != nil {
		return err
	}
	for _, t := range answer.(*kmsg.OffsetCommitResponse).Topics {
		for _, p := range t.Partitions {
			if err := commitError(p.ErrorCode); err != nil {
				return fmt.Errorf("group %s: %w", group, at(cluster.Partition{Topic: t.Topic, Partition: p.Partition}, err))
			}
		}
	}
	return nil
}

func commitError(code int16) error {
	if refusals[code] {
		return fmt.Errorf("%w: the group has members or takes no offsets: %w", cluster.ErrRefused, wire.Code(code))
	}
	return wire.CodeError(code)
}
