// Package offsets copies committed offsets of consumer groups. Offsets are the
// same on both clusters, so nothing is translated.
package offsets

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
)

// Source is the cluster groups are read from. Safe for concurrent use.
type Source interface {
	// Groups lists the consumer groups of all brokers, classic and KIP-848.
	Groups(ctx context.Context) ([]cluster.Group, error)
	// Committed gives every committed offset of each group, in the order asked.
	Committed(ctx context.Context, groups []string) ([]CommittedAnswer, error)
}

// CommittedAnswer answers one group of Committed.
type CommittedAnswer struct {
	Offsets []cluster.Committed
	Err     error
}

// Sink is the cluster groups are written to. Safe for concurrent use.
type Sink interface {
	Source
	// Commit writes offsets of one group that has no members. A group with
	// members is refused by the cluster (cluster.ErrRefused) and left as it is.
	Commit(ctx context.Context, group string, offsets []cluster.Committed) error
}
