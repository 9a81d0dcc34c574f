package broker

import (
	"context"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// inherits reports that a partition came to us straight from another of ours: the next leader
// epoch is ours, so nobody has led it in between, and its log is what that one left. before is
// how it stood when the metadata log was taken in last. It is pure.
func inherits(us party, before, now *metalog.Partition) bool {
	return now.Leader == us.Broker && before.Leader != us.Broker && us.own(before.Leader) && now.LeaderEpoch == before.LeaderEpoch+1
}

// inherited is inherits with what was taken in last.
func (d *Destination) inherited(id metalog.PartitionID, now *metalog.Partition) bool {
	d.mu.Lock()
	before := d.seen
	d.mu.Unlock()
	was, ok := before.Partition(id)
	return ok && inherits(d.m.party(), was, now)
}

// learnAfter is when the leader epochs of inherited logs are looked for: not while readers wait.
const learnAfter = 2 * time.Second

// learnAtMost is how long it rests between two looks, when replicas do not answer.
const learnAtMost = time.Minute

// learn finds the leader epochs of a log that is led before they are known.
func (d *Destination) learn(ctx context.Context, h *holding, led *lead.Partition, id metalog.PartitionID, owed map[int32]int64) {
	for wait := learnAfter; ctx.Err() == nil; wait = min(2*wait, learnAtMost) {
		pause(ctx, wait)
		switch led.State().Phase {
		case lead.Closed:
			return
		case lead.Gathering:
			continue
		}
		cuts := led.Cuts()
		found := d.scan(ctx, h.name, id, func() map[int32]int64 { return owed })
		history, err := settled(found, cluster.NoEpoch, func(offset int64) (glimpse, error) {
			return d.glimpse(ctx, found.replica, h.name, id, offset)
		})
		if err == nil && epochless(found, history) || led.Learn(cuts, history) {
			return
		}
	}
}

// epochless reports that a log was read and has no epochs in it: it is empty, or all of its records are
// of old formats. It is pure.
func epochless(found scanned, history epoch.History) bool {
	return len(history) == 0 && (found.proven || found.high > found.start)
}

// learned waits, for as long as a log is looked into, until the leader epochs in it are known.
func (h *holding) learned(ctx context.Context) {
	h.mu.Lock()
	learning := h.learning
	h.mu.Unlock()
	if learning == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-learning:
	case <-ctx.Done():
	}
}
