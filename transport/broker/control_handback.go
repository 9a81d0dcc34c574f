package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// laggards is how long a partition is not handed back because real brokers that
// are alive do not hold everything yet, while others do.
const laggards = 2 * time.Second

// handBack makes partitions ordinary ones again: a real broker leads, we are
// neither in sync nor a replica, and the topic has its own settings. caughtUp
// gives the real brokers that hold every record of a partition; it is asked again
// and must not block. Nothing may be appended meanwhile.
//
// A real replica that is away does not hold it up: then leadership moves without
// it, and our replica goes when it is back.
func (c *control) handBack(ctx context.Context, ids []metalog.PartitionID, caughtUp func(metalog.PartitionID) []int32) map[metalog.PartitionID]error {
	release := c.claims.take(ids)
	failed := c.stepBack(ctx, ids, caughtUp)
	release()
	image := c.m.log.Image()
	over := slices.DeleteFunc(topicNames(image, ids), func(topic string) bool {
		return slices.ContainsFunc(partitionsOf(image, topic), func(id metalog.PartitionID) bool { return !handedBack(c.m.party(), image, id) })
	})
	not := c.putBack(ctx, over)
	for _, id := range ids {
		if err := not[topicName(image, id)]; err != nil && failed[id] == nil {
			failed[id] = err
		}
	}
	return failed
}

// stepBack is handBack without the topics' settings.
func (c *control) stepBack(ctx context.Context, ids []metalog.PartitionID, caughtUp func(metalog.PartitionID) []int32) map[metalog.PartitionID]error {
	var mu sync.Mutex // of ready
	ready := make(map[metalog.PartitionID]time.Time)
	return c.drive(ctx, ids, func(us party, i metalog.Image, id metalog.PartitionID) act {
		mu.Lock()
		defer mu.Unlock()
		began := ready[id]
		a, some := decideHandBack(us, i, id, caughtUp(id), !began.IsZero() && time.Since(began) > laggards)
		if some && began.IsZero() {
			ready[id] = time.Now()
		}
		return a
	})
}

// handedBack reports that a partition is not in our hands any more. With a real
// replica away we may still stand in its list, to be removed.
func handedBack(us party, i metalog.Image, id metalog.PartitionID) bool {
	p, ok := i.Partition(id)
	if !ok || !slices.ContainsFunc(p.Replicas, us.own) {
		return true
	}
	return p.Leader >= 0 && us.real(p.Leader) && !slices.ContainsFunc(slices.Concat(p.ISR, p.Adding), us.own) && !us.stays(p)
}

// stays reports that one of ours is among the replicas, and not to be removed.
func (p party) stays(part *metalog.Partition) bool {
	return slices.ContainsFunc(part.Replicas, func(r int32) bool { return p.own(r) && !slices.Contains(part.Removing, r) })
}

// decideHandBack: holds are the real brokers that have everything, late says that
// the others have been waited for. some reports that the partition could go.
//
// First those that hold everything come into the in-sync set, which is the
// leader's right; then we leave the replicas. The controller does that at once
// when all the others are in sync. When one is away it only notes it, and we
// remain the leader: then our replica is reported as lost, which takes us out of
// the in-sync set and has one of the others elected. Where our replica is still
// being added, calling that off does all of it at once.
func decideHandBack(us party, i metalog.Image, id metalog.PartitionID, holds []int32, late bool) (a act, some bool) {
	p, ok := i.Partition(id)
	if !ok || handedBack(us, i, id) {
		return end(nil), true
	}
	reals := us.reals(p.Replicas)
	switch {
	case len(reals) == 0:
		return end(fmt.Errorf("%w: it has no replica on a real broker", cluster.ErrRefused)), false
	case p.Leader < 0:
		return comeBack(us, p), false
	case us.own(p.Leader) && p.Leader != us.Broker:
		return end(notLeader(p)), false
	case !us.able():
		return act{}, false
	}
	if p.Leader == us.Broker {
		alive := func(r int32) bool { b, ok := i.Broker(r); return ok && !b.Fenced && !b.InControlledShutdown }
		isr, lags := []int32{us.Broker}, false // another worker in sync would be elected in our place
		for _, r := range reals {
			switch {
			case alive(r) && slices.Contains(holds, r):
				isr = append(isr, r)
			case alive(r):
				lags = true
			}
		}
		switch {
		case len(isr) == 1:
			return act{}, false
		case lags && !late:
			return act{}, true
		case !sameSet(isr, p.ISR): // one in sync that lacks something might be elected
			return act{verb: syncs, to: isr}, true
		}
	}
	if slices.ContainsFunc(p.Adding, us.own) { // what is being added cannot be removed
		return act{verb: assigns}, true
	}
	if us.stays(p) {
		return act{verb: assigns, to: reals}, true
	}
	if slices.Contains(p.ISR, us.Broker) {
		return act{verb: drops}, true
	}
	return act{}, true // another worker of ours is in sync, and has to go by itself
}

func sameSet[T comparable](a, b []T) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(one T) bool { return !slices.Contains(b, one) })
}

// comeBack is what makes us lead a partition again that nobody leads: our replica
// is in our directory, and elected. Only if the controller may elect us.
func comeBack(us party, p *metalog.Partition) act {
	at := slices.Index(p.Replicas, us.Broker)
	switch {
	case at < 0 || !us.able() || !slices.Contains(slices.Concat(p.ISR, p.ELR), us.Broker):
		return act{}
	case at < len(p.Directories) && p.Directories[at] != us.dir:
		return act{verb: settles}
	}
	return act{verb: elects, times: 1}
}
