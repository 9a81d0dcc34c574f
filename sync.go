package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// syncTopics is one round of SyncTopics.
func (m *Mirror) syncTopics(ctx context.Context) (out outcome, err error) {
	stopErr := m.adoptStops(ctx)
	m.restore(ctx, m.owed(coordinator.StateStopped), true) // a stop does not wait for it
	if err := m.identify(ctx); err != nil {
		return outcome{}, err
	}
	fresh, err := m.fresh(ctx)
	if err != nil {
		return outcome{}, err
	}
	filter := m.filterNow()
	syncer := topics.Syncer{Source: m.source, Destination: m.destination, Held: m.held, Required: m.required()}
	if m.configs != nil {
		syncer.Claim = m.configs.Claim
	}
	res, err := syncer.Sync(ctx, filter)
	if err != nil {
		return outcome{}, err
	}
	for _, name := range res.Created {
		m.configured.Store(name, time.Now())
	}
	for _, name := range res.Bare {
		m.configured.Store(name, time.Time{})
	}
	for _, name := range res.Created {
		emit(m.events, m.opts.Events.Topic, TopicEvent{Mirror: m.name, Topic: name})
	}
	for _, name := range res.Grown {
		emit(m.events, m.opts.Events.Topic, TopicEvent{Mirror: m.name, Topic: name, Grown: true})
	}
	for name, err := range res.Refused {
		if m.newlyRefused(name, err) {
			m.opts.Logger.Warn("topic refused", "mirror", m.name, "topic", name, "err", err)
			emit(m.events, m.opts.Events.Topic, TopicEvent{Mirror: m.name, Topic: name, Err: err})
		}
	}
	for _, t := range m.catalog.seen(res, time.Now(), m.opts.SyncInterval) {
		for _, p := range partitionsOf(t) {
			m.fail(p, fmt.Errorf("%w: source topic %s", cluster.ErrTopicDeleted, t.Name))
		}
	}
	m.warnNameless(res.Ready)
	if m.admit(ctx, res.Ready, fresh) {
		m.kickOthers(SyncTopics)
	}
	m.watchTopics(res.There)
	m.catalog.looked(fresh, res.Refused)
	if matched := len(res.Ready) + len(res.Refused); matched == 0 && !filter.Empty() {
		out.notes = []string{"0 topics matched"}
	}
	return outcome{
		notes: out.notes, again: len(res.Refused) > 0 || stopErr != nil, refused: res.Refused,
		done: map[string]int64{"created": int64(len(res.Created)), "grown": int64(len(res.Grown))},
		seen: map[string]int64{"matched": int64(len(res.Ready) + len(res.Refused)), "missing": int64(len(res.Missing))},
	}, nil
}

func (m *Mirror) newlyRefused(name string, err error) bool {
	m.catalog.mu.Lock()
	defer m.catalog.mu.Unlock()
	old := m.catalog.refused[name]
	return old == nil || old.Error() != err.Error()
}

// filterNow is a copy of the filter: operators may change it meanwhile.
func (m *Mirror) filterNow() *topics.Filter {
	m.catalog.mu.Lock()
	defer m.catalog.mu.Unlock()
	return m.catalog.filter.Clone()
}

// identify makes sure that both addresses still lead to the clusters they led to
// at first, and that those are two.
func (m *Mirror) identify(ctx context.Context) error {
	source, err := m.source.ID(ctx)
	if err != nil {
		return fmt.Errorf("source cluster id: %w", err)
	}
	dest, err := m.destination.ID(ctx)
	if err != nil {
		return fmt.Errorf("destination cluster id: %w", err)
	}
	if source == dest && source != "" {
		return fmt.Errorf("%w: id %s", ErrSameCluster, source)
	}
	pinnedSource, pinnedDest := m.catalog.pin(source, dest)
	for _, end := range []struct{ what, now, pinned string }{
		{"source", source, pinnedSource}, {"destination", dest, pinnedDest},
	} {
		if end.now != end.pinned {
			err := fmt.Errorf("%w: %s id is %s, was %s", cluster.ErrClusterReplaced, end.what, end.now, end.pinned)
			for _, s := range m.coord.All() {
				if s.Desired != coordinator.WantStopped { // a stop goes on: it needs the destination alone
					m.fail(s.Partition, err)
				}
			}
			return err
		}
	}
	return nil
}

func (m *Mirror) fail(p cluster.Partition, err error) {
	m.coord.Post(coordinator.Event{Partition: p, Kind: coordinator.EventFailed, Err: err})
}

// fresh are the entries of topics that do not count as found later.
func (m *Mirror) fresh(ctx context.Context) ([]string, error) {
	if m.opts.Start == (Start{}) { // it makes no difference
		return []string{".*"}, nil
	}
	if err := m.onRecord(ctx); err != nil {
		return nil, err
	}
	return m.catalog.freshNow(), nil
}

// warnNameless says once what a source without topic ids cannot tell.
func (m *Mirror) warnNameless(ready []cluster.Topic) {
	if slices.ContainsFunc(ready, func(t cluster.Topic) bool { return t.ID.IsZero() }) {
		m.nameless.Do(func() {
			m.opts.Logger.Warn("the source has no topic ids (before Kafka 2.8): a topic that is deleted, created again and filled beyond its "+
				"old end while a broker holds one fetch is not noticed", "mirror", m.name)
		})
	}
}

// admit begins what is wanted of topics that are new (fresh: those that do not count as
// found later), and looks at the ends of
// partitions that are not being copied, so that their lag shows too. changed says that
// topics were new, or others than they were.
func (m *Mirror) admit(ctx context.Context, ready []cluster.Topic, fresh []string) (changed bool) {
	var idle, busy []cluster.Partition
	for _, t := range ready {
		later := m.catalog.later(t.Name, fresh)
		if m.catalog.put(t) {
			changed = true
			desired, revision := coordinator.WantMirroring, int64(0)
			if in, ok := m.coord.Intent(t.Name); ok {
				desired, revision = in.Desired, in.Revision
			}
			m.want(t, desired, revision, later)
		}
		for _, p := range partitionsOf(t) {
			if s, ok := m.coord.Snapshot(p); !ok || s.State != coordinator.StateMirroring {
				idle = append(idle, p)
			} else {
				busy = append(busy, p)
			}
		}
	}
	m.lookAtEnds(ctx, idle)
	m.watchEnds(ctx, busy)
	m.watchProducers()
	m.watchSources(ctx, busy)
	if low := m.near(ctx, busy); len(low) > 0 {
		m.raiseAhead(ctx, low)
	}
	m.restore(ctx, m.owed(coordinator.StateMirroring), false)
	return changed
}

// want posts what is wanted of every partition of a topic. A partition that
// refuses because the topic or the cluster is another one fails.
func (m *Mirror) want(t cluster.Topic, desired coordinator.Desired, revision int64, later bool) {
	var sources []string
	if id, _ := m.catalog.pin("", ""); id != "" {
		sources = []string{id}
	}
	for _, p := range partitionsOf(t) {
		m.coord.Post(coordinator.Event{
			Partition: p, Kind: coordinator.EventWant, Desired: desired, TopicID: t.ID, Sources: sources, Revision: revision, Later: later,
			Ack: func(err error) {
				if errors.Is(err, cluster.ErrTopicReplaced) || errors.Is(err, cluster.ErrClusterReplaced) {
					m.fail(p, err)
				}
			},
		})
	}
}

// lookAtEnds reads the ends of partitions that nobody fetches.
func (m *Mirror) lookAtEnds(ctx context.Context, ps []cluster.Partition) {
	if len(ps) == 0 {
		return
	}
	if answers, err := m.source.Offsets(ctx, ps); err == nil {
		for i, a := range answers {
			if a.Err == nil {
				m.boards.get(ps[i]).Source.Store(a.HighWatermark)
				m.boards.get(ps[i]).LogStart.Store(a.LogStart)
			}
		}
	}
	if answers, err := m.destination.Offsets(ctx, ps); err == nil {
		for i, a := range answers {
			if a.Err == nil {
				m.boards.get(ps[i]).Seen.Store(a.HighWatermark)
			}
		}
	}
}

// adoptStops brings topics to STOPPED that were to be stopped before anything was
// known of them. Only the destination is asked, and of its topics only those are
// taken that belong to the mirror or are called by their names; a log that shows
// nothing of this mirror is left alone (I12).
func (m *Mirror) adoptStops(ctx context.Context) error {
	m.catalog.mu.Lock()
	stops := slices.Clone(m.catalog.stops)
	m.catalog.mu.Unlock()
	if len(stops) == 0 {
		return nil
	}
	there, err := m.destination.Topics(ctx)
	if err != nil {
		return fmt.Errorf("destination topics: %w", err)
	}
	m.catalog.mu.Lock()
	var found []cluster.Topic
	var names []string
	for _, t := range there {
		if hit, _ := topics.Select(stops, []string{t.Name}); len(hit) > 0 && m.catalog.topics[t.Name] == nil &&
			(m.catalog.filter.Includes(t.Name) || slices.Contains(stops, t.Name)) {
			t.ID = cluster.TopicID{} // the destination's; the source's is not known
			found, names = append(found, t), append(names, t.Name)
			m.catalog.note(t) // at once: another call that finds no stop left finds the topic
		}
	}
	m.catalog.stops = slices.DeleteFunc(m.catalog.stops, func(e string) bool { return slices.Contains(stops, e) })
	err = m.catalog.filter.Exclude(names...)
	m.catalog.mu.Unlock()
	_, stored := m.intend(ctx, "stop", names, coordinator.WantStopped)
	err = errors.Join(err, stored)
	for _, t := range found {
		m.want(t, coordinator.WantMirroring, 0, false) // so that what stands there is taken as ours, and fenced
		m.want(t, coordinator.WantStopped, 0, false)
	}
	return err
}
