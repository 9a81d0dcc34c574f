package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/clustermirror/mirror/offsets"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var _ offsets.ShareSink = (*Cluster)(nil)

// sharesAtOnce is how many share groups one request asks for: the coordinator reads the state
// of each from others.
const sharesAtOnce = 100

// ShareOffsets gives the start offsets of share groups (DescribeShareGroupOffsets, Kafka 4.1). A
// cluster that has none answers errors.ErrUnsupported.
func (c *Cluster) ShareOffsets(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	answers := c.atCoordinators(ctx, groups, func(ctx context.Context, conn *wire.Conn, idx []int, answers []offsets.CommittedAnswer) error {
		for some := range slices.Chunk(idx, sharesAtOnce) {
			if err := shareOffsets(ctx, conn, groups, some, answers); err != nil {
				return err
			}
		}
		return nil
	})
	supported := slices.ContainsFunc(answers, func(a offsets.CommittedAnswer) bool { return !errors.Is(a.Err, errors.ErrUnsupported) })
	if len(answers) > 0 && !supported {
		return nil, answers[0].Err
	}
	return answers, nil
}

func shareOffsets(ctx context.Context, conn *wire.Conn, groups []string, idx []int, answers []offsets.CommittedAnswer) error {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	index := make(map[string]int, len(idx))
	for _, i := range idx {
		index[groups[i]] = i
		g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
		g.GroupID = groups[i] // no topics: all of them
		req.Groups = append(req.Groups, g)
	}
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	for _, i := range idx {
		answers[i] = offsets.CommittedAnswer{Err: errMissing}
	}
	for _, g := range answer.(*kmsg.DescribeShareGroupOffsetsResponse).Groups {
		i, ok := index[g.GroupID]
		if !ok {
			continue
		}
		got := offsets.CommittedAnswer{Err: groupError(g.ErrorCode)}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				addCommitted(&got, cluster.Partition{Topic: t.Topic, Partition: p.Partition}, p.StartOffset, nil, p.ErrorCode)
			}
		}
		answers[i] = got
	}
	return nil
}

// SetShareOffsets sets the start offsets of a share group without members
// (AlterShareGroupOffsets); one that is not there is made.
func (c *Cluster) SetShareOffsets(ctx context.Context, group string, starts []cluster.Committed) error {
	if len(starts) == 0 {
		return nil
	}
	return c.atCoordinator(ctx, group, func(conn *wire.Conn) error {
		req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
		req.GroupID = group
		for _, s := range byPartition(starts) {
			if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != s.Partition.Topic {
				t := kmsg.NewAlterShareGroupOffsetsRequestTopic()
				t.Topic = s.Partition.Topic
				req.Topics = append(req.Topics, t)
			}
			p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
			p.Partition, p.StartOffset = s.Partition.Partition, s.Offset
			t := &req.Topics[len(req.Topics)-1]
			t.Partitions = append(t.Partitions, p)
		}
		answer, err := conn.Do(ctx, req)
		if err != nil {
			return err
		}
		resp := answer.(*kmsg.AlterShareGroupOffsetsResponse)
		if err := commitError(resp.ErrorCode); err != nil {
			return fmt.Errorf("share group %s: %w", group, err)
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := commitError(p.ErrorCode); err != nil {
					return fmt.Errorf("share group %s: %w", group, at(cluster.Partition{Topic: t.Topic, Partition: p.Partition}, err))
				}
			}
		}
		return nil
	})
}
