package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// Start adds topics to the mirror and begins to copy them: names or patterns, as
// in [Topics]. What matches later is found later; matching nothing is no error.
// A topic that was stopped begins a new stretch. Without arguments every known
// topic is started. Start does not wait for the copying; before Run it is
// recorded. Starting what is started changes nothing.
func (m *Mirror) Start(ctx context.Context, topics ...string) error {
	known, unknown, err := m.catalog.pick(topics)
	if err != nil {
		return m.fault("start", err)
	}
	m.catalog.mu.Lock()
	err = m.catalog.filter.Include(topics...)
	m.catalog.filter.Readmit(append(known, unknown...)...)
	for _, name := range unknown {
		delete(m.catalog.stops, name)
	}
	m.catalog.mu.Unlock()
	if err != nil {
		return m.fault("start", err)
	}
	err = m.intend(ctx, "start", append(known, unknown...), coordinator.WantMirroring)
	m.kickSync()
	return err
}

// Pause stops the copying of topics and leaves them mirror topics, to be
// resumed. It returns when nothing more is appended, or with what is left when
// ctx ends; before Run it is recorded. A stopped topic is refused (ErrStopped).
// Without arguments every known topic is paused.
func (m *Mirror) Pause(ctx context.Context, topics ...string) error {
	known, err := m.unstopped("pause", topics)
	if err != nil {
		return err
	}
	if err := m.intend(ctx, "pause", known, coordinator.WantPaused); err != nil {
		return err
	}
	return m.await(ctx, "pause", known, coordinator.StatePaused)
}

// Resume goes on with paused topics. It does not wait; before Run it is
// recorded. A stopped topic is refused (ErrStopped). Without arguments every
// known topic is resumed.
func (m *Mirror) Resume(ctx context.Context, topics ...string) error {
	known, err := m.unstopped("resume", topics)
	if err != nil {
		return err
	}
	return m.intend(ctx, "resume", known, coordinator.WantMirroring)
}

// Recover tries failed partitions of topics again at once.
func (m *Mirror) Recover(ctx context.Context, topics ...string) error {
	known, _, err := m.catalog.pick(topics)
	if err != nil {
		return m.fault("recover", err)
	}
	for _, name := range known {
		t, _ := m.catalog.get(name)
		for _, p := range partitionsOf(t) {
			m.coord.Post(coordinator.Event{Partition: p, Kind: coordinator.EventRecover})
		}
	}
	return nil
}

// Stop is the failover: topics leave the mirror and become ordinary, writable
// topics. Committed group offsets are copied once more if the source answers;
// late writes of this mirror are locked out. It works whatever state a topic is
// in and whether or not the source lives, and returns when all are stopped, or
// with what is left when ctx ends (the stopping goes on). The names are excluded
// from then on. Before Run it is recorded. Without arguments every known topic is
// stopped. Stopping what is stopped changes nothing.
func (m *Mirror) Stop(ctx context.Context, topics ...string) error {
	known, unknown, err := m.catalog.pick(topics)
	if err != nil {
		return m.fault("stop", err)
	}
	names := append(known, unknown...)
	m.catalog.mu.Lock()
	err = m.catalog.filter.Exclude(names...)
	for _, name := range unknown {
		if m.catalog.stops == nil {
			m.catalog.stops = map[string]bool{}
		}
		m.catalog.stops[name] = true
	}
	m.catalog.mu.Unlock()
	if err != nil {
		return m.fault("stop", err)
	}
	if err := m.intend(ctx, "stop", names, coordinator.WantStopped); err != nil {
		return err
	}
	if !m.running.Load() {
		return nil
	}
	if len(unknown) > 0 {
		if err := m.adoptStops(ctx); err != nil {
			return m.fault("stop", err)
		}
		for _, name := range unknown {
			if _, ok := m.catalog.get(name); !ok {
				err = errors.Join(err, m.topicFault("stop", name, fmt.Errorf("%w: not at the destination", cluster.ErrUnknownTopic)))
			}
		}
	}
	return errors.Join(err, m.await(ctx, "stop", names, coordinator.StateStopped))
}

// Promote is a planned Stop: it first waits until everything the source has is at
// the destination. Whoever calls it has stopped the producers. When ctx ends
// before that, nothing is stopped and the error says what remains.
func (m *Mirror) Promote(ctx context.Context, topics ...string) error {
	known, _, err := m.catalog.pick(topics)
	if err != nil {
		return m.fault("promote", err)
	}
	if !m.running.Load() {
		return m.fault("promote", ErrNotRunning)
	}
	if err := m.caughtUp(ctx, known); err != nil {
		return m.fault("promote", err)
	}
	return m.Stop(ctx, topics...)
}

// unstopped picks topics and refuses those that are stopped.
func (m *Mirror) unstopped(op string, topics []string) ([]string, error) {
	known, unknown, err := m.catalog.pick(topics)
	if err != nil {
		return nil, m.fault(op, err)
	}
	var errs []error
	for _, name := range known {
		t, _ := m.catalog.get(name)
		for _, p := range partitionsOf(t) {
			if s, ok := m.coord.Snapshot(p); ok && s.Desired == coordinator.WantStopped {
				errs = append(errs, m.topicFault(op, name, ErrStopped))
				break
			}
		}
	}
	return append(known, unknown...), errors.Join(errs...)
}

// intend stores what is wanted of topics.
func (m *Mirror) intend(ctx context.Context, op string, names []string, desired coordinator.Desired) error {
	var errs []error
	for _, name := range names {
		err := m.opts.Store.SaveIntent(ctx, m.name, coordinator.Intent{Topic: name, Desired: desired})
		if err != nil {
			errs = append(errs, m.topicFault(op, name, err))
		}
	}
	return errors.Join(errs...)
}

// await waits until all partitions of topics are in a state. Topics of which
// nothing is known, and a mirror that does not run, are not waited for.
func (m *Mirror) await(ctx context.Context, op string, names []string, state coordinator.State) error {
	if !m.running.Load() {
		return nil
	}
	var ps []cluster.Partition
	for _, name := range names {
		if t, ok := m.catalog.get(name); ok {
			ps = append(ps, partitionsOf(t)...)
		}
	}
	err := m.coord.Await(ctx, ps, func(s coordinator.Snapshot) bool { return s.State == state })
	if err == nil {
		return nil
	}
	var errs []error
	for _, p := range ps {
		s, _ := m.coord.Snapshot(p)
		if s.State == state {
			continue
		}
		errs = append(errs, m.partitionFault(op, p, errors.Join(fmt.Errorf("is %s: %w", s.State, err), s.Err)))
	}
	return errors.Join(errs...)
}

// catchUpLook is how often promote and WaitMirrored look.
const catchUpLook = 20 * time.Millisecond

// caughtUp waits until the source has nothing that the destination has not.
func (m *Mirror) caughtUp(ctx context.Context, names []string) error {
	var ps []cluster.Partition
	for _, name := range names {
		t, _ := m.catalog.get(name)
		ps = append(ps, partitionsOf(t)...)
	}
	tick := time.NewTicker(catchUpLook)
	defer tick.Stop()
	var remains error // as the last look that was answered saw it
	for {
		behind, err := m.behind(ctx, ps)
		if err == nil && behind == nil {
			return nil
		}
		if err == nil {
			remains = behind
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err, remains)
		case <-tick.C:
		}
	}
}

// behind names the partitions whose destination does not durably hold all that
// the source has now.
func (m *Mirror) behind(ctx context.Context, ps []cluster.Partition) (behind, err error) {
	theirs, err := m.source.Offsets(ctx, ps)
	if err != nil {
		return nil, fmt.Errorf("source offsets: %w", err)
	}
	ours, err := m.destination.Offsets(ctx, ps)
	if err != nil {
		return nil, fmt.Errorf("destination offsets: %w", err)
	}
	var errs []error
	for i, p := range ps {
		switch lag := theirs[i].HighWatermark - ours[i].HighWatermark; {
		case theirs[i].Err != nil || ours[i].Err != nil:
			errs = append(errs, m.partitionFault("promote", p, errors.Join(theirs[i].Err, ours[i].Err)))
		case lag > 0:
			errs = append(errs, m.partitionFault("promote", p, fmt.Errorf("%d records behind", lag)))
		}
	}
	return errors.Join(errs...), nil
}

// WaitMirrored waits until the record at an offset can no longer be lost at the
// destination: it is below the high watermark there. A producer that must not
// lose a record calls it with the offset it was given.
func (m *Mirror) WaitMirrored(ctx context.Context, p cluster.Partition, offset int64) error {
	if offset < 0 {
		return m.partitionFault("wait", p, fmt.Errorf("offset %d is negative", offset))
	}
	board := m.boards.get(p)
	tick := time.NewTicker(catchUpLook)
	defer tick.Stop()
	for {
		var last error
		if board.LogEnd.Load() > offset {
			answers, err := m.destination.Offsets(ctx, []cluster.Partition{p})
			if err == nil {
				err = answers[0].Err
			}
			if err == nil && answers[0].HighWatermark > offset {
				return nil
			}
			last = err
		}
		select {
		case <-ctx.Done():
			return m.partitionFault("wait", p, errors.Join(ctx.Err(), last))
		case <-tick.C:
		}
	}
}
