package lead

import (
	"sync"
	"sync/atomic"
	"time"
)

// Watcher collects the partitions that may have a new answer for one fetch session.
type Watcher struct {
	made time.Time
	beat atomic.Int64 // of the last Beat, since made

	mu   sync.Mutex
	wake chan struct{}
	in   map[*Partition]struct{}
	list []*Partition
}

// NewWatcher has seen nothing yet.
func NewWatcher() *Watcher {
	return &Watcher{made: time.Now(), wake: make(chan struct{}, 1), in: map[*Partition]struct{}{}}
}

// Beat says that the session was fetched in: a sign of life of the follower for all
// partitions that it has fetched with this watcher (Fetch.Via).
func (w *Watcher) Beat(now time.Time) { w.beat.Store(int64(now.Sub(w.made))) }

// Wake is readable when there may be something to take.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take appends what has changed since the last call, each partition once.
func (w *Watcher) Take(dst []*Partition) []*Partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	dst = append(dst, w.list...)
	clear(w.list)
	w.list = w.list[:0]
	clear(w.in)
	return dst
}

// tell adds a partition.
func (w *Watcher) tell(p *Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.in[p]; known {
		return
	}
	w.in[p] = struct{}{}
	w.list = append(w.list, p)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
