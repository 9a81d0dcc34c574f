package coordinator

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// recordVersion is the version of the stored form of a Record. A reader refuses
// a version it does not know.
const recordVersion = 1

// noCut is the Cut of a record that has no truncation to make.
const noCut int64 = -1

// EpochStart is one entry of a partition's history: the first offset of a source
// leader epoch.
type EpochStart = epoch.Start

// Record is all that is stored of one partition of a mirror. It is a value; its
// slices are never changed in place, so copies may share them.
type Record struct {
	Partition cluster.Partition `json:"partition"`
	// TopicID is the source's, pinned at the first start. A topic with another
	// id is another topic and is never appended to.
	TopicID cluster.TopicID `json:"topicId,omitzero"`
	// Sources are the ids of the clusters that the topic comes from, nearest first:
	// the source, and where it is itself a mirror, the source's sources. Loops are
	// found by it.
	Sources []string `json:"sources,omitempty"`

	State    State   `json:"state"`
	Previous State   `json:"previous"` // the state before the last change of state
	Desired  Desired `json:"desired"`
	// OwnerEpoch grows by one whenever a worker takes the partition over, and
	// fences the one before. StateEpoch grows by one with every stored write.
	OwnerEpoch int32 `json:"ownerEpoch"`
	StateEpoch int32 `json:"stateEpoch"`

	Reason    string `json:"reason,omitempty"` // text of the last error; empty when there is none
	Retriable bool   `json:"retriable,omitempty"`
	Attempts  int    `json:"attempts,omitempty"` // failures in a row

	// Cut is the offset from which on the destination has to be truncated, stored
	// before the cut is made (I8); -1 when nothing has to be.
	Cut int64 `json:"cut"`
	// RebuildOf: the cut is made by deleting the destination's topic that has this id
	// and copying it again; zero when it is not.
	RebuildOf cluster.TopicID `json:"rebuildOf,omitzero"`
	// RebuildAs is how it is created again. It is never changed in place.
	RebuildAs *cluster.NewTopic `json:"rebuildAs,omitempty"`
	// Restore are committed offsets that a rebuild has taken from groups, to be given
	// back when the log reaches them.
	Restore []cluster.GroupOffset `json:"restore,omitempty"`
	// Position is where the last stretch stopped, when HasPosition. It is
	// forgotten once a later stretch is aligned.
	Position    cluster.Position `json:"position"`
	HasPosition bool             `json:"hasPosition,omitempty"`
	// Appended: something of this mirror may stand in the destination's log. Set
	// before the first append, never taken back.
	Appended bool `json:"appended,omitempty"`
	// Stretch counts the stretches begun; a start after a stop begins a new one.
	// Aligned: the alignment of this stretch was finished.
	Stretch int  `json:"stretch"`
	Aligned bool `json:"aligned,omitempty"`
	// Later: the partition was found when its mirror had begun. It is copied from the
	// source's log start, wherever else copies begin.
	Later bool `json:"later,omitempty"`
	// Alignment says how the common end was found, for people to read.
	Alignment string `json:"alignment,omitempty"`
	// Epochs is the history, both fields rising. Unproven: it was rebuilt after a
	// loss.
	Epochs   epoch.History `json:"epochs,omitempty"`
	Unproven bool          `json:"unproven,omitempty"`
	// Intent is the revision of the last operator's intent that was followed.
	Intent int64 `json:"intent,omitempty"`
}

// newRecord is the record of a partition that nothing is stored of.
func newRecord(p cluster.Partition) Record {
	return Record{
		Partition: p, State: StateUnknown, Previous: StateUnknown, Desired: WantMirroring,
		OwnerEpoch: 1, Cut: noCut,
	}
}

// NewStretch reports whether alignment has to begin a new stretch: the one
// before was stopped and what stands in the log since then is accepted.
func (r Record) NewStretch() bool { return r.Stretch > 1 && !r.Aligned }

// stopUnfinished: a stop has begun and has not come to its end. Whatever is
// wanted now, the stop is finished first: the log may be fenced already.
func (r Record) stopUnfinished() bool {
	return r.State == StateStopping || r.State == StateFailed && r.Previous == StateStopping
}

// equal reports whether two records say the same.
func (r Record) equal(o Record) bool {
	if !slices.Equal(r.Epochs, o.Epochs) || !slices.Equal(r.Sources, o.Sources) || !slices.Equal(r.Restore, o.Restore) ||
		!r.RebuildAs.Equal(o.RebuildAs) {
		return false
	}
	a, b := r, o
	return a.Partition == b.Partition && a.TopicID == b.TopicID && a.State == b.State &&
		a.Previous == b.Previous && a.Desired == b.Desired && a.OwnerEpoch == b.OwnerEpoch &&
		a.StateEpoch == b.StateEpoch && a.Reason == b.Reason && a.Retriable == b.Retriable &&
		a.Attempts == b.Attempts && a.Cut == b.Cut && a.RebuildOf == b.RebuildOf && a.Position == b.Position &&
		a.HasPosition == b.HasPosition && a.Appended == b.Appended && a.Stretch == b.Stretch &&
		a.Aligned == b.Aligned && a.Later == b.Later && a.Alignment == b.Alignment && a.Unproven == b.Unproven &&
		a.Intent == b.Intent
}

// stored is the JSON form: the fields of Record and a version.
type stored struct {
	Version int `json:"v"`
	storedFields
}

type storedFields Record

// MarshalJSON writes the stored form.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(stored{Version: recordVersion, storedFields: storedFields(r)})
}

// UnmarshalJSON reads the stored form and refuses what this version of the
// library cannot understand: another version, an unknown state or desired
// state, a history that does not rise.
func (r *Record) UnmarshalJSON(data []byte) error {
	s := stored{storedFields: storedFields{Cut: noCut}}
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s.Version != recordVersion {
		return fmt.Errorf("record version %d is not known (this library writes %d)", s.Version, recordVersion)
	}
	rec := Record(s.storedFields)
	if err := rec.validate(); err != nil {
		return err
	}
	*r = rec
	return nil
}

func (r Record) validate() error {
	switch {
	case r.Partition.Topic == "" || r.Partition.Partition < 0:
		return fmt.Errorf("record without a partition: %v", r.Partition)
	case !r.State.Valid() || !r.Previous.Valid():
		return fmt.Errorf("%v: state %q (previous %q) is not known", r.Partition, r.State, r.Previous)
	case !r.Desired.Valid():
		return fmt.Errorf("%v: desired state %q is not known", r.Partition, r.Desired)
	case r.State == StateULERecovery && r.Cut < 0:
		return fmt.Errorf("%v: %s without the offset to cut at", r.Partition, r.State)
	}
	if !r.Epochs.Valid() {
		return fmt.Errorf("%v: history goes back: %v", r.Partition, r.Epochs)
	}
	return nil
}
