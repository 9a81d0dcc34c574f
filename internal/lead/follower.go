package lead

import (
	"math"
	"slices"
	"time"
)

// follower is what we know of one real replica.
type follower struct {
	id       int32
	live     bool  // by the metadata log
	heard    bool  // has fetched under our present epoch
	offset   int64 // of its latest fetch
	last     int32 // epoch of its last batch then
	logStart int64
	seen     time.Time
	via      *Watcher // of its session, nil without
	// sent is how far it may have got with what it was answered: its log ends between
	// offset and sent until it fetches again.
	sent int64
	// holds is the end of what it shares with our log, -1 when that is not known.
	holds int64
	owes  int64 // it has to cut here before anything else, -1 nothing
	// noted: that it owes a cut is stored somewhere. Until it is forgotten there it does not
	// count for the high watermark, as the next process will cut it once more.
	noted bool
	// synced: it may be elected in our place, so that the high watermark does not pass what
	// it holds. admitted: that is about to be.
	synced, admitted bool
}

func newFollower(id int32) follower {
	return follower{id: id, live: true, last: -1, holds: -1, owes: -1}
}

// forget is what a new epoch, or a new life of the follower, does to what we know.
func (f *follower) forget() { f.heard, f.holds = false, -1 }

// counts is what the follower adds to the high watermark.
func (f *follower) counts() int64 {
	if !f.live {
		return -1
	}
	return f.holds
}

// bears is what it can be relied upon to hold after our death as well.
func (f *follower) bears() int64 {
	if f.noted {
		return -1
	}
	return f.counts()
}

// lastSeen is when it fetched last, this partition or with its session.
func (f *follower) lastSeen() time.Time {
	if f.via == nil {
		return f.seen
	}
	if beat := f.via.made.Add(time.Duration(f.via.beat.Load())); beat.After(f.seen) {
		return beat
	}
	return f.seen
}

// leave ends what a session says for it.
func (f *follower) leave() { f.seen, f.via = f.lastSeen(), nil }

// awaited reports whether the follower is waited for: it is alive, and has fetched since
// then.
func (f *follower) awaited(then time.Time) bool { return f.live && f.lastSeen().After(then) }

// quorumEnd is the quorum-th largest of what followers hold, -1 when there are fewer.
func quorumEnd(followers []follower, quorum int) int64 {
	var few [8]int64
	ends := few[:0]
	for i := range followers {
		ends = append(ends, followers[i].bears())
	}
	slices.Sort(ends)
	if quorum > len(ends) {
		return -1
	}
	return ends[len(ends)-quorum]
}

// inSyncEnd is the least that those hold which may be elected in our place.
func inSyncEnd(followers []follower) int64 {
	least := int64(math.MaxInt64)
	for i := range followers {
		if f := &followers[i]; f.synced || f.admitted {
			least = min(least, f.bears())
		}
	}
	return least
}

// slowest is the least that a follower that is waited for holds.
func slowest(followers []follower, then time.Time) int64 {
	least := int64(math.MaxInt64)
	for i := range followers {
		if f := &followers[i]; f.awaited(then) {
			least = min(least, f.holds)
		}
	}
	return least
}

// everywhere reports whether something is so at all followers that are waited for, and
// at a quorum.
func everywhere(followers []follower, quorum int, then time.Time, is func(*follower) bool) bool {
	n := 0
	for i := range followers {
		f := &followers[i]
		switch so := f.heard && is(f); {
		case so && f.live:
			n++
		case !so && f.awaited(then):
			return false
		}
	}
	return n >= quorum
}

// gathered reports whether enough is known of the followers to go on from there: any
// quorum has one of them, and nobody is missing who is waited for.
func gathered(followers []follower, quorum int, then time.Time) bool {
	n := 0
	for i := range followers {
		f := &followers[i]
		if f.holds >= 0 && f.live {
			n++
		} else if f.awaited(then) {
			return false
		}
	}
	return n >= 1 && n > len(followers)-quorum
}
