package coordinator

import (
	"context"
	"errors"

	"github.com/clustermirror/mirror/cluster"
)

// ErrConflict: the stored record is not the one the writer saw, or belongs to a
// later owner.
var ErrConflict = errors.New("record was written by another")

// Store keeps the records of mirrors and what operators want of them. All
// methods are safe for concurrent use, bounded by ctx, and durable when they
// return nil. Records and intents are values; slices handed over or given back
// belong to the receiver, except Record.Epochs, which nobody changes.
type Store interface {
	// Load gives every record of the mirror, in no particular order.
	Load(ctx context.Context, mirror string) ([]Record, error)
	// Save writes each record whose StateEpoch is the stored one plus one and
	// whose OwnerEpoch is not below the stored one (both zero when there is no
	// record). The others get ErrConflict, and do not keep the rest from being
	// written. The answer has an entry for each record, in order. After any other
	// error the record may or may not have been written.
	Save(ctx context.Context, mirror string, records []Record) []error
	// Delete forgets the records and, where no record of the topic is left, its
	// intent. What is not there is no error.
	Delete(ctx context.Context, mirror string, partitions []cluster.Partition) error
	// SaveIntent stores what an operator wants, under a key of its own, so that a
	// command never fences a worker. The store gives each a Revision above all
	// that it gave before in this mirror; the one given is not looked at.
	SaveIntent(ctx context.Context, mirror string, intent Intent) error
	// Watch gives first all stored intents, in one piece (nil when there are
	// none), then those that changed; several changes may come in one piece, an
	// older intent of a topic may be left out for a newer. The channel is closed
	// when ctx ends or the store has lost the thread: then Watch is called again.
	Watch(ctx context.Context, mirror string) (<-chan []Intent, error)
}

// Intent is what an operator wants of one topic.
type Intent struct {
	Topic   string  `json:"topic"`
	Desired Desired `json:"desired"`
	// Recover: partitions that have failed are tried again now.
	Recover  bool  `json:"recover,omitempty"`
	Revision int64 `json:"revision"`
}
