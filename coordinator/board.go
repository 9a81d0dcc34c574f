package coordinator

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Snapshot is one partition as it was last stored.
type Snapshot struct {
	Record
	// Err is the last error, as a value that errors.Is can ask; after a restart
	// only its text is left. It wraps cluster.ErrFenced when another worker has
	// taken the partition over.
	Err error
	// RetryAt is when a FAILED partition is tried again; zero when it is not.
	RetryAt time.Time
	// Owned: this worker decides about the partition.
	Owned bool
}

// board shows the world what the loop has stored. Snapshots are never changed
// once they are on it.
type board struct {
	ended chan struct{} // closed when the loop is gone

	mu      sync.Mutex
	shown   map[cluster.Partition]*Snapshot
	counts  map[State]int
	intents map[string]Intent
	waiters map[cluster.Partition]map[*waiter]struct{}
}

// waiter is one Await. changed holds what came since it last looked.
type waiter struct {
	wake    chan struct{} // capacity 1
	changed []*Snapshot   // under board.mu
}

func newBoard() *board {
	return &board{
		ended:   make(chan struct{}),
		shown:   map[cluster.Partition]*Snapshot{},
		counts:  map[State]int{},
		intents: map[string]Intent{},
		waiters: map[cluster.Partition]map[*waiter]struct{}{},
	}
}

// show replaces what is shown of a partition, and wakes who waits for it.
func (b *board) show(s Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.shown[s.Partition]; ok {
		b.uncount(old.State)
	}
	b.shown[s.Partition] = &s
	b.counts[s.State]++
	for w := range b.waiters[s.Partition] {
		w.changed = append(w.changed, &s)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (b *board) remove(p cluster.Partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.shown[p]; ok {
		b.uncount(old.State)
		delete(b.shown, p)
	}
}

func (b *board) uncount(s State) {
	if b.counts[s]--; b.counts[s] == 0 {
		delete(b.counts, s)
	}
}

func (b *board) snapshot(p cluster.Partition) (Snapshot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.shown[p]
	if !ok {
		return Snapshot{}, false
	}
	return *s, true
}

func (b *board) all() []Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Snapshot, 0, len(b.shown))
	for _, s := range b.shown {
		all = append(all, *s)
	}
	return all
}

func (b *board) count() map[State]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.counts)
}

func (b *board) intend(intents []Intent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range intents {
		if in.Revision > b.intents[in.Topic].Revision {
			b.intents[in.Topic] = in
		}
	}
}

func (b *board) intent(topic string) (Intent, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, ok := b.intents[topic]
	return in, ok
}

// await blocks until ok holds for the last snapshot of every partition.
func (b *board) await(ctx context.Context, ps []cluster.Partition, ok func(Snapshot) bool) error {
	w := &waiter{wake: make(chan struct{}, 1)}
	missing := b.enter(w, ps)
	defer b.leave(w, ps)
	for {
		b.mu.Lock()
		changed := w.changed
		w.changed = nil
		b.mu.Unlock()
		for _, s := range changed {
			if ok(*s) {
				delete(missing, s.Partition)
			} else {
				missing[s.Partition] = struct{}{}
			}
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.ended:
			return ErrEnded
		}
	}
}

// enter registers a waiter and hands it the present snapshots as changes.
func (b *board) enter(w *waiter, ps []cluster.Partition) (missing map[cluster.Partition]struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	missing = make(map[cluster.Partition]struct{}, len(ps))
	for _, p := range ps {
		missing[p] = struct{}{}
		if b.waiters[p] == nil {
			b.waiters[p] = map[*waiter]struct{}{}
		}
		b.waiters[p][w] = struct{}{}
		if s, there := b.shown[p]; there {
			w.changed = append(w.changed, s)
		}
	}
	return missing
}

func (b *board) leave(w *waiter, ps []cluster.Partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range ps {
		delete(b.waiters[p], w)
		if len(b.waiters[p]) == 0 {
			delete(b.waiters, p)
		}
	}
}
