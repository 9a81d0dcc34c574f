package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// Guard keeps applications from writing to mirror topics, with access rules that the mirror
// adds at the destination and takes away again before a topic is STOPPED, those and no others.
// Without it what others write is found out afterwards, and stops the partition. It begins when a
// topic's log was found to be the mirror's, and needs DESCRIBE and ALTER on the cluster.
//
// Whoever a rule allows to write is denied it, topic by topic, but for May; a refused
// producer sees TOPIC_AUTHORIZATION_FAILED, or CLUSTER_AUTHORIZATION_FAILED where it is idempotent
// and there is no other topic that it may write to. Super users are never refused. Destinations
// that take no records from clients, and clusters without an authorizer, need no guard.
type Guard struct {
	// On turns it on. It needs a Store that keeps coordinator.Notes and is not lost with the
	// process: what was added has to be found again after a crash. Default: off; what an
	// earlier run has added is taken away.
	On bool
	// May are the principals that may write all the same, as "User:name". The
	// mirror's own has to be among them: a DENY would hold for it too.
	May []string
	// SuperUsers: all of May are super users of the destination, so that WRITE can be denied to
	// User:* where a rule allows it to User:*. Default: such a topic is not guarded in full,
	// and shown so.
	SuperUsers bool
	// Open: at the destination everyone may do everything with a topic that has no rules
	// (allow.everyone.if.no.acl.found, which brokers do not tell). While such a topic is
	// guarded everyone has all rights but to write. Default: such topics are left alone; where it
	// is not so nobody writes to them anyway.
	Open bool
	// Interval is how often rules are compared. Default: 60 s.
	Interval time.Duration
}

func (g Guard) guarding() acl.Guarding {
	return acl.Guarding{May: g.May, SuperUsers: g.SuperUsers, Open: g.Open}
}

// validate reports every bad field.
func (g Guard) validate() error {
	if !g.On {
		return nil
	}
	if err := g.guarding().Validate(); err != nil {
		return fmt.Errorf("Guard: %w", err)
	}
	return nil
}

// kept refuses a guard of which nothing would be known after a crash.
func (o *Options) kept() error {
	if o == nil || !o.Guard.On {
		return nil
	}
	if _, ok := o.Store.(coordinator.Notes); !ok {
		return errors.New("Guard: needs a Store that keeps what was added (coordinator.Notes)")
	}
	return nil
}

// guardRest is how long topics are gathered before their rules are looked at: many come to be
// mirrored one after the other.
const guardRest = 200 * time.Millisecond

// guard is what the rounds of SyncGuard need. One of them, or of the stops that take rules
// away, is under way at a time: kind.turn.
type guard struct {
	kind    *kind
	sink    acl.Sink    // nil: cannot
	clear   atomic.Bool // nothing is on record, and nothing will be
	pending atomic.Bool // a round is asked for
	warned  bool        // of a cluster that keeps no rules; belongs to the round under way
}

func (m *Mirror) newGuard() *guard {
	g := &guard{kind: newKind(SyncGuard, m.opts.Guard.Interval, m.syncGuard)}
	g.sink, _ = m.destination.(acl.Sink)
	g.clear.Store(g.sink == nil)
	return g
}

// theGuard is the guard in the rules of the destination with this id.
func (m *Mirror) theGuard(destination string) acl.Guard {
	return acl.Guard{
		Cluster: m.guard.sink, Guarding: m.opts.Guard.guarding(),
		Ledger: acl.Ledger{Notes: m.acls.notes, Cluster: destination, Mirror: m.name},
	}
}

// kickGuard asks for a round when a partition has become the mirror's.
func (m *Mirror) kickGuard() {
	if m.opts.Guard.On && m.guard.pending.CompareAndSwap(false, true) {
		time.AfterFunc(guardRest, func() {
			m.guard.pending.Store(false)
			m.guard.kind.soon()
		})
	}
}

// syncGuard is one round of SyncGuard.
func (m *Mirror) syncGuard(ctx context.Context) (outcome, error) {
	switch {
	case m.guard.sink == nil:
		return outcome{idle: "the destination cannot take access rules"}, nil
	case m.traits.ReadOnly:
		return outcome{idle: "clients cannot write to mirror topics of this destination"}, m.dropGuard(ctx)
	}
	if err := m.onRecord(ctx); err != nil {
		return outcome{}, err
	}
	destination, err := m.destinationID(ctx)
	if err != nil {
		return outcome{}, err
	}
	others, err := m.elsewhere(ctx)
	if err != nil {
		return outcome{}, err
	}
	topics, stay := m.guarded()
	report, err := m.theGuard(destination).Keep(ctx, topics, func(topic string) bool { return stay[topic] || others[topic] })
	if errors.Is(err, errors.ErrUnsupported) { // cluster.ErrNoAuthorizer, or an Admin that cannot
		if !m.guard.warned {
			m.opts.Logger.Warn("mirror topics are not guarded", "mirror", m.name, "err", err)
		}
		m.guard.warned = true
		return outcome{idle: err.Error()}, nil
	}
	m.guard.warned = m.guard.warned && err != nil
	out := outcome{
		again: report.Again, refused: report.Refused,
		done: map[string]int64{"added": int64(report.Added), "removed": int64(report.Removed)},
		seen: map[string]int64{"topics": int64(len(topics)), "rules": int64(report.Rules), "bare": int64(len(report.Bare))},
	}
	if n := len(report.Bare); n > 0 && !m.opts.Guard.Open {
		out.notes = []string{fmt.Sprintf("%d mirror topics have no access rule: nobody may write to them, "+
			"unless allow.everyone.if.no.acl.found holds there, which Guard.Open says", n)}
	}
	m.refusedOurselves(topics, out.refused)
	for _, err := range out.refused {
		out.again = out.again || cluster.Retriable(err)
	}
	return out, err
}

// refusedOurselves says of guarded topics that the mirror is refused there: the guard may be why.
func (m *Mirror) refusedOurselves(topics []string, refused map[string]error) {
	for _, s := range m.coord.All() {
		name := s.Partition.Topic
		if _, guarded := slices.BinarySearch(topics, name); guarded && refused[name] == nil &&
			s.State == coordinator.StateFailed && errors.Is(s.Err, cluster.ErrAuthorization) {
			refused[name] = fmt.Errorf("topic %s: the mirror is refused itself; is its principal, by that very name, among Guard.May? %w", name, s.Err)
		}
	}
}

// guarded are the topics whose logs were found to be the mirror's (I12), and those that stay as
// they are: they are on their way out, until the stop comes to it, or another process decides
// about them.
func (m *Mirror) guarded() (topics []string, stay map[string]bool) {
	ours := map[string]bool{}
	stay = map[string]bool{}
	for _, s := range m.coord.All() {
		switch name := s.Partition.Topic; {
		case !s.Owned, s.State == coordinator.StateStopping, s.State != coordinator.StateStopped && s.Desired == coordinator.WantStopped:
			stay[name] = true
		case s.State != coordinator.StateStopped && s.Aligned:
			ours[name] = true
		}
	}
	maps.DeleteFunc(ours, func(name string, _ bool) bool { return stay[name] })
	return sorted(ours), stay
}

// elsewhere are the topics on record that this process does not know, and another one may.
func (m *Mirror) elsewhere(ctx context.Context) (map[string]bool, error) {
	records, err := m.opts.Store.Load(ctx, m.name)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	names := map[string]bool{}
	for _, r := range records {
		if _, known := m.coord.Snapshot(r.Partition); !known && r.State != coordinator.StateStopped {
			names[r.Partition.Topic] = true
		}
	}
	return names, nil
}

// destinationID is the destination's id alone: the source may be dead.
func (m *Mirror) destinationID(ctx context.Context) (string, error) {
	id, err := m.destination.ID(ctx)
	if err != nil {
		return "", fmt.Errorf("destination cluster id: %w", err)
	}
	if _, pinned := m.catalog.pin("", id); pinned != id {
		return "", fmt.Errorf("%w: destination id is %s, was %s", cluster.ErrClusterReplaced, id, pinned)
	}
	return id, nil
}

// dropGuard takes away all that is on record, of this run and of earlier ones.
func (m *Mirror) dropGuard(ctx context.Context) error {
	if m.guard.clear.Load() {
		return nil
	}
	destination, err := m.destinationID(ctx)
	if err != nil {
		return err
	}
	report, err := m.theGuard(destination).Lift(ctx, nil)
	for _, refused := range report.Refused {
		err = errors.Join(err, refused)
	}
	if err == nil && report.Rules == 0 {
		m.guard.clear.Store(true)
	}
	return err
}

// dropLoop is what there is of a guard that is switched off: what an earlier run has added
// is taken away.
func (m *Mirror) dropLoop(ctx context.Context) error {
	pace := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(m.opts.RetryMin), backoff.WithMaxInterval(m.opts.RetryMax), backoff.WithMaxElapsedTime(0))
	for !m.guard.clear.Load() {
		err := m.alone(ctx, m.dropGuard)
		if ctx.Err() != nil || m.guard.clear.Load() {
			return nil
		}
		if err != nil {
			m.opts.Logger.Warn("what a guard has added is not taken away", "mirror", m.name, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pace.NextBackOff()):
		}
	}
	return nil
}

// alone does something to guards while nothing else does.
func (m *Mirror) alone(ctx context.Context, do func(context.Context) error) error {
	select {
	case m.guard.kind.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.guard.kind.turn }()
	return do(ctx)
}

// unguard takes away what was added for the topics of partitions that are about to be
// STOPPED. Until then they are not: an application can write to what is shown so.
func (m *Mirror) unguard(ctx context.Context, ps []cluster.Partition) []error {
	errs := make([]error, len(ps))
	if m.guard.clear.Load() || len(ps) == 0 {
		return errs
	}
	of := map[string]bool{}
	for _, p := range ps {
		of[p.Topic] = true
	}
	var report acl.GuardReport
	err := m.alone(ctx, func(ctx context.Context) error {
		destination, err := m.destinationID(ctx)
		if err == nil {
			report, err = m.theGuard(destination).Lift(ctx, func(topic string) bool { return of[topic] })
		}
		return err
	})
	m.guard.kind.did(map[string]int64{"removed": int64(report.Removed)})
	for i, p := range ps {
		if errs[i] = err; err == nil {
			errs[i] = report.Refused[p.Topic]
		}
	}
	return errs
}
