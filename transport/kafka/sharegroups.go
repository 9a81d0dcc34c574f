package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
//
// A broker writes down the start offset of before an acknowledgement, so that it lags behind until
// the next one. Where the lag says that nothing is left (Kafka 4.2), the group starts at the end
// that the log had before it was asked for (decision 0030).
func (c *Cluster) ShareOffsets(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	answers, lags, err := c.shareStarts(ctx, groups)
	if err != nil || len(lags) == 0 {
		return answers, err
	}
	ends := c.shareEnds(ctx, lags)
	if answers, lags, err = c.shareStarts(ctx, groups); err != nil {
		return nil, err
	}
	for i, a := range answers {
		for k := range a.Offsets {
			o := &a.Offsets[k]
			key := shareKey{groups[i], o.Partition}
			lag, known := lags[key]
			if end, asked := ends[o.Partition]; known && asked {
				*o = c.shares.place(key, *o, end, lag)
			}
		}
	}
	return answers, nil
}

// shareKey is a share group on a partition.
type shareKey struct {
	group     string
	partition cluster.Partition
}

// shareStarts gives start offsets as they are written down, and how many records are not acknowledged, where that
// is known.
func (c *Cluster) shareStarts(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, map[shareKey]int64, error) {
	found := make([]map[shareKey]int64, len(groups))
	answers := c.atCoordinators(ctx, groups, func(ctx context.Context, conn *wire.Conn, idx []int, answers []offsets.CommittedAnswer) error {
		for some := range slices.Chunk(idx, sharesAtOnce) {
			if err := shareOffsets(ctx, conn, groups, some, answers, found); err != nil {
				return err
			}
		}
		return nil
	})
	supported := slices.ContainsFunc(answers, func(a offsets.CommittedAnswer) bool { return !errors.Is(a.Err, errors.ErrUnsupported) })
	if len(answers) > 0 && !supported {
		return nil, nil, answers[0].Err
	}
	lags := map[shareKey]int64{}
	for _, of := range found {
		maps.Copy(lags, of)
	}
	return answers, lags, nil
}

// shareEnds are the high watermarks of partitions whose lag is known; those that do not answer are left out.
func (c *Cluster) shareEnds(ctx context.Context, lags map[shareKey]int64) map[cluster.Partition]int64 {
	seen := map[cluster.Partition]bool{}
	for key := range lags {
		seen[key.partition] = true
	}
	partitions := slices.Collect(maps.Keys(seen))
	found := make([]int64, len(partitions))
	errs := c.atLeaders(ctx, partitions, slotAsk, func(ctx context.Context, conn *wire.Conn, idx []int, errs []error) error {
		return listOffsets(ctx, conn, partitions, idx, errs, latest, consumer, func(i int, o int64) { found[i] = o })
	})
	ends := make(map[cluster.Partition]int64, len(partitions))
	for i, p := range partitions {
		if errs[i] == nil {
			ends[p] = found[i]
		}
	}
	return ends
}

func shareOffsets(ctx context.Context, conn *wire.Conn, groups []string, idx []int, answers []offsets.CommittedAnswer, lags []map[shareKey]int64) error {
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
		answers[i], lags[i] = offsets.CommittedAnswer{Err: errMissing}, map[shareKey]int64{}
	}
	for _, g := range answer.(*kmsg.DescribeShareGroupOffsetsResponse).Groups {
		i, ok := index[g.GroupID]
		if !ok {
			continue
		}
		got := offsets.CommittedAnswer{Err: groupError(g.ErrorCode)}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				at := cluster.Partition{Topic: t.Topic, Partition: p.Partition}
				if err := wire.CodeError(p.ErrorCode); err != nil && !moved(err) { // its leader was to say where the log ends
					if got.Unknown == nil {
						got.Unknown = map[cluster.Partition]error{}
					}
					got.Unknown[at] = err
					continue
				}
				if addCommitted(&got, at, p.StartOffset, nil, p.ErrorCode); p.ErrorCode == 0 && p.StartOffset >= 0 && p.Lag >= 0 {
					lags[i][shareKey{g.GroupID, at}] = p.Lag
				}
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
