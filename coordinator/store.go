package coordinator

import (
	"context"
	"errors"
	"maps"
	"slices"

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
	// SaveIntents stores what an operator wants, each under a key of its own, so that
	// a command never fences a worker. The store gives each a Revision above all that
	// it gave before in this mirror, in the order of the slice; the ones given are
	// not looked at. The answer has the revisions, in that order; where another intent
	// for the topic has come since, it may be that one's. After an error some may have
	// been stored: saving again is harmless.
	SaveIntents(ctx context.Context, mirror string, intents []Intent) ([]int64, error)
	// Watch gives first all stored intents, in one piece (nil when there are
	// none), then those that changed; several changes may come in one piece, an
	// older intent of a topic may be left out for a newer. The channel is closed
	// when ctx ends or the store has lost the thread: then Watch is called again.
	Watch(ctx context.Context, mirror string) (<-chan []Intent, error)
}

// InTopic is the ability of a store to say which topic of the mirrors' destination it is
// kept in.
type InTopic interface{ StateTopic() string }

// Intent is what an operator wants of one topic.
type Intent struct {
	Topic   string  `json:"topic"`
	Desired Desired `json:"desired"`
	// Recover: partitions that have failed are tried again now.
	Recover  bool  `json:"recover,omitempty"`
	Revision int64 `json:"revision"`
}

// Definitions is the ability of a store to keep what mirrors there are. A host with
// one mirror does not need it; a controller of many does. Safe for concurrent use.
type Definitions interface {
	// Definitions gives all of them, in no particular order.
	Definitions(ctx context.Context) ([]Definition, error)
	// Define writes one whose Revision is the stored one's plus one (1 when there is
	// none); otherwise ErrConflict.
	Define(ctx context.Context, d Definition) error
	// Undefine forgets the definition with the mirror's records and intents. What is
	// not there is no error.
	Undefine(ctx context.Context, name string) error
}

// Definition is a mirror as an operator created it. What the settings mean is the
// host's affair: secrets do not belong here, references to them do.
type Definition struct {
	Name        string            `json:"name"`
	Revision    int64             `json:"revision"`
	Source      map[string]string `json:"source"` // connection settings, in the host's words
	Destination map[string]string `json:"destination,omitempty"`
	Config      map[string]string `json:"config,omitempty"`
	Include     []string          `json:"include,omitempty"`
	Exclude     []string          `json:"exclude,omitempty"`
	// SourceID and DestinationID are cluster ids, pinned at first contact; empty
	// before.
	SourceID      string `json:"sourceId,omitempty"`
	DestinationID string `json:"destinationId,omitempty"`
}

// clone shares nothing with d.
func (d Definition) clone() Definition {
	d.Source, d.Destination, d.Config = maps.Clone(d.Source), maps.Clone(d.Destination), maps.Clone(d.Config)
	d.Include, d.Exclude = slices.Clone(d.Include), slices.Clone(d.Exclude)
	return d
}
