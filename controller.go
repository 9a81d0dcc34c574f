package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/clustermirror/mirror/coordinator"
)

// The errors of a [Controller], beside those of a [Mirror].
var (
	// ErrUnknownMirror: no mirror of that name is defined.
	ErrUnknownMirror = errors.New("no such mirror")
	// ErrMirrorExists: another mirror of that name is defined.
	ErrMirrorExists = errors.New("a mirror of that name exists and is another one")
	// ErrNotStopped: what is asked for needs every topic to be stopped.
	ErrNotStopped = errors.New("the topic is not stopped")
	// ErrExcluded: the topic is kept out by a pattern of the mirror's exclusion, and
	// is started by starting that pattern.
	ErrExcluded = errors.New("the topic is excluded by a pattern")
)

// Store is what a [Controller] keeps everything in: the definitions of mirrors,
// their records, and what operators want. [coordinator.Memory] is one.
type Store interface {
	coordinator.Store
	coordinator.Definitions
	coordinator.Positions
}

// Opener opens the two ends of a mirror from its definition. It is called when the
// mirror is created, when it begins to run, and for each later attempt, for several
// mirrors at once; it should not wait for a cluster to answer. What it gives belongs
// to the Controller, which closes an end that has a method Close() error once the
// mirror has ended; an opener that shares an end between mirrors hides that method.
type Opener func(ctx context.Context, d coordinator.Definition) (Source, Destination, error)

// ControllerOptions of a Controller. The zero value is good.
type ControllerOptions struct {
	// Mirrors are the options of every mirror, as far as its definition's Config does
	// not say otherwise. Topics, Store and Positions are the Controller's to set and
	// have to be empty. Default: as in [Options].
	Mirrors Options
	// Logger. Default: silent.
	Logger *slog.Logger
	// LookInterval is how often definitions are read again, so that what another
	// process has defined is noticed. Default: 10 s.
	LookInterval time.Duration
	// ContactTimeout bounds one attempt to have the two clusters say who they are.
	// Default: 5 s.
	ContactTimeout time.Duration
	// Peers opens what tells where mirrors into a mirror's source have stopped, and where
	// topics there come from, when the store of this Controller does not hold those mirrors:
	// the state store of the source cluster. It is called each time a mirror is opened and
	// should not wait for a cluster to answer. What it gives is asked besides the store and
	// belongs to the Controller, which closes it where it has a method Close() error. An
	// answer that does not come keeps topics from being copied. Default: nil, the store alone.
	Peers func(ctx context.Context, d coordinator.Definition) (coordinator.Positions, error)
	// RetryMin and RetryMax bound the wait before a mirror that could not be opened,
	// or has ended with an error, is tried again. Default: 1 s and 60 s.
	RetryMin, RetryMax time.Duration
}

func (o *ControllerOptions) normalize() (ControllerOptions, error) {
	var v ControllerOptions
	if o != nil {
		v = *o
	}
	var errs []error
	if len(v.Mirrors.Topics.Include)+len(v.Mirrors.Topics.Exclude) > 0 {
		errs = append(errs, errors.New("Mirrors.Topics: belongs into a definition"))
	}
	if v.Mirrors.Store != nil {
		errs = append(errs, errors.New("Mirrors.Store: is the controller's"))
	}
	if v.Mirrors.Positions != nil {
		errs = append(errs, errors.New("Mirrors.Positions: are the controller's"))
	}
	if _, _, err := v.Mirrors.normalize(); err != nil {
		errs = append(errs, fmt.Errorf("Mirrors: %w", err))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"LookInterval", v.LookInterval}, {"ContactTimeout", v.ContactTimeout},
		{"RetryMin", v.RetryMin}, {"RetryMax", v.RetryMax},
	} {
		if d.d < 0 {
			errs = append(errs, fmt.Errorf("%s: %v is negative", d.name, d.d))
		}
	}
	v.LookInterval = cmp.Or(v.LookInterval, 10*time.Second)
	v.ContactTimeout = cmp.Or(v.ContactTimeout, 5*time.Second)
	v.RetryMin = cmp.Or(v.RetryMin, time.Second)
	v.RetryMax = cmp.Or(v.RetryMax, time.Minute)
	if v.RetryMax < v.RetryMin {
		errs = append(errs, fmt.Errorf("RetryMax: %v is below RetryMin (%v)", v.RetryMax, v.RetryMin))
	}
	v.Logger = cmp.Or(v.Logger, slog.New(slog.DiscardHandler))
	v.Mirrors.Logger = cmp.Or(v.Mirrors.Logger, v.Logger)
	return v, errors.Join(errs...)
}

// Controller runs many mirrors over one store. What is defined survives the
// process, and so do the desired states of topics. Its methods are safe for
// concurrent use, before, while and after Run runs. A second Controller over the
// same store takes partitions over from the first, and fences it there.
type Controller struct {
	store Store
	open  Opener
	opts  ControllerOptions
	look  chan struct{} // capacity 1: look at the definitions now
	phase atomic.Int32

	running sync.WaitGroup // the mirrors

	mu    sync.Mutex
	runs  map[string]*controlled
	ended map[string]*controlled // the last of each name that was told to end
	held  map[string]int         // mirrors that must not be begun just now
}

// NewController makes a Controller and reports every bad option at once. It asks
// nobody anything. opts may be nil and is copied.
func NewController(store Store, open Opener, opts *ControllerOptions) (*Controller, error) {
	o, err := opts.normalize()
	errs := []error{err}
	if store == nil {
		errs = append(errs, errors.New("store: is nil"))
	}
	if open == nil {
		errs = append(errs, errors.New("open: is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("new controller: %w", err)
	}
	return &Controller{
		store: store, open: open, opts: o, look: make(chan struct{}, 1),
		runs: map[string]*controlled{}, ended: map[string]*controlled{}, held: map[string]int{},
	}, nil
}

// Run runs every defined mirror until ctx ends and then returns nil; nothing is
// left running. Mirrors do not depend on each other: one that cannot be opened, or
// ends with an error, is tried again later and says why in Describe. Trouble with
// the store is waited out. Run can be called once.
func (c *Controller) Run(ctx context.Context) error {
	if !c.phase.CompareAndSwap(phaseNew, phaseRunning) {
		return fmt.Errorf("controller: %w", ErrRunning)
	}
	defer c.phase.Store(phaseEnded)
	ctx, cancel := context.WithCancel(ctx)
	defer c.running.Wait()
	defer cancel()
	pace := c.pace()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.look:
		case <-timer.C:
		}
		if err := c.reconcile(ctx); err != nil && ctx.Err() == nil {
			c.opts.Logger.Warn("definitions of mirrors cannot be read, trying again", "err", err)
			timer.Reset(pace.NextBackOff())
			continue
		}
		pace.Reset()
		timer.Reset(c.opts.LookInterval)
	}
}

// pace spaces attempts.
func (c *Controller) pace() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(c.opts.RetryMin),
		backoff.WithMaxInterval(c.opts.RetryMax), backoff.WithMaxElapsedTime(0))
}

func (c *Controller) lookNow() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

// reconcile makes what runs what is defined.
func (c *Controller) reconcile(ctx context.Context) error {
	before := c.followed() // before definitions are read: what has a lower revision then is another mirror
	all, err := c.store.Definitions(ctx)
	if err != nil {
		return err
	}
	defined := make(map[string]coordinator.Definition, len(all))
	for _, d := range all {
		defined[d.Name] = d
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, r := range c.runs {
		if d, ok := defined[name]; !ok || another(before[r], d) {
			c.drop(r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(defined)) {
		switch r := c.runs[name]; {
		case r != nil:
			r.adopt(defined[name])
		case c.held[name] == 0 && ctx.Err() == nil:
			r = newControlled(ctx, c, defined[name], c.ended[name])
			delete(c.ended, name)
			c.runs[name] = r
			c.running.Go(r.run)
		}
	}
	return nil
}

// followed are the definitions that mirrors follow here.
func (c *Controller) followed() map[*controlled]coordinator.Definition {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[*controlled]coordinator.Definition, len(c.runs))
	for _, r := range c.runs {
		out[r] = r.definition()
	}
	return out
}

// another: the mirror was deleted, and one of its name created.
func another(before, now coordinator.Definition) bool {
	return now.Revision < before.Revision || now.Revision == before.Revision && !same(before, now)
}

// drop tells a mirror to end; the lock is held.
func (c *Controller) drop(r *controlled) {
	r.end()
	delete(c.runs, r.name)
	c.ended[r.name] = r
}

// halt ends a mirror and keeps it from being begun until resume is called.
func (c *Controller) halt(ctx context.Context, name string) (resume func(), err error) {
	c.mu.Lock()
	c.held[name]++
	r := c.runs[name]
	if r != nil {
		c.drop(r)
	}
	c.mu.Unlock()
	resume = func() {
		c.mu.Lock()
		if c.held[name]--; c.held[name] == 0 {
			delete(c.held, name)
		}
		c.mu.Unlock()
		c.lookNow()
	}
	if r == nil {
		return resume, nil
	}
	select {
	case <-r.ended:
		return resume, nil
	case <-ctx.Done():
		return resume, ctx.Err()
	}
}

// of is what runs of a mirror here; nil when nothing does.
func (c *Controller) of(name string) *controlled {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[name]
}

// live is a mirror while it runs here; nil when it does not.
func (c *Controller) live(name string) *Mirror {
	if r := c.of(name); r != nil {
		if m := r.open(); m != nil && m.running() {
			return m
		}
	}
	return nil
}

func fault(op, mirror string, err error) error {
	return &Error{Op: op, Mirror: mirror, Offset: -1, Err: err}
}
