package mirror

import (
	"errors"
	"fmt"
	"strings"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/topics"
)

// The errors a caller can decide on, to be compared with errors.Is. They are
// found in what operations return, in [PartitionStatus.Err] and in events.
var (
	ErrFenced          = cluster.ErrFenced
	ErrSuperseded      = cluster.ErrSuperseded
	ErrForeignWrite    = cluster.ErrForeignWrite
	ErrDisplaced       = cluster.ErrDisplaced
	ErrDiverged        = cluster.ErrDiverged
	ErrTruncated       = cluster.ErrTruncated
	ErrRetention       = cluster.ErrRetention
	ErrLoop            = cluster.ErrLoop
	ErrActive          = cluster.ErrActive
	ErrLocalWrites     = cluster.ErrLocalWrites
	ErrNoPosition      = cluster.ErrNoPosition
	ErrGap             = cluster.ErrGap
	ErrControlBatch    = cluster.ErrControlBatch
	ErrTransactional   = cluster.ErrTransactional
	ErrLogAppendTime   = cluster.ErrLogAppendTime
	ErrOldFormat       = cluster.ErrOldFormat
	ErrCorrupt         = cluster.ErrCorrupt
	ErrTooLarge        = cluster.ErrTooLarge
	ErrTopicReplaced   = cluster.ErrTopicReplaced
	ErrTopicDeleted    = cluster.ErrTopicDeleted
	ErrClusterReplaced = cluster.ErrClusterReplaced
	ErrUnknownTopic    = cluster.ErrUnknownTopic
	ErrAuthentication  = cluster.ErrAuthentication
	ErrAuthorization   = cluster.ErrAuthorization
	ErrCompression     = cluster.ErrCompression
	ErrUnreachable     = cluster.ErrUnreachable
	ErrTimeout         = cluster.ErrTimeout
	ErrInternalTopic   = topics.ErrInternal

	// ErrSameCluster: source and destination are one cluster.
	ErrSameCluster = errors.New("source and destination are the same cluster")
	// ErrRunning: Run was called twice.
	ErrRunning = errors.New("the mirror is running or has run already")
	// ErrNotRunning: the operation needs Run.
	ErrNotRunning = errors.New("the mirror is not running")
	// ErrStopped: what is asked for does not fit a stopped topic.
	ErrStopped = errors.New("the topic is stopped")
)

// Error is what operations of a mirror return: what was done, where, and why it
// did not work. Partition.Topic is empty when it concerns the whole mirror,
// Partition.Partition is -1 when it concerns the whole topic, Offset is -1 when
// it has none.
type Error struct {
	Op        string
	Mirror    string
	Partition cluster.Partition
	Offset    int64
	Err       error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: mirror %q", e.Op, e.Mirror)
	switch {
	case e.Partition.Topic == "":
	case e.Partition.Partition < 0:
		fmt.Fprintf(&b, ": topic %s", e.Partition.Topic)
	default:
		fmt.Fprintf(&b, ": partition %v", e.Partition)
	}
	if e.Offset >= 0 {
		fmt.Fprintf(&b, ": offset %d", e.Offset)
	}
	return b.String() + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

func (m *Mirror) fault(op string, err error) error {
	return &Error{Op: op, Mirror: m.name, Offset: -1, Err: err}
}

func (m *Mirror) topicFault(op, topic string, err error) error {
	return &Error{Op: op, Mirror: m.name, Partition: cluster.Partition{Topic: topic, Partition: -1}, Offset: -1, Err: err}
}

func (m *Mirror) partitionFault(op string, p cluster.Partition, err error) error {
	e := &Error{Op: op, Mirror: m.name, Partition: p, Offset: -1, Err: err}
	var at *cluster.OffsetError
	if errors.As(err, &at) {
		e.Offset = at.Span.From
	}
	return e
}
