package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// controlled is one defined mirror as a Controller runs it.
type controlled struct {
	c     *Controller
	name  string
	ctx   context.Context // ends with the Controller's Run, or by end
	end   context.CancelFunc
	ended chan struct{}
	kick  chan struct{} // capacity 1: do not wait any longer
	after *controlled   // which has to have ended before this one begins; may be nil

	mu       sync.Mutex
	def      coordinator.Definition
	mirror   *Mirror // while it is open
	madeOf   coordinator.Definition
	again    context.CancelFunc // ends the present attempt
	err      error              // why it is not open
	revision int64              // of the definition that the open mirror follows
	retryAt  time.Time
}

func newControlled(ctx context.Context, c *Controller, def coordinator.Definition, after *controlled) *controlled {
	r := &controlled{c: c, name: def.Name, def: def, after: after, ended: make(chan struct{}), kick: make(chan struct{}, 1)}
	r.ctx, r.end = context.WithCancel(ctx)
	return r
}

// run opens and runs the mirror, again and again until it is ended.
func (r *controlled) run() {
	defer close(r.ended)
	defer r.down(nil, time.Time{})
	defer r.end()
	if r.after != nil {
		<-r.after.ended
		r.after = nil
	}
	pace := r.c.pace()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for r.ctx.Err() == nil {
		began := time.Now()
		err := r.once()
		if r.ctx.Err() != nil {
			return
		}
		if time.Since(began) > r.c.opts.RetryMax {
			pace.Reset()
		}
		wait := pace.NextBackOff()
		if errors.Is(err, errRedefined) || errors.Is(err, ErrSuperseded) { // which waits for its turn
			wait = 0
		}
		r.down(err, time.Now().Add(wait))
		if wait > 0 {
			r.c.opts.Logger.Warn("mirror does not run, trying again", "mirror", r.name, "wait", wait, "err", err)
		}
		timer.Reset(wait)
		select {
		case <-r.ctx.Done():
		case <-r.kick:
			pace.Reset()
		case <-timer.C:
		}
	}
}

// errRedefined ends an attempt because the definition has other settings now.
var errRedefined = errors.New("the definition has changed")

// once opens the mirror and runs it until it ends or is ended.
func (r *controlled) once() (err error) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	def := r.begin(cancel)
	source, destination, err := r.c.open(ctx, def)
	defer func() { err = errors.Join(err, closeEnds(source, destination)) }()
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	beyond, err := r.beyond(ctx, def)
	defer func() { err = errors.Join(err, closeEnds(beyond)) }()
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	m, err := r.assemble(ctx, def, source, destination, beyond)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := m.Run(ctx); err != nil {
			return err
		}
		return errEnded // so that the contact ends too
	})
	group.Go(func() error { return r.contact(ctx, m) })
	r.up(m, def.Revision)
	err = group.Wait()
	if r.definition().Revision != def.Revision && !sameSettings(r.definition(), def) {
		return errRedefined
	}
	return err
}

// errEnded: a mirror's Run has ended without being told to.
var errEnded = errors.New("the source or the destination has ended by itself")

func closeEnds(ends ...any) error {
	var errs []error
	for i, e := range ends {
		if i > 0 && e != nil && reflect.TypeOf(e).Comparable() && e == ends[0] {
			continue // one thing is both
		}
		if c, ok := e.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// beyond is what is asked besides the store; nil where nothing is.
func (r *controlled) beyond(ctx context.Context, def coordinator.Definition) (coordinator.Positions, error) {
	if r.c.opts.Peers == nil {
		return nil, nil
	}
	return r.c.opts.Peers(ctx, def)
}

// assemble makes the mirror as its definition and the store have it.
func (r *controlled) assemble(ctx context.Context, def coordinator.Definition, source Source, destination Destination, beyond coordinator.Positions) (*Mirror, error) {
	opts, err := r.c.options(def)
	if err != nil {
		return nil, err
	}
	guard := &peers{r: r, beyond: beyond}
	opts.Positions = guard
	m, err := New(def.Name, source, destination, &opts)
	if err != nil {
		return nil, err
	}
	guard.m = m
	records, err := r.c.store.Load(ctx, def.Name)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	m.catalog.pin(def.SourceID, def.DestinationID)
	for _, t := range topicsOf(records) {
		if !t.stopped { // what is stopped is an ordinary topic
			m.catalog.put(cluster.Topic{Name: t.name, ID: t.id, Partitions: t.partitions})
		}
	}
	return m, nil
}

// begin notes an attempt and gives what it is made of.
func (r *controlled) begin(again context.CancelFunc) coordinator.Definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again, r.madeOf = again, r.def
	return r.def
}

func (r *controlled) up(m *Mirror, revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mirror, r.err, r.retryAt = m, nil, time.Time{}
	if r.revision = revision; sameSettings(r.def, r.madeOf) {
		r.revision = r.def.Revision
	}
	r.refilter() // of a new mirror all are fresh
}

func (r *controlled) down(err error, retryAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mirror, r.err, r.retryAt = nil, err, retryAt
}

func (r *controlled) definition() coordinator.Definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.def
}

// open is the mirror while it is open; nil when it is not.
func (r *controlled) open() *Mirror {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mirror
}

// follows is the revision of the definition that the open mirror follows.
func (r *controlled) follows() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revision
}

// trouble is why the mirror is not open, and when it is tried again.
func (r *controlled) trouble() (error, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err, r.retryAt
}

// wake has a mirror that waits to be tried again be tried now.
func (r *controlled) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// adopt takes a definition as it is stored now. Other topics are only other topics;
// with other settings the mirror is opened anew.
func (r *controlled) adopt(def coordinator.Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.def
	if def.Revision <= old.Revision {
		return
	}
	r.def = def
	if !sameSettings(old, def) {
		if r.again != nil {
			r.again()
		}
		r.wake()
		return
	}
	r.revision = def.Revision
	if !slices.Equal(old.Include, def.Include) || !slices.Equal(old.Exclude, def.Exclude) {
		r.refilter(slices.DeleteFunc(slices.Clone(def.Include), func(e string) bool { return slices.Contains(old.Include, e) })...)
	}
}

// refilter gives the mirror the topics of the definition, and says which entries were
// added; the lock is held.
func (r *controlled) refilter(added ...string) {
	filter, err := topics.NewFilter(r.def.Include, r.def.Exclude)
	if err != nil || r.mirror == nil {
		return // nothing with a bad entry is stored by a Controller
	}
	r.mirror.catalog.mu.Lock()
	r.mirror.catalog.filter = filter
	r.mirror.catalog.fresh = append(r.mirror.catalog.fresh, added...)
	r.mirror.catalog.mu.Unlock()
	r.mirror.kickSync()
}

func sameSettings(a, b coordinator.Definition) bool {
	return maps.Equal(a.Source, b.Source) && maps.Equal(a.Destination, b.Destination) && maps.Equal(a.Config, b.Config)
}

// contact pins the ids of the two clusters as soon as both have answered.
func (r *controlled) contact(ctx context.Context, m *Mirror) error {
	attempt := func() error {
		_, err := r.pin(ctx, m)
		return err
	}
	backoff.Retry(attempt, backoff.WithContext(r.c.pace(), ctx)) // until then, or until the mirror ends
	return nil
}

// pin has the ids of the two clusters stored in the definition. Nothing is copied
// before: a later look at other clusters behind the same addresses has to be found
// out, and loops are found by the ids.
func (r *controlled) pin(ctx context.Context, m *Mirror) (coordinator.Definition, error) {
	if def := r.definition(); def.SourceID != "" && def.DestinationID != "" {
		return def, nil
	}
	bounded, cancel := context.WithTimeout(ctx, r.c.opts.ContactTimeout)
	defer cancel()
	source, destination, err := identities(bounded, m.source, m.destination)
	if err != nil {
		return coordinator.Definition{}, err
	}
	def, err := r.c.redefine(ctx, r.name, func(d *coordinator.Definition) error {
		d.SourceID, d.DestinationID = orPinned(d.SourceID, source), orPinned(d.DestinationID, destination)
		return nil
	})
	if err == nil {
		m.catalog.pin(def.SourceID, def.DestinationID)
	}
	return def, err
}

func orPinned(pinned, now string) string {
	if pinned != "" {
		return pinned
	}
	return now
}

// identities asks both clusters who they are.
func identities(ctx context.Context, source Source, destination Destination) (string, string, error) {
	s, err := source.ID(ctx)
	if err != nil {
		return "", "", fmt.Errorf("source cluster id: %w", err)
	}
	d, err := destination.ID(ctx)
	if err != nil {
		return "", "", fmt.Errorf("destination cluster id: %w", err)
	}
	if s == d && s != "" {
		return "", "", fmt.Errorf("%w: id %s", ErrSameCluster, s)
	}
	return s, d, nil
}
