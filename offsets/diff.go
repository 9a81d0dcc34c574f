package offsets

import (
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// A Log is what there is of a partition at the destination.
type Log struct {
	cluster.Offsets
	// Stretch says which run of mirroring this is. What was committed in another one counts
	// no more: groups have gone their own ways since.
	Stretch int
	// Owed are groups that a rebuild has taken offsets of their own from, and that have not
	// got them back. They are left alone.
	Owed []string
}

// A Mark is what may stand at the destination because we have committed it.
type Mark struct {
	Stretch int
	// Offsets begins with the last one. Behind it are those that may still stand there: what
	// stood there before, and commits whose outcome was not known.
	Offsets []int64
}

// Marks are those of a group.
type Marks map[cluster.Partition]Mark

// A Place is one partition in which a group's committed offsets differ.
type Place struct {
	Partition   cluster.Partition `json:"partition"`
	Source      int64             `json:"source"`
	Destination int64             `json:"destination"`
	// Ours is what we have committed last, -1 when nothing is known of it.
	Ours int64 `json:"ours"`
}

// A Change is what becomes of one group.
type Change struct {
	Group   string
	Offsets []cluster.Committed // to be written
	Moves   []Place             // the same, in that order
	// Marks are those that change, to be stored before anything is written.
	Marks   Marks
	Clamped []Place // written lower than committed, as the destination does not reach so far
	Held    []Place // left alone: the group has moved there by itself
}

// mostMarks bounds a Mark; more stand there only when commits go on failing.
const mostMarks = 4

// Diff gives what has to be done for a group. logs are the partitions that are copied; all
// others are left alone, and so is what has no offset at the source. Nothing that is given
// is changed.
//
// A group follows the source forwards and backwards, held within the log, as long as what stands at the
// destination is what we have put there. If it is not, the group has moved by itself and
// is held there, until both are at the same offset or the destination has none. Where
// nothing is known of what we have put there, it only goes forwards. A share group that has
// acknowledged records since we put it there has moved as well.
func Diff(group string, source, destination []cluster.Committed, ours Marks, logs map[cluster.Partition]Log) Change {
	have := make(map[cluster.Partition]cluster.Committed, len(destination))
	for _, o := range destination {
		if o.Offset >= 0 {
			have[o.Partition] = o
		}
	}
	ch := Change{Group: group}
	for _, o := range source {
		log, copied := logs[o.Partition]
		if !copied || o.Offset < 0 || slices.Contains(log.Owed, group) {
			continue
		}
		theirs := o.Offset
		o.Offset = max(log.LogStart, min(theirs, log.HighWatermark))
		mark := ours[o.Partition]
		if mark.Stretch != log.Stretch {
			mark = Mark{Stretch: log.Stretch}
		}
		h, there := have[o.Partition]
		place := Place{Partition: o.Partition, Source: theirs, Destination: -1, Ours: -1}
		if there {
			place.Destination = h.Offset
		}
		if len(mark.Offsets) > 0 {
			place.Ours = mark.Offsets[0]
		}
		if there && byItself(h, o.Offset, mark, log) {
			ch.Held = append(ch.Held, place)
			continue
		}
		if theirs > log.HighWatermark {
			ch.Clamped = append(ch.Clamped, place)
		}
		if ch.add(o, h, there, mark) {
			ch.Moves = append(ch.Moves, place)
		}
	}
	return ch
}

// byItself reports whether a group stands where only it can have gone.
func byItself(stands cluster.Committed, want int64, ours Mark, log Log) bool {
	switch {
	case stands.Offset == want, stands.Offset > log.HighWatermark: // nothing may stay behind the log's end (I11)
		return false
	case len(ours.Offsets) == 0:
		return stands.Offset > want
	}
	return stands.Scattered && stands.Offset == ours.Offsets[0] || !slices.Contains(ours.Offsets, stands.Offset)
}

// add has an offset written where it does not stand, and marks it.
func (ch *Change) add(o, stands cluster.Committed, there bool, mark Mark) (written bool) {
	next := []int64{o.Offset}
	last := mark.Offsets
	if written = !there || stands.Offset != o.Offset || stands.Metadata != o.Metadata; written {
		ch.Offsets = append(ch.Offsets, o)
		if there {
			next = with(next, stands.Offset)
		}
		if len(last) > 0 && (!there || stands.Offset != last[0]) { // the last commit may come yet
			next = with(next, last...)
		}
	} else if stands.Scattered && len(last) == 0 {
		return false // it stands there by itself, and may follow forwards
	}
	if len(last) > 0 && last[0] == o.Offset && len(with(last, next...)) == len(last) {
		return written // on record already
	}
	if ch.Marks == nil {
		ch.Marks = Marks{}
	}
	ch.Marks[o.Partition] = Mark{Stretch: mark.Stretch, Offsets: next}
	return written
}

// with adds offsets that are not there already; all is not changed.
func with(all []int64, more ...int64) []int64 {
	all = slices.Clip(all)
	for _, at := range more {
		if !slices.Contains(all, at) && len(all) < mostMarks {
			all = append(all, at)
		}
	}
	return all
}
