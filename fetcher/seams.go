package fetcher

import (
	"context"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Source is the cluster a mirror copies from. All methods are safe for
// concurrent use and bounded by ctx. A partition that cannot be answered has
// its own error in the answer; the call itself fails only when nothing could be
// asked.
type Source interface {
	// Leaders says who leads each partition and the topic's id. fresh asks the
	// cluster; otherwise an answer from memory will do. Answers are in the order
	// of the question.
	Leaders(ctx context.Context, partitions []cluster.Partition, fresh bool) ([]LeaderAnswer, error)
	// Open starts a fetch session with one broker, on a connection of its own.
	Open(ctx context.Context, broker int32) (Session, error)
	// Offsets gives log start and high watermark at the leaders.
	Offsets(ctx context.Context, partitions []cluster.Partition) ([]OffsetsAnswer, error)
	Epochs
	// Reader reads single places of the log: alignment compares with it.
	Reader
}

// Epochs tells where leader epochs end in a cluster's logs (OffsetForLeaderEpoch).
// A destination that has it too lets a failback keep all that both logs share,
// even when its own leaders have lost or gained records since.
type Epochs interface {
	// EpochEnds asks the leaders where an epoch ends in their logs.
	EpochEnds(ctx context.Context, queries []EpochQuery) ([]EpochAnswer, error)
}

// Reader reads whole batches from one place of a partition's log.
type Reader interface {
	// Read returns up to about maxBytes of whole record batches, the first of
	// which holds offset or is the first after it, in memory of their own. Empty
	// means there is nothing below the high watermark at or after offset.
	Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error)
}

// CommittedReader is the optional ability of a Reader to say what was aborted. A
// destination with Traits.Fills is compared with its source by what readers of committed
// records see, for which both need it where there are transactions.
type CommittedReader interface {
	// ReadCommitted is Read, but only up to the last stable offset; the aborted
	// transactions are those that have records in what it returns.
	ReadCommitted(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, []AbortedTransaction, error)
}

// LeaderAnswer answers one partition of Leaders.
type LeaderAnswer struct {
	cluster.Leader
	TopicID cluster.TopicID
	Err     error
}

// OffsetsAnswer answers one partition of Offsets.
type OffsetsAnswer struct {
	cluster.Offsets
	Err error
}

// EpochQuery asks where Epoch ends. Current is the leader epoch the asker
// believes in, or cluster.NoEpoch.
type EpochQuery struct {
	Partition cluster.Partition
	Current   int32
	Epoch     int32
}

// EpochAnswer answers one EpochQuery: the largest epoch at the leader not above
// the one asked, and its end. EndOffset is -1 when the leader knows none.
type EpochAnswer struct {
	cluster.EpochEnd
	Err error
}

// Session is one incremental fetch session (KIP-227) with one broker. It is used
// by one goroutine; Close may be called from another and ends a Fetch that waits.
type Session interface {
	// Fetch tells the broker what changed and waits for its answer. The request
	// and what it points to may be used again when Fetch returns. After an error
	// the session is of no more use.
	Fetch(ctx context.Context, req *FetchRequest) (*FetchResponse, error)
	Close() error
}

// FetchRequest is the difference to the request before it in the session.
type FetchRequest struct {
	Changed   []Want              // new partitions, and those whose position or size changed
	Forgotten []cluster.Partition // leave the session
	MaxWait   time.Duration       // the broker holds an empty answer that long
	MinBytes  int32
	MaxBytes  int32 // of the whole answer; a first batch may be larger
	// Committed asks for what readers of committed records see (READ_COMMITTED): up to
	// the last stable offset, together with what was aborted. It is the same in all
	// requests of a session.
	Committed bool
}

// Want is a partition as it is asked for.
type Want struct {
	Partition   cluster.Partition
	TopicID     cluster.TopicID
	Offset      int64 // fetch from here: the destination's log end
	LeaderEpoch int32 // the source's present one
	LastEpoch   int32 // epoch of the last mirrored batch, or cluster.NoEpoch
	MaxBytes    int32
}

// FetchResponse holds what arrived. Records are pieces of one pooled buffer
// that belongs to the receiver (who may write in it) until it calls Release,
// once.
type FetchResponse struct {
	Partitions []Fetched
	Size       int // bytes of memory the response holds on to
	// RoundTrip is how long the way to the broker is, zero when that is not known.
	// On long ways more is asked for at a time.
	RoundTrip time.Duration
	// Compares: the broker has compared Want.LastEpoch with its log (Fetch v12 and
	// later) and would have said where it diverges. Else the fetcher asks for the end
	// of the last epoch itself, before it appends the first batch of another one.
	Compares bool
	// ByID: topics were asked for by their ids (Fetch v13 and later), so that one which
	// was deleted and created again is refused. Else the fetcher compares records with the
	// destination's whenever the broker was out of sight.
	ByID bool
	// Checksums are those of the bytes that Records are pieces of, where they were taken as
	// the bytes came in, which is cheaper than to read them once more. Default: nil, they are
	// computed.
	Checksums Checksums
	Release   func() // never nil
}

// Checksums gives CRC-32C checksums of the bytes of an answer, until its Release. The
// bytes of a batch are asked for before anything is written in them.
type Checksums interface {
	// Checksum is that of the bytes from..to.
	Checksum(from, to int) uint32
}

// Fetched is one partition's part of an answer.
type Fetched struct {
	Partition     cluster.Partition
	Err           error
	HighWatermark int64
	LogStart      int64
	Diverging     cluster.EpochEnd // EndOffset -1 when the logs agree
	Leader        cluster.Leader   // the answer's hint of a new leader; Broker -1 when it has none
	// LastStable is the first offset that belongs to a transaction that is still open,
	// the high watermark when there is none; -1 when the broker does not say.
	LastStable int64
	// Aborted are the aborted transactions that have records in Records; only in answers
	// to requests with Committed, and in no order.
	Aborted []AbortedTransaction
	Records []byte // whole batches; the last one may be cut off
	At      int    // of Records, in the bytes of FetchResponse.Checksums
}

// AbortedTransaction says that what a producer wrote from First on, up to its next
// abort marker, is not to be read.
type AbortedTransaction struct {
	Producer int64
	First    int64
}

// Traits say what a destination can do.
type Traits struct {
	Gaps           bool // offsets may be missing in what is appended
	ControlBatches bool // takes transaction markers and transactional batches as they are
	LogAppendTime  bool // keeps timestamps that the source broker set
	// Fills: the destination cannot leave offsets out, but can fill them with what no
	// reader sees. It has Gaps and not ControlBatches. Whatever the source has no
	// committed record for is then handed over as a hole: a batch without bytes, before,
	// between and behind the others. Batches with fewer records than offsets are handed
	// over as they are; those of committed transactions too, and the destination takes
	// their transactional bit away. Nothing of an aborted transaction is handed over.
	Fills bool
	// OldFormats: messages of formats 0 and 1 are taken as they are, one that wraps others as
	// one batch; it has Gaps and LogAppendTime. Others get batches of today's format.
	OldFormats  bool
	KeepsEpochs bool // its log keeps the source's leader epochs
	ReadOnly    bool // clients cannot write into a mirror topic by themselves
	Truncation  Truncation
}

// Truncation says how a destination cuts a log's tail.
type Truncation int

const (
	TruncateNever   Truncation = iota // Truncate returns errors.ErrUnsupported
	TruncateRebuild                   // not at all, but the topic can be deleted and copied again (Rebuilder)
	TruncateExact                     // at any offset
)

// Log is the destination: the one seam that every kind of destination shares.
// All methods are safe for concurrent use.
type Log interface {
	Traits() Traits
	// Ends reads the truth about each partition's log from the destination, and
	// begins (or goes on with) the stretch it is named with: what was appended
	// before and has not been answered is forgotten, and its done functions have
	// been called when Ends returns. What was given up since ctx ended begins nothing new
	// any more when Fence has answered.
	Ends(ctx context.Context, stretches []Stretch) ([]End, error)
	// Append queues consecutive batches of one partition and returns at once. The
	// bytes belong to the destination until it calls free, which may be long before
	// it knows the outcome, and then done; each exactly once, in either order, from
	// a goroutine of its own. Neither may block; free may be nil. Runs of one
	// partition are appended in the order of the calls. Repeating is harmless: a
	// batch lands at its own Base or nowhere, or the result says otherwise. After a
	// result with an error every further run of that partition is refused with
	// cluster.ErrOutOfOrder until Ends was asked again.
	Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(Result))
	// Truncate cuts tails: everything from Offset on goes, and the whole of a batch
	// that holds Offset. It is done when every replica has done it, in-sync or not;
	// one that is away keeps the obligation and serves it before it is read from
	// (I8). What is written behind the cut has a later leader epoch than what was cut, so
	// that whoever reads from this log notices. What is cut already is no error. What was
	// given up since ctx ended is not cut any more when Fence has answered. Where
	// TruncateExact is not a trait it answers errors.ErrUnsupported.
	Truncate(ctx context.Context, cuts []Cut) []error
	// Trim moves log starts up to Offset, never further and never back.
	Trim(ctx context.Context, cuts []Cut) []error
}

// Stretch names an uninterrupted run of mirroring of a partition.
type Stretch struct {
	Mirror    string
	Partition cluster.Partition
	// New asks for a new stretch: the one before was stopped, and what stands in
	// the log since then is known and accepted. Otherwise the stretch that the
	// log itself shows goes on.
	New bool
	// Owner is the owner epoch of the worker, from the state store; 0 where none is known.
	// A destination may use it to tell workers apart.
	Owner int32
}

// End is what Ends found.
type End struct {
	LogStart      int64
	LogEnd        int64 // must not be appended again
	HighWatermark int64 // cannot be lost
	// LeaderEpoch is the destination's own, above every batch epoch in the log (I5)
	// where KeepsEpochs; cluster.NoEpoch where that is not known or of no use.
	LeaderEpoch int32
	// Stopped: the log ends with the fence of a stop, or holds records of others
	// after it. Nothing can be appended unless Stretch.New is given, which is right
	// only when the source is known to hold the same: Align compares, whoever asks.
	Stopped bool
	TopicID cluster.TopicID
	// Ours: the log shows records of this mirror, and nothing of others behind them. A
	// destination that cannot tell leaves it false: then what was appended without an
	// answer is compared with the source before copying goes on.
	Ours bool
	// Inherited: the log came straight from another worker of the same mirror, whose records
	// are on the mirror's record, and nobody has appended since. It goes on without a comparison.
	Inherited bool
	// RoundTrip is how long the way to the leader is, zero when that is not known.
	// On long ways more is handed over before answers come.
	RoundTrip time.Duration
	Err       error
}

// Result is the outcome of one Append.
type Result struct {
	Partition cluster.Partition
	Next      int64 // all below it have landed; the log end this run knows of
	Batches   int   // how many of the run landed
	Err       error
}

// Cut is an offset of a partition.
type Cut struct {
	Partition cluster.Partition
	Offset    int64
	// End is where the log ended when it was looked at what Truncate would take; 0 is not
	// compared. A destination that others write to (not ReadOnly) cuts no log that has
	// grown since: cluster.ErrUnavailable.
	End int64
}

// Truncater cuts tails for a destination that cannot by itself, as Log.Truncate says.
type Truncater interface {
	Truncate(ctx context.Context, cuts []Cut) []error
}

// EpochSink is told of a source epoch before its first batch is appended. The
// partition is held until ack is called with nil (invariant I7).
type EpochSink interface {
	Epoch(p cluster.Partition, epoch int32, start int64, ack func(error))
}

// Starter is the optional ability to make an empty log start at an offset.
type Starter interface {
	// StartAt leaves the empty log of a partition with start and end at offset,
	// and reports its progress in offsets. Where that takes longer than a moment, a Filler
	// says more.
	StartAt(ctx context.Context, s Stretch, offset int64, progress func(done int64)) error
}

// Fencer is the optional ability to lock out our own late writers at a stop.
type Fencer interface {
	// Fence makes every append of the stretches that is still under way fail.
	// It answers what the log end is behind the fence. What was given up since ctx ended
	// does nothing any more to a stretch that Ends has begun or taken over since.
	Fence(ctx context.Context, stretches []Stretch) ([]End, error)
}

// EpochRaiser is the optional ability of a destination that keeps source epochs to
// raise its own above them (I5).
type EpochRaiser interface {
	// RaiseEpochs makes each partition's leader epoch at least Epoch, and returns
	// when it shows. An epoch that is there already is no error; none is lowered.
	RaiseEpochs(ctx context.Context, raises []EpochRaise) []error
}

// EpochStamper is the optional ability of a destination with KeepsEpochs to write its own
// leader epochs into the batches of some partitions all the same.
type EpochStamper interface {
	// Stamps reports that a partition's batches get the destination's leader epoch in place
	// of the source's; known is false while nothing could be appended to it. It does not
	// wait for the cluster, and is safe for concurrent use.
	Stamps(p cluster.Partition) (stamps, known bool)
}

// ProducerLifter is the optional ability of a destination to give producers of the source
// other ids, where its own cluster would hand out the source's again.
type ProducerLifter interface {
	// ProducersFrom is the least producer id of the source that has another one at the
	// destination, as all above it; ok is false while none has. It does not wait for the
	// cluster, and is safe for concurrent use.
	ProducersFrom() (id int64, ok bool)
}

// EpochRaise is a leader epoch that a destination partition is to reach.
type EpochRaise struct {
	Partition cluster.Partition
	Epoch     int32
}

// Loser is the optional ability of a destination to say at once that a log has come into
// other hands, which would show only when the source has something new.
type Loser interface {
	// Lost waits until logs with a stretch that goes on were taken from the destination, and
	// gives each once. What they hold by then is to be compared.
	Lost(ctx context.Context) ([]cluster.Partition, error)
}

// Aborter is the optional ability to end, at a stop, the transactions that the
// source left open: nobody else would, and readers of committed records would wait
// for ever.
type Aborter interface {
	// AbortOpen appends an ABORT marker for every open transaction. It is called
	// after the position was stored: the markers are local data. None open is no
	// error.
	AbortOpen(ctx context.Context, partitions []cluster.Partition) ([]Aborted, error)
}

// Aborted answers one partition of AbortOpen.
type Aborted struct {
	Producers []int64 // ids whose transaction was cut
	Err       error
}

// ProducerGuard is the optional ability to keep mirrored producer ids from making
// a new producer's first batches vanish as duplicates, or fail as out of order,
// once the topic is writable.
type ProducerGuard interface {
	GuardProducers(ctx context.Context, partitions []cluster.Partition) []error
}

// Rebuilder is the ability that goes with TruncateRebuild.
type Rebuilder interface {
	// Rebuild deletes the topic if it has the id given, and creates it again, empty,
	// with the same partition count, replication factor and settings. A topic with
	// another id was rebuilt before: its id is answered and nothing is done. An absent
	// one is created as described by was. It returns when leaders are known. Committed
	// offsets of groups on the topic are lost with it: the caller restores them.
	Rebuild(ctx context.Context, topic string, id cluster.TopicID, was cluster.NewTopic) (cluster.TopicID, error)
	// Describe gives the topic's present id and all that Rebuild needs to make it
	// again.
	Describe(ctx context.Context, topic string) (cluster.TopicID, cluster.NewTopic, error)
}
