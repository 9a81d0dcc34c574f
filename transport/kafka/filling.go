package kafka

import (
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// cost is what filling costs, about, before it can be measured (docs/results.md). A broker
// that has more or less to spare makes half or twice of the rate.
type cost struct {
	rate  float64 // offsets a second
	bytes float64 // of an offset
}

var (
	markerCost  = cost{30_000, 79}
	phantomCost = cost{2_000_000, 11}   // 19 bytes in a compacted topic
	fillerCost  = cost{8_000_000, 0.55} // deleted on the way
)

// measurable is how long a filling takes before its rate says anything.
const measurable = 500 * time.Millisecond

// filling is the part of a log that is being filled, or was filled last. It grows by
// what has landed.
type filling struct {
	from, at    int64
	began, last time.Time // from is known to be next; at is
}

// add notes that the offsets from one to another, sent at a time, have landed. What
// touches what landed before goes on with it, unless something else came in between.
func (f *filling) add(from, to int64, sent, now time.Time) {
	if f.at != from || sent.Sub(f.last) > trust {
		*f = filling{from: from, began: sent}
	}
	f.at, f.last = to, now
}

// shown is what is to be seen of a filling up to an offset.
func (f *filling) shown(to int64, usual cost, now time.Time) fetcher.Filling {
	out := fetcher.Filling{From: f.from, To: to, At: f.at, Bytes: int64(float64(to-f.from) * usual.bytes)}
	rate, took := usual.rate, f.last.Sub(f.began)
	if out.Measured = took >= measurable; out.Measured {
		rate = float64(f.at-f.from) / took.Seconds()
	}
	rate = max(rate, 1)
	out.Rate = int64(rate)
	out.Until = now.Add(time.Duration(float64(to-f.at) / rate * float64(time.Second)).Round(time.Millisecond))
	return out
}

// Filling says what of a partition is being filled now: a hole that Append was handed, or
// the start of its log.
func (c *Cluster) Filling(p cluster.Partition) (fetcher.Filling, bool) {
	c.mu.Lock()
	l := c.lanes[p]
	c.mu.Unlock()
	if l == nil {
		return fetcher.Filling{}, false
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.startTo > 0 {
		return l.starting.shown(l.startTo, fillerCost, now), true
	}
	to, gone := l.hole()
	if to <= l.end {
		return fetcher.Filling{}, false
	}
	f := l.filled
	if f.at != l.end {
		f = filling{from: l.end, at: l.end}
	}
	return f.shown(to, c.holeCost(l.fill, gone), now), true
}

// hole is the end of the hole that the log end is in, across all runs that are queued,
// and whether it is one of what the source has deleted.
func (l *lane) hole() (to int64, gone bool) {
	to = l.end
	for _, r := range l.runs {
		if r.prep == nil {
			break
		}
		given := r.prep.given
		for i := r.prep.below(to); i < len(given) && given[i].Hole() && given[i].Base <= to; i++ {
			to, gone = given[i].Next, gone || given[i].Gone
		}
		if n := len(given); n > 0 && to < given[n-1].Next {
			break
		}
	}
	return to, gone
}

// fills: the offset is one of a hole of the run.
func (r *run) fills(offset int64) bool {
	if r.prep == nil {
		return false
	}
	i := r.prep.below(offset)
	return i < len(r.prep.given) && r.prep.given[i].Hole() && r.prep.given[i].Base <= offset
}

func (c *Cluster) holeCost(fill *topicFill, gone bool) cost {
	switch {
	case gone && fill != nil && fill.deletes:
		return fillerCost
	case c.cfg.GapFill == GapPhantoms:
		return phantomCost
	}
	return markerCost
}
