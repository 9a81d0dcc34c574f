package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/mirror/internal/metalog"
)

// welcome makes other workers of ours replicas in sync of partitions that we lead, so that
// the controller elects one of them when we are gone. It gives the reasons of those that
// somebody else may have yet. Partitions that somebody has claimed are left for later.
func (c *control) welcome(ctx context.Context, ids []metalog.PartitionID, peers []int32) map[metalog.PartitionID]error {
	ids, release := c.claims.some(ids)
	defer release()
	failed := c.drive(ctx, ids, func(us party, i metalog.Image, id metalog.PartitionID) act { return decideAdd(us, i, id, peers) })
	ids = slices.DeleteFunc(ids, func(id metalog.PartitionID) bool { return failed[id] != nil })
	maps.Copy(failed, c.drive(ctx, ids, func(us party, i metalog.Image, id metalog.PartitionID) act { return decideAdmit(us, i, id, peers) }))
	return failed
}

// lonely are the partitions of ours that we lead and in which a peer is not in sync.
func lonely(us party, i metalog.Image, ids []metalog.PartitionID, peers []int32) []metalog.PartitionID {
	return slices.DeleteFunc(slices.Clone(ids), func(id metalog.PartitionID) bool {
		return decideAdd(us, i, id, peers).verb == ends && decideAdmit(us, i, id, peers).verb == ends
	})
}

// alone reports that a partition is led by us and that no real broker is electable, unless
// they may be: before, nobody else is let in.
func (p party) alone(i metalog.Image, id metalog.PartitionID) (*metalog.Partition, bool) {
	part, ok := i.Partition(id)
	return part, ok && part.Leader == p.Broker && (p.open || len(p.reals(part.ISR)) == 0)
}

// decideAdd puts peers into the replicas. Ours stand in front, in the order of their ids:
// where the cluster sees to it that the first of the replicas leads, that is the same one
// everywhere. Those of ours that are away stay as long as nobody has to be added.
func decideAdd(us party, i metalog.Image, id metalog.PartitionID, peers []int32) act {
	p, ok := us.alone(i, id)
	if !ok || slices.ContainsFunc(slices.Concat(p.Adding, p.Removing), us.real) {
		return end(nil) // not ours alone yet, or being moved
	}
	if !slices.ContainsFunc(peers, func(r int32) bool { return !slices.Contains(p.Replicas, r) }) {
		return end(nil)
	}
	if !us.able() {
		return act{}
	}
	ours := append(slices.Clone(peers), us.Broker)
	slices.Sort(ours)
	return act{verb: assigns, to: append(slices.Compact(ours), us.reals(p.Replicas)...)}
}

// decideAdmit lets peers that are replicas into the in-sync set.
func decideAdmit(us party, i metalog.Image, id metalog.PartitionID, peers []int32) act {
	p, ok := us.alone(i, id)
	if !ok {
		return end(nil)
	}
	isr := slices.Clone(p.ISR)
	for _, r := range peers {
		if slices.Contains(p.Replicas, r) && !slices.Contains(isr, r) {
			isr = append(isr, r)
		}
	}
	switch {
	case len(isr) == len(p.ISR):
		return end(nil)
	case !us.able():
		return act{}
	}
	return act{verb: syncs, to: isr}
}

// inTheirName sends a heartbeat of another worker: a controller takes it from whoever may
// act for the cluster.
func (c *controller) inTheirName(ctx context.Context, b *metalog.Broker, offset int64, w wishes) error {
	active, err := c.connect(ctx)
	if err != nil {
		return err
	}
	var dirs []metalog.UUID
	if w.cordoned {
		dirs = b.Directories
	}
	req := beatOf(b.ID, b.Epoch, offset, dirs, w)
	resp, err := active.DoVersion(ctx, req, min(active.MaxVersion(req.Key()), req.MaxVersion()))
	if err == nil {
		err = heartbeatError(resp)
	}
	if err != nil {
		c.drop()
		return fmt.Errorf("a heartbeat in the name of broker %d: %w", b.ID, err)
	}
	return nil
}
