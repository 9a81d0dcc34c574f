package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/clustermirror/mirror/offsets"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions of OffsetFetch: from manyGroups on one request asks for many groups;
// after lastNamed topics have ids instead of names.
const (
	manyGroups = 8
	lastNamed  = 9
)

// groupsAtOnce bounds an answer: of groups that have committed on a hundred partitions each it has
// some megabytes.
const groupsAtOnce = 500

// Committed gives every committed offset of each group. A coordinator that does not answer
// before ctx ends fails only its groups.
func (c *Cluster) Committed(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	return c.atCoordinators(ctx, groups, func(ctx context.Context, conn *wire.Conn, idx []int, answers []offsets.CommittedAnswer) error {
		version := min(lastNamed, conn.MaxVersion(int16(kmsg.OffsetFetch)))
		if version < manyGroups {
			return committedOne(ctx, conn, version, groups, idx, answers)
		}
		for some := range slices.Chunk(idx, groupsAtOnce) {
			if err := committedMany(ctx, conn, version, groups, some, answers); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// askGroups answers those groups that idx names.
type askGroups = func(ctx context.Context, conn *wire.Conn, idx []int, answers []offsets.CommittedAnswer) error

// atCoordinators asks the coordinators of many groups, all at once, and again where groups
// have moved.
func (c *Cluster) atCoordinators(ctx context.Context, groups []string, ask askGroups) []offsets.CommittedAnswer {
	answers := make([]offsets.CommittedAnswer, len(groups))
	left := make([]int, len(groups))
	for i := range left {
		left[i] = i
	}
	for try := 1; len(left) > 0; try++ {
		c.askGroupsOnce(ctx, groups, left, answers, ask)
		left = slices.DeleteFunc(left, func(i int) bool { return !moved(answers[i].Err) })
		for _, i := range left {
			c.client.ForgetCoordinator(groups[i])
		}
		if try == loadingTries || len(left) > 0 && !sleep(ctx, pause(try)) {
			break
		}
	}
	return answers
}

func (c *Cluster) askGroupsOnce(ctx context.Context, groups []string, idx []int, answers []offsets.CommittedAnswer, ask askGroups) {
	names := make([]string, len(idx))
	for k, i := range idx {
		names[k] = groups[i]
	}
	byBroker, errs := c.coordinators(ctx, names)
	for k, i := range idx {
		answers[i] = offsets.CommittedAnswer{Err: errs[k]}
	}
	var wg sync.WaitGroup
	for broker, mine := range byBroker {
		wg.Go(func() {
			part := make([]int, len(mine))
			for n, k := range mine {
				part[n] = idx[k]
				answers[part[n]] = offsets.CommittedAnswer{Err: errUnasked}
			}
			conn, err := c.conn(ctx, broker, slotGroups)
			if err == nil {
				err = ask(ctx, conn, part, answers)
			}
			for _, i := range part {
				if err != nil && answers[i].Err == errUnasked {
					answers[i].Err = err
				}
			}
		})
	}
	wg.Wait()
}

// errUnasked stands for a group that was not asked for yet.
var errUnasked = errors.New("not asked for")

// committedOne asks for each group by a request of its own.
func committedOne(ctx context.Context, conn *wire.Conn, version int16, groups []string, idx []int, answers []offsets.CommittedAnswer) error {
	together(len(idx), func(k int) {
		i := idx[k]
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = groups[i]
		answer, err := conn.DoVersion(ctx, req, version)
		if err != nil {
			answers[i].Err = err
			return
		}
		got := answer.(*kmsg.OffsetFetchResponse)
		answers[i] = offsets.CommittedAnswer{Err: groupError(got.ErrorCode)}
		for _, t := range got.Topics {
			for _, p := range t.Partitions {
				addCommitted(&answers[i], cluster.Partition{Topic: t.Topic, Partition: p.Partition}, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
	})
	return nil
}

func committedMany(ctx context.Context, conn *wire.Conn, version int16, groups []string, idx []int, answers []offsets.CommittedAnswer) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	index := make(map[string]int, len(idx))
	for _, i := range idx {
		index[groups[i]] = i
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = groups[i] // no topics: all of them
		req.Groups = append(req.Groups, g)
	}
	answer, err := conn.DoVersion(ctx, req, version)
	if err != nil {
		return err
	}
	for _, i := range idx {
		answers[i] = offsets.CommittedAnswer{Err: errMissing}
	}
	for _, g := range answer.(*kmsg.OffsetFetchResponse).Groups {
		i, ok := index[g.Group]
		if !ok {
			continue
		}
		got := offsets.CommittedAnswer{Err: groupError(g.ErrorCode)}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				addCommitted(&got, cluster.Partition{Topic: t.Topic, Partition: p.Partition}, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
		answers[i] = got
	}
	return nil
}

// addCommitted adds a partition that has an offset; -1 is none.
func addCommitted(to *offsets.CommittedAnswer, p cluster.Partition, offset int64, metadata *string, code int16) {
	if err := wire.CodeError(code); err != nil {
		if to.Err == nil {
			to.Err = at(p, err)
		}
		return
	}
	if offset < 0 {
		return
	}
	c := cluster.Committed{Partition: p, Offset: offset}
	if metadata != nil {
		c.Metadata = *metadata
	}
	to.Offsets = append(to.Offsets, c)
}

// groupError is the error of a whole group. One that does not exist has committed
// nothing: some brokers say so by an error, others by an empty answer.
func groupError(code int16) error {
	const groupIDNotFound wire.Code = 69
	if wire.Code(code) == groupIDNotFound {
		return nil
	}
	return wire.CodeError(code)
}
