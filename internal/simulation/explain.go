package simulation

import (
	"context"
	"errors"
	"slices"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/batch"
)

func (w *world) context() context.Context { return context.Background() }

// explained reports whether what a partition says it has failed for is so. An operator
// has just had it try again, so that it has to be so now.
func (w *world) explained(p *process, s mirror.PartitionStatus) bool {
	is := func(target error) bool { return errors.Is(s.Err, target) }
	src, srcViews, srcErr := w.look(p.source(), s.Partition)
	dst, dstViews, dstErr := w.look(p.destination(), s.Partition)
	rec, _ := w.record(p.mirror, s.Partition)
	if srcErr != nil {
		return is(cluster.ErrTopicDeleted) || is(cluster.ErrUnknownTopic)
	}
	switch {
	case is(cluster.ErrTopicReplaced):
		return rec.TopicID != src.TopicID
	case is(cluster.ErrActive):
		return w.activeBack(p, s.Partition)
	case is(cluster.ErrLoop):
		return w.loops(p, s.Partition, false)
	case dstErr != nil:
		return false
	case is(cluster.ErrRetention):
		return srcViews[0].start > dstViews[0].end
	case w.setup.Kind == "produce" && (is(cluster.ErrTruncated) || is(cluster.ErrDiverged)):
		return true // what stands there has to stay, a fence too
	case is(cluster.ErrTruncated), is(cluster.ErrDiverged):
		may := w.setup.Unclean && (w.setup.Scratch || w.traceable(p, rec, dst.TopicID))
		return !may && (!w.prefix(dstViews[0], srcViews[0]) || w.oracle.parts(p.source(), s.Partition))
	case is(cluster.ErrLocalWrites):
		// The fence of a stop is a record too, where requests to produce are all there is.
		return !w.setup.Discard && (w.setup.Kind == "produce" || rec.HasPosition && dstViews[0].start > rec.Position.Offset || w.hasLocal(dstViews[0], srcViews[0]))
	case is(cluster.ErrNoPosition):
		return !w.setup.Scratch && (!w.prefix(dstViews[0], srcViews[0]) || srcViews[0].start >= dstViews[0].end)
	}
	if w.setup.Kind != "produce" {
		return false
	}
	for _, limit := range []error{
		cluster.ErrGap, cluster.ErrTransactional, cluster.ErrControlBatch, cluster.ErrForeignWrite, cluster.ErrDisplaced, errors.ErrUnsupported,
	} {
		if is(limit) {
			return true
		}
	}
	return false
}

// traceable: something stored tells how much of the destination is the source's.
func (w *world) traceable(p *process, rec coordinator.Record, id cluster.TopicID) bool {
	back, ok := w.record(p.destination()+p.source(), rec.Partition)
	return rec.Appended || ok && back.HasPosition && back.TopicID == id
}

// into are the mirrors into a cluster, but for one.
func (w *world) into(at, not string) (names []string) {
	for _, from := range clusterNames() {
		if name := from + at; from != at && name != not {
			names = append(names, name)
		}
	}
	return names
}

// activeBack: the mirror the other way has not stopped, or another one to the same
// place.
func (w *world) activeBack(p *process, part cluster.Partition) bool {
	return w.othersAt(p, part) || w.atWork(p.destination()+p.source(), part)
}

// othersAt: another mirror to the same place has not stopped.
func (w *world) othersAt(p *process, part cluster.Partition) bool {
	return slices.ContainsFunc(w.into(p.destination(), p.mirror), func(name string) bool { return w.atWork(name, part) })
}

func (w *world) atWork(name string, part cluster.Partition) bool {
	rec, ok := w.record(name, part)
	return ok && rec.State != coordinator.StateStopped && (rec.State != coordinator.StateUnknown || rec.Appended)
}

// loops: the source's records come from the destination, by what is on record there;
// with copied, by a mirror that is copying.
func (w *world) loops(p *process, part cluster.Partition, copied bool) bool {
	for _, from := range clusterNames() {
		rec, ok := w.record(from+p.source(), part)
		if ok && (rec.State == coordinator.StateMirroring || !copied && rec.State != coordinator.StateStopped) && slices.Contains(rec.Sources, p.destination()) {
			return true
		}
	}
	return false
}

// stopped: a mirror that had appended to the partition has stopped there, and none is at
// work.
func (w *world) stopped(at string, part cluster.Partition) bool {
	done := false
	for _, name := range w.into(at, "") {
		rec, ok := w.record(name, part)
		if ok && rec.State != coordinator.StateStopped {
			return false
		}
		done = done || ok && rec.Appended && rec.HasPosition
	}
	return done
}

// permitted: something allows a mirror to cut its destination's log.
func (w *world) permitted(p *process, rec coordinator.Record) bool {
	back, ok := w.record(p.destination()+p.source(), rec.Partition)
	return w.setup.Unclean || w.setup.Scratch || w.setup.Discard || ok && back.HasPosition
}

// prefix: the source has everything that the destination has, above its log start, and
// ends no earlier. A marker of the same transaction may be another cluster's own: where
// epochs are kept they tell.
func (w *world) prefix(dst, src view) bool {
	theirs := map[int64]batch.Header{}
	for _, h := range src.batches {
		theirs[h.Base()] = h
	}
	for _, h := range dst.from(max(dst.start, src.start)) {
		if t, ok := theirs[h.Base()]; !ok || !same(t, h, w.setup.Kind == "keeps" && h.Control()) {
			return false
		}
	}
	for _, h := range src.batches { // batches are copied whole
		if h.Base() < dst.end && dst.end < h.Next() {
			return false
		}
	}
	return dst.end <= src.end
}

// foreign: the destination holds records that users wrote there.
func (w *world) foreign(p *process, part cluster.Partition) bool {
	_, views, err := w.look(p.destination(), part)
	if err != nil {
		return false
	}
	all, err := cells(views[0].batches, 0)
	return err == nil && slices.ContainsFunc(all, func(c cell) bool { return c.at == p.destination() })
}

// hasLocal: the destination has something that the source has not: records that were
// written there, or markers that ended transactions.
func (w *world) hasLocal(dst, src view) bool {
	theirs := map[int64]batch.Header{}
	for _, h := range src.batches {
		theirs[h.Base()] = h
	}
	for _, h := range dst.batches {
		if t, ok := theirs[h.Base()]; !ok || !same(t, h, w.setup.Kind == "keeps") {
			return true
		}
	}
	return false
}
