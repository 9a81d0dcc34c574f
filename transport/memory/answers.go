package memory

import (
	"context"

	"github.com/clustermirror/mirror/fetcher"
)

// answers are results of appends on their way to who is to be told. One goroutine
// tells them in order, and ends when there are none.
type answers struct {
	queue   []answer
	taken   int // answers put in so far
	told    int
	running bool
	waiters []waiter
}

type answer struct {
	done   func(fetcher.Result)
	result fetcher.Result
}

type waiter struct {
	told int // answers that have to be told before
	c    chan struct{}
}

// tell hands an answer over. The lock is held.
func (c *Cluster) tell(done func(fetcher.Result), r fetcher.Result) {
	a := &c.answers
	a.queue = append(a.queue, answer{done, r})
	a.taken++
	if !a.running {
		a.running = true
		go c.deliver()
	}
}

func (c *Cluster) deliver() {
	a := &c.answers
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(a.queue) > 0 {
		batch := a.queue
		a.queue = nil
		c.mu.Unlock()
		for _, w := range batch {
			w.done(w.result)
		}
		c.mu.Lock()
		a.told += len(batch)
		kept := a.waiters[:0]
		for _, w := range a.waiters {
			if w.told <= a.told {
				close(w.c)
			} else {
				kept = append(kept, w)
			}
		}
		a.waiters = kept
	}
	a.running = false
}

// toldAll waits until every answer that was handed over before has been told. The
// lock is not held.
func (c *Cluster) toldAll(ctx context.Context) error {
	c.mu.Lock()
	a := &c.answers
	if a.told >= a.taken {
		c.mu.Unlock()
		return nil
	}
	w := waiter{a.taken, make(chan struct{})}
	a.waiters = append(a.waiters, w)
	c.mu.Unlock()
	select {
	case <-w.c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
