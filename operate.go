package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	m.catalog.filter.Readmit(append(append(known, unknown...), topics...)...)
	m.catalog.stops = slices.DeleteFunc(m.catalog.stops, func(e string) bool { return slices.Contains(topics, e) })
	if err == nil {
		m.catalog.fresh = append(m.catalog.fresh, topics...)
	}
	m.catalog.mu.Unlock()
	if err != nil {
		return m.fault("start", err)
	}
	_, err = m.intend(ctx, "start", append(known, unknown...), coordinator.WantMirroring)
	m.kickSync()
	return err
}

// Pause stops the copying of topics and leaves them mirror topics, to be
// resumed. It returns when nothing more is appended, or with what is left when
// ctx ends; before Run it is recorded. A stopped topic is refused (ErrStopped).
// Without arguments every known topic is paused.
func (m *Mirror) Pause(ctx context.Context, topics ...string) error {
	known, err := m.unstopped(ctx, "pause", topics)
	if err != nil {
		return err
	}
	wished, err := m.intend(ctx, "pause", known, coordinator.WantPaused)
	if err != nil {
		return err
	}
	if err := m.heard(ctx, wished); err != nil {
		return m.fault("pause", err)
	}
	return m.await(ctx, "pause", known, coordinator.StatePaused, wished)
}

// Resume goes on with paused topics. It does not wait; before Run it is
// recorded. A stopped topic is refused (ErrStopped). Without arguments every
// known topic is resumed.
func (m *Mirror) Resume(ctx context.Context, topics ...string) error {
	known, err := m.unstopped(ctx, "resume", topics)
	if err != nil {
		return err
	}
	_, err = m.intend(ctx, "resume", known, coordinator.WantMirroring)
	m.kickSync()
	return err
}

// Recover tries failed partitions of topics again at once, and counts their
// attempts anew. It does not wait; before Run there is nothing to recover. Names
// that are not known are an error (ErrUnknownTopic); the others are recovered.
// Without arguments every known topic is recovered.
func (m *Mirror) Recover(ctx context.Context, topics ...string) error {
	if m.phase.Load() == phaseEnded {
		return m.fault("recover", ErrNotRunning)
	}
	if err := m.onRecord(ctx); err != nil {
		return m.fault("recover", err)
	}
	known, unknown, err := m.catalog.pick(topics)
	if err != nil {
		return m.fault("recover", err)
	}
	for _, name := range unknown {
		if m.running() {
			err = errors.Join(err, m.topicFault("recover", name, cluster.ErrUnknownTopic))
		}
	}
	for _, name := range known {
		t, _ := m.catalog.get(name)
		for _, p := range partitionsOf(t) {
			m.coord.Post(coordinator.Event{Partition: p, Kind: coordinator.EventRecover})
		}
	}
	return err
}

// Stop is the failover: topics leave the mirror and become ordinary, writable
// topics. Committed group offsets are copied once more if the source answers;
// late writes of this mirror are locked out. It works whatever state a topic is
// in and whether or not the source lives, and returns when all are stopped, or
// with what is left when ctx ends (the stopping goes on). Topics that this process
// has not seen yet are looked for at the destination. The names are excluded from
// then on. Before Run it is recorded. Without arguments every topic of the mirror
// is stopped. Stopping what is stopped changes nothing; entries that match no
// topic are an error (ErrUnknownTopic). Stop does not wait for transactions that are open
// at the source: the position is where the destination ends, which is before the first
// of them where gaps are filled.
func (m *Mirror) Stop(ctx context.Context, topics ...string) error {
	if m.phase.Load() == phaseEnded {
		return m.fault("stop", ErrNotRunning)
	}
	if err := m.onRecord(ctx); err != nil {
		return m.fault("stop", err)
	}
	entries := topics
	if len(entries) == 0 {
		entries = []string{".*"}
	}
	known, unknown, err := m.catalog.pick(entries)
	if err != nil {
		return m.fault("stop", err)
	}
	// What cannot be stored stays a topic of the mirror and is looked after.
	wished, err := m.intend(ctx, "stop", append(known, unknown...), coordinator.WantStopped)
	if err != nil {
		return err
	}
	if err := m.catalog.stop(entries, append(known, unknown...), m.running()); err != nil {
		return m.fault("stop", err)
	}
	if !m.running() {
		return nil
	}
	var errs []error
	if err := m.adoptStops(ctx); err != nil { // what is known is stopped all the same
		errs = append(errs, m.fault("stop", err))
	}
	known, unknown, _ = m.catalog.pick(entries)
	for _, name := range unknown {
		errs = append(errs, m.topicFault("stop", name, fmt.Errorf("%w: not a topic of this mirror at the destination", cluster.ErrUnknownTopic)))
	}
	if len(topics) > 0 && len(known)+len(unknown) == 0 {
		errs = append(errs, m.fault("stop", fmt.Errorf("%w: nothing matches %q", cluster.ErrUnknownTopic, topics)))
	}
	return errors.Join(append(errs, m.await(ctx, "stop", known, coordinator.StateStopped, wished))...)
}

// Promote is a planned Stop: it first waits until everything the source has is at
// the destination. Whoever calls it has stopped the producers, and ended their
// transactions: what is behind an open one is not given up. When ctx ends
// before that, nothing is stopped and the error says what remains. Names that are
// not known after a look at the source are refused (ErrUnknownTopic).
func (m *Mirror) Promote(ctx context.Context, topics ...string) error {
	if _, _, err := m.catalog.pick(topics); err != nil {
		return m.fault("promote", err)
	}
	if !m.running() {
		return m.fault("promote", ErrNotRunning)
	}
	if err := m.firstSync(ctx); err != nil {
		return m.fault("promote", err)
	}
	known, unknown, err := m.catalog.pick(topics)
	if err != nil {
		return m.fault("promote", err)
	}
	for _, name := range unknown {
		err = errors.Join(err, m.topicFault("promote", name, cluster.ErrUnknownTopic))
	}
	if err == nil && len(topics) > 0 && len(known) == 0 {
		err = m.fault("promote", fmt.Errorf("%w: nothing matches %q", cluster.ErrUnknownTopic, topics))
	}
	if err != nil {
		return err
	}
	if len(known) == 0 {
		return nil // a stop without names would be one of everything at the destination
	}
	if err := m.caughtUp(ctx, known); err != nil {
		return m.fault("promote", err)
	}
	return m.Stop(ctx, known...)
}

// onRecord waits, when the mirror runs, until it knows the topics that are on
// record: an operation must not miss what another process has begun.
func (m *Mirror) onRecord(ctx context.Context) error {
	if !m.running() {
		return nil
	}
	select {
	case <-m.catalog.loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the store has not told what is on record: %w", ctx.Err())
	}
}

// firstSync waits until the mirror knows its topics.
func (m *Mirror) firstSync(ctx context.Context) error {
	tick := time.NewTicker(catchUpLook)
	defer tick.Stop()
	for {
		topics := m.kind(SyncTopics).now()
		if topics.Synced != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("topics are not known yet: %w", ctx.Err()), topics.Err)
		case <-tick.C:
		}
	}
}

// unstopped picks topics and refuses those that are stopped.
func (m *Mirror) unstopped(ctx context.Context, op string, topics []string) ([]string, error) {
	if err := m.onRecord(ctx); err != nil {
		return nil, m.fault(op, err)
	}
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
func (m *Mirror) intend(ctx context.Context, op string, names []string, desired coordinator.Desired) (wished map[string]int64, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	intents := make([]coordinator.Intent, len(names))
	for i, name := range names {
		intents[i] = coordinator.Intent{Topic: name, Desired: desired}
	}
	revisions, err := m.opts.Store.SaveIntents(ctx, m.name, intents)
	if err != nil {
		return nil, m.fault(op, fmt.Errorf("store: %w", err))
	}
	wished = make(map[string]int64, len(names))
	for i, name := range names {
		if i < len(revisions) {
			wished[name] = revisions[i]
		}
	}
	return wished, nil
}

// heard waits until these wishes have reached the coordinator. A topic that is found from then on follows them before anything else is done with it; one that
// was found before is known by then, and can be waited for.
func (m *Mirror) heard(ctx context.Context, wished map[string]int64) error {
	tick := time.NewTicker(catchUpLook)
	defer tick.Stop()
	for name, revision := range wished {
		for m.running() {
			if in, _ := m.coord.Intent(name); in.Revision >= revision {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the wish for topic %s is stored and has not come back from the store: %w", name, ctx.Err())
			case <-tick.C:
			}
		}
	}
	return nil
}

func (m *Mirror) partitionsOf(names []string) []cluster.Partition {
	var ps []cluster.Partition
	for _, name := range names {
		if t, ok := m.catalog.get(name); ok {
			ps = append(ps, partitionsOf(t)...)
		}
	}
	return ps
}

// await waits until all partitions of topics have followed their topic's wish, or one
// that came later, and are in a state. Topics of which nothing is known, and a mirror that
// has not begun to run, are not waited for.
func (m *Mirror) await(ctx context.Context, op string, names []string, state coordinator.State, wished map[string]int64) error {
	switch m.phase.Load() {
	case phaseNew:
		return nil
	case phaseEnded:
		return m.fault(op, ErrNotRunning)
	}
	ps := m.partitionsOf(names)
	there := func(s coordinator.Snapshot) bool {
		return s.State == state && s.Intent >= max(wished[s.Partition.Topic], 1)
	}
	err := m.coord.Await(ctx, ps, there)
	if err == nil {
		return nil
	}
	if errors.Is(err, coordinator.ErrEnded) {
		err = ErrNotRunning
	}
	var errs []error
	for _, p := range ps {
		if s, _ := m.coord.Snapshot(p); !there(s) {
			errs = append(errs, m.partitionFault(op, p, errors.Join(fmt.Errorf("is %s: %w", s.State, err), s.Err)))
		}
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
	remains := func(p cluster.Partition, why ...error) {
		errs = append(errs, m.partitionFault("promote", p, errors.Join(why...)))
	}
	for i, p := range ps {
		s, known := m.coord.Snapshot(p)
		switch lag := theirs[i].HighWatermark - ours[i].HighWatermark; {
		case s.Desired == coordinator.WantStopped:
		case theirs[i].Err != nil || ours[i].Err != nil:
			remains(p, theirs[i].Err, ours[i].Err)
		case lag > 0:
			remains(p, fmt.Errorf("%d records behind", lag), s.Err, m.heldBy(p))
		case lag < 0:
			remains(p, fmt.Errorf("destination has %d records that the source does not have", -lag), s.Err)
		case known && !isPrefix(s):
			remains(p, fmt.Errorf("is %s", s.State), s.Err)
		}
	}
	return errors.Join(errs...), nil
}

// heldBy says which transaction of the source a partition waits for, nil when none.
func (m *Mirror) heldBy(p cluster.Partition) error {
	if h := m.boards.get(p).Held(); h != nil {
		return errors.New(h.String())
	}
	return nil
}

// isPrefix reports whether a partition is in a state in which the destination holds
// what the source does, as far as it goes.
func isPrefix(s coordinator.Snapshot) bool {
	switch s.State {
	case coordinator.StateMirroring, coordinator.StateEpochFencing:
		return true
	case coordinator.StatePausing, coordinator.StatePaused:
		return s.Aligned && s.Cut < 0
	}
	return false
}

// WaitMirrored waits until the record at an offset can no longer be lost at the
// destination: it is below the high watermark there. A producer that must not
// lose a record calls it with the offset it was given. It does not wait for a
// partition that has failed for good, or was stopped before that offset (ErrStopped),
// nor after Run has ended. Where the logs have been found to part before the offset, what
// stands there is another record, and no success. A destination that fills gaps gets a
// record of a transaction when that, and all that began before it, has ended: the error
// that ctx ends with says which one is waited for.
func (m *Mirror) WaitMirrored(ctx context.Context, p cluster.Partition, offset int64) error {
	if offset < 0 {
		return m.partitionFault("wait", p, fmt.Errorf("offset %d is negative", offset))
	}
	tick := time.NewTicker(catchUpLook)
	defer tick.Stop()
	for stopped := 0; ; {
		done, err := m.mirrored(ctx, p, offset)
		if done {
			return err
		}
		// A start may be on its way still: nobody waits for that.
		if stopped++; !errors.Is(err, ErrStopped) {
			stopped = 0
		} else if stopped > stoppedLooks {
			return m.partitionFault("wait", p, err)
		}
		select {
		case <-ctx.Done():
			return m.partitionFault("wait", p, errors.Join(ctx.Err(), err, m.heldBy(p)))
		case <-tick.C:
		}
	}
}

// stoppedLooks in a row say that a topic is stopped and stays so.
const stoppedLooks = int(time.Second / catchUpLook)

// mirrored looks once. Not done, the error is why one look told nothing.
func (m *Mirror) mirrored(ctx context.Context, p cluster.Partition, offset int64) (done bool, err error) {
	s, known := m.coord.Snapshot(p)
	switch {
	case m.phase.Load() == phaseEnded:
		return true, m.partitionFault("wait", p, ErrNotRunning)
	case !known:
		return false, nil
	case s.State == coordinator.StateStopped && (!s.HasPosition || offset >= s.Position.Offset):
		return false, fmt.Errorf("%w: offset %d was not mirrored", ErrStopped, offset)
	case m.boards.get(p).LogEnd.Load() > offset && !partedBefore(s, offset):
		answers, err := m.destination.Offsets(ctx, []cluster.Partition{p})
		if err == nil {
			err = answers[0].Err
		}
		if err != nil || answers[0].HighWatermark > offset {
			return err == nil, err
		}
	case s.State == coordinator.StateFailed && !s.Retriable:
		return true, m.partitionFault("wait", p, errors.Join(fmt.Errorf("is %s", s.State), s.Err))
	}
	return false, nil
}

// partedBefore reports whether the logs are known to part at an offset or before it.
func partedBefore(s coordinator.Snapshot, offset int64) bool {
	if s.Cut >= 0 && offset >= s.Cut {
		return true
	}
	var at *cluster.OffsetError
	return s.State == coordinator.StateFailed && errors.As(s.Err, &at) && offset >= at.Span.From &&
		(parted(s.Err) || errors.Is(s.Err, cluster.ErrForeignWrite) || errors.Is(s.Err, cluster.ErrLocalWrites))
}
