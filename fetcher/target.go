package fetcher

import (
	"context"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// A Target is a partition to be aligned, with all that is recorded of it.
type Target struct {
	Stretch Stretch
	TopicID cluster.TopicID // the source's, as recorded; zero: not known yet
	// Context ends when nobody wants the outcome any more; nil: never. Filling a log start
	// goes on until then, however soon the context of Align ends.
	Context context.Context
	// Progress shows how far the filling of a log start has come; may be nil.
	Progress *Progress

	// Aligned: this stretch was aligned before, and is taken over or restarted.
	Aligned bool
	// Epochs is the history of this mirror's stretches; Unproven: it was rebuilt
	// after a loss, and records are compared instead.
	Epochs   epoch.History
	Unproven bool
	// Own is where this mirror's last stretch stopped, when no other has begun since.
	Own *cluster.Position
	// Peer is where the mirror the other way stopped: what the destination has below
	// it, in epochs up to Peer.Epoch as the destination's leaders number them, is what
	// the source has. Giving it is the permission to cut the rest.
	Peer *cluster.Position
	// PeerTopic is the id that the destination's topic had for the mirror the other
	// way; zero: not known. Of a topic that was made anew since, Peer says nothing.
	PeerTopic cluster.TopicID

	Policy Policy
}

// Policy says what alignment may do to a destination's log.
type Policy struct {
	// Start is where an empty destination begins that was never appended to.
	Start Start
	// Unclean: the log may be cut where the source has lost what was mirrored (the
	// topic's option UncleanRecovery).
	Unclean bool
	// DiscardLocalWrites: what was written after the own stop may be cut.
	DiscardLocalWrites bool
	// Scratch: a log may be emptied of which nothing tells how much is the source's.
	Scratch bool
}

// Start says where a copy begins. The zero value is the source's log start.
type Start struct {
	Latest bool // at the source's high watermark
	// Time is where it begins: at the batch that holds the first record with that
	// timestamp or a later one, and at the high watermark while there is none. The
	// zero Time says nothing. The source has to be able to find it (Times).
	Time time.Time
}

// Times is the optional ability of a source to find records by their timestamp
// (ListOffsets).
type Times interface {
	// OffsetsForTime gives for each partition the first offset whose record has the
	// timestamp or a later one, -1 when there is none. ms is milliseconds since 1970.
	OffsetsForTime(ctx context.Context, partitions []cluster.Partition, ms int64) ([]TimeAnswer, error)
}

// TimeAnswer answers one partition of OffsetsForTime.
type TimeAnswer struct {
	Offset int64
	Err    error
}

// Aligned is a partition whose destination log is known to be a prefix of the
// source's, and where copying goes on; or where it has to be cut first; or why
// neither.
type Aligned struct {
	// Assignment begins at the destination's log end as it is now. LastEpoch is the
	// source's epoch of the record before it, and where Cut is set, of the record
	// before Cut.
	Assignment
	Source cluster.Offsets
	How    string // how it was found, for people
	// Epochs is the history of the log below its end, or below Cut, in the source's
	// epochs; Unproven where nothing has shown that it is right.
	Epochs   epoch.History
	Unproven bool
	// Cut is the offset from which on the destination's log has to go before anything
	// is appended, -1 when nothing has to. It may lie below the log start: then
	// nothing of the log stays. Align again behind the cut: what shows then may begin
	// a new stretch, an empty log, or another cut.
	Cut int64
	Err error
}
