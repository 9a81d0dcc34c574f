package offsets

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/clustermirror/mirror/cluster"
)

// parallel is how many groups are committed at a time.
const parallel = 8

// console are the throw-away groups of Kafka's console consumer.
var console = regexp.MustCompile(`^console-consumer-\d+$`)

// A Copier copies committed offsets of consumer groups from one cluster to the
// other. The offsets are the same on both.
type Copier struct {
	Source      Source
	Destination Sink
}

// A Change is one group's offsets to be written.
type Change struct {
	Group   string
	Offsets []cluster.Committed
	Clamped int // of them, those above the destination's high watermark
}

// A Report says what a copy did.
type Report struct {
	Groups  int              // groups written
	Offsets int              // offsets written
	Clamped int              // written lower than committed: the destination does not reach so far
	Failed  map[string]error // groups that were not written, with the reason
}

// Copy copies what groups committed on the partitions that within names, each
// offset held within the destination's log that within gives. Groups with
// members at the destination are refused by the cluster and left alone.
func (c Copier) Copy(ctx context.Context, within map[cluster.Partition]cluster.Offsets) (Report, error) {
	report := Report{Failed: map[string]error{}}
	groups, err := c.Source.Groups(ctx)
	if err != nil {
		return report, fmt.Errorf("source groups: %w", err)
	}
	var names []string
	for _, g := range groups {
		if g.Type != "share" && !console.MatchString(g.Name) {
			names = append(names, g.Name)
		}
	}
	if len(names) == 0 {
		return report, nil
	}
	theirs, err := c.Source.Committed(ctx, names)
	if err != nil {
		return report, fmt.Errorf("source committed offsets: %w", err)
	}
	ours, err := c.Destination.Committed(ctx, names)
	if err != nil {
		return report, fmt.Errorf("destination committed offsets: %w", err)
	}
	var changes []Change
	for i, name := range names {
		if err := errors.Join(theirs[i].Err, ours[i].Err); err != nil {
			report.Failed[name] = fmt.Errorf("group %s: %w", name, err)
			continue
		}
		if ch := Diff(name, theirs[i].Offsets, ours[i].Offsets, within); len(ch.Offsets) > 0 {
			changes = append(changes, ch)
		}
	}
	c.apply(ctx, changes, &report)
	return report, nil
}

// Diff gives what has to be committed for a group. It is pure.
func Diff(group string, source, destination []cluster.Committed, within map[cluster.Partition]cluster.Offsets) Change {
	have := make(map[cluster.Partition]cluster.Committed, len(destination))
	for _, o := range destination {
		have[o.Partition] = o
	}
	ch := Change{Group: group}
	for _, o := range source {
		log, ok := within[o.Partition]
		if !ok || o.Offset < 0 {
			continue
		}
		if o.Offset > log.HighWatermark {
			ch.Clamped++
		}
		o.Offset = max(log.LogStart, min(o.Offset, log.HighWatermark))
		if h, ok := have[o.Partition]; ok && h.Offset == o.Offset && h.Metadata == o.Metadata {
			continue
		}
		ch.Offsets = append(ch.Offsets, o)
	}
	return ch
}

func (c Copier) apply(ctx context.Context, changes []Change, report *Report) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, ch := range changes {
		group.Go(func() error {
			err := c.Destination.Commit(ctx, ch.Group, ch.Offsets)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				report.Failed[ch.Group] = fmt.Errorf("group %s: commit: %w", ch.Group, err)
				return nil
			}
			report.Groups++
			report.Offsets += len(ch.Offsets)
			report.Clamped += ch.Clamped
			return nil
		})
	}
	group.Wait()
}
