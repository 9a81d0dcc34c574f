package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// Create defines a mirror, which then runs while Run does, and gives the definition
// as it is stored. Name and Source are needed; every bad field is reported at once.
// Include and Exclude are as in [Topics]; for the keys of Config see [ConfigKeys].
// The clusters are asked who they are: one cluster as both ends is refused
// (ErrSameCluster). Where they do not answer within ContactTimeout, the mirror is
// created all the same, and their ids are pinned when they first answer. Creating
// again what is there changes nothing; something else of that name is refused
// (ErrMirrorExists).
func (c *Controller) Create(ctx context.Context, def coordinator.Definition) (coordinator.Definition, error) {
	if err := c.check(def); err != nil {
		return coordinator.Definition{}, fault("create", def.Name, err)
	}
	if err := c.introduce(ctx, &def); err != nil {
		return coordinator.Definition{}, fault("create", def.Name, err)
	}
	def.Revision = 1
	err := c.store.Define(ctx, def)
	if errors.Is(err, coordinator.ErrConflict) {
		var there coordinator.Definition
		if there, err = c.definition(ctx, def.Name); err == nil && !sameSettings(there, def) {
			err = ErrMirrorExists
		}
		def = there
	}
	if err != nil {
		return coordinator.Definition{}, fault("create", def.Name, err)
	}
	c.lookNow()
	return def, nil
}

// check reports every bad field.
func (c *Controller) check(def coordinator.Definition) error {
	errs := []error{validName(def.Name)}
	if len(def.Source) == 0 {
		errs = append(errs, errors.New("source: is empty"))
	}
	_, err := c.options(def)
	errs = append(errs, err)
	_, err = topics.NewFilter(def.Include, def.Exclude)
	return errors.Join(append(errs, err)...)
}

// introduce asks the two clusters of a new mirror who they are.
func (c *Controller) introduce(ctx context.Context, def *coordinator.Definition) (err error) {
	bounded, cancel := context.WithTimeout(ctx, c.opts.ContactTimeout)
	defer cancel()
	source, destination, err := c.open(bounded, *def)
	if err == nil && source != nil && destination != nil {
		var s, d string
		if s, d, err = identities(bounded, source, destination); err == nil {
			def.SourceID, def.DestinationID = orPinned(def.SourceID, s), orPinned(def.DestinationID, d)
		}
	}
	if closed := closeEnds(source, destination); closed != nil {
		c.opts.Logger.Warn("end of a mirror not closed", "mirror", def.Name, "err", closed)
	}
	if errors.Is(err, ErrSameCluster) {
		return err
	}
	return ctx.Err()
}

// Delete forgets a mirror with all records of it. It is refused while a topic is not
// stopped (ErrNotStopped, with every such topic named), and there is no force: a
// topic whose mirror is forgotten while it is at work has no position, so that a
// failback could not go on from there but only copy everything. After a Delete that
// is so for every topic of the mirror: a mirror back needs the option Scratch. Topics
// at the destination stay as they are, and access rules that were copied are nobody's from
// then on. Deleting what is not there is no error.
func (c *Controller) Delete(ctx context.Context, name string) error {
	if err := c.deletable(ctx, name); err != nil { // before anything is halted
		return fault("delete", name, err)
	}
	resume, err := c.halt(ctx, name)
	defer resume()
	if err == nil {
		err = c.deletable(ctx, name)
	}
	if err == nil {
		err = c.letGo(ctx, name)
	}
	if err == nil {
		err = c.store.Undefine(ctx, name)
	}
	if err != nil {
		return fault("delete", name, err)
	}
	return nil
}

// deletable names the topics that are not stopped, and those that a guard has not let go.
func (c *Controller) deletable(ctx context.Context, name string) error {
	records, err := c.store.Load(ctx, name)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	var errs []error
	for _, t := range topicsOf(records) {
		if !t.stopped {
			errs = append(errs, topicError("delete", name, t.name, fmt.Errorf("%w: is %s", ErrNotStopped, t.state)))
		}
	}
	ledger, ok, err := c.ledger(ctx, name)
	if !ok || err != nil {
		return errors.Join(append(errs, err)...)
	}
	guarded, err := ledger.Guarded(ctx)
	for _, topic := range guarded {
		errs = append(errs, topicError("delete", name, topic, fmt.Errorf("%w: its guard has access rules at the destination still", ErrNotStopped)))
	}
	return errors.Join(append(errs, err)...)
}

// letGo strikes a mirror off the record of access rules.
func (c *Controller) letGo(ctx context.Context, name string) error {
	ledger, ok, err := c.ledger(ctx, name)
	if !ok || err != nil {
		return err
	}
	return ledger.Forget(ctx)
}

// ledger is where a mirror's access rules are on record; false when they are not, as it has
// met no destination, is not defined, or the store keeps no notes.
func (c *Controller) ledger(ctx context.Context, name string) (acl.Ledger, bool, error) {
	notes, can := c.store.(acl.Notes)
	def, err := c.definition(ctx, name)
	if errors.Is(err, ErrUnknownMirror) {
		return acl.Ledger{}, false, nil
	}
	return acl.Ledger{Notes: notes, Cluster: def.DestinationID, Mirror: name}, can && def.DestinationID != "", err
}

// definition reads one.
func (c *Controller) definition(ctx context.Context, name string) (coordinator.Definition, error) {
	all, err := c.store.Definitions(ctx)
	if err != nil {
		return coordinator.Definition{}, fmt.Errorf("store: %w", err)
	}
	for _, d := range all {
		if d.Name == name {
			return d, nil
		}
	}
	return coordinator.Definition{}, ErrUnknownMirror
}

// redefine changes a definition by compare-and-save: when another has written in
// between, the change is made again to what it wrote. What changes nothing is not
// written.
func (c *Controller) redefine(ctx context.Context, name string, change func(*coordinator.Definition) error) (coordinator.Definition, error) {
	for {
		old, err := c.definition(ctx, name)
		if err != nil {
			return old, err
		}
		def := old
		def.Include, def.Exclude = slices.Clone(old.Include), slices.Clone(old.Exclude)
		if err := change(&def); err != nil {
			return old, err
		}
		if !same(old, def) {
			def.Revision++
			err = c.store.Define(ctx, def)
		}
		if errors.Is(err, coordinator.ErrConflict) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return old, fmt.Errorf("store: %w", err)
		}
		if r := c.of(name); r != nil {
			r.adopt(def)
		}
		return def, nil
	}
}

func same(a, b coordinator.Definition) bool {
	return a.Revision == b.Revision && a.SourceID == b.SourceID && a.DestinationID == b.DestinationID &&
		slices.Equal(a.Include, b.Include) && slices.Equal(a.Exclude, b.Exclude) && sameSettings(a, b)
}

// topicRecords are the records of one topic of a mirror, in short.
type topicRecords struct {
	name       string
	id         cluster.TopicID
	partitions int32
	stopped    bool                // nothing of the mirror is at work on any partition
	state      coordinator.State   // of the first partition where something is
	desired    coordinator.Desired // of the partition that has followed the latest wish
	intent     int64
}

// topicsOf sorts records by topics, in the order of names.
func topicsOf(records []coordinator.Record) []topicRecords {
	of := map[string]*topicRecords{}
	for _, r := range slices.SortedFunc(slices.Values(records), func(a, b coordinator.Record) int {
		return a.Partition.Compare(b.Partition)
	}) {
		t := of[r.Partition.Topic]
		if t == nil {
			t = &topicRecords{name: r.Partition.Topic, stopped: true, state: coordinator.StateStopped, desired: r.Desired}
			of[t.name] = t
		}
		t.partitions = max(t.partitions, r.Partition.Partition+1)
		if !r.TopicID.IsZero() {
			t.id = r.TopicID
		}
		if r.Intent > t.intent {
			t.desired, t.intent = r.Desired, r.Intent
		}
		if !over(r) && t.stopped {
			t.stopped, t.state = false, r.State
		}
	}
	out := make([]topicRecords, 0, len(of))
	for _, t := range of {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b topicRecords) int { return cmp.Compare(a.name, b.name) })
	return out
}

// over: the partition is an ordinary one; nothing of the mirror is at work there.
func over(r coordinator.Record) bool {
	return r.State == coordinator.StateStopped || r.State == coordinator.StateUnknown && !r.Appended
}

func topicError(op, mirror, topic string, err error) error {
	return &Error{Op: op, Mirror: mirror, Partition: cluster.Partition{Topic: topic, Partition: -1}, Offset: -1, Err: err}
}

// sorted gives the keys of a set in order.
func sorted[V any](set map[string]V) []string { return slices.Sorted(maps.Keys(set)) }
