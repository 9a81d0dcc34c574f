package offsets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/clustermirror/mirror/cluster"
)

const (
	// parallel is how many groups are committed at a time.
	parallel = 32
	// portion is how many groups are put on record at a time.
	portion = 500
	// patience is the default of Copier.Patience.
	patience = 30 * time.Second
)

// A Copier copies committed offsets of consumer groups, and start offsets of share groups
// where both clusters have them, from one cluster to the other. The offsets are the same on
// both. It does one copy at a time.
type Copier struct {
	Source      Source
	Destination Sink
	Filter      *Filter // default: as a Filter without entries
	// Ledger is what was committed before. Default: nothing is known and kept, so groups only go forwards.
	Ledger *Ledger
	// Logs gives those of the partitions that are copied and whose log at the destination is
	// known. It is asked after groups were read, so that nothing that a group has
	// read lies behind it.
	Logs func(ctx context.Context, partitions []cluster.Partition) (map[cluster.Partition]Log, error)
	// Patience bounds each step of a copy: reading all groups, or writing one. What has not
	// been answered by then is left for the next copy. Default: 30 s.
	Patience time.Duration
	// Last says that no copy follows: what cannot be put on record is written nevertheless.
	Last bool
}

// Copy does one round. Groups with members at the destination are refused by the cluster and
// left alone (I11). One group, or one coordinator, that does not answer keeps no other from
// being copied (I10). What is not found in a cluster is neither deleted nor moved. When ctx
// ends, writes that are under way are waited for, as they cannot be taken back.
func (c Copier) Copy(ctx context.Context) (Report, error) {
	t := newTally()
	if c.Patience == 0 {
		c.Patience = patience
	}
	if c.Ledger == nil {
		c.Ledger = NewLedger(nil, "")
	}
	if err := c.Ledger.load(ctx); err != nil && !c.Last {
		return t.Report, err
	}
	groups, err := bounded(ctx, c.Patience, c.Source.Groups)
	if err != nil && len(groups) == 0 {
		return t.Report, fmt.Errorf("source groups: %w", err)
	}
	t.warn("source groups", err)
	names := map[string][]string{}
	for _, g := range groups {
		if !c.Filter.Includes(g.Name) {
			t.Excluded = append(t.Excluded, g.Name)
			continue
		}
		names[kindOf(g)] = append(names[kindOf(g)], g.Name)
	}
	var errs []error
	for _, w := range c.ways() {
		if len(names[w.kind]) > 0 {
			errs = append(errs, c.copyKind(ctx, w, names[w.kind], t))
		}
	}
	return t.Report, errors.Join(errs...)
}

func kindOf(g cluster.Group) string {
	if g.Type == "share" {
		return shareNotes
	}
	return groupNotes
}

// bounded calls with some time.
func bounded[T any](ctx context.Context, d time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return call(ctx)
}

type read = func(context.Context, []string) ([]CommittedAnswer, error)

// way is how a kind of groups is read and written.
type way struct {
	kind         string
	theirs, ours read
	commit       func(context.Context, string, []cluster.Committed) error
}

// ways are those that both clusters know.
func (c Copier) ways() []way {
	ways := []way{{groupNotes, c.Source.Committed, c.Destination.Committed, c.Destination.Commit}}
	from, can := c.Source.(ShareSource)
	to, too := c.Destination.(ShareSink)
	if can && too {
		ways = append(ways, way{shareNotes, from.ShareOffsets, to.ShareOffsets, to.SetShareOffsets})
	}
	return ways
}

func (c Copier) copyKind(ctx context.Context, w way, names []string, t *tally) error {
	theirs, ours, err := c.both(ctx, w, names)
	if w.kind == shareNotes && errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	t.Matched += len(names)
	logs, err := bounded(ctx, c.Patience, func(ctx context.Context) (map[cluster.Partition]Log, error) { return c.Logs(ctx, partitions(theirs)) })
	if err != nil {
		return fmt.Errorf("destination logs: %w", err)
	}
	var changes []Change
	write := false
	for i, name := range names {
		if err := theirs[i].Err; err != nil {
			t.fail(name, "at the source", err)
			continue
		}
		if err := ours[i].Err; err != nil {
			t.fail(name, "at the destination", err)
			continue
		}
		logs, err := known(logs, theirs[i], ours[i])
		if err != nil {
			t.fail(name, "in part", err)
		}
		ch := Diff(name, theirs[i].Offsets, ours[i].Offsets, c.Ledger.marks(key(w.kind, name)), logs)
		t.left(ch)
		if write = write || len(ch.Offsets) > 0; len(ch.Offsets) > 0 || len(ch.Marks) > 0 {
			changes = append(changes, ch)
		}
	}
	if write {
		changes = c.free(ctx, w, changes, t)
	}
	for some := range slices.Chunk(changes, portion) {
		if err := c.apply(ctx, w, some, t); err != nil {
			return err
		}
	}
	return nil
}

// both reads groups on both sides.
func (c Copier) both(ctx context.Context, w way, names []string) (theirs, ours []CommittedAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	var group errgroup.Group
	group.Go(func() (err error) {
		if theirs, err = w.theirs(ctx, names); err != nil {
			err = fmt.Errorf("source committed offsets: %w", err)
		}
		return err
	})
	group.Go(func() (err error) {
		if ours, err = w.ours(ctx, names); err != nil {
			err = fmt.Errorf("destination committed offsets: %w", err)
		}
		return err
	})
	return theirs, ours, group.Wait()
}

// known leaves out the logs of partitions on which a side does not know of the group.
func known(logs map[cluster.Partition]Log, sides ...CommittedAnswer) (map[cluster.Partition]Log, error) {
	unknown := map[cluster.Partition]error{}
	for _, a := range sides {
		for p, err := range a.Unknown {
			if _, copied := logs[p]; copied {
				unknown[p] = err
			}
		}
	}
	if len(unknown) == 0 {
		return logs, nil
	}
	logs = maps.Clone(logs)
	for p := range unknown {
		delete(logs, p)
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(unknown)), cluster.Partition.Compare)
	return logs, fmt.Errorf("unknown on %d partitions, on %v: %w", len(unknown), first, unknown[first])
}

// partitions are those in which groups have committed.
func partitions(answers []CommittedAnswer) []cluster.Partition {
	seen := map[cluster.Partition]bool{}
	var ps []cluster.Partition
	add := func(p cluster.Partition) {
		if !seen[p] {
			seen[p] = true
			ps = append(ps, p)
		}
	}
	for _, a := range answers {
		for _, o := range a.Offsets {
			add(o.Partition)
		}
		for p := range a.Unknown {
			add(p)
		}
	}
	return ps
}

// free leaves out groups that have members at the destination now, or are of another kind
// there. Of those that cannot be looked at the cluster knows when they are written.
func (c Copier) free(ctx context.Context, w way, changes []Change, t *tally) []Change {
	groups, err := bounded(ctx, c.Patience, c.Destination.Groups)
	t.warn("destination groups", err)
	there := make(map[string]cluster.Group, len(groups))
	for _, g := range groups {
		there[g.Name] = g
	}
	return slices.DeleteFunc(changes, func(ch Change) bool {
		g, ok := there[ch.Group]
		switch {
		case !ok || len(ch.Offsets) == 0:
			return false
		case kindOf(g) != w.kind:
			t.fail(ch.Group, "at the destination", fmt.Errorf("%w: it is a %s group there", cluster.ErrRefused, g.Type))
		case g.State.Members():
			t.active(ch)
		default:
			return false
		}
		return true
	})
}

// apply puts changes on record and writes them, many at a time.
func (c Copier) apply(ctx context.Context, w way, changes []Change, t *tally) error {
	marks := make(map[string]Marks, len(changes))
	for _, ch := range changes {
		if len(ch.Marks) > 0 {
			marks[key(w.kind, ch.Group)] = ch.Marks
		}
	}
	refused, err := c.Ledger.record(ctx, marks)
	if err != nil && !c.Last {
		return err
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	done := make([]bool, len(changes))
	for i, ch := range changes {
		if len(ch.Offsets) == 0 {
			continue
		}
		if k := key(w.kind, ch.Group); slices.Contains(refused, k) && !c.Last {
			t.fail(ch.Group, "commit", fmt.Errorf("%w: another process has just written it", cluster.ErrUnavailable))
			continue
		}
		group.Go(func() error {
			done[i] = ctx.Err() == nil && c.commit(ctx, w, ch, t)
			return nil
		})
	}
	group.Wait()
	for i, ch := range changes {
		if done[i] {
			c.Ledger.settle(key(w.kind, ch.Group), ch.Offsets)
		}
	}
	return ctx.Err()
}

// commit writes one group. That is not given up when ctx ends: what is written late could
// land on what others have written.
func (c Copier) commit(ctx context.Context, w way, ch Change, t *tally) (done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Patience)
	defer cancel()
	err := w.commit(ctx, ch.Group, ch.Offsets)
	switch {
	case err == nil:
		t.wrote(ch)
	case errors.Is(err, cluster.ErrMembers):
		t.active(ch)
	default:
		t.fail(ch.Group, "commit", err)
	}
	return err == nil
}
