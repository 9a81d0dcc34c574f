package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/epoch"
)

// performer starts what the coordinator has decided.
type performer struct{ m *Mirror }

func (p performer) Perform(ctx context.Context, rec coordinator.Record, e coordinator.Effect) {
	t := task{ctx: ctx, rec: rec, effect: e}
	switch e.Kind {
	case coordinator.EffectAlign:
		p.m.align.put(t)
	case coordinator.EffectFetch:
		p.m.resume.put(t)
	case coordinator.EffectDrain:
		p.m.drain.put(t)
	case coordinator.EffectStop:
		p.m.stop.put(t)
	case coordinator.EffectCut:
		p.m.cut.put(t)
	case coordinator.EffectRaiseEpoch:
		p.m.fence.put(t)
	default:
		p.m.report(t, coordinator.EventFailed, fmt.Errorf("%s: %w", e.Kind, errors.ErrUnsupported))
	}
}

// report posts the outcome of a task, unless the task has been superseded.
func (m *Mirror) report(t task, kind coordinator.EventKind, err error) {
	if t.ctx.Err() != nil {
		return
	}
	m.coord.Post(coordinator.Event{Partition: t.rec.Partition, Kind: kind, Err: err, Seq: t.effect.Seq})
}

func (m *Mirror) stretch(rec coordinator.Record) fetcher.Stretch {
	s := m.thisStretch(rec)
	s.New = rec.NewStretch()
	return s
}

// thisStretch names the stretch that goes on.
func (m *Mirror) thisStretch(rec coordinator.Record) fetcher.Stretch {
	return fetcher.Stretch{Mirror: m.name, Partition: rec.Partition, Owner: rec.OwnerEpoch}
}

// stretches names those that go on, as they are on record now.
func (m *Mirror) stretches(ps []cluster.Partition) []fetcher.Stretch {
	out := make([]fetcher.Stretch, len(ps))
	for i, p := range ps {
		s, _ := m.coord.Snapshot(p)
		s.Partition = p
		out[i] = m.thisStretch(s.Record)
	}
	return out
}

// current leaves out what was superseded while it waited.
func current(ts []task) []task {
	live := ts[:0]
	for _, t := range ts {
		if t.ctx.Err() == nil {
			live = append(live, t)
		}
	}
	return live
}

// fetchAll begins MIRRORING: at the destination's log end, read anew.
func (m *Mirror) fetchAll(ctx context.Context, ts []task) {
	ts = current(ts)
	stretches := make([]fetcher.Stretch, len(ts))
	for i, t := range ts {
		stretches[i] = m.stretch(t.rec)
		stretches[i].New = false // alignment has begun it
	}
	ends, err := m.destination.Ends(ctx, stretches)
	var strangers, nameless []task
	behind := map[cluster.Partition]task{}
	var as []fetcher.Assignment
	for i, t := range ts {
		if t.ctx.Err() != nil {
			continue // superseded while the destination was asked
		}
		e := fetcher.End{Err: err}
		if err == nil {
			e = ends[i]
		}
		if e.Err == nil && e.Stopped {
			e.Err = fmt.Errorf("%w: the log ends with the fence of a stop", cluster.ErrFenced)
		}
		if e.Err != nil {
			m.report(t, coordinator.EventFailed, fmt.Errorf("destination log end: %w", e.Err))
			continue
		}
		board := m.boards.get(t.rec.Partition)
		known := board.LogEnd.Load()
		_, anew := m.anew(t.rec.Partition, e.TopicID)
		if anew || known >= 0 && e.LogEnd > known || known < 0 && !e.Ours && !e.Inherited && e.LogEnd > e.LogStart {
			strangers = append(strangers, t)
			continue
		}
		m.grounds.Store(t.rec.Partition, e.TopicID)
		_, compared := m.compared.LoadAndDelete(t.rec.Partition)
		if t.rec.TopicID.IsZero() && !compared && e.LogEnd > e.LogStart {
			nameless = append(nameless, t)
			continue
		}
		board.Ceiling.Store(e.LeaderEpoch) // also when it is lower: the topic may have been made anew
		a := fetcher.Assignment{
			Stretch: stretches[i], TopicID: t.rec.TopicID, There: e.TopicID, Next: e.LogEnd, LastEpoch: t.rec.Epochs.At(e.LogEnd - 1),
			Trimmed: e.LogStart, Ceiling: e.LeaderEpoch, RoundTrip: e.RoundTrip, Progress: board, Context: t.ctx,
		}
		as = append(as, a)
		if a.LastEpoch >= 0 && ahead(t.rec.Epochs, e.LogEnd) {
			behind[t.rec.Partition] = t
			continue
		}
		m.fetching.put(t)
	}
	m.raiseFirst(ctx, as)
	m.fetch.Assign(m.forgetAhead(behind, as)...)
	for i := range strangers {
		strangers[i].rec.Unproven = true // another worker may have seen epochs that are not on this record
	}
	m.fetchCompared(ctx, append(strangers, nameless...))
}

// anew reports that the destination's topic is not the one whose log is known, and which
// that was: it was made anew, and its log may be as long as the one before.
func (m *Mirror) anew(p cluster.Partition, id cluster.TopicID) (was cluster.TopicID, anew bool) {
	if known, ok := m.grounds.Load(p); ok {
		was = known.(cluster.TopicID)
	}
	return was, !was.IsZero() && !id.IsZero() && was != id
}

// ahead reports that the last epoch on record begins where the log ends, or behind: the
// process died when the epoch was stored and nothing of it was appended yet.
func ahead(h epoch.History, end int64) bool {
	last, ok := h.Latest()
	return ok && last.Start >= end
}

// forgetAhead keeps back the logs that are behind their history until that ends where
// they do (I7): what comes may be of the epoch before, when the source has lost the
// record that began the next one. It gives the others.
func (m *Mirror) forgetAhead(behind map[cluster.Partition]task, as []fetcher.Assignment) []fetcher.Assignment {
	return slices.DeleteFunc(as, func(a fetcher.Assignment) bool {
		t, ok := behind[a.Stretch.Partition]
		if !ok {
			return false
		}
		m.coord.Post(coordinator.Event{
			Partition: t.rec.Partition, Kind: coordinator.EventEpochSeen, Epoch: a.LastEpoch, Start: a.Next,
			Ack: func(err error) {
				if err != nil {
					m.report(t, coordinator.EventFailed, fmt.Errorf("history behind the log end: %w", err))
					return
				}
				m.fetching.put(t)
				m.fetch.Assign(a)
			},
		})
		return true
	})
}

// fetchCompared goes on with logs that have to be compared with the source before they
// are built upon, and the epoch at the end is the source's to say. Another worker has
// appended to them since this one knew them; or the source has no topic ids (before
// Kafka 2.8), so that while nobody looked the topic may have become another one.
func (m *Mirror) fetchCompared(ctx context.Context, ts []task) {
	if len(ts) == 0 {
		return
	}
	m.alignTasks(ctx, ts, func(t task, a found) {
		switch {
		case a.Err != nil:
			m.report(t, coordinator.EventFailed, fmt.Errorf("taking over: %w", a.Err))
			return
		case a.Cut >= 0:
			m.part(ctx, t, a)
			return
		}
		m.boards.get(t.rec.Partition).LogEnd.Store(a.Next)
		m.grounds.Store(t.rec.Partition, a.There)
		assign := func(err error) {
			if err != nil {
				m.report(t, coordinator.EventFailed, fmt.Errorf("taking over: %w", err))
				return
			}
			a.Progress, a.Context = m.boards.get(t.rec.Partition), t.ctx
			m.fetching.put(t)
			m.fetch.Assign(a.Assignment)
		}
		// Below zero: the source does not say.
		if a.LastEpoch < 0 || a.LastEpoch == t.rec.Epochs.At(a.Next-1) && !ahead(t.rec.Epochs, a.Next) {
			assign(nil)
			return
		}
		m.coord.Post(coordinator.Event{
			Partition: t.rec.Partition, Kind: coordinator.EventEpochSeen, Epoch: a.LastEpoch, Start: a.Next - 1, Ack: assign,
		})
	})
}

// drainAll performs PAUSING: out of the fetcher, nothing in flight.
func (m *Mirror) drainAll(ctx context.Context, ts []task) {
	ts = current(ts)
	ends, err := m.quiet(ctx, ts)
	if err != nil {
		return // Run ends
	}
	for i, t := range ts {
		// Without the destination's word something may still be on its way there.
		if err := ends[i].Err; err != nil && !settled(err) {
			m.report(t, coordinator.EventFailed, fmt.Errorf("pause: destination log end: %w", err))
			continue
		}
		m.report(t, coordinator.EventDrained, nil)
	}
}

// settled reports whether an error of Ends says that the log is another's, or not there:
// nothing of ours lands in it.
func settled(err error) bool {
	for _, e := range []error{cluster.ErrFenced, cluster.ErrForeignWrite, cluster.ErrDisplaced, cluster.ErrActive, cluster.ErrUnknownTopic} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// quiet takes partitions out of the fetcher and waits until nothing of them is
// under way at the destination. The ends are in the order of the tasks.
func (m *Mirror) quiet(ctx context.Context, ts []task) ([]fetcher.End, error) {
	ps := make([]cluster.Partition, len(ts))
	stretches := make([]fetcher.Stretch, len(ts))
	for i, t := range ts {
		ps[i] = t.rec.Partition
		stretches[i] = m.thisStretch(t.rec)
	}
	if err := m.fetch.Remove(ctx, ps...); err != nil {
		return nil, err
	}
	if err := m.aligning.wait(ctx, ps); err != nil {
		return nil, err
	}
	for _, p := range ps {
		m.compared.Delete(p)
	}
	ends, err := m.destination.Ends(ctx, stretches)
	if err != nil {
		ends = make([]fetcher.End, len(ts))
		for i := range ends {
			ends[i].Err = err
		}
	}
	return ends, ctx.Err()
}
