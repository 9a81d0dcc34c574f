package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// madeAgain creates topics that a rebuild has deleted and did not come to create: what
// is stopped is there afterwards, for clients to write to. The tasks that are left have
// ends.
func (m *Mirror) madeAgain(
	ctx context.Context, ts []task, ends []fetcher.End, gone map[cluster.Partition]bool,
) ([]task, []fetcher.End, error) {
	failures := map[string]error{}
	for _, t := range ts {
		topic := t.rec.Partition.Topic
		if _, done := failures[topic]; done || !gone[t.rec.Partition] || t.rec.RebuildOf.IsZero() || t.rec.RebuildAs == nil || m.can.rebuilder == nil {
			continue
		}
		failures[topic] = nil
		_, _, err := m.can.rebuilder.Describe(ctx, topic)
		if errors.Is(err, cluster.ErrUnknownTopic) { // seen twice: only what is gone is not deleted by it
			_, err = m.can.rebuilder.Rebuild(ctx, topic, t.rec.RebuildOf, *t.rec.RebuildAs)
		}
		failures[topic] = err
	}
	if len(failures) == 0 {
		return ts, ends, nil
	}
	var left []task
	for _, t := range ts {
		if err := failures[t.rec.Partition.Topic]; err != nil {
			m.report(t, coordinator.EventFailed, fmt.Errorf("stop: topic %s was deleted to be copied again, and is not created: %w", t.rec.Partition.Topic, err))
			continue
		}
		if _, made := failures[t.rec.Partition.Topic]; made {
			delete(gone, t.rec.Partition)
		}
		left = append(left, t)
	}
	ends, err := m.quiet(ctx, left)
	return left, ends, err
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

// owed are the partitions in a state that owe committed offsets to groups.
func (m *Mirror) owed(state coordinator.State) (recs []coordinator.Record) {
	for _, s := range m.coord.All() {
		if len(s.Restore) > 0 && s.State == state {
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
				if rec.State == coordinator.StateStopped { // what was written here nobody has read
					end = min(end, max(stoppedAt(rec), answers[0].LogStart))
				}
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

// restoreLast is restore at a stop. It is bounded in time, and its failure is none of
// the stop: a sync goes on with it.
func (m *Mirror) restoreLast(ctx context.Context, recs []coordinator.Record) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.GroupTimeout)
	defer cancel()
	m.restore(ctx, recs, true)
}

// stoppedAt is where the last stretch ended, 0 when it had not come to append.
func stoppedAt(rec coordinator.Record) int64 {
	if !rec.Aligned || !rec.HasPosition {
		return 0
	}
	return rec.Position.Offset
}

// restoreOne commits what is owed up to an offset. A group that has members by now,
// or has committed by itself, is left alone (I11).
func (m *Mirror) restoreOne(ctx context.Context, rec coordinator.Record, upTo int64) error {
	var errs []error
	for _, o := range rec.Restore {
		if o.Offset > upTo {
			continue
		}
		have, err := m.standing(ctx, o.Share, []string{o.Group})
		if err == nil {
			err = have[0].Err
		}
		if err == nil && slices.ContainsFunc(have[0].Offsets, func(c cluster.Committed) bool { return c.Partition == rec.Partition && c.Offset >= 0 }) {
			continue
		}
		if err == nil {
			err = m.place(ctx, rec.Partition, o, o.Offset)
		}
		if err != nil && !errors.Is(err, cluster.ErrRefused) {
			errs = append(errs, fmt.Errorf("group %s: %w", o.Group, err))
		}
	}
	return errors.Join(errs...)
}
