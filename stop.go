package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// stopLook is how often a high watermark that is behind is looked at.
const stopLook = 50 * time.Millisecond

// stopping is one partition on its way to STOPPED.
type stopping struct {
	task
	end fetcher.End
	lmo int64 // first offset not mirrored: the log end, or where others began to write
}

// stopAll performs STOPPING in the order of invariant I6: out of the fetcher,
// drained, high watermark at the log end, group offsets copied, position stored,
// late writers fenced, the leader epoch raised, open transactions aborted, producer
// ids safe, others let in.
func (m *Mirror) stopAll(ctx context.Context, ts []task) {
	ts = current(ts)
	ends, err := m.quiet(ctx, ts)
	if err != nil {
		return // Run ends
	}
	live, untouched := make([]stopping, 0, len(ts)), make([]task, 0, len(ts))
	var over []task // nothing of the mirror can be stopped
	gone := m.goneThere(ctx, ts, ends)
	if ts, ends, err = m.madeAgain(ctx, ts, ends, gone); err != nil {
		return // Run ends
	}
	for i, t := range ts {
		if gone[t.rec.Partition] {
			over = append(over, t)
			continue
		}
		// Another worker, or records of others at the end, do not keep a topic from
		// being stopped: the position is where the log ends.
		if e := ends[i].Err; e != nil && !errors.Is(e, cluster.ErrFenced) && !errors.Is(e, cluster.ErrForeignWrite) && !errors.Is(e, cluster.ErrActive) {
			m.report(t, coordinator.EventFailed, fmt.Errorf("stop: destination log end: %w", e))
			continue
		}
		if errors.Is(ends[i].Err, cluster.ErrActive) {
			m.restoreLast(ctx, []coordinator.Record{t.rec})
			over = append(over, t) // it is another mirror's (I12)
			continue
		}
		if !t.rec.Appended && !t.rec.Aligned && !ends[i].Ours {
			untouched = append(untouched, t)
			continue
		}
		live = append(live, stopping{task: t, end: ends[i], lmo: -1})
		var at *cluster.OffsetError
		if errors.Is(ends[i].Err, cluster.ErrForeignWrite) && errors.As(ends[i].Err, &at) {
			live[len(live)-1].lmo = at.Span.From
		}
	}
	m.stopped(ctx, over)
	m.handBack(ctx, untouched)
	live = m.replicated(ctx, live)
	m.restoreLast(ctx, recordsOf(live))
	m.copyGroups(ctx, live)
	live = m.storePositions(ctx, live)
	m.settleAll(ctx, live)
}

// handBack ends the stop of partitions in which nothing is this mirror's (I12). Where
// clients are kept out of mirror topics, alignment may have begun a stretch already, and
// that has to end.
func (m *Mirror) handBack(ctx context.Context, ts []task) {
	if len(ts) == 0 {
		return
	}
	ps := make([]cluster.Partition, len(ts))
	for i, t := range ts {
		ps[i] = t.rec.Partition
	}
	errs := make([]error, len(ts))
	if m.traits.ReadOnly {
		errs = m.fenceLate(ctx, ps)
	}
	m.putBack(ctx, ps)
	var back []task
	for i, t := range ts {
		if errs[i] != nil {
			m.report(t, coordinator.EventFailed, fmt.Errorf("stop: fence: %w", errs[i]))
			continue
		}
		m.restoreLast(ctx, []coordinator.Record{t.rec})
		back = append(back, t)
	}
	m.stopped(ctx, back)
}

// stopped ends the stop of partitions for which nothing else is left to be done.
func (m *Mirror) stopped(ctx context.Context, ts []task) {
	ps := make([]cluster.Partition, len(ts))
	for i, t := range ts {
		ps[i] = t.rec.Partition
	}
	for i, err := range m.unguard(ctx, ps) {
		if err != nil {
			m.report(ts[i], coordinator.EventFailed, fmt.Errorf("stop: take the guard away: %w", err))
			continue
		}
		m.report(ts[i], coordinator.EventStopped, nil)
	}
}

// goneThere are the partitions that the destination says it does not have. Leaders may
// not know a topic yet, or not say so: the list of topics is what counts.
func (m *Mirror) goneThere(ctx context.Context, ts []task, ends []fetcher.End) map[cluster.Partition]bool {
	var unknown []cluster.Partition
	for i, t := range ts {
		if errors.Is(ends[i].Err, cluster.ErrUnknownTopic) {
			unknown = append(unknown, t.rec.Partition)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	there, err := m.destination.Topics(ctx)
	if err != nil {
		return nil
	}
	has := make(map[string]int32, len(there))
	for _, t := range there {
		has[t.Name] = t.Partitions
	}
	gone := map[cluster.Partition]bool{}
	for _, p := range unknown {
		gone[p] = p.Partition >= has[p.Topic]
	}
	return gone
}

func partitionsIn(recs []coordinator.Record) []cluster.Partition {
	ps := make([]cluster.Partition, len(recs))
	for i, r := range recs {
		ps[i] = r.Partition
	}
	return ps
}

func recordsOf(ss []stopping) []coordinator.Record {
	recs := make([]coordinator.Record, len(ss))
	for i, s := range ss {
		recs[i] = s.rec
	}
	return recs
}

// replicated waits until every log end is below its high watermark.
func (m *Mirror) replicated(ctx context.Context, ss []stopping) []stopping {
	tick := time.NewTicker(stopLook)
	defer tick.Stop()
	for tries := 0; ; tries++ {
		var behind []int
		for i, s := range ss {
			if s.end.HighWatermark < s.end.LogEnd {
				behind = append(behind, i)
			}
		}
		if len(behind) == 0 || ctx.Err() != nil {
			return ss
		}
		if time.Duration(tries)*stopLook > m.opts.GroupTimeout {
			return m.unreplicated(ss)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		stretches := make([]fetcher.Stretch, len(behind))
		for i, b := range behind {
			stretches[i] = m.thisStretch(ss[b].rec)
		}
		if ends, err := m.destination.Ends(ctx, stretches); err == nil {
			for i, b := range behind {
				if ends[i].Err == nil || errors.Is(ends[i].Err, cluster.ErrFenced) || errors.Is(ends[i].Err, cluster.ErrForeignWrite) {
					ss[b].end = ends[i]
				}
			}
		}
	}
}

// unreplicated reports those whose followers do not follow; the stop is tried
// again.
func (m *Mirror) unreplicated(ss []stopping) (ready []stopping) {
	for _, s := range ss {
		if s.end.HighWatermark >= s.end.LogEnd {
			ready = append(ready, s)
			continue
		}
		m.report(s.task, coordinator.EventFailed, fmt.Errorf("stop: %w: high watermark %d stays below log end %d",
			cluster.ErrUnavailable, s.end.HighWatermark, s.end.LogEnd))
	}
	return ready
}

// storePositions has the positions written down before anything local can be
// appended.
func (m *Mirror) storePositions(ctx context.Context, ss []stopping) (stored []stopping) {
	acks := make([]chan error, len(ss))
	for i, s := range ss {
		ack := make(chan error, 1)
		acks[i] = ack
		if s.lmo < 0 {
			s.lmo = s.end.LogEnd
		}
		if s.end.Stopped && s.rec.HasPosition { // an earlier try came as far as the fence
			ack <- nil
			continue
		}
		m.coord.Post(coordinator.Event{
			Partition: s.rec.Partition, Kind: coordinator.EventPositionRead, Seq: s.effect.Seq,
			Position: &cluster.Position{Epoch: s.rec.Epochs.At(s.lmo - 1), Offset: s.lmo},
			Ack:      func(err error) { ack <- err },
		})
	}
	for i, ack := range acks {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ack:
			if err == nil {
				stored = append(stored, ss[i])
			}
		}
	}
	return stored
}

// settleAll makes the topic an ordinary one, step by step, and reports STOPPED. A
// partition that fails at a step comes back: each can be repeated.
func (m *Mirror) settleAll(ctx context.Context, ss []stopping) {
	for _, step := range []struct {
		what string
		do   func(context.Context, []cluster.Partition) []error
	}{
		{"fence", m.fenceLate},
		{"raise the leader epoch", m.raiseAtStop},
		{"abort open transactions", m.abortOpen},
		{"make producer ids safe", m.guardProducers},
		{"take the guard away", m.unguard},
	} {
		if len(ss) == 0 {
			return
		}
		ps := make([]cluster.Partition, len(ss))
		for i, s := range ss {
			ps[i] = s.rec.Partition
		}
		live := make([]stopping, 0, len(ss))
		var refused []cluster.Partition
		for i, err := range step.do(ctx, ps) {
			if err != nil {
				if errors.Is(err, cluster.ErrAuthorization) {
					refused = append(refused, ps[i])
				}
				m.report(ss[i].task, coordinator.EventFailed, fmt.Errorf("stop: %s: %w", step.what, err))
				continue
			}
			live = append(live, ss[i])
		}
		m.unguard(ctx, refused) // it may be the guard that refuses us: the next try has to come through
		ss = live
	}
	m.putBack(ctx, partitionsIn(recordsOf(ss)))
	for _, s := range ss {
		m.boards.get(s.rec.Partition).LogEnd.Store(s.end.LogEnd)
		m.report(s.task, coordinator.EventStopped, nil)
	}
}

// fenceLate locks late writers of ours out.
func (m *Mirror) fenceLate(ctx context.Context, ps []cluster.Partition) []error {
	errs := make([]error, len(ps))
	if m.can.fencer == nil {
		return errs
	}
	ends, err := m.can.fencer.Fence(ctx, m.stretches(ps))
	for i := range errs {
		if errs[i] = err; err == nil {
			errs[i] = ends[i].Err
		}
	}
	return errs
}

// raiseAtStop brings the destination's leader epoch above all that was mirrored, so
// that what is written from now on is told from the source's records (I5).
func (m *Mirror) raiseAtStop(ctx context.Context, ps []cluster.Partition) []error {
	if m.can.raiser == nil || !m.traits.KeepsEpochs {
		return make([]error, len(ps))
	}
	raises := make([]fetcher.EpochRaise, len(ps))
	for i, p := range ps {
		raises[i] = fetcher.EpochRaise{Partition: p, Epoch: epochLead}
		if s, ok := m.coord.Snapshot(p); ok && s.HasPosition {
			raises[i].Epoch += max(s.Position.Epoch, 0)
		}
	}
	return m.can.raiser.RaiseEpochs(ctx, raises)
}

// abortOpen ends transactions that the source left open.
func (m *Mirror) abortOpen(ctx context.Context, ps []cluster.Partition) []error {
	errs := make([]error, len(ps))
	if m.can.aborter == nil || !m.traits.ControlBatches {
		return errs
	}
	answers, err := m.can.aborter.AbortOpen(ctx, ps)
	for i := range errs {
		if errs[i] = err; err == nil {
			errs[i] = answers[i].Err
		}
		if errs[i] == nil && len(answers[i].Producers) > 0 {
			emit(m.events, m.opts.Events.Aborted, AbortedEvent{Mirror: m.name, Partition: ps[i], Producers: answers[i].Producers})
		}
	}
	return errs
}

func (m *Mirror) guardProducers(ctx context.Context, ps []cluster.Partition) []error {
	if m.can.guard == nil {
		return make([]error, len(ps))
	}
	return m.can.guard.GuardProducers(ctx, ps)
}
