package mirror

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// worst is how many partitions a Status details.
const worst = 100

// Status is a mirror at one moment. It is a value; nothing in it changes later.
type Status struct {
	Mirror      string    `json:"mirror"`
	Time        time.Time `json:"time"`
	Running     bool      `json:"running"`
	Standby     bool      `json:"standby,omitempty"`     // it is another process's turn
	Source      string    `json:"source,omitempty"`      // cluster id, once known
	Destination string    `json:"destination,omitempty"` // cluster id, once known

	Topics     int                       `json:"topics"`
	Partitions int                       `json:"partitions"`
	States     map[coordinator.State]int `json:"states"`
	// Health is the worst partition's: "failed" when one is FAILED or a topic is
	// refused, "troubled" when one is waiting for something to get better,
	// "ok" otherwise.
	Health string `json:"health"`

	Lag     int64 `json:"lag"` // offsets still to be copied, all partitions
	Records int64 `json:"records"`
	Batches int64 `json:"batches"`
	Bytes   int64 `json:"bytes"`
	Corrupt int64 `json:"corrupt"`
	// Skipped and Truncated as in PartitionStatus, all partitions.
	Skipped   int64 `json:"skipped,omitempty"`
	Truncated int64 `json:"truncated,omitempty"`

	// Filled as in PartitionStatus; Filling counts the partitions that show one, Held those
	// that wait for a transaction of the source to end.
	Filled  int64 `json:"filled,omitempty"`
	Filling int   `json:"filling,omitempty"`
	Held    int   `json:"held,omitempty"`
	// Stamped counts the partitions with EpochsOfDestination.
	Stamped int `json:"stamped,omitempty"`
	// ProducersFrom is the least producer id of the source that has another one at the
	// destination, as all above it: their batches are not the source's byte for byte. Nil
	// while none has.
	ProducersFrom *int64 `json:"producersFrom,omitempty"`

	// Worst are the partitions that need looking at most, at most a hundred: the
	// failed ones, then those in trouble, then by lag.
	Worst []PartitionStatus `json:"worst"`
	// Groups are consumer groups and share groups; nil before they were first compared.
	Groups *GroupsStatus `json:"groups,omitempty"`
	// Refused are topics that cannot be mirrored as they stand, with the reason.
	Refused map[string]string `json:"refused,omitempty"`
	// Missing are topics that are named and that the source does not have, Gone topics of
	// the mirror that it no longer has, as the last look saw it.
	Missing []string `json:"missing,omitempty"`
	Gone    []string `json:"gone,omitempty"`
	// Differences are settings that hold by default, and otherwise at the destination,
	// where they decide how long records live or how large they may be. They are not copied.
	Differences []topics.Difference `json:"differences,omitempty"`

	Synced    *time.Time `json:"synced,omitempty"`    // last successful look for topics
	SyncError string     `json:"syncError,omitempty"` // why the last look failed
	// Syncs are the kinds of metadata that are kept in step, topics first.
	Syncs []SyncStatus `json:"syncs,omitempty"`
	// EventsDropped counts events that nobody was quick enough to take.
	EventsDropped int64 `json:"eventsDropped,omitempty"`
}

// SyncStatus is how one kind of metadata fares. It is a value.
type SyncStatus struct {
	Kind string `json:"kind"` // SyncTopics and so on
	// Synced is when a round last succeeded; nil before the first. Error is why the last
	// one failed, empty when it did not, and Err the same for errors.Is.
	Synced *time.Time `json:"synced,omitempty"`
	Error  string     `json:"error,omitempty"`
	Err    error      `json:"-"`

	Rounds   int64 `json:"rounds"`             // by this process
	Failures int   `json:"failures,omitempty"` // rounds in a row that have failed
	// Idle says why there is nothing to do for this kind.
	Idle string `json:"idle,omitempty"`

	// Done counts what was done by this process, Seen what the last successful round
	// found, by words of the kind.
	Done map[string]int64 `json:"done,omitempty"`
	Seen map[string]int64 `json:"seen,omitempty"`
	// Notes are what an operator should know though nothing failed.
	Notes []string `json:"notes,omitempty"`
	// Refused are single ones that the last successful round could not bring in step, with
	// the reason.
	Refused map[string]string `json:"refused,omitempty"`
}

// Status shows the mirror as it is now. It never waits for a cluster.
func (m *Mirror) Status() Status {
	s := Status{Mirror: m.name, Time: time.Now(), Running: m.running(), Standby: m.waiting.Load(), EventsDropped: m.events.dropped.Load()}
	m.catalog.mu.Lock()
	s.Source, s.Destination, s.Topics = m.catalog.source, m.catalog.dest, len(m.catalog.topics)
	s.Missing = slices.Clone(m.catalog.missing)
	for name, err := range m.catalog.refused {
		if s.Refused == nil {
			s.Refused = map[string]string{}
		}
		s.Refused[name] = err.Error()
	}
	m.catalog.mu.Unlock()
	if from, ok := m.producersFrom(); ok {
		s.ProducersFrom = &from
	}

	s.Gone = m.gone()
	if d := m.differences.Load(); d != nil {
		s.Differences = slices.Clone(*d)
	}
	for _, k := range m.kinds {
		s.Syncs = append(s.Syncs, k.now())
	}
	s.Synced, s.SyncError = s.Syncs[0].Synced, s.Syncs[0].Error
	s.Groups = m.groupsNow()
	s.States = maps.Clone(m.coord.Counts())
	all := m.coord.All()
	s.Partitions = len(all)
	details := make([]PartitionStatus, len(all))
	for i, snap := range all {
		p := m.partition(snap)
		details[i] = p
		if p.State != coordinator.StateStopped {
			s.Lag += p.Lag
		}
		s.Records += p.Records
		s.Batches += p.Batches
		s.Bytes += p.Bytes
		s.Corrupt += p.Corrupt
		s.Skipped += p.Skipped
		s.Truncated += p.Truncated
		s.Filled += p.Filled
		if p.Filling != nil {
			s.Filling++
		}
		if p.Held != nil {
			s.Held++
		}
		if p.Epochs == EpochsOfDestination {
			s.Stamped++
		}
	}
	slices.SortFunc(details, func(a, b PartitionStatus) int {
		return cmp.Or(severity(b)-severity(a), cmp.Compare(b.Lag, a.Lag), a.Partition.Compare(b.Partition))
	})
	s.Worst = slices.Clone(details[:min(len(details), worst)])
	s.Health = health(s)
	return s
}

func severity(p PartitionStatus) int {
	switch {
	case p.State == coordinator.StateFailed && !p.Retriable:
		return 3
	case p.State == coordinator.StateFailed:
		return 2
	case p.Reason != "":
		return 1
	}
	return 0
}

func health(s Status) string {
	most := 0
	if len(s.Worst) > 0 {
		most = severity(s.Worst[0])
	}
	switch {
	case most >= 2 || len(s.Refused) > 0:
		return "failed"
	case most == 1 || len(s.Missing) > 0 || slices.ContainsFunc(s.Syncs, func(k SyncStatus) bool { return k.Error != "" || len(k.Refused) > 0 }):
		return "troubled"
	}
	return "ok"
}
