package preflight

import (
	"github.com/clustermirror/mirror/cluster"
)

// Side is one of the two clusters.
type Side string

// The two sides of a mirror.
const (
	Source      Side = "source"
	Destination Side = "destination"
)

// Facts are what was gathered. What could not be is nil, or has an error: that is judged
// too, and keeps nothing else from being judged.
type Facts struct {
	Mirror              string
	Source, Destination Cluster
	Plan                Plan
	Topics              []Topic  // of the mirror, by name
	Missing             []string // names that are asked for and that the source does not show
	// Recorded: a store says what the mirror has done before; RecordErr why it does not.
	Recorded  bool
	RecordErr error
	// PeerErr is why it is not known what mirrors the other way have left at the source.
	PeerErr error
}

// Plan is what the mirror is told to do besides copying.
type Plan struct {
	Configs, Groups, ACLs, Guard bool
	// Cuts: the destination can cut the tail of a log, and may.
	Cuts bool
	// Join: the destination is joined as a broker. JoinErrs say why that would be refused.
	Join     bool
	JoinErrs []error
	// StateTopic holds the mirror's state at the destination, PeerTopic that of mirrors the
	// other way at the source; empty where no topic does.
	StateTopic, PeerTopic string
}

// Cluster is one side.
type Cluster struct {
	ID     string
	Pinned string // the id that the mirror has on record; empty when there is none
	Err    error  // nothing at all can be asked
	// Inspection is nil where the kind of cluster has none to give, or Err says why.
	*Inspection
	// Groups are those that the mirror copies; GroupsErr says why they are not (all) known.
	Groups    []string
	GroupsErr error
}

// Topic is a topic of the mirror on both sides.
type Topic struct {
	Name       string
	Partitions int32
	Here       Settings // at the source
	There      Settings // at the destination: as they are, or would be once it is created
	// Exists, and with how many partitions, at the destination.
	Exists          bool
	TherePartitions int32
	// Created is what the destination answers to the wish to create it; Altered to the
	// changes of settings that are due, named in Due.
	Created, Altered error
	Due              []string
	// DueLasting: one of them decides how long records live: it is set before the first
	// record comes.
	DueLasting bool
	// Factor is the replication factor at the destination; 0 when that is not known.
	Factor int
	Logs   []Log // by partition, as far as they were looked at
	// Peer is why a mirror the other way forbids it; nil when none does.
	Peer error
}

// Settings are all that hold for a topic, by name; nil when they are not known.
type Settings struct {
	Values map[string]string
	Err    error
}

// Log is one partition's ends on both sides.
type Log struct {
	Here, There       cluster.Offsets
	HereErr, ThereErr error
	// Ours: it is on record how the destination's log came to be: this mirror has appended
	// there, or one the other way has read it.
	Ours bool
	// Back: a mirror the other way has stopped, so that this one brings back what came since.
	// Common is the offset up to which the logs were the same then; 0 when nothing tells.
	Back   bool
	Common int64
}
