package memory

import (
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// log is what one replica holds of a partition.
type log struct {
	start, end int64
	batches    []stored // ascending; holes are offsets that nobody has
	epochs     epochs
}

// stored is a batch in a log. Replicas share its bytes: nobody writes to them.
type stored struct {
	base, next int64
	epoch      int32
	bytes      []byte
}

func storedOf(b []byte) stored {
	h := batch.Header(b)
	return stored{base: h.Base(), next: h.Next(), epoch: h.LeaderEpoch(), bytes: b}
}

// append puts a batch at the end, or after a hole.
func (l *log) append(s stored) {
	l.batches = append(l.batches, s)
	l.end = s.next
	l.epochs.assign(s.epoch, max(s.base, l.start))
}

// find is the index of the first batch that ends after the offset.
func (l *log) find(offset int64) int {
	if n := len(l.batches); n == 0 || l.batches[n-1].next <= offset {
		return n
	}
	i, _ := slices.BinarySearchFunc(l.batches, offset, func(s stored, o int64) int {
		if s.next <= o {
			return -1
		}
		return 1
	})
	return i
}

// truncate cuts the tail: everything from the offset on, and the whole of a batch
// that holds it. Below the log's start the log is emptied and starts there.
func (l *log) truncate(to int64) {
	if to >= l.end { // an epoch may have begun at the end and be another one's
		l.epochs.cutTail(to)
		return
	}
	if to < l.start {
		l.restart(to)
		return
	}
	for n := len(l.batches); n > 0 && l.batches[n-1].next > to; n = len(l.batches) {
		to = min(to, l.batches[n-1].base)
		l.batches[n-1] = stored{}
		l.batches = l.batches[:n-1]
	}
	l.end = to
	l.start = min(l.start, to)
	l.epochs.cutTail(to)
}

// restart empties the log and lets it start and end at an offset.
func (l *log) restart(at int64) { *l = log{start: at, end: at} }

// trim moves the start up; batches wholly below it go.
func (l *log) trim(to int64) {
	to = min(to, l.end)
	if to <= l.start {
		return
	}
	l.start = to
	if i := l.find(to); i > 0 {
		l.batches = slices.Delete(l.batches, 0, i)
	}
	l.epochs.cutHead(to)
}

// follow makes l a copy of the leader's log, as a follower's fetches do (KIP-101,
// KIP-595): it is cut where the epochs say that the two part, then it takes what it
// lacks.
func (l *log) follow(leader *log) {
	l.part(leader)
	if l.end > leader.end {
		l.truncate(leader.end)
	}
	if l.end < leader.start {
		l.restart(leader.start)
	}
	for _, s := range leader.batches[leader.find(l.end):] {
		l.append(s)
	}
	l.end = leader.end
	l.trim(leader.start) // up only: a log start never goes back (UnifiedLog.maybeIncrementLogStartOffset)
}

// part cuts l where its epochs part from the leader's.
func (l *log) part(leader *log) {
	for {
		latest := l.epochs.latest()
		if latest < 0 {
			return
		}
		theirs := leader.epochs.endOf(latest, leader.end)
		if theirs.EndOffset < 0 {
			// A leader that does not know the epoch: one whose log was taken over from
			// elsewhere and is shorter. What it knows last ends with its log.
			theirs = cluster.EpochEnd{Epoch: leader.epochs.latest(), EndOffset: leader.end}
		}
		if theirs.Epoch == latest && theirs.EndOffset >= l.end {
			return
		}
		to, before, epochs := min(theirs.EndOffset, l.end), l.end, len(l.epochs)
		ours := l.epochs.endOf(theirs.Epoch, l.end)
		if ours.EndOffset >= 0 {
			to = min(to, ours.EndOffset)
		}
		l.truncate(to)
		if ours.Epoch == theirs.Epoch || l.end == before && len(l.epochs) == epochs {
			return
		}
	}
}

// read gives whole batches from the offset on, those wholly below limit, up to
// about maxBytes: one at least when atLeastOne, if there is one.
func (l *log) read(into []byte, offset, limit int64, maxBytes int, atLeastOne bool) []byte {
	room := maxBytes
	for i, s := range l.batches[l.find(offset):] {
		if s.next > limit || len(s.bytes) > room && (i > 0 || !atLeastOne) {
			break
		}
		into = append(into, s.bytes...)
		room -= len(s.bytes)
	}
	return into
}
