package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
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
	default: // a cut, a raise of epochs: no destination of this library can yet
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
	return fetcher.Stretch{Mirror: m.name, Partition: rec.Partition, New: rec.NewStretch()}
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

// alignAll performs LOG_ALIGNMENT. Each partition's outcome is posted as soon as
// it is known: one that takes long keeps no other waiting (I10).
func (m *Mirror) alignAll(ctx context.Context, ts []task) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.AlignmentTimeout)
	defer cancel()
	ts = current(ts)
	targets := make([]fetcher.Target, 0, len(ts))
	ends := make([]func(), 0, len(ts))
	begun := ts[:0]
	for _, t := range ts {
		end, err := m.aligning.begin(t.ctx, t.rec.Partition)
		if err != nil {
			continue // superseded
		}
		begun, ends = append(begun, t), append(ends, end)
		targets = append(targets, fetcher.Target{
			Stretch: m.stretch(t.rec), TopicID: t.rec.TopicID, Context: t.ctx, Progress: m.boards.get(t.rec.Partition),
		})
	}
	fetcher.Align(ctx, m.source, m.destination, m.destination, targets, func(i int, a fetcher.Aligned) {
		ends[i]()
		m.onAligned(begun[i], a)
	})
}

func (m *Mirror) onAligned(t task, a fetcher.Aligned) {
	board := m.boards.get(t.rec.Partition)
	if a.Source != (cluster.Offsets{}) {
		board.Source.Store(a.Source.HighWatermark)
		board.LogStart.Store(a.Source.LogStart)
	}
	if a.Err != nil {
		m.report(t, coordinator.EventFailed, fmt.Errorf("alignment: %w", a.Err))
		return
	}
	board.LogEnd.Store(a.Next)
	if t.ctx.Err() == nil {
		m.coord.Post(coordinator.Event{
			Partition: t.rec.Partition, Kind: coordinator.EventAligned, Seq: t.effect.Seq, How: a.How,
			Epochs: history(t.rec.Epochs, a), Unproven: len(t.rec.Epochs) == 0,
		})
	}
}

// history is the record's own history below the log end, as far as it agrees
// with what alignment saw there; else it begins anew with that.
func history(known []coordinator.EpochStart, a fetcher.Aligned) []coordinator.EpochStart {
	for len(known) > 0 && known[len(known)-1].Start >= a.Next {
		known = known[:len(known)-1]
	}
	if n := len(known); n > 0 && known[n-1].Epoch == a.LastEpoch {
		return known
	}
	if a.LastEpoch < 0 {
		return []coordinator.EpochStart{}
	}
	return []coordinator.EpochStart{{Epoch: a.LastEpoch, Start: a.Next - 1}}
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
	var strangers []task
	var as []fetcher.Assignment
	for i, t := range ts {
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
		if known := board.LogEnd.Load(); known >= 0 && e.LogEnd > known {
			strangers = append(strangers, t)
			continue
		}
		as = append(as, fetcher.Assignment{
			Stretch: stretches[i], TopicID: t.rec.TopicID, Next: e.LogEnd, LastEpoch: lastEpoch(t.rec.Epochs, e.LogEnd),
			Trimmed: e.LogStart, RoundTrip: e.RoundTrip, Progress: board, Context: t.ctx,
		})
	}
	m.fetch.Assign(as...)
	m.fetchStrange(ctx, strangers)
}

// fetchStrange goes on with logs that another worker has appended to since this
// one knew them: what it appended is compared with the source before it is built
// upon, and the epoch at the end is the source's to say.
func (m *Mirror) fetchStrange(ctx context.Context, ts []task) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.AlignmentTimeout)
	defer cancel()
	targets := make([]fetcher.Target, len(ts))
	for i, t := range ts {
		s := m.stretch(t.rec)
		s.New = false
		targets[i] = fetcher.Target{Stretch: s, TopicID: t.rec.TopicID, Context: t.ctx}
	}
	if len(targets) == 0 {
		return
	}
	fetcher.Align(ctx, m.source, m.destination, m.destination, targets, func(i int, a fetcher.Aligned) {
		t := ts[i]
		if a.Err != nil {
			m.report(t, coordinator.EventFailed, fmt.Errorf("taking over: %w", a.Err))
			return
		}
		m.boards.get(t.rec.Partition).LogEnd.Store(a.Next)
		assign := func(err error) {
			if err != nil {
				m.report(t, coordinator.EventFailed, fmt.Errorf("taking over: %w", err))
				return
			}
			a.Progress, a.Context = m.boards.get(t.rec.Partition), t.ctx
			m.fetch.Assign(a.Assignment)
		}
		if a.LastEpoch == lastEpoch(t.rec.Epochs, a.Next) {
			assign(nil)
			return
		}
		m.coord.Post(coordinator.Event{
			Partition: t.rec.Partition, Kind: coordinator.EventEpochSeen, Epoch: a.LastEpoch, Start: a.Next - 1, Ack: assign,
		})
	})
}

// lastEpoch is the source epoch of the record before an offset.
func lastEpoch(epochs []coordinator.EpochStart, before int64) int32 {
	for i := len(epochs) - 1; i >= 0; i-- {
		if epochs[i].Start < before {
			return epochs[i].Epoch
		}
	}
	return cluster.NoEpoch
}

// drainAll performs PAUSING: out of the fetcher, nothing in flight.
func (m *Mirror) drainAll(ctx context.Context, ts []task) {
	ts = current(ts)
	if _, err := m.quiet(ctx, ts); err != nil {
		return // Run ends
	}
	for _, t := range ts {
		m.report(t, coordinator.EventDrained, nil)
	}
}

// quiet takes partitions out of the fetcher and waits until nothing of them is
// under way at the destination. The ends are in the order of the tasks.
func (m *Mirror) quiet(ctx context.Context, ts []task) ([]fetcher.End, error) {
	ps := make([]cluster.Partition, len(ts))
	stretches := make([]fetcher.Stretch, len(ts))
	for i, t := range ts {
		ps[i] = t.rec.Partition
		stretches[i] = fetcher.Stretch{Mirror: m.name, Partition: ps[i]}
	}
	if err := m.fetch.Remove(ctx, ps...); err != nil {
		return nil, err
	}
	if err := m.aligning.wait(ctx, ps); err != nil {
		return nil, err
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
