package fetcher

import (
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Filling is how far a destination is with offsets that it fills because the source has
// no records there: a gap, or all that is below the source's log start.
type Filling struct {
	From int64 `json:"from"` // where this process began
	To   int64 `json:"to"`   // as far as is known by now: a gap may go on
	At   int64 `json:"at"`   // it is filled up to here
	// Rate is offsets a second: measured, once that is possible, and before it what is
	// usual for the way in which it is filled.
	Rate     int64 `json:"rate"`
	Measured bool  `json:"measured"`
	Bytes    int64 `json:"bytes"` // about how much is written from From to To
	// Until is about when it is through, if it goes on at Rate.
	Until time.Time `json:"until"`
}

// String says it for people: "filled from 0 to 5000000000, at 1250000000 (25 %), 10000000
// offsets a second, about 6m15s left".
func (f Filling) String() string {
	s := fmt.Sprintf("filled from %d to %d", f.From, f.To)
	if n := f.To - f.From; n > 0 && f.At > f.From {
		s += fmt.Sprintf(", at %d (%d %%)", f.At, int64(100*float64(f.At-f.From)/float64(n)))
	}
	if f.Rate > 0 {
		left := time.Duration(float64(f.To-f.At) / float64(f.Rate) * float64(time.Second))
		s += fmt.Sprintf(", %d offsets a second, about %v left", f.Rate, left.Round(time.Second))
	}
	return s
}

// Filler is the optional ability of a destination to say how far it is with what takes
// it longer than a moment: a hole that Append was handed, or StartAt.
type Filler interface {
	// Filling says what of a partition is being filled now; false when nothing is. It
	// does not wait for the cluster, and is safe for concurrent use.
	Filling(p cluster.Partition) (Filling, bool)
}

// filling notes that a partition moves inside of a hole whose run has not been answered.
func (s *session) filling(t *tracker, now time.Time) {
	if s.f.filler == nil || t.runs == 0 {
		return
	}
	if g, ok := s.f.filler.Filling(t.partition); ok && g.At > max(t.filledTo, t.landed) {
		t.filledTo, t.movedAt, t.stalled = g.At, now, false
	}
}
