package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// part has a cut of the destination's log stored, or says why it cannot be made. It
// is made when it is stored (I8).
func (m *Mirror) part(ctx context.Context, t task, a found) {
	switch m.traits.Truncation {
	case fetcher.TruncateExact:
		m.post(t, coordinator.Event{Kind: coordinator.EventCutNeeded, Cut: a.Cut, How: a.How})
	case fetcher.TruncateRebuild:
		m.partByRebuild(ctx, t, a)
	default:
		m.report(t, coordinator.EventFailed, &cluster.OffsetError{
			Partition: t.rec.Partition, Span: cluster.Span{From: a.Cut, To: a.Next}, Err: cluster.ErrDiverged,
			Detail: "the destination would have to be cut there and cannot be: allow it (option Truncation of its transport), or delete the topic there (" + a.How + ")",
		})
	}
}

// post posts an outcome of a task, unless the task has been superseded.
func (m *Mirror) post(t task, e coordinator.Event) {
	if t.ctx.Err() == nil {
		e.Partition, e.Seq = t.rec.Partition, t.effect.Seq
		m.coord.Post(e)
	}
}

// cutAll performs ULE_RECOVERY: out of the fetcher, drained, the tail saved, cut on
// every replica, and compared with the source once more before anything is
// appended.
func (m *Mirror) cutAll(ctx context.Context, ts []task) {
	ts = current(ts)
	ends, err := m.quiet(ctx, ts)
	if err != nil {
		return // Run ends
	}
	_, active := m.peers(ctx, ts)
	var cutting []task
	var spans []cluster.Span // that go, of cutting
	rebuilds := map[string][]task{}
	for i, t := range ts {
		span := cluster.Span{From: t.rec.Cut, To: ends[i].LogEnd}
		err := ends[i].Err
		if errors.Is(err, cluster.ErrForeignWrite) { // they go with the tail
			err = nil
		}
		if errors.Is(active[i], cluster.ErrActive) { // began while the cut waited to be tried again, and reads from here
			m.report(t, coordinator.EventFailed, fmt.Errorf("cut at offset %d: %w", t.rec.Cut, active[i]))
			continue
		}
		if err == nil && t.rec.RebuildOf.IsZero() {
			err = m.salvage(t.ctx, t.rec.Partition, span)
		}
		switch topic := t.rec.Partition.Topic; {
		case !t.rec.RebuildOf.IsZero(): // also when there is no log: deleted, and then we crashed
			rebuilds[topic] = append(rebuilds[topic], t)
		case err != nil:
			m.report(t, coordinator.EventFailed, fmt.Errorf("cut at offset %d: %w", t.rec.Cut, err))
		default: // also when it is done: a crash may have left it with a replica to go
			cutting, spans = append(cutting, t), append(spans, span)
		}
	}
	m.cutGroups(ctx, ts)
	whole := m.truncate(ctx, cutting, spans)
	var under sync.WaitGroup // a slow topic keeps no other waiting (I10)
	for _, of := range rebuilds {
		under.Go(func() { m.afterCut(ctx, m.rebuild(ctx, of)) })
	}
	m.afterCut(ctx, m.pullBack(ctx, whole))
	under.Wait()
}

// truncate has tails cut and gives those partitions in which it is done. A stop, or a
// pause, that comes meanwhile has it given up and waits until it is: nothing is cut from
// a log that others may write to.
func (m *Mirror) truncate(ctx context.Context, ts []task, spans []cluster.Span) (done []task) {
	var cuts []fetcher.Cut
	var cutting []task
	var over []func()
	for i, end := range m.beginAll(ts) {
		if end == nil {
			continue // superseded
		}
		if spans[i].Len() > 0 {
			m.told(ts[i].rec, spans[i])
		}
		cuts = append(cuts, fetcher.Cut{Partition: ts[i].rec.Partition, Offset: ts[i].rec.Cut, End: spans[i].To})
		cutting, over = append(cutting, ts[i]), append(over, end)
	}
	if len(cuts) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, t := range cutting {
		defer context.AfterFunc(t.ctx, cancel)() // the others are tried again
	}
	for i, err := range m.destination.Truncate(ctx, cuts) {
		over[i]()
		if ctx.Err() != nil && errors.Is(err, context.Canceled) { // for the sake of another partition
			err = fmt.Errorf("%w: called off: %v", cluster.ErrUnavailable, err)
		}
		if err != nil {
			m.report(cutting[i], coordinator.EventFailed, fmt.Errorf("cut at offset %d: %w", cuts[i].Offset, err))
			continue
		}
		done = append(done, cutting[i])
	}
	return done
}

// told tells of a tail that is about to go (I9), once, however often the cut is tried.
func (m *Mirror) told(rec coordinator.Record, span cluster.Span) {
	if before, ok := m.going.Swap(rec.Partition, span); ok && before == span {
		return
	}
	m.opts.Logger.Warn("destination log is cut", "mirror", m.name, "topic", rec.Partition.Topic,
		"partition", rec.Partition.Partition, "from", span.From, "to", span.To, "why", rec.Alignment)
	m.boards.get(rec.Partition).Truncated.Add(span.Len())
	emit(m.events, m.opts.Events.Truncated, TruncatedEvent{Mirror: m.name, Partition: rec.Partition, Span: span, Why: rec.Alignment})
}

// afterCut finds out where copying goes on in logs that were cut. What shows then
// may be a divergence further back.
func (m *Mirror) afterCut(ctx context.Context, ts []task) {
	for i := range ts { // the cut is made: nothing is known of what stood behind it
		rec := &ts[i].rec
		rec.Position.Offset, rec.Epochs = min(rec.Position.Offset, rec.Cut), rec.Epochs.TruncateFrom(rec.Cut)
	}
	m.alignTasks(ctx, ts, func(t task, a found) {
		switch {
		case a.Err != nil:
			m.report(t, coordinator.EventFailed, fmt.Errorf("alignment after the cut: %w", a.Err))
		case a.Cut >= 0:
			m.part(ctx, t, a)
		default:
			m.going.Delete(t.rec.Partition)
			m.boards.get(t.rec.Partition).LogEnd.Store(a.Next)
			m.compared.Store(t.rec.Partition, struct{}{})
			m.grounds.Store(t.rec.Partition, a.There)
			m.post(t, coordinator.Event{Kind: coordinator.EventCutDone, Epochs: epochs(a), Unproven: a.Unproven})
		}
	})
}

// diverged looks into partitions that have left the fetcher because the source's
// log is not what it was: it finds the offset where the logs part.
func (m *Mirror) diverged(ctx context.Context, ts []divergence) {
	tasks, causes := make([]task, len(ts)), map[cluster.Partition]error{}
	for i, d := range ts {
		tasks[i], causes[d.rec.Partition] = d.task, d.cause
		if s, ok := m.coord.Snapshot(d.rec.Partition); ok {
			tasks[i].rec = s.Record // epochs were added since the fetch began
		}
	}
	m.alignTasks(ctx, tasks, func(t task, a found) {
		switch {
		case a.Err != nil:
			m.report(t, coordinator.EventFailed, a.Err)
		case a.Cut >= 0:
			m.part(ctx, t, a)
		default: // the logs agree after all: look again
			m.report(t, coordinator.EventFailed, fmt.Errorf("%w: source and destination agree up to offset %d, though: %v",
				cluster.ErrUnavailable, a.Next, causes[t.rec.Partition]))
		}
	})
}

// divergence is a partition in which the source's log was found to be another one.
type divergence struct {
	task
	cause error
}

// parted reports whether an error of the fetch says that the logs have parted.
func parted(err error) bool {
	return errors.Is(err, cluster.ErrTruncated) || errors.Is(err, cluster.ErrDiverged)
}
