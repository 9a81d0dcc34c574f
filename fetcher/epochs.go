package fetcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// byEpochs asks the source's leader where the epochs of the history end, from the
// latest backwards, until one is found that both logs have (KIP-101, KIP-279). It
// gives the end of what is common, as far as epochs can tell.
func (j *alignment) byEpochs(ctx context.Context, h epoch.History, end int64) (int64, error) {
	latest, ok := h.Latest()
	unknown := end // from here on the source has not answered
	for ask := latest.Epoch; ok; {
		a, err := j.ask(ctx, ask)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return end, nil // records are compared
		case err != nil:
			return end, err
		case a.EndOffset >= 0 && a.Epoch > ask:
			return end, fmt.Errorf("%w: source asked for epoch %d answers with epoch %d", cluster.ErrUnavailable, ask, a.Epoch)
		case a.EndOffset < 0:
			// A leader that keeps epochs at all does not know one that is above its latest.
			// Whether it keeps any, an earlier one tells.
			below := h.TruncateFrom(h.StartOf(ask))
			lower, more := below.Latest()
			if !more {
				return end, nil
			}
			unknown = min(unknown, h.StartOf(ask))
			ask = lower.Epoch
			continue
		}
		if unknown < end {
			j.what, j.lost = fmt.Sprintf("the source does not know the epoch from %d on", unknown), true
			end = unknown
		}
		cut, lower, done := h.Diverge(a, end)
		if cut < end {
			j.what, j.lost = fmt.Sprintf("source's epoch %d ends at %d", a.Epoch, a.EndOffset), true
		}
		if end = cut; done || lower < 0 {
			j.agreed = done && a.EndOffset >= 0
			return end, nil
		}
		ask = lower
	}
	return end, nil
}

// ask asks the source's leader where an epoch ends, until it answers.
func (j *alignment) ask(ctx context.Context, e int32) (cluster.EpochEnd, error) {
	q := EpochQuery{Partition: j.p, Current: j.leader.Epoch, Epoch: e}
	a, err := j.askAt(ctx, j.from, &q, func() {
		if leaders, err := j.from.Leaders(ctx, []cluster.Partition{j.p}, true); err == nil && leaders[0].Err == nil {
			j.leader = leaders[0].Leader
		}
		q.Current = j.leader.Epoch
	})
	if err != nil {
		return a, fmt.Errorf("source has not said where epoch %d ends: %w", e, err)
	}
	return a, nil
}

// epochEndHere asks the destination where an epoch ends, -1 when it cannot tell.
func (j *alignment) epochEndHere(ctx context.Context, e int32) (int64, error) {
	epochs, ok := j.log.(Epochs)
	if !ok {
		epochs, ok = j.destination.(Epochs)
	}
	if !ok || e < 0 {
		return -1, nil
	}
	q := EpochQuery{Partition: j.p, Current: cluster.NoEpoch, Epoch: e}
	a, err := j.askAt(ctx, epochs, &q, func() {})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return -1, nil
	case err != nil:
		return -1, fmt.Errorf("destination has not said where epoch %d ends: %w", e, err)
	}
	return a.EndOffset, nil
}

// askAt asks again while the cluster is about to be well again, after refresh. The error is the last
// answer's, not that of ctx.
func (j *alignment) askAt(ctx context.Context, at Epochs, q *EpochQuery, refresh func()) (cluster.EpochEnd, error) {
	var last error
	for look := replicationLook; ; look = min(2*look, replicationLookMax) {
		answers, err := at.EpochEnds(ctx, []EpochQuery{*q})
		if err == nil {
			err = answers[0].Err
		}
		if err == nil {
			return answers[0].EpochEnd, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if !passing(err) || !j.rest(ctx, look) {
			return cluster.EpochEnd{}, last
		}
		refresh()
	}
}

// readable is how far the source's log can be read up to end. A high watermark that
// is behind its log end, as after an election, is waited for; a log that ends before
// has lost its tail.
func (j *alignment) readable(ctx context.Context, end int64) (int64, error) {
	for look := replicationLook; end > j.source.HighWatermark; look = min(2*look, replicationLookMax) {
		if j.leader.Epoch < 0 {
			break
		}
		a, err := j.ask(ctx, j.leader.Epoch)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			a.EndOffset = -1
		case err != nil:
			return 0, err
		}
		if a.EndOffset < end {
			break
		}
		if !j.rest(ctx, look) {
			return 0, fmt.Errorf("%w: source's high watermark %d stays below %d, up to where both logs reach", cluster.ErrUnavailable, j.source.HighWatermark, end)
		}
		if offsets, err := j.from.Offsets(ctx, []cluster.Partition{j.p}); err == nil && offsets[0].Err == nil {
			j.source = offsets[0].Offsets
			j.out.Source = j.source
		}
	}
	if end > j.source.HighWatermark {
		j.lost = true
		if j.what == "" {
			j.what = "the source's log ends before"
		}
	}
	return min(end, j.source.HighWatermark), nil
}
