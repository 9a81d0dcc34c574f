// Package offsets copies committed offsets of consumer groups, and start offsets of share
// groups. Offsets are the same on both clusters, so nothing is translated.
package offsets

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
)

// Source is the cluster groups are read from. Safe for concurrent use.
type Source interface {
	// Groups lists the groups of all brokers: classic, KIP-848 and share groups, and those
	// that only ever committed. With an error the list may have holes: it holds the groups
	// of those brokers that have answered.
	Groups(ctx context.Context) ([]cluster.Group, error)
	// Committed gives every committed offset of each group, in the order asked. What
	// concerns one group, or its coordinator, is that group's error.
	Committed(ctx context.Context, groups []string) ([]CommittedAnswer, error)
}

// CommittedAnswer answers one group of Committed.
type CommittedAnswer struct {
	Offsets []cluster.Committed
	// Unknown are partitions on which nothing could be learned of the group, and why.
	Unknown map[cluster.Partition]error
	Err     error
}

// Sink is the cluster groups are written to. Safe for concurrent use.
type Sink interface {
	Source
	// Commit writes offsets of one group that has no members. A group with
	// members is refused by the cluster (cluster.ErrMembers) and left as it is.
	Commit(ctx context.Context, group string, offsets []cluster.Committed) error
}

// ShareSource is the ability to tell where share groups start: the offset before which
// everything has been acknowledged (KIP-932). A cluster that has no share groups answers
// errors.ErrUnsupported.
type ShareSource interface {
	// ShareOffsets is Committed for share groups. They have no metadata. An offset may be lower
	// than where the group stands, as clusters write that down later.
	ShareOffsets(ctx context.Context, groups []string) ([]CommittedAnswer, error)
}

// ShareSink is the ability to set where share groups start.
type ShareSink interface {
	ShareSource
	// SetShareOffsets is Commit for a share group. One that is not there is made.
	SetShareOffsets(ctx context.Context, group string, offsets []cluster.Committed) error
}

// Notes is a place for small values, by mirror and key, which outlives the process; the
// state store of a mirror is one, see coordinator.Notes.
type Notes interface {
	Notes(ctx context.Context, mirror string) (map[string][]byte, error)
	SwapNotes(ctx context.Context, mirror string, was, now map[string][]byte) (refused []string, err error)
}
