package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// maxAdopt bounds the partitions that are on their way to us at once, and with
// them the time in which writers with acks=all depend on our fetching.
const maxAdopt = 500

// undoing is how long giving back may take.
const undoing = 15 * time.Second

// adopt takes the leadership of partitions that real brokers lead, and gives the
// reasons of those that it did not get; those are with the real brokers again.
// The topics have the settings of mirrored ones from then on. Real brokers are
// still in sync: call narrow.
//
// On the way we are a replica in sync that holds nothing. To be that one has to
// fetch at the leader's log end, and while we are it, what is written with
// acks=all waits for our next fetch; so there is one deadline for all of it.
func (c *control) adopt(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	if err := c.m.WaitJoined(ctx); err != nil {
		failed := make(map[metalog.PartitionID]error)
		for _, id := range ids {
			failed[id] = fmt.Errorf("waiting to be a member: %w", err)
		}
		return failed
	}
	return c.overridden(ctx, ids, func(ready []metalog.PartitionID) map[metalog.PartitionID]error {
		failed := make(map[metalog.PartitionID]error)
		for some := range slices.Chunk(ready, maxAdopt) {
			maps.Copy(failed, c.adoptSome(ctx, some))
		}
		return failed
	})
}

func (c *control) adoptSome(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	failed := c.join(ctx, ids)
	joined := slices.DeleteFunc(slices.Clone(ids), func(id metalog.PartitionID) bool { return failed[id] != nil })
	maps.Copy(failed, c.takeOver(ctx, joined))
	if len(failed) > 0 {
		c.giveUp(ctx, slices.Collect(maps.Keys(failed)), failed)
	}
	return failed
}

// join makes us a replica.
func (c *control) join(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	ctx, cancel := context.WithTimeout(ctx, c.joining)
	defer cancel()
	return c.drive(ctx, ids, decideJoin)
}

// takeOver makes us a replica in sync, and the leader.
func (c *control) takeOver(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	ctx, cancel := context.WithTimeout(ctx, c.leading)
	defer cancel()
	fetching, stop := context.WithCancel(ctx)
	wrong := make(chan map[metalog.PartitionID]error, 1)
	go func() { wrong <- c.follow(fetching, ids) }()
	failed := c.drive(ctx, ids, decideLead)
	stop()
	for id, err := range <-wrong {
		if failed[id] != nil {
			failed[id] = errors.Join(failed[id], err)
		}
	}
	return failed
}

// giveUp gives back what did not come to us in time, also when ctx has ended.
func (c *control) giveUp(ctx context.Context, ids []metalog.PartitionID, failed map[metalog.PartitionID]error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoing)
	defer cancel()
	for id, err := range c.handBack(ctx, ids, c.holders) {
		failed[id] = errors.Join(failed[id], fmt.Errorf("giving it back: %w", err))
	}
}

// holders are the real brokers in sync: as long as we have appended nothing, they
// hold what there is.
func (c *control) holders(id metalog.PartitionID) []int32 {
	p, ok := c.m.log.Image().Partition(id)
	if !ok {
		return nil
	}
	return c.m.party().reals(p.ISR)
}

// decideJoin makes us the first of the replicas. What is being removed cannot be
// added before that is called off. Others of ours that are away go: a controller
// refuses lists with one that is cordoned, unless it stood there before in its place.
func decideJoin(us party, i metalog.Image, id metalog.PartitionID) act {
	p, ok := i.Partition(id)
	if !ok {
		return end(cluster.ErrUnknownTopic)
	}
	removing := slices.Contains(p.Removing, us.Broker)
	others := slices.DeleteFunc(slices.Concat(p.Adding, p.Removing), func(r int32) bool { return r == us.Broker })
	switch {
	case p.Leader < 0:
		return end(fmt.Errorf("%w: nobody leads", cluster.ErrNotLeader))
	case p.Leader == us.Broker || p.Replicas[0] == us.Broker && !removing:
		return end(nil)
	case len(others) > 0:
		return end(fmt.Errorf("%w: the partition is being moved", cluster.ErrUnavailable))
	case removing:
		return act{verb: assigns}
	}
	up := living(i, p.Replicas)
	rest := slices.DeleteFunc(slices.Clone(p.Replicas), func(r int32) bool {
		return r == us.Broker || us.own(r) && !slices.Contains(up, r)
	})
	return act{verb: assigns, to: append([]int32{us.Broker}, rest...)}
}

// decideLead has us elected as soon as we are in sync.
func decideLead(us party, i metalog.Image, id metalog.PartitionID) act {
	p, ok := i.Partition(id)
	switch {
	case !ok:
		return end(cluster.ErrUnknownTopic)
	case p.Leader == us.Broker:
		return end(nil)
	case !slices.Contains(p.Replicas, us.Broker):
		return end(fmt.Errorf("%w: somebody has taken us off the replicas", cluster.ErrUnavailable))
	}
	if at := slices.Index(p.Replicas, us.Broker); at < len(p.Directories) && p.Directories[at] != us.dir {
		return act{verb: settles}
	}
	if p.Leader >= 0 && us.able() && slices.Contains(p.ISR, us.Broker) {
		return act{verb: elects, times: 1}
	}
	return act{}
}
