package mirror

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

// Source is a cluster to mirror from. transport/kafka has one for stock Kafka.
type Source interface {
	fetcher.Source
	topics.Source
	offsets.Source
	// ID is the cluster's id, by which it is recognised behind its addresses.
	ID(ctx context.Context) (string, error)
}

// Destination is a cluster to mirror to. transport/kafka has one for stock Kafka.
type Destination interface {
	fetcher.Log
	fetcher.Reader
	topics.Sink
	offsets.Sink
	// Offsets gives log start and high watermark at the leaders.
	Offsets(ctx context.Context, partitions []cluster.Partition) ([]fetcher.OffsetsAnswer, error)
	ID(ctx context.Context) (string, error)
}

// runner is the optional ability of a source or destination to have work of its
// own while a mirror runs. Run blocks until ctx ends and leaves nothing behind.
type runner interface {
	Run(ctx context.Context) error
}

// turner is the optional ability of a destination of which several processes have one, and
// one at a time mirrors. Turn returns when it is this one's turn; shared is false where it
// always is.
type turner interface {
	Turn(ctx context.Context) (shared bool, err error)
}

// Mirror copies topics from one cluster to another. Its methods are safe for
// concurrent use. Two mirrors in a process do not know of each other.
type Mirror struct {
	name        string
	source      Source
	destination Destination
	opts        Options
	can         abilities
	traits      fetcher.Traits
	unclean     *topics.Filter // topics whose log may be cut after an unclean election

	coord      *coordinator.Coordinator
	fetch      *fetcher.Fetcher
	events     *eventQueue
	align      *gatherer[task]
	resume     *gatherer[task]
	drain      *gatherer[task]
	stop       *gatherer[task]
	cut        *gatherer[task]
	fence      *gatherer[task]
	configure  *gatherer[alignment]
	ahead      *gatherer[cluster.Partition]
	depart     *gatherer[divergence]
	aligning   underWay // or being cut
	rebuilding underWay // by topic, as partition -1
	fetching   fetching
	nameless   sync.Once // a source without topic ids was warned of
	grounds    sync.Map  // of cluster.Partition: the cluster.TopicID of the destination's topic whose log is known
	compared   sync.Map  // of cluster.Partition: its logs were compared, and are to be fetched next
	going      sync.Map  // of cluster.Partition: the cluster.Span of a tail that was told of and is not cut yet
	kinds      []*kind   // of metadata, that of topics first
	groups     *groups
	acls       *acls
	guard      *guard
	configs    *topics.Configs
	left       sync.Map // of cluster.Partition: it has left the mirror, or is about to
	configured sync.Map // of topic names: when their settings were in step; the zero time when they were not at the creation

	differences atomic.Pointer[[]topics.Difference] // as SyncConfigs saw them last

	waiting atomic.Bool   // it is another process's turn
	lost    chan struct{} // capacity 1: a partition is another process's by now
	lifted  atomic.Bool   // ProducersEvent was told

	phase   atomic.Int32 // of the three below
	boards  boards
	catalog catalog
}

// New makes a mirror and reports every bad option at once. It connects to
// nothing. Source and destination remain the caller's; they are used while Run
// runs. opts may be nil and is copied.
func New(name string, source Source, destination Destination, opts *Options) (*Mirror, error) {
	o, filters, err := opts.normalize()
	errs := []error{validName(name), err, opts.kept()}
	if source == nil {
		errs = append(errs, errors.New("source: is nil"))
	}
	if destination == nil {
		errs = append(errs, errors.New("destination: is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &Error{Op: "new", Mirror: name, Offset: -1, Err: err}
	}
	m := &Mirror{
		name: name, source: source, destination: destination, opts: o,
		events: newEventQueue(), lost: make(chan struct{}, 1),
	}
	m.catalog.loaded = make(chan struct{})
	m.catalog.filter, m.unclean = filters.topics, filters.unclean
	m.can, m.traits = look(source, destination, o), destination.Traits()
	m.align, m.resume = newGatherer(m.alignAll), newGatherer(m.fetchAll)
	m.drain, m.stop = newGatherer(m.apart(m.drainAll)), newGatherer(m.apart(m.stopAll))
	m.cut, m.fence = newGatherer(m.cutAll), newGatherer(m.raiseAll)
	m.ahead, m.depart = newGatherer(m.raiseAhead), newGatherer(m.diverged)
	m.configs, m.configure = m.newConfigs(), newGatherer(m.configureAll)
	m.kinds = []*kind{
		newKind(SyncTopics, o.SyncInterval, m.syncTopics), newKind(SyncConfigs, o.ConfigInterval, m.syncConfigs),
		newKind(SyncGroups, o.GroupInterval, m.syncGroups),
	}
	m.acls = newACLs(source, destination, filters.acls, o.Store, m.can.positions)
	if o.ACLs.Sync {
		m.kinds = append(m.kinds, newKind(SyncACLs, o.ACLs.Interval, m.syncACLs))
	}
	if m.guard = m.newGuard(); o.Guard.On {
		m.kinds = append(m.kinds, m.guard.kind)
	}
	m.groups = newGroups(name, filters.groups, o.Store)
	m.fetch = fetcher.New(source, destination, reporter{m}, o.Fetch)
	m.coord = coordinator.New(name, o.Store, performer{m}, &coordinator.Options{
		Logger: o.Logger, RetryMin: o.RetryMin, RetryMax: o.RetryMax, OnChange: m.onChange, OnLoad: m.catalog.load, OnLost: m.onLost,
	})
	return m, nil
}

// Name is the mirror's name.
func (m *Mirror) Name() string { return m.name }

// Run mirrors until ctx ends and then returns nil; nothing of it is left running.
// Faults of clusters do not end it: they are shown in Status and tried again. It
// ends with an error when the mirror cannot be: source and destination are one
// cluster. Where several processes stand by for each other at a destination, it begins
// with the wait for its turn (Status.Standby), and ends with ErrSuperseded when another
// one has taken over: to stand by again, make everything anew. Run can be called once.
func (m *Mirror) Run(ctx context.Context) error {
	if !m.phase.CompareAndSwap(phaseNew, phaseRunning) {
		return m.fault("run", ErrRunning)
	}
	defer m.phase.Store(phaseEnded)
	defer m.tell()() // ends last: what happens while the others end is told too
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	waitForEnds := m.runEnds(ctx, stopWork)
	err := m.work(work)
	if err = errors.Join(err, waitForEnds()); err != nil {
		return m.fault("run", err)
	}
	return nil
}

// work runs everything but the two ends.
func (m *Mirror) work(ctx context.Context) error {
	shared, err := m.turn(ctx)
	if err != nil {
		return nil // only the end of ctx is an error
	}
	defer m.lend(ctx)()
	group, ctx := errgroup.WithContext(ctx)
	if shared {
		group.Go(func() error { return m.keepTurn(ctx) })
	}
	group.Go(func() error { return m.coord.Run(ctx) })
	group.Go(func() error { return m.fetch.Run(ctx) })
	for _, k := range m.kinds {
		group.Go(func() error { return m.syncLoop(ctx, k) })
	}
	if !m.opts.Guard.On {
		group.Go(func() error { return m.dropLoop(ctx) })
	}
	for _, g := range []*gatherer[task]{m.align, m.resume, m.drain, m.stop, m.cut, m.fence} {
		group.Go(func() error { return g.run(ctx) })
	}
	group.Go(func() error { return m.watchLost(ctx) })
	group.Go(func() error { return m.configure.run(ctx) })
	group.Go(func() error { return m.ahead.run(ctx) })
	group.Go(func() error { return m.depart.run(ctx) })
	return group.Wait()
}

// turn waits until it is this process that mirrors.
func (m *Mirror) turn(ctx context.Context) (shared bool, err error) {
	t, ok := m.destination.(turner)
	if !ok {
		return false, nil
	}
	m.waiting.Store(true)
	defer m.waiting.Store(false)
	met := make(chan struct{})
	meeting, cancel := context.WithCancel(ctx)
	go func() { // so that both are at hand when it is
		defer close(met)
		_, _, _ = m.identity(meeting)
	}()
	shared, err = t.Turn(ctx)
	cancel()
	<-met
	return shared, err
}

// keepTurn ends the work when another process has taken a partition over: it has begun in
// the belief that the turn is its own, and either of the two begins anew.
func (m *Mirror) keepTurn(ctx context.Context) error {
	select {
	case <-m.lost:
		return cluster.ErrSuperseded
	case <-ctx.Done():
		return nil
	}
}

func (m *Mirror) onLost() {
	select {
	case m.lost <- struct{}{}:
	default:
	}
}

// runEnds runs what source and destination have to run. They outlive the work, so
// that nothing connects again after they have closed. When one of them ends
// early, so does the work.
func (m *Mirror) runEnds(ctx context.Context, stopWork func()) (wait func() error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var ends errgroup.Group
	for _, e := range []any{m.source, m.destination} {
		if r, ok := e.(runner); ok {
			ends.Go(func() error {
				defer stopWork()
				return r.Run(life)
			})
		}
	}
	return func() error {
		end()
		return ends.Wait()
	}
}

// tell begins to call the functions of Events. What it gives back calls what is
// left and ends it.
func (m *Mirror) tell() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var telling sync.WaitGroup
	telling.Go(func() { m.events.run(ctx) })
	return func() {
		cancel()
		telling.Wait()
	}
}

// The phases of a mirror.
const (
	phaseNew int32 = iota
	phaseRunning
	phaseEnded
)

func (m *Mirror) running() bool { return m.phase.Load() == phaseRunning }

// onChange is told of every stored change of a partition's record.
func (m *Mirror) onChange(before, after coordinator.Record, err error) {
	if before.State == after.State && before.Reason == after.Reason {
		return
	}
	if before.State == coordinator.StateMirroring && after.State != coordinator.StateMirroring {
		m.release(after.Partition)
	}
	if before.State != coordinator.StateMirroring && after.State == coordinator.StateMirroring {
		m.kickGroups()
		m.kickGuard()
	}
	e := StateEvent{Mirror: m.name, Partition: after.Partition, From: before.State, To: after.State, Offset: -1}
	if after.State == coordinator.StateFailed {
		e.Err = err
		if errors.Is(err, cluster.ErrTooLarge) { // the source's limit may have been raised
			m.kind(SyncConfigs).soon()
		}
		var at *cluster.OffsetError
		if errors.As(err, &at) {
			e.Offset = at.Span.From
		}
	}
	emit(m.events, m.opts.Events.State, e)
}

// release takes a partition out of the fetcher without waiting for it.
func (m *Mirror) release(p cluster.Partition) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m.fetch.Remove(ctx, p) // the order is given; only the wait for it ends at once
}

// boards are the partitions' figures.
type boards struct {
	mu sync.RWMutex
	of map[cluster.Partition]*fetcher.Progress
}

// get gives a partition's figures, made on first use.
func (b *boards) get(p cluster.Partition) *fetcher.Progress {
	b.mu.RLock()
	g := b.of[p]
	b.mu.RUnlock()
	if g != nil {
		return g
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[cluster.Partition]*fetcher.Progress{}
	}
	if b.of[p] == nil {
		g := &fetcher.Progress{}
		g.LogEnd.Store(-1)
		g.Seen.Store(-1)
		g.Source.Store(-1)
		g.Ceiling.Store(-1)
		b.of[p] = g
	}
	return b.of[p]
}
