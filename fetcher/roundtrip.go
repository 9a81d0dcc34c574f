package fetcher

import "time"

// From these on a way is long, and more is asked for at a time (a fetch), or may
// be on its way (an append, which also waits for those before it), than the
// processor's caches hold.
const (
	longRound   = 20 * time.Millisecond
	longLanding = 50 * time.Millisecond
)

// A roundTrip is the shortest of recent times from question to answer. It falls
// at once and rises slowly: a busy machine makes some answers late, only a long
// way makes all of them so.
type roundTrip time.Duration

func (r *roundTrip) note(took time.Duration) {
	now := time.Duration(*r)
	if now == 0 || took < now {
		*r = roundTrip(took)
		return
	}
	*r = roundTrip(min(took, now+now/16+50*time.Microsecond))
}

func (r roundTrip) atLeast(d time.Duration) bool { return time.Duration(r) >= d }
