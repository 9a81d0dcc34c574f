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
	"github.com/clustermirror/mirror/fetcher"
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
	for _, p := range partitionsOf(topic) {
		if p != t.rec.Partition {
			// One that is stopped, or on its way there, refuses: then the stop is what counts.
			m.coord.Post(coordinator.Event{Partition: p, Kind: coordinator.EventCutNeeded, Cut: copyAgain, RebuildOf: id, RebuildAs: &was, Restore: owed[p],
				How: fmt.Sprintf("copied again since partition %d was to be cut at offset %d", t.rec.Partition.Partition, a.Cut)})
		}
	}
	m.post(t, coordinator.Event{
		Kind: coordinator.EventCutNeeded, Cut: a.Cut, RebuildOf: id, RebuildAs: &was, Restore: upTo(owed[t.rec.Partition], a.Cut), How: a.How,
	})
}

// committedOn gives what groups have committed on a topic of the destination.
func (m *Mirror) committedOn(ctx context.Context, topic string) (map[cluster.Partition][]cluster.GroupOffset, error) {
	groups, err := m.destination.Groups(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, g := range groups {
		if g.Type != "share" {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	out := map[cluster.Partition][]cluster.GroupOffset{}
	if len(names) == 0 {
		return out, nil
	}
	answers, err := m.destination.Committed(ctx, names)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if err := answers[i].Err; err != nil {
			return nil, fmt.Errorf("group %s: %w", name, err)
		}
		for _, c := range answers[i].Offsets {
			if c.Partition.Topic == topic && c.Offset >= 0 {
				out[c.Partition] = append(out[c.Partition], cluster.GroupOffset{Group: name, Offset: c.Offset, Metadata: c.Metadata})
			}
		}
	}
	return out, nil
}

// rebuild deletes a topic and creates it again, for those of its partitions that
// come to ULE_RECOVERY together. The first that comes does it for all: their cuts
// have been stored, or the topic would not be deleted.
func (m *Mirror) rebuild(ctx context.Context, ts []task) (ready []task) {
	topic, old, as := ts[0].rec.Partition.Topic, ts[0].rec.RebuildOf, ts[0].rec.RebuildAs
	end, err := m.rebuilding.begin(ctx, cluster.Partition{Topic: topic, Partition: -1})
	if err != nil {
		return nil // Run ends
	}
	defer end()
	if err = m.rebuildOnce(ctx, topic, old, as); err != nil {
		for _, t := range ts {
			m.report(t, coordinator.EventFailed, fmt.Errorf("rebuild of topic %s: %w", topic, err))
		}
		return nil
	}
	return ts
}

func (m *Mirror) rebuildOnce(ctx context.Context, topic string, old cluster.TopicID, as *cluster.NewTopic) error {
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
		if err := m.readyToRebuild(ctx, topic, old); err != nil {
			return err
		}
	}
	_, err = m.can.rebuilder.Rebuild(ctx, topic, old, *as)
	return err
}

// readyToRebuild saves the tails of all partitions before they go with the topic,
// once it is stored for each of them that it is copied again, and from where.
func (m *Mirror) readyToRebuild(ctx context.Context, topic string, old cluster.TopicID) error {
	t, _ := m.catalog.get(topic)
	ps := partitionsOf(t)
	stored := func(s coordinator.Snapshot) bool { return s.RebuildOf == old || s.State == coordinator.StateStopped }
	wait, cancel := context.WithTimeout(ctx, m.opts.GroupTimeout)
	defer cancel()
	if err := m.coord.Await(wait, ps, stored); err != nil {
		return fmt.Errorf("%w: not all partitions are ready: %w", cluster.ErrUnavailable, err)
	}
	stretches := make([]fetcher.Stretch, len(ps))
	for i, p := range ps {
		if s, _ := m.coord.Snapshot(p); s.RebuildOf != old {
			return fmt.Errorf("%w: partition %d is stopped", cluster.ErrRefused, p.Partition)
		}
		stretches[i] = fetcher.Stretch{Mirror: m.name, Partition: p}
	}
	if err := m.fetch.Remove(ctx, ps...); err != nil {
		return err
	}
	if err := m.ownCuts(ctx, ps, old); err != nil {
		return err
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
	return nil
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

// upTo holds committed offsets below a cut: what a group has read behind it is gone,
// and what comes there instead the group has not read.
func upTo(owed []cluster.GroupOffset, cut int64) []cluster.GroupOffset {
	owed = slices.Clone(owed)
	for i := range owed {
		owed[i].Offset = min(owed[i].Offset, cut)
	}
	return owed
}

// held are the topics that are being rebuilt, by whichever worker: a sync that finds
// one of them deleted must not create it, as it does not know how it was.
func (m *Mirror) held(ctx context.Context) (map[string]bool, error) {
	recs, err := m.opts.Store.Load(ctx, m.name)
	held := map[string]bool{}
	for _, rec := range recs {
		if !rec.RebuildOf.IsZero() {
			held[rec.Partition.Topic] = true
		}
	}
	return held, err
}

// owed are the partitions that are being copied and owe committed offsets to groups.
func (m *Mirror) owed() (recs []coordinator.Record) {
	for _, s := range m.coord.All() {
		if len(s.Restore) > 0 && s.State == coordinator.StateMirroring {
			recs = append(recs, s.Record)
		}
	}
	return recs
}

// restore gives committed offsets back that a rebuild took, as far as the logs have
// come again. The last time, when the topic leaves the mirror, those beyond its end
// are committed at the end.
func (m *Mirror) restore(ctx context.Context, recs []coordinator.Record, last bool) {
	for _, rec := range recs {
		if len(rec.Restore) == 0 {
			continue
		}
		answers, err := m.destination.Offsets(ctx, []cluster.Partition{rec.Partition})
		if err == nil {
			err = answers[0].Err
		}
		var end int64
		if err == nil {
			if end = answers[0].HighWatermark; last {
				rec.Restore, end = upTo(rec.Restore, end), copyAgain
			}
			err = m.restoreOne(ctx, rec, end)
		}
		if err != nil { // the next look tries again
			m.opts.Logger.Warn("committed offsets not restored", "mirror", m.name, "topic", rec.Partition.Topic,
				"partition", rec.Partition.Partition, "err", err)
			continue
		}
		m.coord.Post(coordinator.Event{Partition: rec.Partition, Kind: coordinator.EventRestored, Start: end})
	}
}

// restoreOne commits what is owed up to an offset. A group that has members by now,
// or has committed by itself, is left alone (I11).
func (m *Mirror) restoreOne(ctx context.Context, rec coordinator.Record, upTo int64) error {
	var errs []error
	for _, o := range rec.Restore {
		if o.Offset > upTo {
			continue
		}
		have, err := m.destination.Committed(ctx, []string{o.Group})
		if err == nil {
			err = have[0].Err
		}
		if err == nil && slices.ContainsFunc(have[0].Offsets, func(c cluster.Committed) bool { return c.Partition == rec.Partition && c.Offset >= 0 }) {
			continue
		}
		if err == nil {
			err = m.destination.Commit(ctx, o.Group, []cluster.Committed{{Partition: rec.Partition, Offset: o.Offset, Metadata: o.Metadata}})
		}
		if err != nil && !errors.Is(err, cluster.ErrRefused) {
			errs = append(errs, fmt.Errorf("group %s: %w", o.Group, err))
		}
	}
	return errors.Join(errs...)
}
