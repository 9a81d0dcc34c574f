package cluster

import (
	"context"
	"errors"
	"fmt"
)

// The errors a caller can take a decision on. Transports wrap them with what
// they know (address, Kafka's own code, offsets); compare with errors.Is.
var (
	// ErrFenced: another worker appends to the same partition, or has stopped it.
	ErrFenced = errors.New("fenced by another writer of this mirror")
	// ErrSuperseded: another process that stands by for the same mirrors has taken over.
	ErrSuperseded = errors.New("another process has taken over")
	// ErrForeignWrite: records that are not the source's stand in the mirror topic.
	ErrForeignWrite = errors.New("foreign write in the mirror topic")
	// ErrDisplaced: batches of ours landed at other offsets than they have at the source.
	ErrDisplaced = errors.New("records landed at other offsets than at the source")
	// ErrDiverged: the destination's log is not a prefix of the source's.
	ErrDiverged = errors.New("destination log is not a prefix of the source log")
	// ErrTruncated: the source's log lost its tail; the destination holds more.
	ErrTruncated = errors.New("source log was truncated")
	// ErrOutOfRange: the offset asked for is not in the log.
	ErrOutOfRange = errors.New("offset out of range")
	// ErrRetention: the source deleted records that were never mirrored.
	ErrRetention = errors.New("source retention deleted records before they were mirrored")
	// ErrGap: offsets are missing in the source log and this destination cannot leave them out.
	ErrGap = errors.New("gap in the source offsets")
	// ErrControlBatch: a transaction marker, which this destination cannot take.
	ErrControlBatch = errors.New("control batch in the source log")
	// ErrTransactional: transactional records, which this destination cannot take.
	ErrTransactional = errors.New("transactional batch in the source log")
	// ErrLogAppendTime: timestamps set by the source broker, which this destination cannot keep.
	ErrLogAppendTime = errors.New("log-append-time batch in the source log")
	// ErrOldFormat: a message format before magic 2.
	ErrOldFormat = errors.New("message format before version 2")
	// ErrCorrupt: a batch whose bytes do not agree with its checksum or its header.
	ErrCorrupt = errors.New("corrupt record batch")
	// ErrTooLarge: the destination's size limit refuses a batch.
	ErrTooLarge = errors.New("record batch is larger than the destination allows")
	// ErrTopicReplaced: the topic was deleted and created again.
	ErrTopicReplaced = errors.New("topic was deleted and created again")
	// ErrTopicDeleted: the topic is gone.
	ErrTopicDeleted = errors.New("topic is deleted")
	// ErrTopicExists: there is a topic of that name already.
	ErrTopicExists = errors.New("topic exists")
	// ErrLoop: the source's records come from the destination.
	ErrLoop = errors.New("mirrors would form a loop")
	// ErrActive: another mirror is at work on the topic.
	ErrActive = errors.New("another mirror of the topic is active")
	// ErrLocalWrites: records were written at the destination after the mirror stopped.
	ErrLocalWrites = errors.New("records were written at the destination after the stop")
	// ErrNoPosition: nothing tells how much of the destination's log is the source's.
	ErrNoPosition = errors.New("no position of an earlier mirror is known")
	// ErrUnknownTopic: the cluster does not know the topic or the partition (yet).
	ErrUnknownTopic = errors.New("unknown topic or partition")
	// ErrClusterReplaced: the address answers with another cluster id than before.
	ErrClusterReplaced = errors.New("another cluster answers at this address")
	// ErrNotLeader: the broker asked does not lead the partition.
	ErrNotLeader = errors.New("not the leader of the partition")
	// ErrLeaderEpoch: the leader epoch sent is not the partition's present one.
	ErrLeaderEpoch = errors.New("leader epoch is not the present one")
	// ErrOutOfOrder: the compare-and-append was refused.
	ErrOutOfOrder = errors.New("sequence out of order")
	// ErrAuthentication: the cluster refused who we are (SASL, TLS).
	ErrAuthentication = errors.New("authentication failed")
	// ErrAuthorization: the cluster refused what we want to do.
	ErrAuthorization = errors.New("not authorized")
	// ErrCompression: the source cannot hand out a codec with the fetch version it knows.
	ErrCompression = errors.New("compression type not supported by the source's fetch version")
	// ErrUnreachable: no connection (DNS, refused, reset, TLS), or it was lost.
	ErrUnreachable = errors.New("broker unreachable")
	// ErrTimeout: no answer within the deadline.
	ErrTimeout = errors.New("request timed out")
	// ErrUnknownOutcome: the connection was lost after the request was written.
	ErrUnknownOutcome = errors.New("outcome of the request is not known")
	// ErrUnavailable: the cluster cannot do it now (no leader, too few replicas, loading).
	ErrUnavailable = errors.New("temporarily unavailable")
	// ErrRefused: the cluster says the request is wrong; asking again gives the same answer.
	ErrRefused = errors.New("refused by the cluster")
	// ErrNoAuthorizer: the cluster keeps no access rules.
	ErrNoAuthorizer = fmt.Errorf("the cluster has no authorizer: %w", errors.ErrUnsupported)
	// ErrMembers: a group has members, which alone move it. It comes with ErrRefused.
	ErrMembers = errors.New("the group has members")
	// ErrInvalidConfig: the cluster does not know a setting, or not such a value of it.
	ErrInvalidConfig = fmt.Errorf("%w: invalid setting", ErrRefused)
)

// permanent are the errors that stay until somebody changes something.
// Authorization and size limits are not among them: an operator mends them at
// the cluster, and a slow retry notices.
var permanent = []error{
	ErrForeignWrite, ErrDisplaced, ErrDiverged, ErrTruncated, ErrGap, ErrControlBatch, ErrTransactional,
	ErrLogAppendTime, ErrOldFormat, ErrTopicReplaced, ErrTopicDeleted, ErrClusterReplaced, ErrCompression, ErrRetention,
	ErrLoop, ErrActive, ErrLocalWrites, ErrNoPosition,
	errors.ErrUnsupported,
}

// Retriable reports whether trying again later, with nothing changed by an
// operator of the mirror, can succeed.
func Retriable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	for _, p := range permanent {
		if errors.Is(err, p) {
			return false
		}
	}
	return true
}

// OffsetError is an error at one offset or span of a partition.
type OffsetError struct {
	Partition Partition
	Span      Span // To == From + 1 for one offset, To == From where only a position is meant
	Detail    string
	Err       error
}

func (e *OffsetError) Error() string {
	where := fmt.Sprintf("%v offset %d", e.Partition, e.Span.From)
	if e.Span.To > e.Span.From+1 {
		where = fmt.Sprintf("%v offsets %v", e.Partition, e.Span)
	}
	if e.Detail == "" {
		return fmt.Sprintf("%s: %v", where, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", where, e.Err, e.Detail)
}

func (e *OffsetError) Unwrap() error { return e.Err }
