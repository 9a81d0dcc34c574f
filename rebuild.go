package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// copyAgain is the Cut of a partition that has nothing to cut and goes with its
// topic.
const copyAgain = math.MaxInt64

// partByRebuild has it stored, for every partition of the topic, that the topic is
// to be deleted and copied again: with its id, so that a crash in between does not
// delete the new one, and with the committed offsets that go with it.
func (m *Mirror) partByRebuild(ctx context.Context, t task, a found) {
	fail := func(err error) {
		m.report(t, coordinator.EventFailed, fmt.Errorf("rebuild of topic %s, cut at offset %d: %w", t.rec.Partition.Topic, a.Cut, err))
	}
	if m.can.rebuilder == nil {
		fail(fmt.Errorf("the destination's transport cannot: %w", errors.ErrUnsupported))
		return
	}
	id, was, err := m.can.rebuilder.Describe(ctx, t.rec.Partition.Topic)
	if err != nil {
		fail(err)
		return
	}
	owed, err := m.committedOn(ctx, t.rec.Partition.Topic)
	if err != nil {
		fail(fmt.Errorf("committed offsets: %w", err))
		return
	}
	topic, _ := m.catalog.get(t.rec.Partition.Topic)
	if topic.Partitions <= t.rec.Partition.Partition {
		fail(fmt.Errorf("%w: its partitions are not known yet", cluster.ErrUnavailable))
		return
	}
	others := slices.DeleteFunc(partitionsOf(topic), func(p cluster.Partition) bool { return p == t.rec.Partition })
	m.takeAlong(others, id, &was, owed, fmt.Sprintf("copied again since partition %d was to be cut at offset %d", t.rec.Partition.Partition, a.Cut))
	m.post(t, coordinator.Event{
		Kind: coordinator.EventCutNeeded, Cut: a.Cut, RebuildOf: id, RebuildAs: &was, Restore: upTo(owed[t.rec.Partition], a.Cut), How: a.How,
	})
}

// wholeTopic is what a rebuild is under way for.
func wholeTopic(name string) cluster.Partition { return cluster.Partition{Topic: name, Partition: -1} }

// apart performs tasks that end what is done to partitions. A topic that is being
// deleted and created again is waited for, or it would go after it was said to be
// stopped; that keeps no other topic waiting (I10).
func (m *Mirror) apart(perform func(context.Context, []task)) func(context.Context, []task) {
	return func(ctx context.Context, ts []task) {
		var free []task
		later := map[string][]task{}
		for _, t := range ts {
			if topic := t.rec.Partition.Topic; !t.rec.RebuildOf.IsZero() || m.rebuilding.has(wholeTopic(topic)) {
				later[topic] = append(later[topic], t)
			} else {
				free = append(free, t)
			}
		}
		var under sync.WaitGroup
		for topic, of := range later {
			under.Go(func() {
				if m.rebuilding.wait(ctx, []cluster.Partition{wholeTopic(topic)}) == nil {
					perform(ctx, of)
				}
			})
		}
		if len(free) > 0 {
			perform(ctx, free)
		}
		under.Wait()
	}
}

// rebuild deletes a topic and creates it again, for those of its partitions that
// come to ULE_RECOVERY together. The first that comes does it for all: their cuts
// have been stored, or the topic would not be deleted.
func (m *Mirror) rebuild(ctx context.Context, ts []task) (ready []task) {
	topic := ts[0].rec.Partition.Topic
	end, err := m.rebuilding.begin(ctx, wholeTopic(topic))
	if err != nil {
		return nil // Run ends
	}
	defer end()
	if ts = current(ts); len(ts) == 0 {
		return nil
	}
	if err = m.rebuildOnce(ctx, ts[0]); err != nil {
		for _, t := range ts {
			m.report(t, coordinator.EventFailed, fmt.Errorf("rebuild of topic %s: %w", topic, err))
		}
		return nil
	}
	return ts
}

// rebuildOnce is given up when t is superseded, until the topic is deleted.
func (m *Mirror) rebuildOnce(ctx context.Context, t task) error {
	topic, old, as := t.rec.Partition.Topic, t.rec.RebuildOf, t.rec.RebuildAs
	if m.can.rebuilder == nil || as == nil {
		return fmt.Errorf("the destination's transport cannot: %w", errors.ErrUnsupported)
	}
	id, _, err := m.can.rebuilder.Describe(ctx, topic)
	switch {
	case errors.Is(err, cluster.ErrUnknownTopic): // deleted, and then we crashed
	case err != nil:
		return err
	case id != old:
		return nil // rebuilt before
	default:
		if err := m.readyToRebuild(t.ctx, topic, old, as); errors.Is(err, errNoCut) {
			return nil
		} else if err != nil {
			return err
		}
	}
	_, err = m.can.rebuilder.Rebuild(ctx, topic, old, *as)
	return err
}

// errNoCut: no partition of a topic that was to be rebuilt has anything to cut (any
// more).
var errNoCut = errors.New("there is nothing to cut")

// readyToRebuild saves the tails of all partitions before they go with the topic,
// once it is stored for each of them that it is copied again, and from where.
func (m *Mirror) readyToRebuild(ctx context.Context, topic string, old cluster.TopicID, as *cluster.NewTopic) error {
	t, _ := m.catalog.get(topic)
	ps := partitionsOf(t)
	if err := m.allAlong(ctx, ps, old, as); err != nil {
		return err
	}
	stretches := m.stretches(ps)
	if err := m.fetch.Remove(ctx, ps...); err != nil {
		return err
	}
	if err := m.ownCuts(ctx, ps, old); err != nil {
		return err
	}
	if !slices.ContainsFunc(ps, func(p cluster.Partition) bool { s, _ := m.coord.Snapshot(p); return s.Cut != copyAgain }) {
		return errNoCut
	}
	ends, err := m.destination.Ends(ctx, stretches)
	if err != nil {
		return err
	}
	for i, p := range ps {
		s, _ := m.coord.Snapshot(p)
		span := cluster.Span{From: s.Cut, To: ends[i].LogEnd}
		if err := ends[i].Err; err != nil && !errors.Is(err, cluster.ErrForeignWrite) {
			return fmt.Errorf("%v: %w", p, err)
		}
		if span.Len() == 0 { // nothing there that the source has not
			continue
		}
		if err := m.salvage(ctx, p, span); err != nil {
			return err
		}
		m.told(s.Record, span)
	}
	return m.goes(ps, old) // last: who wants it otherwise from now on waits (apart)
}

// allAlong waits until it is stored for all partitions that they go with their topic.
// Those that refused it when it was decided, or were not there yet, are told again.
func (m *Mirror) allAlong(ctx context.Context, ps []cluster.Partition, old cluster.TopicID, as *cluster.NewTopic) error {
	var late []cluster.Partition
	for _, p := range ps {
		if s, _ := m.coord.Snapshot(p); s.RebuildOf != old && s.Desired != coordinator.WantStopped {
			late = append(late, p)
		}
	}
	if len(late) > 0 {
		owed, err := m.committedOn(ctx, ps[0].Topic)
		if err != nil {
			return fmt.Errorf("committed offsets: %w", err)
		}
		m.takeAlong(late, old, as, owed, "copied again with its topic")
	}
	wait, cancel := context.WithTimeout(ctx, m.opts.GroupTimeout)
	defer cancel()
	err := m.coord.Await(wait, ps, func(s coordinator.Snapshot) bool {
		return s.RebuildOf == old && s.Desired == coordinator.WantMirroring || s.Desired == coordinator.WantStopped
	})
	if err != nil {
		return fmt.Errorf("%w: not all partitions are ready: %w", cluster.ErrUnavailable, err)
	}
	return m.goes(ps, old)
}

// goes reports which partition is not to go with its topic (any more).
func (m *Mirror) goes(ps []cluster.Partition, old cluster.TopicID) error {
	for _, p := range ps {
		s, _ := m.coord.Snapshot(p)
		switch {
		case s.Desired == coordinator.WantStopped:
			return fmt.Errorf("%w: partition %d is %s, and is to be %s", cluster.ErrRefused, p.Partition, s.State, s.Desired)
		case s.RebuildOf != old, s.Desired != coordinator.WantMirroring,
			s.State != coordinator.StateULERecovery && s.State != coordinator.StateFailed && s.State != coordinator.StatePaused:
			return fmt.Errorf("%w: partition %d is %s, and is to be %s", cluster.ErrUnavailable, p.Partition, s.State, s.Desired)
		}
	}
	return nil
}

// takeAlong has it stored that partitions go with their topic.
func (m *Mirror) takeAlong(
	ps []cluster.Partition, id cluster.TopicID, was *cluster.NewTopic, owed map[cluster.Partition][]cluster.GroupOffset, how string,
) {
	for _, p := range ps {
		// One that is stopped, or on its way there, refuses: then the stop is what counts.
		m.coord.Post(coordinator.Event{
			Partition: p, Kind: coordinator.EventCutNeeded, Cut: copyAgain, RebuildOf: id, RebuildAs: was, Restore: owed[p], How: how,
		})
	}
}

// ownCuts finds out whether partitions that merely go with their topic have a tail of
// their own, which nobody has looked for or told yet, and has the cut stored (I9). One
// that may not be cut keeps its topic from being deleted.
func (m *Mirror) ownCuts(ctx context.Context, ps []cluster.Partition, old cluster.TopicID) error {
	var ts []task
	for _, p := range ps {
		if s, _ := m.coord.Snapshot(p); s.Cut == copyAgain {
			ts = append(ts, task{ctx: ctx, rec: s.Record})
		}
	}
	acks := make(chan error, len(ts))
	asked := 0
	var errs []error
	var mu sync.Mutex // of the two above
	m.alignTasks(ctx, ts, func(t task, a found) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case a.Err != nil:
			errs = append(errs, fmt.Errorf("partition %d goes with the topic: %w", t.rec.Partition.Partition, a.Err))
		case a.Cut >= 0:
			asked++
			m.coord.Post(coordinator.Event{
				Partition: t.rec.Partition, Kind: coordinator.EventCutNeeded, Cut: a.Cut, How: a.How, RebuildOf: old,
				RebuildAs: t.rec.RebuildAs, Restore: upTo(t.rec.Restore, a.Cut), Ack: func(err error) { acks <- err },
			})
		}
	})
	for range asked {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-acks:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
