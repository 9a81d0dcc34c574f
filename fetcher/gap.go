package fetcher

import (
	"errors"
	"fmt"
	"math"

	"github.com/clustermirror/mirror/cluster"
)

// skipTo notes that the source's retention has deleted what is between the position
// and to. Holes inside the source's log are not skipped: nobody has those records.
// What was told already, for a batch whose append failed, is not told again.
func (t *tracker) skipTo(to int64) {
	span := cluster.Span{From: t.next, To: to}
	if span.Len() == 0 {
		return
	}
	if t.told.From <= span.From && span.From <= t.told.To {
		t.skip = cluster.Span{From: t.told.To, To: to}
		t.told.To = max(t.told.To, to)
		return
	}
	t.skip, t.told = span, span
}

// shown is the log end for people: where all that was handed over has landed, what was
// skipped behind it is done with.
func (t *tracker) shown() int64 {
	if t.landed < t.next {
		return t.landed
	}
	return max(t.landed, t.told.To)
}

// ceiling is the epoch that batches have to stay below.
func (t *tracker) ceiling(traits Traits) int32 {
	if !traits.KeepsEpochs {
		return math.MaxInt32
	}
	if c := t.board.Ceiling.Load(); c >= 0 {
		return c
	}
	return math.MaxInt32
}

// tellSkipped reports what was skipped (I9).
func (s *session) tellSkipped(t *tracker) {
	span := t.skip
	if t.skip = (cluster.Span{}); span.Len() == 0 {
		return
	}
	t.board.Skipped.Add(span.Len())
	s.f.report.Skipped(t.partition, span)
}

// ahead deals with a source log that starts above the position and holds nothing. The
// destination's log keeps its end: none can be made to end higher without a record.
func (s *session) ahead(t *tracker, start int64) {
	if !t.leap {
		s.fail(t, t.err(t.next, start, cluster.ErrRetention, "nothing is left in the source log"))
		return
	}
	if s.f.traits.Fills {
		s.fillTo(t, start)
		return
	}
	t.skipTo(start)
	s.tellSkipped(t)
	t.board.LogEnd.Store(t.shown())
}

// unknownEpochTries is how many answers in a row have to say that the source's own log
// start is out of range before the last epoch is taken for unknown there.
const unknownEpochTries = 6

// leap goes on at the source's log start after it was found to be above the position.
// What is skipped shows when its first batch arrives: the log may start inside that.
func (s *session) leap(t *tracker, o cluster.Offsets) {
	if t.asked >= o.LogStart { // was asked for there and is out of range all the same
		if t.lastEpoch < 0 || t.attempts < unknownEpochTries {
			s.pause(t, cluster.ErrUnavailable) // the log moves on
			return
		}
		// Brokers say so too when they do not know the last epoch (UnifiedLog.read, KIP-595).
		s.fail(t, t.err(t.next, t.next, cluster.ErrTruncated, fmt.Sprintf("the source does not know epoch %d", t.lastEpoch)))
		return
	}
	if o.HighWatermark <= o.LogStart {
		s.ahead(t, o.LogStart)
	}
	t.dirty = true
	s.look(t)
}

// raise gives up a partition whose next batch has an epoch that the destination's own
// has to be raised above first.
func (s *session) raise(t *tracker, epoch int32) {
	s.leave(t)
	s.f.box.put(command{failed: t})
	s.f.report.RaiseNeeded(t.partition, epoch)
}

// retention reports whether an error says that retention ran ahead.
func retention(err error) bool { return errors.Is(err, cluster.ErrRetention) }
