package mirror

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// Overview is a mirror in one line.
type Overview struct {
	Name          string `json:"name"`
	SourceID      string `json:"sourceId,omitempty"` // cluster ids, once both clusters have answered
	DestinationID string `json:"destinationId,omitempty"`
	Running       bool   `json:"running"` // here
	// Revision is that of the definition which the running mirror follows; 0 when none runs.
	Revision int64 `json:"revision,omitempty"`
	// Reason is why the mirror does not run though the Controller does, Err the same
	// for errors.Is, RetryAt when it is tried again.
	Reason  string     `json:"reason,omitempty"`
	Err     error      `json:"-"`
	RetryAt *time.Time `json:"retryAt,omitempty"`

	States map[coordinator.State]int `json:"states"` // partitions in each state
}

// Description is all that is known of a mirror at one moment.
type Description struct {
	Overview
	Definition coordinator.Definition `json:"definition"`
	// Status is the mirror's own where it runs here. Elsewhere it is made of what is
	// stored: without offsets and figures.
	Status Status `json:"status"`
	// Gone are topics of the mirror that the source no longer has, as the last look
	// saw it; stopped topics are not looked for.
	Gone []string `json:"gone,omitempty"`
}

// List gives all mirrors by name. It asks the store alone.
func (c *Controller) List(ctx context.Context) ([]Overview, error) {
	all, err := c.store.Definitions(ctx)
	if err != nil {
		return nil, fmt.Errorf("list: store: %w", err)
	}
	slices.SortFunc(all, func(a, b coordinator.Definition) int { return strings.Compare(a.Name, b.Name) })
	out := make([]Overview, len(all))
	for i, d := range all {
		out[i] = c.overview(d)
		if m := c.live(d.Name); m != nil {
			out[i].States = m.coord.Counts()
			continue
		}
		records, err := c.store.Load(ctx, d.Name)
		if err != nil {
			return nil, fmt.Errorf("list: store: %w", err)
		}
		out[i].States = storedStatus(d.Name, records).States
	}
	return out, nil
}

// Describe gives one mirror with totals, and the hundred partitions that need looking
// at most. It asks the store alone.
func (c *Controller) Describe(ctx context.Context, mirror string) (Description, error) {
	def, err := c.definition(ctx, mirror)
	if err != nil {
		return Description{}, fault("describe", mirror, err)
	}
	d := Description{Overview: c.overview(def), Definition: def}
	if m := c.live(mirror); m != nil {
		d.Status, d.Gone = m.Status(), m.gone()
	} else {
		records, err := c.store.Load(ctx, mirror)
		if err != nil {
			return Description{}, fault("describe", mirror, fmt.Errorf("store: %w", err))
		}
		d.Status = storedStatus(mirror, records)
		d.Status.Source, d.Status.Destination = def.SourceID, def.DestinationID
	}
	d.States = d.Status.States
	return d, nil
}

// Topics gives the topics of a mirror, by name, with all their partitions: the mirror's
// own where it runs here, elsewhere what is stored of them. It asks the store alone.
func (c *Controller) Topics(ctx context.Context, mirror string) ([]Topic, error) {
	if _, err := c.definition(ctx, mirror); err != nil {
		return nil, fault("topics", mirror, err)
	}
	if m := c.live(mirror); m != nil {
		return m.Topics(), nil
	}
	records, err := c.store.Load(ctx, mirror)
	if err != nil {
		return nil, fault("topics", mirror, fmt.Errorf("store: %w", err))
	}
	return storedTopics(records), nil
}

func storedTopics(records []coordinator.Record) []Topic {
	out := []Topic{}
	for _, t := range topicsOf(records) {
		out = append(out, Topic{Name: t.name})
		if !t.id.IsZero() {
			out[len(out)-1].ID = t.id.String()
		}
	}
	for _, r := range slices.SortedFunc(slices.Values(records), func(a, b coordinator.Record) int { return a.Partition.Compare(b.Partition) }) {
		i, _ := slices.BinarySearchFunc(out, r.Partition.Topic, func(t Topic, name string) int { return strings.Compare(t.Name, name) })
		out[i].Partitions = append(out[i].Partitions, storedPartition(r))
	}
	return out
}

func (c *Controller) overview(d coordinator.Definition) Overview {
	o := Overview{Name: d.Name, SourceID: d.SourceID, DestinationID: d.DestinationID, Running: c.live(d.Name) != nil}
	if r := c.of(d.Name); r != nil && o.Running {
		o.Revision = r.follows()
	} else if r != nil {
		err, at := r.trouble()
		if o.Err = err; err != nil {
			o.Reason, o.RetryAt = err.Error(), moment(at)
		}
	}
	return o
}

// gone are the topics that the last look did not find at the source.
func (m *Mirror) gone() []string {
	m.catalog.mu.Lock()
	defer m.catalog.mu.Unlock()
	out := map[string]bool{}
	for name, e := range m.catalog.topics {
		if !e.absent.IsZero() {
			out[name] = true
		}
	}
	return sorted(out)
}

// storedStatus is what the records alone tell.
func storedStatus(mirror string, records []coordinator.Record) Status {
	s := Status{Mirror: mirror, Time: time.Now(), States: map[coordinator.State]int{}, Topics: len(topicsOf(records)), Partitions: len(records)}
	details := make([]PartitionStatus, len(records))
	for i, r := range records {
		s.States[r.State]++
		details[i] = storedPartition(r)
	}
	slices.SortFunc(details, func(a, b PartitionStatus) int {
		return cmp.Or(severity(b)-severity(a), a.Partition.Compare(b.Partition))
	})
	s.Worst = slices.Clone(details[:min(len(details), worst)])
	s.Health = health(s)
	return s
}

func storedPartition(r coordinator.Record) PartitionStatus {
	out := PartitionStatus{
		Partition: r.Partition, State: r.State, Desired: r.Desired, Reason: r.Reason, Retriable: r.Retriable,
		Attempts: r.Attempts, Alignment: r.Alignment, SourceStart: -1, SourceEnd: -1, DestinationEnd: -1,
	}
	if r.HasPosition {
		out.Position = &cluster.Position{Epoch: r.Position.Epoch, Offset: r.Position.Offset}
	}
	return out
}
