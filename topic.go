package mirror

import (
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// Topic is one topic of a mirror as a host sees it. It is a value.
type Topic struct {
	Name       string            `json:"name"`
	ID         string            `json:"id,omitempty"` // the source's; empty where it has none
	Partitions []PartitionStatus `json:"partitions"`
	// Refused says why the topic cannot be mirrored as it stands; empty when it can.
	Refused string `json:"refused,omitempty"`
}

// PartitionStatus is where one partition stands. Offsets are -1 while they are
// not known.
type PartitionStatus struct {
	cluster.Partition
	State   coordinator.State   `json:"state"`
	Desired coordinator.Desired `json:"desired"`

	// Reason is why the partition is FAILED, or why it makes no progress just now
	// though it goes on trying; empty when all is well. Err is the same for
	// errors.Is.
	Reason    string     `json:"reason,omitempty"`
	Err       error      `json:"-"`
	Retriable bool       `json:"retriable,omitempty"`
	Attempts  int        `json:"attempts,omitempty"`
	RetryAt   *time.Time `json:"retryAt,omitempty"`

	SourceStart    int64 `json:"sourceStart"`    // the source's log start
	SourceEnd      int64 `json:"sourceEnd"`      // the source's high watermark
	DestinationEnd int64 `json:"destinationEnd"` // all below it is copied
	Lag            int64 `json:"lag"`            // offsets still to be copied

	Records int64 `json:"records"` // offsets copied by this process
	Batches int64 `json:"batches"`
	Bytes   int64 `json:"bytes"`   // as on the wire
	Corrupt int64 `json:"corrupt"` // batches that arrived corrupt and were fetched again
	// Skipped counts offsets that the source deleted before they were copied,
	// Truncated those that were cut from the destination's log; by this process.
	Skipped   int64 `json:"skipped,omitempty"`
	Truncated int64 `json:"truncated,omitempty"`

	// Filled counts offsets at which the source has no record that readers see, and that
	// were filled at the destination; by this process.
	Filled int64 `json:"filled,omitempty"`
	// Filling says how far the destination is with a long stretch of such offsets, or with
	// all that is below the source's log start; nil when it is at work on none. It shows
	// ten thousand offsets and more: fewer are over at once.
	Filling *fetcher.Filling `json:"filling,omitempty"`
	// Held says which transaction, open at the source, the partition waits for; nil when
	// none does. Lag counts what is behind it.
	Held *fetcher.Held `json:"held,omitempty"`

	// Epochs says whose leader epochs the batches get that are copied now, where the
	// destination's log can keep the source's; empty where it cannot, and while it is not
	// known. Those that are there already keep what they have.
	Epochs Epochs `json:"epochs,omitempty"`

	LastAppend   *time.Time        `json:"lastAppend,omitempty"`
	NewestRecord *time.Time        `json:"newestRecord,omitempty"` // timestamp of the newest record copied
	Position     *cluster.Position `json:"position,omitempty"`     // where the last stretch stopped
	Alignment    string            `json:"alignment,omitempty"`    // how the common end of the logs was found
}

// Epochs names whose leader epochs stand in a destination's log.
type Epochs string

// Whose they are.
const (
	EpochsOfSource      Epochs = "source"
	EpochsOfDestination Epochs = "destination" // it could not be raised above the source's
)

// Topics are the topics of the mirror that are known by now, by name.
func (m *Mirror) Topics() []Topic {
	names := m.catalog.names()
	m.catalog.mu.Lock()
	for name := range m.catalog.refused {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	m.catalog.mu.Unlock()
	slices.Sort(names)
	out := make([]Topic, 0, len(names))
	for _, name := range names {
		if t, ok := m.Topic(name); ok {
			out = append(out, t)
		}
	}
	return out
}

// Topic is one topic with all its partitions; false when it is not known. It
// never waits for a cluster.
func (m *Mirror) Topic(name string) (Topic, bool) {
	t, known := m.catalog.get(name)
	m.catalog.mu.Lock()
	refused := m.catalog.refused[name]
	m.catalog.mu.Unlock()
	if !known && refused == nil {
		return Topic{}, false
	}
	out := Topic{Name: name}
	if refused != nil {
		out.Refused = refused.Error()
	}
	if !t.ID.IsZero() {
		out.ID = t.ID.String()
	}
	for _, p := range partitionsOf(t) {
		s, ok := m.coord.Snapshot(p)
		if !ok {
			s.Partition, s.State, s.Desired = p, coordinator.StateUnknown, coordinator.WantMirroring
		}
		out.Partitions = append(out.Partitions, m.partition(s))
	}
	return out, true
}

// partition puts a partition's record and its figures together.
func (m *Mirror) partition(s coordinator.Snapshot) PartitionStatus {
	g := m.boards.get(s.Partition)
	out := PartitionStatus{
		Partition: s.Partition, State: s.State, Desired: s.Desired,
		Reason: s.Reason, Err: s.Err, Retriable: s.Retriable, Attempts: s.Attempts, Alignment: s.Alignment,
		SourceStart: g.LogStart.Load(), SourceEnd: g.Source.Load(), DestinationEnd: g.LogEnd.Load(),
		Records: g.Records.Load(), Batches: g.Batches.Load(), Bytes: g.Bytes.Load(), Corrupt: g.Corrupt.Load(),
		Skipped: g.Skipped.Load(), Truncated: g.Truncated.Load(), Filled: g.Filled.Load(),
		RetryAt: moment(s.RetryAt), LastAppend: millis(g.Landed.Load()), NewestRecord: millis(g.Newest.Load()),
	}
	out.Epochs = m.epochs(s.Partition)
	if out.Filling = m.filling(s); out.Filling != nil {
		out.DestinationEnd = max(out.DestinationEnd, out.Filling.At)
	}
	if out.DestinationEnd < 0 {
		out.DestinationEnd = g.Seen.Load()
	}
	if out.SourceEnd >= 0 {
		out.Lag = max(0, out.SourceEnd-max(out.DestinationEnd, g.LogStart.Load(), 0))
	}
	if s.HasPosition {
		out.Position = &s.Position
	}
	if s.State == coordinator.StateMirroring {
		out.Err, out.Reason = trouble(g)
		out.Held = g.Held()
	}
	return out
}

// epochs is whose leader epochs a partition's batches get.
func (m *Mirror) epochs(p cluster.Partition) Epochs {
	if !m.traits.KeepsEpochs {
		return ""
	}
	if m.can.stamper == nil {
		return EpochsOfSource
	}
	switch stamps, known := m.can.stamper.Stamps(p); {
	case !known:
		return ""
	case stamps:
		return EpochsOfDestination
	}
	return EpochsOfSource
}

// longFilling is the least that is shown as a partition's Filling.
const longFilling = 10_000

// filling is what of a partition is being filled, where that takes a while.
func (m *Mirror) filling(s coordinator.Snapshot) *fetcher.Filling {
	if m.can.filler == nil || s.State != coordinator.StateMirroring && s.State != coordinator.StateLogAlignment {
		return nil
	}
	f, ok := m.can.filler.Filling(s.Partition)
	if !ok || f.To-f.From < longFilling {
		return nil
	}
	return &f
}

func trouble(g *fetcher.Progress) (error, string) {
	err := g.Trouble()
	if err == nil {
		return nil, ""
	}
	return err, err.Error()
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func millis(ms int64) *time.Time {
	if ms <= 0 {
		return nil
	}
	t := time.UnixMilli(ms)
	return &t
}
