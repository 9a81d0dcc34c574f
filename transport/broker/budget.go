package broker

import (
	"context"
	"sync"
)

// budget bounds the bytes that are in memory at once.
type budget struct {
	size  int64
	mu    sync.Mutex
	left  int64
	freed chan struct{} // closed with the next release
}

func newBudget(bytes int64) *budget {
	return &budget{size: bytes, left: bytes, freed: make(chan struct{})}
}

// take waits until n bytes are free. The error is ctx's.
func (b *budget) take(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		if b.left >= n {
			b.left -= n
			b.mu.Unlock()
			return nil
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try takes n bytes when they are free now.
func (b *budget) try(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < n {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	close(b.freed)
	b.freed = make(chan struct{})
}
