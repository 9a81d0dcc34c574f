package fetcher

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// fell: the log was taken from the destination in the middle of a stretch, and clients may
// have written to it. Where it keeps them out they could not before.
func (j *alignment) fell() bool {
	traits := j.log.Traits()
	return j.t.Aligned && j.end.Stopped && j.end.LogStart < j.end.LogEnd && traits.ReadOnly && traits.KeepsEpochs
}

// partedHere is parted for a log that fell. What was written there has the leader epoch of
// whoever took it, which is above all that was mirrored: so it is told from what the source
// has lost. Each of the two wants a permission of its own.
func (j *alignment) partedHere(ctx context.Context, common int64) error {
	first, err := j.epochThere(ctx, common)
	if err != nil {
		return err
	}
	last, err := j.epochThere(ctx, j.end.LogEnd-1)
	if err != nil {
		return err
	}
	mirrored := cluster.NoEpoch
	if latest, ok := j.t.Epochs.Latest(); ok {
		mirrored = latest.Epoch
	}
	lost, written := first <= mirrored, last > mirrored
	switch {
	case written && !j.t.Policy.DiscardLocalWrites:
		return j.refuse(common, j.end.LogEnd, cluster.ErrForeignWrite,
			"a real leader was elected and the log written to; option DiscardLocalWrites cuts it there ("+j.what+")")
	case lost && !j.t.Policy.Unclean:
		return j.refuse(common, j.end.LogEnd, cluster.ErrTruncated, j.what+"; the topic's option UncleanRecovery cuts the destination's log there")
	}
	return j.cut(ctx, common, j.what)
}

// epochThere is the leader epoch of the destination's batch at an offset.
func (j *alignment) epochThere(ctx context.Context, at int64) (int32, error) {
	b, err := readAt(ctx, j.destination, j.p, at)
	if err == nil {
		var s side
		if s, err = sideAt(b, at, cluster.Span{From: at, To: at + 1}, likeness{}); err == nil {
			return s.epoch, nil
		}
	}
	return cluster.NoEpoch, fmt.Errorf("destination at offset %d: %w", at, err)
}
