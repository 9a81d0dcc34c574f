package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// operation is one operation on topics of a mirror.
type operation struct {
	c       *Controller
	op      string
	mirror  string
	entries []string

	desired coordinator.Desired // what is recorded; empty: nothing is
	recover bool
	reached coordinator.State // what is waited for; empty: nothing is
	stopped bool              // it is about stopped topics too, not only where they are named
	refuse  func(ctx context.Context) error
	filter  func(def *coordinator.Definition) error
	perform func(context.Context, *Mirror) error // at a mirror that runs here

	def     coordinator.Definition
	stored  map[string]topicRecords // topics of which there are records, by name
	wishes  map[string]coordinator.Desired
	names   []string // topics that the operation is about, sorted
	refused map[string]error
	todo    []string // entries for the running mirror
}

func (o *operation) run(ctx context.Context) ([]TopicResult, error) {
	if err := o.prepare(ctx); err != nil {
		return nil, fault(o.op, o.mirror, err)
	}
	if o.filter != nil {
		if _, err := o.c.redefine(ctx, o.mirror, o.filter); err != nil {
			return nil, fault(o.op, o.mirror, err)
		}
	}
	if o.c.live(o.mirror) == nil {
		if err := o.record(ctx); err != nil {
			return nil, fault(o.op, o.mirror, err)
		}
		if o.reached == "" || o.c.phase.Load() != phaseRunning {
			return o.results(nil, nil)
		}
	}
	if !o.plan() && (o.op != "promote" || o.finished()) {
		return o.results(nil, nil)
	}
	m, err := o.whenLive(ctx)
	if m != nil && o.op == "stop" {
		err = errors.Join(err, o.widen(ctx, m))
	}
	return o.results(m, err)
}

// prepare reads what is stored and finds out which topics are meant, and which of
// those are refused.
func (o *operation) prepare(ctx context.Context) (err error) {
	if o.def, err = o.c.definition(ctx, o.mirror); err != nil {
		return err
	}
	records, err := o.c.store.Load(ctx, o.mirror)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	o.stored, o.refused = map[string]topicRecords{}, map[string]error{}
	for _, t := range topicsOf(records) {
		o.stored[t.name] = t
	}
	if o.wishes, err = o.c.wishes(ctx, o.mirror); err != nil {
		return err
	}
	for name, t := range o.stored {
		if _, ok := o.wishes[name]; !ok {
			o.wishes[name] = t.desired
		}
	}
	if o.names, err = o.matching(o.c.live(o.mirror)); err != nil || o.refuse == nil {
		return err
	}
	return o.refuse(ctx)
}

// matching are the known topics that the entries match, and the names among the
// entries.
func (o *operation) matching(m *Mirror) ([]string, error) {
	known := map[string]bool{}
	for name := range o.wishes { // of what is stored too
		known[name] = true
	}
	if m != nil {
		for _, name := range m.catalog.names() {
			known[name] = true
		}
	}
	if len(o.entries) == 0 {
		for _, e := range o.def.Include { // named in the definition, and not seen yet
			if topics.Literal(e) && !slices.Contains(o.def.Exclude, e) {
				known[e] = true
			}
		}
	}
	for name := range known {
		if !o.stopped && o.wishes[name] == coordinator.WantStopped {
			delete(known, name)
		}
	}
	for _, e := range o.entries {
		if topics.Literal(e) {
			known[e] = true
		}
	}
	return topics.Select(o.entries, sorted(known))
}

// plan says what a running mirror is asked for; false when nothing is.
func (o *operation) plan() bool {
	o.todo = nil
	for _, e := range o.entries {
		if o.stopped && !topics.Literal(e) { // it may match what is found later
			o.todo = append(o.todo, e)
		}
	}
	m := o.c.live(o.mirror)
	for _, name := range o.names {
		_, known := o.stored[name]
		if m != nil && !known {
			_, known = m.catalog.get(name)
		}
		if o.refused[name] == nil && !o.done(name) && (known || slices.Contains(o.entries, name) || o.reached == "") {
			o.todo = append(o.todo, name)
		}
	}
	// A store that knows nothing of the mirror may have been lost: then everything at
	// the destination is looked at.
	return len(o.todo) > 0 || o.op == "stop" && len(o.entries)+len(o.stored) == 0
}

// promote promotes what the entries match once all topics are known.
func (o *operation) promote(ctx context.Context, m *Mirror) (err error) {
	if err := m.firstSync(ctx); err != nil {
		return m.fault(o.op, err)
	}
	if o.names, err = o.matching(m); err != nil {
		return m.fault(o.op, err)
	}
	o.names = slices.DeleteFunc(o.names, func(name string) bool { // named in the definition, and not at the source
		_, stored := o.stored[name]
		_, found := m.catalog.get(name)
		return !stored && !found && len(o.entries) == 0
	})
	switch {
	case o.plan():
		return m.Promote(ctx, o.todo...)
	case len(o.names) == 0 && len(o.entries) > 0:
		return m.fault(o.op, fmt.Errorf("%w: nothing matches %q", ErrUnknownTopic, o.entries))
	}
	return nil
}

// done: a stop that is finished has nothing left to do, whoever is down.
func (o *operation) done(name string) bool {
	t, ok := o.stored[name]
	return ok && o.reached == coordinator.StateStopped && t.stopped && o.wishes[name] == coordinator.WantStopped
}

// finished: all that is meant is done. A topic that is only named in the definition may have
// records at the source that nobody has seen yet.
func (o *operation) finished() bool {
	return len(o.names) > 0 && !slices.ContainsFunc(o.names, func(name string) bool { return !o.done(name) })
}

// whenLive performs the operation as soon as the mirror runs here, and again when
// the mirror has ended meanwhile.
func (o *operation) whenLive(ctx context.Context) (*Mirror, error) {
	tick := time.NewTicker(catchUpLook)
	defer tick.Stop()
	for {
		if m := o.c.live(o.mirror); m != nil {
			if err := o.perform(ctx, m); !errors.Is(err, ErrNotRunning) {
				return m, err
			}
		}
		if o.c.phase.Load() == phaseEnded {
			return nil, fault(o.op, o.mirror, ErrNotRunning)
		}
		select {
		case <-ctx.Done():
			return nil, fault(o.op, o.mirror, o.notOpen(ctx.Err()))
		case <-tick.C:
		}
	}
}

// notOpen says why nothing was done yet.
func (o *operation) notOpen(err error) error {
	err = fmt.Errorf("the mirror is not open: %w", err)
	if r := o.c.of(o.mirror); r != nil {
		why, _ := r.trouble()
		err = errors.Join(err, why)
	}
	return err
}

// widen takes up topics that a stop has found at the destination, and has them
// excluded too.
func (o *operation) widen(ctx context.Context, m *Mirror) error {
	names, err := o.matching(m)
	if err != nil || slices.Equal(names, o.names) {
		return err
	}
	o.names = names
	_, err = o.c.redefine(ctx, o.mirror, o.exclude)
	return err
}

// record stores what is wanted, for when the mirror runs.
func (o *operation) record(ctx context.Context) error {
	var intents []coordinator.Intent
	for _, name := range o.names {
		in := coordinator.Intent{Topic: name, Desired: o.desired, Recover: o.recover}
		if o.recover {
			in.Desired = o.wishes[name]
		}
		if in.Desired != "" && o.refused[name] == nil && !o.done(name) {
			intents = append(intents, in)
		}
	}
	if len(intents) == 0 {
		return nil
	}
	if _, err := o.c.store.SaveIntents(ctx, o.mirror, intents); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// wishes are the last stored intents of operators, by topic.
func (c *Controller) wishes(ctx context.Context, mirror string) (map[string]coordinator.Desired, error) {
	out, revisions := map[string]coordinator.Desired{}, map[string]int64{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch, err := c.store.Watch(ctx, mirror)
	if errors.Is(err, errors.ErrUnsupported) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	select {
	case intents := <-ch:
		for _, in := range intents {
			if in.Revision > revisions[in.Topic] {
				out[in.Topic], revisions[in.Topic] = in.Desired, in.Revision
			}
		}
		return out, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
