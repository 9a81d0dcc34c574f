package kafka

import (
	"github.com/clustermirror/mirror/cluster"
)

// producerState is what a broker remembers of one producer id (DescribeProducers).
type producerState struct {
	id          int64
	epoch       int32
	lastSeq     int32
	stamp       int64 // timestamp of its last record
	coordinator int32 // coordinator epoch of its last marker
}

// evidence is everything a destination log says about a stretch.
type evidence struct {
	own              ownIDs
	marks            markIDs
	logStart, logEnd int64
	states           []producerState // of own ids only; empty too when the broker does not tell
	markers          []producerState // of marks only
	filled           bool            // markers of ours stand in the log where sequences leave the offsets
	last             *tail           // nil: not read, or nothing there to read
}

// verdict is what follows from the evidence.
//
// The sequence of a batch is its offset less shift, mod 2^31. Markers that fill gaps
// have no sequence, so shift grows by one with each that stands between batches of the
// stretch; a stretch without them has shift 0. It is stored nowhere: the end of a log is
// ours if
//
//	(a) the broker's last sequence of one of our ids, less nothing, continues at the end, or
//	(b) the last batch is data of ours; shift follows from it, and the broker's last
//	    sequence, where it remembers one, is the batch's own, or
//	(c) the last batch is a marker of ours that stands where it says that it belongs;
//	    shift follows from the broker's last sequence. Where it has forgotten that, a new
//	    stretch begins with a new id. The same holds for a log whose last batch is gone
//	    while the broker remembers markers of ours.
//
// In (b) and (c) with shift not 0 a record of others in between would look like a
// marker: the log is said to be ours only by a process that has seen the markers land,
// and else compared with the source.
type verdict struct {
	id     int64
	known  bool  // the broker remembers the id, at the log end
	stamp  int64 // of the last record of a stretch that goes on; 0: a new one
	shift  int64
	marked bool // markers of ours stand in the stretch
	// inferred: shift follows from the log end and what the broker remembers, of which each
	// has to be of the same moment.
	inferred bool
	stopped  bool
	foreign  *cluster.Span // records that are not ours, or ours at wrong offsets
	fenceAt  bool          // the log ends with our fence
}

// settled decides from the broker's memory alone; ok is false when the last batch
// has to be read as well.
func settled(e evidence) (v verdict, ok bool) {
	for _, s := range e.states {
		if e.own.stretches(s.id) && s.epoch == 0 && continues(s.lastSeq, e.logEnd) {
			return verdict{id: s.id, known: true, stamp: s.stamp}, true
		}
	}
	if e.logEnd == 0 {
		return verdict{id: e.own.stretch(0)}, true
	}
	return verdict{}, false
}

// judge decides with the last batch. Nothing is appended to a log that ends with
// a fence or with records of others; fresh says that they are known and accepted.
func judge(e evidence, fresh bool) verdict {
	if fresh {
		return verdict{id: e.unused(e.own.stretch(e.logEnd))}
	}
	if v, ok := settled(e); ok {
		return v
	}
	if t := e.last; t != nil && t.next == e.logEnd {
		switch {
		case e.own.stretches(t.producerID):
			return e.afterData(t)
		case e.marks.has(t.producerID):
			return e.afterMarker(t)
		}
	}
	if e.fenced() {
		return verdict{stopped: true}
	}
	if v, ok := e.behindMarkers(); ok && e.logStart == e.logEnd && len(e.markers) > 0 {
		return v // the last batch is gone
	}
	filled := e.last != nil && e.last.producerID == e.own.filler() && e.last.next == e.logEnd
	if end, ok := e.lastOwn(); ok && !filled && end < e.logEnd {
		return verdict{foreign: &cluster.Span{From: end, To: e.logEnd}}
	}
	return verdict{id: e.unused(e.own.stretch(e.logEnd))}
}

// afterData decides about a log that ends with a batch of ours: (b).
func (e evidence) afterData(t *tail) verdict {
	shift := t.shift()
	switch {
	case t.epoch > 0:
		return verdict{stopped: true, fenceAt: true}
	case shift == 0:
		return verdict{id: t.producerID, stamp: t.maxTimestamp}
	case !e.filled && len(e.markers) == 0:
		return verdict{foreign: &cluster.Span{From: e.ourEnd(t), To: e.logEnd}}
	}
	v := verdict{id: t.producerID, stamp: t.maxTimestamp, shift: shift, marked: true}
	for _, s := range e.states {
		v.known = v.known || s.id == t.producerID && s.epoch == 0 && s.lastSeq == t.lastSequence()
	}
	return v
}

// afterMarker decides about a log that ends with a marker of ours: (c).
func (e evidence) afterMarker(t *tail) verdict {
	belongs := e.marks.belongs(t.producerID, t.coordinator)
	if !t.control || t.coordinator < 0 || belongs != t.base {
		return verdict{foreign: &cluster.Span{From: min(t.base, max(belongs, e.logStart)), To: e.logEnd}}
	}
	if v, ok := e.behindMarkers(); ok {
		return v
	}
	if e.fenced() {
		return verdict{stopped: true}
	}
	return verdict{id: e.unused(e.own.stretch(e.logEnd)), marked: true}
}

// behindMarkers goes on with the only stretch that the broker remembers and that was not
// stopped, when all that has been written since are markers.
func (e evidence) behindMarkers() (v verdict, ok bool) {
	for _, s := range e.states {
		if !e.own.stretches(s.id) || s.epoch != 0 || s.lastSeq < 0 {
			continue
		}
		if ok {
			return verdict{}, false
		}
		v, ok = verdict{id: s.id, known: true, stamp: s.stamp, shift: (e.logEnd - int64(s.lastSeq) - 1) & lowBits, marked: true, inferred: true}, true
	}
	return v, ok
}

// fenced: one of our stretches was stopped, and none came after it. With the log
// not ending with the fence, others have written since (or the head was trimmed
// over it).
func (e evidence) fenced() bool {
	stopped := false
	for _, s := range e.states {
		if e.own.stretches(s.id) {
			if s.epoch == 0 {
				return false
			}
			stopped = true
		}
	}
	return stopped
}

// lastOwn is the furthest end of ours that the broker remembers, at least: sequences
// give the offset only mod 2^31 and do not count the markers before. It is the largest
// not above the log end.
func (e evidence) lastOwn() (end int64, ok bool) {
	for _, s := range e.states {
		if !e.own.stretches(s.id) || s.epoch != 0 || s.lastSeq < 0 {
			continue
		}
		end, ok = max(end, e.endOf(s.lastSeq)), true
	}
	for _, s := range e.markers {
		if at := e.marks.belongs(s.id, s.coordinator); s.coordinator >= 0 && at < e.logEnd {
			end, ok = max(end, at+1), true
		}
	}
	return end, ok
}

func (e evidence) endOf(lastSeq int32) int64 {
	return e.logEnd - (e.logEnd-int64(lastSeq)-1)&lowBits
}

// ourEnd is where a batch of ours that stands at a wrong offset belonged: from
// there on at the latest the log is not the source's.
func (e evidence) ourEnd(t *tail) int64 { return t.base - t.shift() }

// unused steps over ids the broker remembers already.
func (e evidence) unused(id int64) int64 {
	for taken := true; taken; {
		taken = false
		for _, s := range e.states {
			if s.id == id {
				id, taken = e.own.after(id), true
			}
		}
	}
	return id
}

// turn is the producer epoch of the last marker that the broker remembers, or that the
// log ends with, among those with the id of the next one; -1: there is none.
func (e evidence) turn() (id int64, known int32) {
	id, known = e.marks.at(e.logEnd), -1
	for _, s := range e.markers {
		if s.id == id {
			known = max(known, s.epoch)
		}
	}
	if t := e.last; t != nil && t.producerID == id {
		known = max(known, int32(t.epoch))
	}
	return id, known
}
