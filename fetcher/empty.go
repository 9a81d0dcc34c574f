package fetcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// startAt makes the empty destination begin with the source's batch that holds the
// offset; trimming inside it is done when it has been copied.
func (j *alignment) startAt(ctx context.Context, start int64) error {
	starter, ok := j.log.(Starter)
	if !ok {
		return j.refuse(start, start, errors.ErrUnsupported, "the destination cannot start a log above 0")
	}
	if j.source.HighWatermark > start {
		first, err := readAt(ctx, j.from, j.p, start)
		if err != nil {
			return fmt.Errorf("source at offset %d: %w", start, err)
		}
		if base, ok := firstBase(first); ok {
			start = min(start, base)
		}
	}
	if j.t.Context != nil { // filling may take far longer than alignment, and shows how far it is
		ctx = j.t.Context
	}
	err := starter.StartAt(ctx, j.t.Stretch, start, j.out.filled)
	if err != nil {
		return fmt.Errorf("start at offset %d: %w", start, err)
	}
	ends, err := j.log.Ends(ctx, []Stretch{j.t.Stretch})
	if err == nil {
		err = ends[0].Err
	}
	if err == nil && ends[0].LogEnd != start {
		err = fmt.Errorf("%w: log ends at %d after it was made to start at %d", cluster.ErrDiverged, ends[0].LogEnd, start)
	}
	j.out.Next, j.out.Trimmed = start, start
	j.out.How = fmt.Sprintf("empty destination, made to start at %d", start)
	return err
}

// empty begins a log that was never appended to, at the place that is asked for.
func (j *alignment) empty(ctx context.Context) error {
	o := j.source
	start := o.LogStart
	switch want := j.t.Policy.Start; {
	case want.Latest:
		start = o.HighWatermark
	case !want.Time.IsZero():
		times, ok := j.from.(Times)
		if !ok {
			return fmt.Errorf("start at %v: the source cannot find records by time: %w", want.Time, errors.ErrUnsupported)
		}
		answers, err := times.OffsetsForTime(ctx, []cluster.Partition{j.p}, want.Time.UnixMilli())
		if err == nil {
			err = answers[0].Err
		}
		if err != nil {
			return fmt.Errorf("source offset at %v: %w", want.Time, err)
		}
		if start = answers[0].Offset; start < 0 { // nothing is as late: the end (C1.5)
			start = o.HighWatermark
		}
		start = min(max(start, o.LogStart), o.HighWatermark)
	}
	if j.end.LogEnd < start {
		return j.startAt(ctx, start)
	}
	j.out.How = "empty destination"
	return nil
}

// filled shows the progress of StartAt as the partition's log end.
func (a *Assignment) filled(done int64) {
	if a.Progress != nil {
		a.Progress.LogEnd.Store(done)
	}
}
