package fetcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// An alignment is the work on one partition.
type alignment struct {
	*aligner
	t      Target
	p      cluster.Partition
	leader cluster.Leader
	source cluster.Offsets
	end    End
	out    *Aligned

	peer     *cluster.Position // the position that counts, one of these two, or none
	own      *cluster.Position
	agreed   bool  // the source's epochs agree with the history, up to the common end
	evidence int   // records that were compared and are the same
	bare     bool  // the whole log was compared, and neither side has a record in it: fences alone
	seenAt   int64 // the source's record before this offset
	seen     int32 // has this epoch
	what     string
	lost     bool // the source's epochs, or its end, show that it has lost records
}

func (j *alignment) align(ctx context.Context) error {
	keep, err := j.position(ctx)
	if err != nil {
		return err
	}
	empty := j.end.LogStart == j.end.LogEnd
	if empty && !j.recorded() && j.end.LogEnd <= j.source.HighWatermark {
		return j.empty(ctx)
	}
	told, beyond := keep, keep < j.end.LogEnd
	if beyond {
		same, err := j.sameBeyond(ctx, keep)
		if err != nil {
			return err
		}
		if same {
			keep, beyond = j.end.LogEnd, false
		}
	}
	common, err := j.common(ctx, keep, told)
	switch {
	case err != nil:
		return err
	case beyond && j.peer == nil && !j.t.Policy.DiscardLocalWrites:
		return j.refuse(keep, j.end.LogEnd, cluster.ErrLocalWrites, "option DiscardLocalWrites cuts them")
	case common < keep:
		return j.parted(ctx, common)
	case beyond:
		return j.cut(ctx, keep, "what stands behind the position was written here")
	case !empty && !j.recorded() && !j.end.Ours && j.evidence == 0 && !j.bare:
		return j.unknown(ctx)
	case keep < j.source.LogStart && !j.log.Traits().Gaps:
		if empty {
			return j.startAt(ctx, j.source.LogStart)
		}
		return j.refuse(keep, j.source.LogStart, cluster.ErrRetention, "")
	}
	j.out.How = j.how(keep)
	return j.settle(ctx, keep)
}

// recorded: it is on record that the log, or its beginning, is this mirror's.
func (j *alignment) recorded() bool {
	return j.t.Aligned || len(j.t.Epochs) > 0 || j.own != nil || j.peer != nil
}

// position says how much of the log is the source's by the position that counts: the
// one that is farther. A running stretch has its history instead.
func (j *alignment) position(ctx context.Context) (int64, error) {
	keep, own, peer := j.end.LogEnd, j.t.Own, j.t.Peer
	if was, is := j.t.PeerTopic, j.end.TopicID; !was.IsZero() && !is.IsZero() && was != is {
		peer = nil
	}
	switch {
	case j.t.Aligned:
	case peer != nil && (own == nil || peer.Offset >= own.Offset):
		j.peer = peer
		// An unclean election here may have replaced what was mirrored: what has a later
		// epoch than the last mirrored one is not at the source.
		end, err := j.epochEndHere(ctx, peer.Epoch)
		if err != nil {
			return 0, err
		}
		if keep = min(keep, peer.Offset); end >= 0 {
			keep = min(keep, end)
		}
	case own != nil:
		j.own = own
		keep = min(keep, own.Offset) // beyond the log end: the destination has lost its tail
	}
	return keep, nil
}

// parted decides about a log that is the source's only up to an offset.
func (j *alignment) parted(ctx context.Context, common int64) error {
	if j.fell() {
		return j.partedHere(ctx, common)
	}
	position := j.own != nil || j.peer != nil
	may := j.t.Policy.Unclean && (position || !j.end.Stopped || j.t.Policy.DiscardLocalWrites)
	switch {
	case j.end.LogStart == j.end.LogEnd && j.recorded(): // nothing is lost
		return j.cut(ctx, common, j.what)
	case j.peer != nil || may && j.recorded() || may && j.end.Ours && !j.end.Stopped:
		return j.cut(ctx, common, j.what)
	case j.recorded() || j.end.Ours && !j.end.Stopped:
		kind := cluster.ErrDiverged
		if j.lost {
			kind = cluster.ErrTruncated
		}
		return j.refuse(common, j.end.LogEnd, kind, j.what+"; the topic's option UncleanRecovery cuts the destination's log there")
	case j.t.Policy.Scratch:
		return j.cut(ctx, 0, "from scratch")
	}
	return j.refuse(common, j.end.LogEnd, cluster.ErrDiverged, j.what+"; option Scratch empties the destination's log")
}

// unknown decides about a log of which nothing is known and nothing can be compared.
func (j *alignment) unknown(ctx context.Context) error {
	switch {
	case j.t.Policy.Scratch:
		return j.cut(ctx, 0, "from scratch")
	case j.end.LogEnd < j.source.LogStart && !j.log.Traits().Gaps:
		return j.refuse(j.end.LogEnd, j.source.LogStart, cluster.ErrRetention, "")
	}
	return j.refuse(j.end.LogStart, j.end.LogEnd, cluster.ErrNoPosition,
		"the source has no records at the same offsets; option Scratch empties the destination's log")
}

// cut has the log cut. The first fetch after it carries the source's epoch before it.
func (j *alignment) cut(ctx context.Context, at int64, why string) error {
	j.out.Cut = at
	j.out.How = fmt.Sprintf("cut at %d: %s", at, why)
	return j.settle(ctx, at)
}

// settle tells the epoch of the source's record before the end, and the history up to
// there.
func (j *alignment) settle(ctx context.Context, end int64) error {
	known := j.t.Epochs.TruncateFrom(end)
	if j.peer != nil {
		known = nil // of other stretches
	}
	e, err := j.epochBefore(ctx, end)
	if err != nil {
		return err
	}
	latest, ok := known.Latest()
	switch {
	case e >= 0 && ok && latest.Epoch == e:
		j.out.Unproven = j.t.Unproven && j.evidence == 0
	case e >= 0:
		known = epoch.History(nil).Assign(e, end-1)
	case j.agreed:
		e = known.At(end - 1)
	case end <= j.source.LogStart:
		// Nothing that is left at the source can be compared, and it does not know our
		// epochs: the history begins anew with what comes.
		known = nil
	default:
		j.out.Unproven = ok
	}
	j.out.Epochs, j.out.LastEpoch = known, e
	return nil
}

func (j *alignment) epochBefore(ctx context.Context, end int64) (int32, error) {
	switch {
	case end == j.seenAt:
		return j.seen, nil
	case end <= j.source.LogStart || end > j.source.HighWatermark:
		return cluster.NoEpoch, nil
	}
	b, err := readAt(ctx, j.from, j.p, end-1)
	if err != nil {
		return cluster.NoEpoch, fmt.Errorf("source at offset %d: %w", end-1, err)
	}
	s, err := sideAt(b, end-1, cluster.Span{From: end - 1, To: end}, likeness{})
	return s.epoch, err
}

// how says for people why the log is taken for the source's.
func (j *alignment) how(keep int64) string {
	var parts []string
	switch {
	case j.peer != nil:
		parts = append(parts, fmt.Sprintf("the mirror the other way stopped at %d", j.peer.Offset))
	case j.own != nil:
		parts = append(parts, fmt.Sprintf("this mirror stopped at %d", j.own.Offset))
	}
	if j.agreed {
		parts = append(parts, "the source's epochs agree with the history")
	}
	if j.seenAt == keep && keep > 0 {
		parts = append(parts, "records around the destination's end are the source's")
	}
	if keep == j.source.LogStart {
		parts = append(parts, "logs meet at the destination's end")
	}
	if keep < j.source.LogStart {
		parts = append(parts, fmt.Sprintf("the source's log starts behind it, at %d", j.source.LogStart))
	}
	return strings.Join(parts, "; ")
}

func (j *alignment) refuse(from, to int64, err error, detail string) error {
	logs := fmt.Sprintf("destination log is [%d,%d), source log is [%d,%d)",
		j.end.LogStart, j.end.LogEnd, j.source.LogStart, j.source.HighWatermark)
	if detail != "" {
		logs = detail + "; " + logs
	}
	return &cluster.OffsetError{Partition: j.p, Span: cluster.Span{From: from, To: to}, Err: err, Detail: logs}
}

// rest waits between two looks, without keeping others from reading. It reports
// whether ctx goes on.
func (j *alignment) rest(ctx context.Context, d time.Duration) bool {
	<-j.slots
	defer func() { j.slots <- struct{}{} }()
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// passing errors are those of a cluster that is about to be well again.
func passing(err error) bool {
	for _, e := range []error{
		cluster.ErrNotLeader, cluster.ErrLeaderEpoch, cluster.ErrUnavailable, cluster.ErrTimeout, cluster.ErrUnreachable,
		cluster.ErrUnknownTopic, cluster.ErrUnknownOutcome,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
