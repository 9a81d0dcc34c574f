package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// The kinds of metadata that a mirror keeps in step, as [SyncStatus.Kind] names them.
const (
	SyncTopics  = "topics"  // which topics there are, with how many partitions
	SyncConfigs = "configs" // settings of topics
	SyncGroups  = "groups"  // where consumer groups and share groups are
	SyncACLs    = "acls"    // who may what; only with ACLs.Sync
	SyncGuard   = "guard"   // who may not write to mirror topics; only with Guard.On
)

// A kind is one kind of metadata that is kept in step, in rounds: it reads both sides,
// compares, applies and tells. Each has a loop of its own, fails alone and is tried
// again alone.
type kind struct {
	name  string
	every time.Duration
	once  func(ctx context.Context) (outcome, error)
	kick  chan struct{} // capacity 1: asks for a round now
	turn  chan struct{} // capacity 1: one round at a time

	mu     sync.Mutex
	status SyncStatus
}

// An outcome is what one round found and did.
type outcome struct {
	again bool // something is left to be tried soon
	// idle says why there is nothing to do for this kind; empty when there is.
	idle string
	// done counts what was done, by the kind's own words; rounds are added up. seen counts
	// what stands so as of this round.
	done, seen map[string]int64
	// refused are single ones, by name, that could not be brought in step.
	refused map[string]error
	// notes are what an operator should know though nothing failed.
	notes []string
}

func newKind(name string, every time.Duration, once func(context.Context) (outcome, error)) *kind {
	return &kind{
		name: name, every: every, once: once, kick: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		status: SyncStatus{Kind: name},
	}
}

// soon asks for a round now, or one more when one is under way.
func (k *kind) soon() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// kickSync asks for a round of every kind.
func (m *Mirror) kickSync() {
	for _, k := range m.kinds {
		k.soon()
	}
}

// kickOthers asks for a round of every kind but one.
func (m *Mirror) kickOthers(name string) {
	for _, k := range m.kinds {
		if k.name != name {
			k.soon()
		}
	}
}

// syncLoop does rounds of one kind: at every interval, on request, and after a failure
// soon again.
func (m *Mirror) syncLoop(ctx context.Context, k *kind) error {
	pace := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(m.opts.RetryMin), backoff.WithMaxInterval(max(k.every, m.opts.RetryMin)), backoff.WithMaxElapsedTime(0))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.kick:
		case <-timer.C:
		}
		again, err := m.round(ctx, k)
		switch {
		case errors.Is(err, ErrSameCluster):
			return err
		case ctx.Err() != nil:
			return nil
		case err != nil || again:
			timer.Reset(pace.NextBackOff())
		default:
			pace.Reset()
			timer.Reset(k.every)
		}
	}
}

// round does one round of a kind, after the one that is under way.
func (m *Mirror) round(ctx context.Context, k *kind) (again bool, err error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-k.turn }()
	out, err := k.once(ctx)
	if ctx.Err() != nil {
		return false, errors.Join(err, ctx.Err())
	}
	if err != nil {
		m.opts.Logger.Warn(k.name+" not synced", "mirror", m.name, "err", err)
	}
	if e, news := k.note(out, err, time.Now()); news {
		for _, note := range e.Notes {
			m.opts.Logger.Warn(note, "mirror", m.name)
		}
		e.Mirror = m.name
		emit(m.events, m.opts.Events.Sync, e)
	}
	return out.again, err
}

// note keeps the outcome of a round and says whether there is something to tell: it did
// something or noted something, it began to fail or for another reason, or it succeeds
// again.
func (k *kind) note(out outcome, err error, at time.Time) (e SyncEvent, news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.status
	was, notes := s.Error, []string(nil)
	s.Rounds++
	s.Err, s.Error = err, ""
	s.Done = added(s.Done, out.done)
	if err != nil {
		s.Error = err.Error()
		s.Failures++
	} else {
		s.Synced, s.Failures, s.Idle, s.Seen = &at, 0, out.idle, maps.Clone(out.seen)
		s.Refused = texts(out.refused)
		notes = slices.DeleteFunc(slices.Clone(out.notes), func(n string) bool { return slices.Contains(s.Notes, n) })
		s.Notes = slices.Clone(out.notes)
	}
	e = SyncEvent{Kind: k.name, Err: err, Done: map[string]int64{}, Notes: notes}
	for what, n := range out.done {
		if n != 0 {
			e.Done[what] = n
		}
	}
	return e, len(e.Done) > 0 || len(notes) > 0 || was != s.Error
}

// added is a sum by name; neither of the two is changed.
func added(sum, more map[string]int64) map[string]int64 {
	if len(more) == 0 {
		return sum
	}
	out := make(map[string]int64, len(sum)+len(more))
	maps.Copy(out, sum)
	for what, n := range more {
		out[what] += n
	}
	return out
}

func texts(errs map[string]error) map[string]string {
	if len(errs) == 0 {
		return nil
	}
	out := make(map[string]string, len(errs))
	for name, err := range errs {
		out[name] = err.Error()
	}
	return out
}

// now is the kind as it stands, as a value.
func (k *kind) now() SyncStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.status
	if s.Synced != nil {
		s.Synced = moment(*s.Synced)
	}
	s.Done, s.Seen, s.Refused = maps.Clone(s.Done), maps.Clone(s.Seen), maps.Clone(s.Refused)
	s.Notes = slices.Clone(s.Notes)
	return s
}

// did counts what was done for this kind outside of its rounds.
func (k *kind) did(done map[string]int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Done = added(k.status.Done, done)
}

// kind gives one of the mirror's kinds.
func (m *Mirror) kind(name string) *kind {
	i := slices.IndexFunc(m.kinds, func(k *kind) bool { return k.name == name })
	return m.kinds[i]
}
