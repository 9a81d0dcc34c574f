package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// required are the settings that the destination needs while it is mirrored to: one that
// takes what replicas hand each other needs none.
func (m *Mirror) required() []cluster.TopicConfig {
	if m.traits.ControlBatches {
		return nil
	}
	return topics.Validated()
}

// newConfigs is nil where the destination's topics have no settings.
func (m *Mirror) newConfigs() *topics.Configs {
	settings, ok := m.destination.(topics.Settings)
	if !ok {
		return nil
	}
	notes, ok := m.opts.Store.(coordinator.Notes)
	if !ok {
		notes = coordinator.NewMemory()
	}
	return topics.NewConfigs(m.source, settings, ownedNotes{notes, m.name}, m.required())
}

// syncConfigs is one round of SyncConfigs.
func (m *Mirror) syncConfigs(ctx context.Context) (out outcome, err error) {
	if m.configs == nil {
		return outcome{idle: "the destination's topics have no settings"}, nil
	}
	if err := m.onRecord(ctx); err != nil {
		return out, err
	}
	ours, stopped := m.settled()
	back, err := m.configs.PutBack(ctx, stopped)
	out.done = m.altered(back, "putBack")
	if m.opts.NoConfigs {
		out.idle, out.refused = "switched off (Options.NoConfigs)", back.Refused
		return out, err
	}
	if err != nil {
		return out, err
	}
	r, err := m.configs.Sync(ctx, ours)
	for what, n := range m.altered(r, "") {
		out.done[what] += n
	}
	if err != nil {
		return out, err
	}
	m.differences.Store(&r.Differences)
	m.freed(r)
	out.seen, out.refused = map[string]int64{"topics": int64(len(r.Compared))}, r.Refused
	for name, err := range back.Refused {
		out.refused[name] = err
	}
	for _, err := range out.refused {
		out.again = out.again || !errors.Is(err, cluster.ErrRefused) && !errors.Is(err, cluster.ErrAuthorization)
	}
	out.notes = configNotes(r)
	return out, nil
}

func configNotes(r topics.ConfigReport) (notes []string) {
	for _, name := range r.Unknown {
		notes = append(notes, fmt.Sprintf("setting %s of the source is not known at the destination: skipped", name))
	}
	for _, d := range r.Differences {
		notes = append(notes, fmt.Sprintf("%s is %s at the source by default and %s at the destination: not copied", d.Name, orNothing(d.Source), orNothing(d.Destination)))
	}
	return notes
}

func orNothing(value string) string { return cmp.Or(value, "nothing") }

// settled gives the topics whose settings are kept in step, and those that have left the
// mirror. Of the former something is the mirror's at the destination (I12).
func (m *Mirror) settled() (ours, stopped []string) {
	type is struct{ ours, rest bool }
	of := map[string]is{}
	for _, s := range m.coord.All() {
		t := of[s.Partition.Topic]
		t.rest = t.rest || s.State != coordinator.StateStopped
		t.ours = t.ours || s.Aligned && s.State != coordinator.StateStopped && s.Desired != coordinator.WantStopped && s.RebuildOf.IsZero()
		of[s.Partition.Topic] = t
	}
	m.catalog.mu.Lock()
	defer m.catalog.mu.Unlock()
	for name, t := range of {
		switch e := m.catalog.topics[name]; {
		case !t.rest:
			stopped = append(stopped, name)
		case t.ours && e != nil && e.absent.IsZero() && m.catalog.filter.Matches(name):
			ours = append(ours, name)
		}
	}
	slices.Sort(ours)
	slices.Sort(stopped)
	return ours, stopped
}

// altered tells of changes and counts them; as names what all of them are.
func (m *Mirror) altered(r topics.ConfigReport, as string) map[string]int64 {
	done, byTopic := map[string]int64{}, map[string][]topics.Altered{}
	for _, a := range r.Altered {
		byTopic[a.Topic] = append(byTopic[a.Topic], a)
		switch {
		case as != "":
			done[as]++
		case a.Drift:
			done["drift"]++
		case a.To == nil:
			done["removed"]++
		default:
			done["set"]++
		}
	}
	for name, changes := range byTopic {
		emit(m.events, m.opts.Events.Config, ConfigEvent{Mirror: m.name, Topic: name, Changes: changes})
	}
	return done
}

// freed tries partitions again that waited for a larger limit.
func (m *Mirror) freed(r topics.ConfigReport) {
	for _, a := range r.Altered {
		if a.Name != "max.message.bytes" {
			continue
		}
		for _, p := range m.partitionsOf([]string{a.Topic}) {
			if s, ok := m.coord.Snapshot(p); ok && s.State == coordinator.StateFailed && errors.Is(s.Err, cluster.ErrTooLarge) {
				m.coord.Post(coordinator.Event{Partition: p, Kind: coordinator.EventRecover})
			}
		}
	}
}

// An alignment is a partition whose logs were compared, and what was found.
type alignment struct {
	task  task
	found found
}

// inStep is how long settings at least count as in step that were a moment ago.
const inStep = time.Minute

// first reports whether settings have to be looked at before the first record of a
// partition is copied: with those that a topic of before had they could be deleted at
// once. Topics that were created a moment ago have them.
func (m *Mirror) first(t task) bool {
	if m.configs == nil || t.rec.Appended {
		return false
	}
	at, ok := m.configured.Load(t.rec.Partition.Topic)
	if ok && at.(time.Time).IsZero() { // created without them
		return true
	}
	return !m.opts.NoConfigs && (!ok || time.Since(at.(time.Time)) > max(m.opts.ConfigInterval, inStep))
}

// configureAll brings the settings of topics in step that are about to be copied.
func (m *Mirror) configureAll(ctx context.Context, all []alignment) {
	ps := make([]cluster.Partition, len(all))
	for i, a := range all {
		ps[i] = a.task.rec.Partition
	}
	names := topicsIn(ps)
	bounded, cancel := context.WithTimeout(ctx, m.opts.AlignmentTimeout)
	defer cancel()
	r, err := m.configs.Sync(bounded, names)
	m.kind(SyncConfigs).did(m.altered(r, ""))
	for _, name := range names {
		if err == nil && r.Compared[name] && r.Lasting[name] == nil {
			m.configured.Store(name, time.Now())
		}
	}
	for _, a := range all {
		switch name := a.task.rec.Partition.Topic; {
		case err != nil:
			m.report(a.task, coordinator.EventFailed, fmt.Errorf("alignment: %w", err))
		case r.Lasting[name] != nil:
			m.report(a.task, coordinator.EventFailed, fmt.Errorf("alignment: settings that records depend on: %w", r.Lasting[name]))
		case !r.Compared[name]:
			m.report(a.task, coordinator.EventFailed, fmt.Errorf("alignment: %w: topic %s: settings are not told yet", cluster.ErrUnavailable, name))
		default:
			m.aligned(a.task, a.found)
		}
	}
}

// topicsIn are the topics of partitions, by name.
func topicsIn(ps []cluster.Partition) []string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.Topic
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// putBack takes from topics all of whose partitions leave the mirror, or have left it,
// what the destination required of them. It is bounded in time, and its failure is none
// of the stop: rounds of SyncConfigs go on with it.
func (m *Mirror) putBack(ctx context.Context, leaving []cluster.Partition) {
	if m.configs == nil || len(leaving) == 0 || len(m.required()) == 0 {
		return
	}
	for _, p := range leaving { // before the others are looked at: whoever comes last sees all
		m.left.Store(p, struct{}{})
	}
	names := slices.DeleteFunc(topicsIn(leaving), func(name string) bool {
		return slices.ContainsFunc(m.partitionsOf([]string{name}), func(p cluster.Partition) bool {
			_, left := m.left.Load(p)
			s, _ := m.coord.Snapshot(p)
			return !left && s.State != coordinator.StateStopped
		})
	})
	ctx, cancel := context.WithTimeout(ctx, m.opts.GroupTimeout)
	defer cancel()
	r, err := m.configs.PutBack(ctx, names)
	m.kind(SyncConfigs).did(m.altered(r, "putBack"))
	for name, refused := range r.Refused {
		err = errors.Join(err, fmt.Errorf("topic %s: %w", name, refused))
	}
	if err != nil {
		m.opts.Logger.Warn("settings not put back", "mirror", m.name, "err", err)
		m.kind(SyncConfigs).soon()
	}
}
