package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/offsets"
)

// groups are the committed offsets of consumer groups. Copies of them, by rounds, by stops
// and by cuts, are made one after the other: an older one never writes over a newer.
type groups struct {
	filter *offsets.Filter
	ledger *offsets.Ledger // belongs to the copy that is under way
	turn   chan struct{}   // capacity 1: a copy is under way

	mu      sync.Mutex
	first   int    // copies that go before rounds and wait for their turn
	yield   func() // calls off the round that is under way
	entered bool   // partitions have come to MIRRORING since the last round began
	left    map[string]GroupLeft
	now     GroupsStatus
}

func newGroups(name string, filter *offsets.Filter, store coordinator.Store) *groups {
	notes, _ := store.(offsets.Notes)
	return &groups{filter: filter, ledger: offsets.NewLedger(notes, name), turn: make(chan struct{}, 1)}
}

// errYield: a copy that matters more has gone first.
var errYield = errors.New("called off for the copy of a stop")

// round begins a round, which ends early when a copy comes that goes before it.
func (g *groups) round(ctx context.Context) (_ context.Context, end func() (again bool), err error) {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first > 0 {
		<-g.turn
		return nil, nil, errYield
	}
	ctx, cancel := context.WithCancelCause(ctx)
	g.yield, g.entered = func() { cancel(errYield) }, false
	return ctx, func() (again bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		cancel(nil)
		g.yield = nil
		<-g.turn
		return g.entered
	}, nil
}

// before goes before rounds: it waits for what is under way, which is called off.
func (g *groups) before(ctx context.Context) (end func(), err error) {
	g.mu.Lock()
	g.first++
	if g.yield != nil {
		g.yield()
	}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.first--
		g.mu.Unlock()
	}()
	select {
	case g.turn <- struct{}{}:
		return func() { <-g.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// enters notes that a partition came to MIRRORING. Whoever is told true asks for a round: where
// many come one after the other, the round that is under way sees to those that are left.
func (g *groups) enters() (ask bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ask = !g.entered && g.yield == nil
	g.entered = true
	return ask
}

// copier copies within logs.
func (m *Mirror) copier(logs func(context.Context, []cluster.Partition) (map[cluster.Partition]offsets.Log, error)) offsets.Copier {
	return offsets.Copier{Source: m.source, Destination: m.destination, Filter: m.groups.filter, Ledger: m.groups.ledger, Logs: logs}
}

// syncGroups is one round of SyncGroups.
func (m *Mirror) syncGroups(ctx context.Context) (out outcome, err error) {
	if m.opts.NoGroups {
		return outcome{idle: "committed offsets are left alone (NoGroups)"}, nil
	}
	if err := m.identify(ctx); err != nil {
		return outcome{}, err
	}
	if m.coord.Counts()[coordinator.StateMirroring] == 0 {
		return outcome{idle: "nothing is being copied"}, nil
	}
	ctx, end, err := m.groups.round(ctx)
	if err != nil {
		return outcome{again: true}, ignore(err, errYield)
	}
	report, err := m.copier(m.mirroredLogs).Copy(ctx)
	called := context.Cause(ctx)
	again := end()
	if report.Groups > 0 {
		emit(m.events, m.opts.Events.Groups, GroupsEvent{Mirror: m.name, Report: report, Err: err})
	}
	if errors.Is(called, errYield) {
		return outcome{again: true, done: wrote(report)}, nil
	}
	for _, w := range report.Warnings {
		m.opts.Logger.Warn("groups not seen", "mirror", m.name, "err", w)
	}
	if err = errors.Join(append(report.Warnings, err)...); err == nil {
		m.tellLeft(report)
	}
	return outcome{
		again: again || len(report.Failed) > 0, done: wrote(report), refused: report.Failed,
		seen: map[string]int64{
			"matched": int64(report.Matched), "excluded": int64(len(report.Excluded)), "active": int64(len(report.Active)),
			"held": int64(len(report.Held)), "clamped": int64(len(report.Clamped)),
		},
	}, err
}

func wrote(r offsets.Report) map[string]int64 {
	return map[string]int64{"groups": int64(r.Groups), "offsets": int64(r.Offsets)}
}

// ignore gives an error unless it is the other one.
func ignore(err, other error) error {
	if errors.Is(err, other) {
		return nil
	}
	return err
}

// mirroredLogs are the destination logs of those partitions that are being copied.
func (m *Mirror) mirroredLogs(ctx context.Context, ps []cluster.Partition) (map[cluster.Partition]offsets.Log, error) {
	var copied []cluster.Partition
	records := map[cluster.Partition]coordinator.Record{}
	for _, p := range ps {
		if s, ok := m.coord.Snapshot(p); ok && s.State == coordinator.StateMirroring {
			copied, records[p] = append(copied, p), s.Record
		}
	}
	if len(copied) == 0 {
		return nil, nil
	}
	answers, err := m.destination.Offsets(ctx, copied)
	if err != nil {
		return nil, err
	}
	logs := make(map[cluster.Partition]offsets.Log, len(copied))
	for i, p := range copied {
		if answers[i].Err == nil { // the others have their own trouble, which shows elsewhere
			logs[p] = logOf(records[p], answers[i].Offsets)
		}
	}
	return logs, nil
}

func logOf(rec coordinator.Record, at cluster.Offsets) offsets.Log {
	log := offsets.Log{Offsets: at, Stretch: rec.Stretch}
	for _, o := range rec.Restore {
		log.Owed = append(log.Owed, o.Group)
	}
	return log
}

// copyGroups copies committed offsets on the partitions that are being stopped: what was
// committed at the source until now is at the destination afterwards. It is bounded in
// time and its failure is no failure of the stop: the source may be what has died.
func (m *Mirror) copyGroups(ctx context.Context, ss []stopping) {
	if m.opts.NoGroups || len(ss) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.GroupTimeout)
	defer cancel()
	logs := make(map[cluster.Partition]offsets.Log, len(ss))
	for _, s := range ss {
		rec := s.rec
		rec.Restore = nil // given back, as far as it goes
		logs[rec.Partition] = logOf(rec, cluster.Offsets{LogStart: s.end.LogStart, HighWatermark: s.end.HighWatermark})
	}
	var report offsets.Report
	end, err := m.groups.before(ctx)
	if err == nil {
		c := m.copier(func(context.Context, []cluster.Partition) (map[cluster.Partition]offsets.Log, error) {
			return logs, nil
		})
		c.Last, c.Patience = true, m.opts.GroupTimeout
		report, err = c.Copy(ctx)
		end()
	}
	if err != nil {
		m.opts.Logger.Warn("committed offsets not copied", "mirror", m.name, "err", err)
	}
	emit(m.events, m.opts.Events.Groups, GroupsEvent{Mirror: m.name, Last: true, Report: report, Err: errors.Join(append(report.Warnings, err)...)})
}

// cutGroups has it on record that what we have committed behind cuts stands at them by now,
// before it does: it is we who pull groups back.
func (m *Mirror) cutGroups(ctx context.Context, ts []task) {
	cuts := map[cluster.Partition]int64{}
	for _, t := range ts {
		cuts[t.rec.Partition] = t.rec.Cut
	}
	if m.opts.NoGroups || len(cuts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.GroupTimeout)
	defer cancel()
	end, err := m.groups.before(ctx)
	if err == nil {
		err = m.groups.ledger.Cut(ctx, cuts)
		end()
	}
	if err != nil { // groups that were pulled back may count as moved by themselves, which shows
		m.opts.Logger.Warn("cuts not noted for groups", "mirror", m.name, "err", err)
	}
}

// validGroups parses the filter of groups.
func validGroups(g Groups) (*offsets.Filter, error) {
	f, err := offsets.NewFilter(g.Include, g.Exclude)
	if err != nil {
		return nil, fmt.Errorf("Groups: %w", err)
	}
	return f, nil
}

// kickGroups asks for a round when a partition has come to MIRRORING.
func (m *Mirror) kickGroups() {
	if m.groups.enters() {
		m.kind(SyncGroups).soon()
	}
}
