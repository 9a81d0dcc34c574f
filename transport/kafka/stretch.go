package kafka

import (
	"github.com/clustermirror/mirror/cluster"
)

// producerState is what a broker remembers of one producer id (DescribeProducers).
type producerState struct {
	id      int64
	epoch   int32
	lastSeq int32
	stamp   int64 // timestamp of its last record
}

// tail is the header of the last batch of a log.
type tail struct {
	base, next   int64
	producerID   int64
	epoch        int16
	baseSequence int32
	maxTimestamp int64
}

// evidence is everything a destination log says about a stretch.
type evidence struct {
	own              ownIDs
	logStart, logEnd int64
	states           []producerState // of own ids only; empty too when the broker does not tell
	last             *tail           // nil: not read, or nothing there to read
}

// verdict is what follows from the evidence.
type verdict struct {
	id      int64
	known   bool  // the broker remembers the id, at the log end
	stamp   int64 // of the last record of a stretch that goes on; 0: a new one
	stopped bool
	foreign *cluster.Span // records that are not ours, or ours at wrong offsets
	fenceAt bool          // the log ends with our fence
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
	if t := e.last; t != nil && t.next == e.logEnd && e.own.stretches(t.producerID) {
		switch {
		case t.epoch > 0:
			return verdict{stopped: true, fenceAt: true}
		case t.baseSequence == sequence(t.base):
			return verdict{id: t.producerID, stamp: t.maxTimestamp}
		}
		return verdict{foreign: &cluster.Span{From: e.ourEnd(t), To: e.logEnd}}
	}
	if e.fenced() {
		return verdict{stopped: true}
	}
	filled := e.last != nil && e.last.producerID == e.own.filler() && e.last.next == e.logEnd
	if end, ok := e.lastOwn(); ok && !filled && end < e.logEnd {
		return verdict{foreign: &cluster.Span{From: end, To: e.logEnd}}
	}
	return verdict{id: e.unused(e.own.stretch(e.logEnd))}
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

// lastOwn is the furthest end of our stretches that the broker remembers. A
// sequence gives the offset only mod 2^31: it is the largest not above the log
// end.
func (e evidence) lastOwn() (end int64, ok bool) {
	for _, s := range e.states {
		if !e.own.stretches(s.id) || s.epoch != 0 || s.lastSeq < 0 {
			continue
		}
		end, ok = max(end, e.endOf(s.lastSeq)), true
	}
	return end, ok
}

func (e evidence) endOf(lastSeq int32) int64 {
	return e.logEnd - (e.logEnd-int64(lastSeq)-1)&0x7fffffff
}

// ourEnd is where a batch of ours that stands at a wrong offset belonged: from
// there on at the latest the log is not the source's.
func (e evidence) ourEnd(t *tail) int64 {
	return t.base - (t.base-int64(t.baseSequence))&0x7fffffff
}

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
