package fetcher

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// common is where the part of the destination's log below keep and the source's log
// part: keep itself when they do not. The history tells of what stands below told.
func (j *alignment) common(ctx context.Context, keep, told int64) (int64, error) {
	var h epoch.History
	if !j.t.Unproven && j.peer == nil {
		h = j.t.Epochs.TruncateFrom(told)
	}
	end, err := j.byEpochs(ctx, h, told)
	if err != nil {
		return 0, err
	}
	if end == told {
		end = keep
	}
	if end, err = j.readable(ctx, end); err != nil {
		return 0, err
	}
	span := cluster.Span{From: max(j.source.LogStart, j.end.LogStart), To: end}
	if span.Len() == 0 {
		return j.outside(ctx, end)
	}
	traits := j.log.Traits()
	like := likeness{control: traits.ControlBatches, holes: traits.Gaps}
	// A stop ends what the source left open, and the source may have done so with the same
	// marker: that one has another epoch, and the source's next batch may not come behind it.
	like.markers = traits.KeepsEpochs && !j.recorded()
	found, err := j.compare(ctx, span, like)
	if found < end { // epochs did not show it
		j.agreed = false
	}
	return found, err
}

// outside is the end of what is common where nothing can be compared. Batches are
// copied whole: where one of the source's begins before the destination's end and goes
// on behind it, the destination has something else there, or starts inside it.
func (j *alignment) outside(ctx context.Context, end int64) (int64, error) {
	at := max(end, j.source.LogStart) // the log may start inside a batch that begins further back
	if at >= j.source.HighWatermark || j.log.Traits().Fills {
		return end, nil // one that fills gaps goes on inside of a batch
	}
	b, err := readAt(ctx, j.from, j.p, at)
	if err != nil {
		return 0, fmt.Errorf("source at offset %d: %w", at, err)
	}
	if base, ok := firstBase(b); ok && base < end {
		j.what = fmt.Sprintf("the source's batch at %d begins before the destination's end", base)
		return base, nil
	}
	return end, nil
}

// sameBeyond reports whether the source has what stands in the destination's log
// from a position on: then it is no local data, however it came there.
func (j *alignment) sameBeyond(ctx context.Context, from int64) (bool, error) {
	span := cluster.Span{From: max(from, j.end.LogStart), To: j.end.LogEnd}
	if span.Len() == 0 || span.From < j.source.LogStart || span.To > j.source.HighWatermark {
		return false, nil
	}
	traits := j.log.Traits()
	like := likeness{control: traits.ControlBatches, epochs: traits.KeepsEpochs}
	for _, at := range []int64{span.From, span.From + span.Len()/2} {
		s, err := j.see(ctx, at, span, like)
		if err != nil || s.first >= 0 {
			return false, err
		}
	}
	s, _, err := j.last(ctx, span, like)
	return err == nil && s.first < 0, err
}

// last compares both logs at the end of span, and further back as long as only what no
// consumer sees stands there: a log that ends with a fence, or with fillers, would
// otherwise pass for any other. epoch is that of the source's record before the end.
func (j *alignment) last(ctx context.Context, span cluster.Span, like likeness) (s sight, epoch int32, err error) {
	step := int64(1)
	for at, tries := span.To-1, 0; ; tries++ {
		if s, err = j.see(ctx, at, span, like); err != nil {
			return s, epoch, err
		}
		if tries == 0 {
			epoch = s.epoch
		}
		if s.same > 0 || s.first >= 0 || s.span.From <= span.From {
			j.bare = s.same == 0 && s.first < 0 && tries < patientSteps && span.From == j.end.LogStart && span.To == j.end.LogEnd
			return s, epoch, nil
		}
		if tries >= patientSteps {
			step *= 2
		}
		at = max(s.span.From-step, span.From)
	}
}

// patientSteps is how many batches without a record are looked at one by one; in longer
// stretches of them the steps grow.
const patientSteps = 256

// compare gives the end of what both logs have in common within span: it looks at the
// end, at the start and in the middle, a batch each, and where those differ searches
// backwards for the last batch that is the same, in ever larger steps, then halving.
// It takes for granted that logs which have parted do not meet again.
func (j *alignment) compare(ctx context.Context, span cluster.Span, like likeness) (int64, error) {
	good, bad := span.From, span.To // below good all is the same, from bad on it is not
	var seen []sight
	for i, at := range []int64{span.To - 1, span.From, span.From + span.Len()/2} {
		var s sight
		var err error
		if i == 0 {
			s, j.seen, err = j.last(ctx, span, like)
			j.seenAt = span.To
		} else {
			s, err = j.see(ctx, at, span, like)
		}
		if err != nil {
			return 0, err
		}
		if s.first >= 0 && s.first < bad {
			bad, j.what = s.first, fmt.Sprintf("offset %d: %s", s.first, s.what)
		}
		j.evidence += s.same
		seen = append(seen, s)
	}
	if bad == span.To {
		return bad, nil
	}
	for _, s := range seen {
		good = max(good, s.agreed(bad))
	}
	for step, halving := int64(1), false; good < bad; step *= 2 {
		at := good + (bad-good)/2
		if !halving {
			at = max(good, bad-step)
		}
		s, err := j.see(ctx, at, span, like)
		if err != nil {
			return 0, err
		}
		if s.first < 0 && s.same == 0 {
			s.first, s.what = max(good, s.span.From), "nothing to compare" // proves nothing: rather cut too much
		}
		if s.first < 0 {
			halving = true
		} else if s.first < bad {
			bad, j.what = s.first, fmt.Sprintf("offset %d: %s", s.first, s.what)
		}
		good = max(good, s.agreed(bad))
	}
	return min(good, bad), nil
}

// agreed is the end of what a sight has shown to be the same, -1 when that is nothing
// below bad.
func (s sight) agreed(bad int64) int64 {
	end := s.first
	if end < 0 {
		end = s.span.To
	}
	if s.span.From >= bad || end <= s.span.From {
		return -1
	}
	return min(end, bad)
}

// see compares one batch, or hole, of both logs.
func (j *alignment) see(ctx context.Context, at int64, span cluster.Span, like likeness) (sight, error) {
	s, err := j.side(ctx, j.from, at, span, like)
	if err != nil {
		return sight{}, fmt.Errorf("source at offset %d: %w", at, err)
	}
	d, err := j.side(ctx, j.destination, at, span, like)
	if err != nil {
		return sight{}, fmt.Errorf("destination at offset %d: %w", at, err)
	}
	return sightOf(s, d, like), nil
}

// side reads one log. At a destination that fills gaps, records of transactions count
// when they are committed.
func (j *alignment) side(ctx context.Context, from Reader, at int64, span cluster.Span, like likeness) (side, error) {
	b, err := readAt(ctx, from, j.p, at)
	if err != nil {
		return side{}, err
	}
	s, err := sideAt(b, at, span, like)
	if err != nil || len(s.records) == 0 || !j.log.Traits().Fills {
		return s, err
	}
	h, err := whole(b)
	if err != nil || !h.Transactional() {
		return s, err
	}
	reader, ok := from.(CommittedReader)
	if !ok {
		s.records = nil // nobody knows
		return s, nil
	}
	committed, aborted, err := reader.ReadCommitted(ctx, j.p, max(at, h.Base()), 1)
	if err != nil {
		return s, err
	}
	base, decided := firstBase(committed)
	hidden := slices.ContainsFunc(aborted, func(a AbortedTransaction) bool { return a.Producer == h.ProducerID() && a.First < h.Next() })
	if !decided || base != h.Base() || hidden {
		s.nothing()
	}
	return s, nil
}
