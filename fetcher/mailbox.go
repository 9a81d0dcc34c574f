package fetcher

import "sync"

// A mailbox is an unbounded queue that never blocks the sender; what is in it is
// bounded by the byte budget and the number of partitions.
type mailbox[T any] struct {
	mu     sync.Mutex
	queue  []T
	spare  []T
	wake   chan struct{} // holds one token when the queue may be non-empty
	closed bool
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{wake: make(chan struct{}, 1)} }

// put reports whether the message was accepted: not after close.
func (m *mailbox[T]) put(v T) bool {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	m.queue = append(m.queue, v)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return true
}

// take hands out everything queued; the slice is good until the next take.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.queue
	clear(m.spare)
	m.queue, m.spare = m.spare[:0], got
	return got
}

// close refuses further messages and hands out what was left.
func (m *mailbox[T]) close() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	got := m.queue
	m.queue = nil
	return got
}
