package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// ErrElectable: the controller might let a real broker lead the partition when we
// are gone, which would make it writable.
var ErrElectable = errors.New("a real broker may be elected leader")

// narrow takes the real brokers out of the in-sync sets of partitions that we
// lead: from then on the controller elects nobody but us, and with us away nobody
// can write. It gives the reasons of those for which that is not so.
func (c *control) narrow(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	return c.overridden(ctx, ids, func(ready []metalog.PartitionID) map[metalog.PartitionID]error {
		return c.drive(ctx, ready, decideNarrow)
	})
}

// overridden does something with the partitions whose topics have the settings of
// mirrored ones, given to them before.
func (c *control) overridden(ctx context.Context, ids []metalog.PartitionID, do func(ready []metalog.PartitionID) map[metalog.PartitionID]error) map[metalog.PartitionID]error {
	image := c.m.log.Image()
	not := c.override(ctx, topicNames(image, ids))
	var ready []metalog.PartitionID
	failed := make(map[metalog.PartitionID]error)
	for _, id := range ids {
		if err := not[topicName(image, id)]; err != nil {
			failed[id] = err
			continue
		}
		ready = append(ready, id)
	}
	for id, err := range do(ready) {
		failed[id] = err
	}
	return failed
}

// topicNames are the names of the partitions' topics, those that exist.
func topicNames(i metalog.Image, ids []metalog.PartitionID) []string {
	var out []string
	seen := make(map[cluster.TopicID]bool)
	for _, id := range ids {
		if t, ok := i.Topic(id.Topic); ok && !seen[id.Topic] {
			seen[id.Topic] = true
			out = append(out, t.Name)
		}
	}
	return out
}

// notLeader names who leads instead of us.
func notLeader(p *metalog.Partition) error {
	if p.Leader < 0 {
		return fmt.Errorf("%w: nobody leads", cluster.ErrNotLeader)
	}
	return fmt.Errorf("%w: broker %d leads in epoch %d", cluster.ErrNotLeader, p.Leader, p.LeaderEpoch)
}

func decideNarrow(us party, i metalog.Image, id metalog.PartitionID) act {
	p, ok := i.Partition(id)
	switch {
	case !ok:
		return end(cluster.ErrUnknownTopic)
	case p.Leader != us.Broker:
		return end(notLeader(p))
	case us.open:
		return end(nil)
	case len(us.reals(p.ISR)) > 0:
		if !us.able() {
			return act{}
		}
		return act{verb: syncs, to: slices.DeleteFunc(slices.Clone(p.ISR), us.real)}
	}
	if others := us.electable(p); len(others) > 0 {
		return end(fmt.Errorf("%w: %v", ErrElectable, others))
	}
	return end(nil)
}
