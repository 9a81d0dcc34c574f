package coordinator

import (
	"sync"

	"github.com/clustermirror/mirror/cluster"
)

// queue is where events wait for the loop. It is unbounded, so that Post never
// blocks whoever copies data; what would pile up is coalesced.
type queue struct {
	wake chan struct{} // capacity 1: there is something

	mu       sync.Mutex
	events   []Event
	progress map[progressKey]struct{} // waiting EventProgress: a second one says nothing new
	ended    bool
}

type progressKey struct {
	partition cluster.Partition
	seq       uint64
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), progress: map[progressKey]struct{}{}}
}

// put queues events in order; false when the queue has ended.
func (q *queue) put(events []Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return false
	}
	for _, ev := range events {
		if ev.Kind == EventProgress && ev.Ack == nil {
			key := progressKey{ev.Partition, ev.Seq}
			if _, waiting := q.progress[key]; waiting {
				continue
			}
			q.progress[key] = struct{}{}
		}
		q.events = append(q.events, ev)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take empties the queue.
func (q *queue) take() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	clear(q.progress)
	return events
}

// end refuses all further events and gives back what still waited.
func (q *queue) end() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	events := q.events
	q.events = nil
	return events
}
