package broker

import (
	"slices"
	"sync"

	"github.com/clustermirror/mirror/internal/metalog"
)

// claims are partitions that somebody has for himself: while our replica steps down and up
// again, nobody may let another worker into the in-sync set, who would be elected in
// between. It is safe for concurrent use.
type claims struct {
	mu   sync.Mutex
	free *sync.Cond // something was given back
	held map[metalog.PartitionID]bool
}

func newClaims() *claims {
	c := &claims{held: make(map[metalog.PartitionID]bool)}
	c.free = sync.NewCond(&c.mu)
	return c
}

// take waits until all of them are free, and has them until release.
func (c *claims) take(ids []metalog.PartitionID) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.any(ids) {
		c.free.Wait()
	}
	return c.hold(ids)
}

// some takes those that are free.
func (c *claims) some(ids []metalog.PartitionID) (got []metalog.PartitionID, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if !c.held[id] {
			got = append(got, id)
		}
	}
	return got, c.hold(got)
}

// any needs mu.
func (c *claims) any(ids []metalog.PartitionID) bool {
	for _, id := range ids {
		if c.held[id] {
			return true
		}
	}
	return false
}

// hold needs mu.
func (c *claims) hold(ids []metalog.PartitionID) func() {
	ids = slices.Clone(ids) // the caller may go on with his own
	for _, id := range ids {
		c.held[id] = true
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, id := range ids {
			delete(c.held, id)
		}
		c.free.Broadcast()
	}
}
