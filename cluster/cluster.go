// Package cluster holds the words that every other package speaks: partitions,
// epochs, batches, topics, groups, and the errors a caller can decide on. It
// imports only the standard library.
package cluster

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
)

// Partition names one partition of a topic. It is a map key.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// String is the form Kafka's own tools print: topic-partition.
func (p Partition) String() string {
	return p.Topic + "-" + strconv.Itoa(int(p.Partition))
}

// Compare orders partitions by topic, then by number.
func (p Partition) Compare(o Partition) int {
	switch {
	case p.Topic < o.Topic:
		return -1
	case p.Topic > o.Topic:
		return 1
	}
	return int(p.Partition) - int(o.Partition)
}

// TopicID is the id a cluster gave a topic (KIP-516); zero where the cluster is
// too old to have ids. A topic that was deleted and created again has another.
type TopicID [16]byte

// String is the form Kafka's own tools print (unpadded URL-safe base64).
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// MarshalText writes the form of String.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the form of String.
func (id *TopicID) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || len(b) != len(id) {
		return fmt.Errorf("topic id %q is not 16 bytes of base64", text)
	}
	copy(id[:], b)
	return nil
}

// IsZero reports whether the cluster gave no id.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// NoEpoch is the leader epoch that is not known.
const NoEpoch int32 = -1

// EpochEnd is an epoch and the offset after its last record, as
// OffsetForLeaderEpoch and diverging fetch answers give them.
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// Leader is who leads a partition now: broker id (-1 when nobody does) and
// leader epoch.
type Leader struct {
	Broker int32
	Epoch  int32
}

// Offsets are the ends of one partition's log.
type Offsets struct {
	LogStart      int64 // first offset that is kept
	HighWatermark int64 // first offset that a consumer cannot read yet
}

// Position is where a mirror stopped: LME, the last source epoch mirrored, and
// LMO, the first offset not mirrored.
type Position struct {
	Epoch  int32 `json:"epoch"`
	Offset int64 `json:"offset"`
}

// Batch is one record batch (magic 2) as it came from the source. Bytes is a
// piece of a larger fetched buffer; who may change it is said where a Batch is
// handed over. Without Bytes it is a hole: offsets for which the source has no record
// that readers see.
type Batch struct {
	Base         int64 // first offset
	Next         int64 // offset after the last one
	Epoch        int32 // the source's leader epoch in the batch
	MaxTimestamp int64 // milliseconds; -1 when the batch has none
	// Gone: the hole lies below the source's log start, and what fills it will be deleted.
	Gone  bool
	Bytes []byte
}

// Hole reports whether the batch stands for offsets without records.
func (b *Batch) Hole() bool { return len(b.Bytes) == 0 }

// Topic is one topic as a cluster describes it.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions int32
	Internal   bool
}

// TopicConfig is one explicit topic setting.
type TopicConfig struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// NewTopic is a topic to be created. ReplicationFactor -1 means the cluster's
// default.
type NewTopic struct {
	Name              string        `json:"name"`
	Partitions        int32         `json:"partitions"`
	ReplicationFactor int16         `json:"replicationFactor"`
	Configs           []TopicConfig `json:"configs,omitempty"`
}

// Equal reports whether both describe the same topic, or nothing.
func (t *NewTopic) Equal(o *NewTopic) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.Name == o.Name && t.Partitions == o.Partitions && t.ReplicationFactor == o.ReplicationFactor &&
		slices.Equal(t.Configs, o.Configs)
}

// GroupState is how a consumer group stands, in Kafka's words ("Empty",
// "Stable", "Dead", ...).
type GroupState string

// Members reports whether a group in this state has members. Of a state that is not known
// nothing can be said: false.
func (s GroupState) Members() bool {
	switch s {
	case "", "Unknown", "Empty", "Dead":
		return false
	}
	return true
}

// Group is one consumer group.
type Group struct {
	Name  string
	State GroupState
	Type  string // "classic", "consumer", "share"; empty where the cluster does not say
}

// Committed is one committed offset of a group, or where a share group starts.
type Committed struct {
	Partition Partition
	Offset    int64
	Metadata  string
	// Scattered says that a share group has acknowledged records behind Offset, but not all from there on.
	Scattered bool
}

// GroupOffset is one group's committed offset on a partition that is known, or where a share group starts.
type GroupOffset struct {
	Group    string `json:"group"`
	Offset   int64  `json:"offset"`
	Metadata string `json:"metadata,omitempty"`
	Share    bool   `json:"share,omitempty"`
	// Scattered is Committed.Scattered.
	Scattered bool `json:"scattered,omitempty"`
}

// Span is a half-open range of offsets, [From, To).
type Span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Len is the number of offsets in the span.
func (s Span) Len() int64 { return max(0, s.To-s.From) }

func (s Span) String() string { return fmt.Sprintf("[%d,%d)", s.From, s.To) }

// Binding is one access rule, in the words of Kafka's tools: resource type and
// pattern type in capitals ("TOPIC", "LITERAL"), principal as "User:name".
type Binding struct {
	ResourceType string
	Name         string
	PatternType  string // LITERAL or PREFIXED
	Principal    string
	Host         string
	Operation    string
	Permission   string // ALLOW or DENY
}

// String is the rule in one line, for example "ALLOW User:app READ on TOPIC orders (LITERAL) from *".
func (b Binding) String() string {
	return fmt.Sprintf("%s %s %s on %s %s (%s) from %s", b.Permission, b.Principal, b.Operation, b.ResourceType, b.Name, b.PatternType, b.Host)
}
