package mirror

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

// Events are functions that are told what happens, each may be nil. They are
// called one after the other from a goroutine of their own and can take their
// time: the data path never waits for them. When more than a few thousand events
// wait, the oldest are dropped and counted in [Status.EventsDropped].
type Events struct {
	// State: a partition changed its state, or failed again.
	State func(StateEvent)
	// Stalled: a partition stands still though the source has more and no error is
	// known.
	Stalled func(StalledEvent)
	// Held: a transaction that is open at the source keeps a partition from going on. It
	// is told once for each such transaction that lasts as long as a stall would.
	Held func(HeldEvent)
	// Trimmed: a destination log start followed the source's.
	Trimmed func(TrimmedEvent)
	// Skipped: records were deleted at the source before they were copied.
	Skipped func(SkippedEvent)
	// Truncated: the tail of a destination log is about to be cut. It is told again
	// when a cut is repeated after a crash.
	Truncated func(TruncatedEvent)
	// Aborted: at a stop, transactions were found open and ended.
	Aborted func(AbortedEvent)
	// Producers: producers of the source have other ids at the destination. It is told once
	// by each process.
	Producers func(ProducersEvent)
	// Topic: a topic was created at the destination, has grown there, or is refused.
	Topic func(TopicEvent)
	// Config: settings of a topic were changed at the destination.
	Config func(ConfigEvent)
	// Sync: a round of one kind of metadata did something, saw something to be noted, began
	// to fail (or fails for another reason), or succeeds again.
	Sync func(SyncEvent)
	// Groups: committed offsets were written, or a stop has copied them for the last time.
	Groups func(GroupsEvent)
	// Group: a group is not where it is at the source, for another reason than before, or
	// is there now.
	Group func(GroupEvent)
}

// StateEvent is a change of a partition's state.
type StateEvent struct {
	Mirror    string
	Partition cluster.Partition
	From, To  coordinator.State
	// Offset is where the cause stands in the log; -1 when it has no place.
	Offset int64
	Err    error // why, when To is FAILED
}

// StalledEvent is a partition without progress.
type StalledEvent struct {
	Mirror    string
	Partition cluster.Partition
	Since     time.Duration
}

// HeldEvent is a partition that waits for a transaction of the source to end.
type HeldEvent struct {
	Mirror    string
	Partition cluster.Partition
	fetcher.Held
}

// TrimmedEvent is a destination log start that was moved up.
type TrimmedEvent struct {
	Mirror    string
	Partition cluster.Partition
	LogStart  int64
}

// SkippedEvent is a range of offsets that the destination does not have: the
// source's retention ran ahead.
type SkippedEvent struct {
	Mirror    string
	Partition cluster.Partition
	Span      cluster.Span
}

// TruncatedEvent is a range of offsets that is cut from a destination log.
type TruncatedEvent struct {
	Mirror    string
	Partition cluster.Partition
	Span      cluster.Span
	Why       string
}

// ProducersEvent is that producers of the source whose ids the destination's cluster would
// hand out again have others there: those of From and all above. Their batches are not the
// source's byte for byte; transactions end as they did.
type ProducersEvent struct {
	Mirror string
	From   int64
}

// AbortedEvent names the producers whose transactions a stop has cut in flight.
type AbortedEvent struct {
	Mirror    string
	Partition cluster.Partition
	Producers []int64
}

// TopicEvent is a topic that was created, has got more partitions (Grown), or is
// refused (Err).
type TopicEvent struct {
	Mirror string
	Topic  string
	Grown  bool
	Err    error
}

// SyncEvent is the outcome of a round of one kind of metadata.
type SyncEvent struct {
	Mirror string
	Kind   string           // SyncTopics and so on
	Done   map[string]int64 // what was done, by words of the kind; without what was not
	Notes  []string         // what is new in SyncStatus.Notes
	Err    error            // why the round failed
}

// ConfigEvent is a change of a topic's settings at the destination, by this mirror.
type ConfigEvent struct {
	Mirror  string
	Topic   string
	Changes []topics.Altered
}

// GroupsEvent is a copy of committed offsets.
type GroupsEvent struct {
	Mirror string
	Last   bool // of the topics that are being stopped
	offsets.Report
	Err error // why nothing, or not all, could be read
}

// GroupEvent is a group that is not where it is at the source; Why is empty when it is again.
type GroupEvent struct {
	Mirror string
	GroupLeft
	Was LeftWhy // why it was not before; empty when it was
}

// backlog is how many events may wait.
const backlog = 4096

// post box of events: never blocks, drops the oldest.
type eventQueue struct {
	mu      sync.Mutex
	queue   []func()
	wake    chan struct{}
	dropped atomic.Int64
}

func newEventQueue() *eventQueue { return &eventQueue{wake: make(chan struct{}, 1)} }

func (q *eventQueue) put(call func()) {
	q.mu.Lock()
	if len(q.queue) >= backlog {
		q.queue = q.queue[1:]
		q.dropped.Add(1)
	}
	q.queue = append(q.queue, call)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *eventQueue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls := q.queue
	q.queue = nil
	return calls
}

// run calls what is queued until ctx ends, then what is left.
func (q *eventQueue) run(ctx context.Context) {
	for ended := false; ; {
		calls := q.take()
		for _, call := range calls {
			call()
		}
		switch {
		case len(calls) > 0:
			continue
		case ended:
			return
		}
		select {
		case <-ctx.Done():
			ended = true
		case <-q.wake:
		}
	}
}

// emit queues an event for its function, if there is one.
func emit[E any](q *eventQueue, f func(E), e E) {
	if f != nil {
		q.put(func() { f(e) })
	}
}
