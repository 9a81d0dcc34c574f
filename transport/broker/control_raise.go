package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// raise brings our leader epochs to at least those given, of partitions whose
// in-sync set is ours alone (ErrElectable otherwise; where real brokers may be in it,
// it is made so). Nobody leads them for a moment, and nobody but us can be elected.
//
// An epoch grows with every record that names a leader. The cheapest that a
// leader can cause for one partition alone is to report its own replica as lost
// (one) and as found again, and an election. Elections of the same partition in
// one request count one by one, so any distance takes three requests. Taking the
// partition out of our hands and back costs a real leader, fencing us costs all
// our partitions, and a reassignment that is called off needs a broker more.
//
// Partitions that are unwanted by now are left. ended hears of each that is left or done
// as soon as it is; those that neither has happened to are in the outcome alone.
func (c *control) raise(ctx context.Context, epochs map[metalog.PartitionID]int32, unwanted func(metalog.PartitionID) bool,
	ended func(metalog.PartitionID, error)) map[metalog.PartitionID]error {
	var ids []metalog.PartitionID
	for id := range epochs {
		ids = append(ids, id)
	}
	defer c.claims.take(ids)()
	return c.drive(ctx, ids, func(us party, i metalog.Image, id metalog.PartitionID) act {
		a := decideRaise(us, i, id, epochs[id])
		if a.verb != ends && unwanted(id) {
			a = end(context.Canceled)
		}
		if a.verb == ends {
			err := a.err
			if err != nil {
				err = fmt.Errorf("%s-%d: %w", topicName(i, id), id.Partition, err)
			}
			ended(id, err)
		}
		return a
	})
}

func decideRaise(us party, i metalog.Image, id metalog.PartitionID, epoch int32) act {
	p, ok := i.Partition(id)
	switch {
	case !ok:
		return end(cluster.ErrUnknownTopic)
	case p.Leader >= 0 && p.Leader != us.Broker:
		return end(notLeader(p))
	case p.Leader == us.Broker && p.LeaderEpoch >= epoch:
		return end(nil)
	}
	if others := us.electable(p); len(others) > 0 && !(us.open && p.Leader == us.Broker) {
		return end(fmt.Errorf("%w: %v: the in-sync set has to be narrowed first", ErrElectable, others))
	}
	if topicConfig(i, topicName(i, id))["unclean.leader.election.enable"] != "false" {
		return end(fmt.Errorf("%w: unclean.leader.election.enable is not false", ErrElectable))
	}
	if p.Leader < 0 {
		a := comeBack(us, p)
		if a.verb == elects {
			a.times = int(min(max(1, epoch-p.LeaderEpoch), maxActs))
		}
		return a
	}
	switch alone := []int32{us.Broker}; {
	case !us.able() || !slices.Contains(p.Replicas, us.Broker):
		return act{}
	case !slices.Equal(p.ISR, alone): // another one would be elected
		return act{verb: syncs, to: alone}
	}
	return act{verb: drops}
}

// orphans are the partitions that are ours and that we do not lead, as after a
// death that lasted longer than the session.
func orphans(us party, i metalog.Image, ours func(metalog.PartitionID) bool) []metalog.PartitionID {
	var out []metalog.PartitionID
	for id, p := range i.Partitions() {
		if p.Leader != us.Broker && ours(id) {
			out = append(out, id)
		}
	}
	urgent(i, out)
	return out
}

// reclaim takes partitions back that nobody leads and of which we are electable:
// the controller does so itself when it lets us in again, unless we had died
// while our replica was reported as lost. One that a real broker leads by now, or
// may be the next to lead, is not touched: cluster.ErrNotLeader, ErrElectable.
// What was written there has to be looked at before it is adopted again.
func (c *control) reclaim(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	return c.drive(ctx, ids, decideReclaim)
}

func decideReclaim(us party, i metalog.Image, id metalog.PartitionID) act {
	p, ok := i.Partition(id)
	switch {
	case !ok:
		return end(cluster.ErrUnknownTopic)
	case p.Leader == us.Broker:
		return end(nil)
	case p.Leader >= 0:
		return end(notLeader(p))
	}
	if !slices.Contains(slices.Concat(p.ISR, p.ELR), us.Broker) {
		if others := us.electable(p); len(others) > 0 {
			return end(fmt.Errorf("%w, and we may not: %v", ErrElectable, others))
		}
		return end(fmt.Errorf("%w: nobody leads, and we may not be elected", cluster.ErrNotLeader))
	}
	return comeBack(us, p)
}
