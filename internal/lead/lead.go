// Package lead is what a leader without a disk knows of one partition: which records
// it hands to the real replicas that follow it, what they hold, and what follows from
// that. It is pure of the network and has no goroutine; time comes with the calls.
//
// The followers are the log. What is appended stays in memory until enough of them have
// fetched it; their fetch offsets are the high watermark, their next answer is what cuts
// them. The rules are those of Kafka's leader (Partition, ReplicaManager), so that stock
// brokers follow without knowing what they follow.
package lead

import (
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// EpochStart is a leader epoch and the first offset that has it.
type EpochStart = epoch.Start

// StartUnknown is a log start that is not known before the followers have said theirs.
const StartUnknown int64 = -1

// OpenTxn is a transaction without a marker yet.
type OpenTxn struct {
	Producer int64
	Epoch    int16 // the producer's, -1 when not known
	First    int64 // its first offset
}

// Config is what is known of a partition when we begin to lead it.
type Config struct {
	Topic     cluster.TopicID
	Partition cluster.Partition
	Epoch     int32 // our leader epoch
	// Quorum is how many followers must hold a record before it is below the high
	// watermark: at least 1, at most as many as there are.
	Quorum    int
	Followers []int32 // the real replicas
	InSync    []int32 // those of them that may be elected in our place, see Partition.InSync
	// History are the leader epochs of the log as stored. What contradicts it is cut.
	History []EpochStart
	// Proven: History is all there is, even when it is empty. An empty one that is not
	// proven has the followers believed as long as they agree (State.Disputed).
	Proven   bool
	LogStart int64 // StartUnknown: where the followers say that it is
	// HighWatermark is the last one known; followers are told no lower one.
	HighWatermark int64
	// Owed are cuts that a follower has not made yet, by replica id, as they are stored
	// (Partition.Owing).
	Owed map[int32]int64
	Open []OpenTxn // transactions that are open at the log end
	// Window is how many bytes that the quorum has are kept for the others. What the
	// quorum lacks is always kept.
	Window int64
	// Stamp writes our leader epoch into each batch, outside of its checksum, instead
	// of keeping the source's.
	Stamp bool
	// Idle is how long a follower may not fetch before it is waited for no longer.
	// Default: 2 s.
	Idle time.Duration
}

// Fetch is one follower's word for one partition.
type Fetch struct {
	Replica      int32
	CurrentEpoch int32 // leader epoch the follower believes in, -1 when it does not say
	Offset       int64
	LastEpoch    int32 // epoch of its last batch, -1 none
	LogStart     int64
	MaxBytes     int32
	// Strict: a first batch above MaxBytes is not given either.
	Strict bool
	Now    time.Time
	// Via is the watcher of the session, if any: incremental fetches do not name what
	// has not changed, and its Beat speaks for that.
	Via *Watcher
}

// The error codes of an Answer, in Kafka's numbers.
const (
	OffsetOutOfRange   int16 = 1
	NotLeader          int16 = 6
	FencedLeaderEpoch  int16 = 74
	UnknownLeaderEpoch int16 = 75
)

// Answer is what a follower gets. Records are pieces of the window, valid until Release
// is called, once.
type Answer struct {
	Code          int16
	HighWatermark int64
	LastStable    int64
	LogStart      int64
	// Diverging is where the follower has to cut, Epoch -1 when it has not. It looks at
	// nothing else in such an answer, which is -1 then: it has to be told again.
	Diverging cluster.EpochEnd
	Records   [][]byte
	Size      int
	Release   func() // never nil
	// Elsewhere, when not negative, is an offset from which records have left the window:
	// they have to be read from one of Holders, and none behind its End; the source has
	// them up to End. Where a holder has none before its End, see Gap. What was read may be
	// sent as long as Current says so.
	Elsewhere int64
	End       int64
	Holders   []Holder
	// Hold: nothing is known yet, not even a high watermark to rely on. The partition is
	// better left out of the response.
	Hold bool

	cuts int
}

// Holder is a follower that has records of our log up to an offset.
type Holder struct {
	Replica int32
	End     int64
}

// GatherFor is how long a follower may take to say how far it is once enough others have to know
// of every record that a quorum holds. It may be dead without the cluster knowing yet. What it
// has that they lack it cuts when it comes after all, and is given again.
const GatherFor = 500 * time.Millisecond

// Phase is how far leading has come.
type Phase int

// The phases.
const (
	Gathering Phase = iota // the followers' ends are not all known
	Leading
	Closed
)
