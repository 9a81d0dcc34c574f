package kafka

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
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

// refusals are the codes of a group that has members: ILLEGAL_GENERATION,
// UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NON_EMPTY_GROUP, STALE_MEMBER_EPOCH.
var refusals = map[int16]bool{22: true, 25: true, 27: true, 68: true, 113: true}

// commitSlots are connections to a coordinator on which groups are committed. A broker takes
// the next request of a connection when the replicas have the commit before.
const commitSlots = 4

// commitSlot is a group's connection, always the same: its commits arrive in their order.
func commitSlot(group string) string {
	h := fnv.New32a()
	h.Write([]byte(group))
	return slotGroups + strconv.Itoa(int(h.Sum32()%commitSlots))
}

// Commit writes offsets of one group without members. Metadata is kept.
func (c *Cluster) Commit(ctx context.Context, group string, committed []cluster.Committed) error {
	if len(committed) == 0 {
		return nil
	}
	return c.atCoordinator(ctx, group, func(conn *wire.Conn) error { return commitOnce(ctx, conn, group, committed) })
}

// atCoordinator puts one question to a group's coordinator, and again where it has moved.
func (c *Cluster) atCoordinator(ctx context.Context, group string, ask func(conn *wire.Conn) error) error {
	for try := 1; ; try++ {
		conn, err := c.client.Coordinator(ctx, group, commitSlot(group))
		if err == nil {
			err = ask(conn)
		}
		if err == nil || !moved(err) || try == loadingTries || !sleep(ctx, pause(try)) {
			return err
		}
		c.client.ForgetCoordinator(group)
	}
}

func byPartition(of []cluster.Committed) []cluster.Committed {
	return slices.SortedFunc(slices.Values(of), func(a, b cluster.Committed) int { return a.Partition.Compare(b.Partition) })
}

func commitOnce(ctx context.Context, conn *wire.Conn, group string, committed []cluster.Committed) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.RetentionTimeMillis = group, -1, commitRetention.Milliseconds()
	sorted := byPartition(committed)
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
	const groupIDNotFound = 69
	switch {
	case refusals[code]:
		return fmt.Errorf("%w: %w: %w", cluster.ErrRefused, cluster.ErrMembers, wire.Code(code))
	case code == groupIDNotFound:
		return fmt.Errorf("%w: the group takes no offsets: %w", cluster.ErrRefused, wire.Code(code))
	}
	return wire.CodeError(code)
}
