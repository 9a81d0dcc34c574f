package kafkatest

import (
	"sync"
	"time"
)

// deadline is a settable moment that can be waited for, with the meaning of
// net.Conn's deadlines: the zero time is never, a past time is now, and a
// later one gives calls a new chance.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed chan struct{} // closed when the deadline has passed
}

func newDeadline() *deadline { return &deadline{passed: make(chan struct{})} }

// channel returns what is closed at the deadline as it stands now. Calls that
// are waiting on an unexpired channel see later changes of the deadline too,
// since the same channel is used until it is closed.
func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.passed // the timer is about to close it, or has
	}
	d.timer = nil
	select {
	case <-d.passed:
		d.passed = make(chan struct{})
	default:
	}
	if at.IsZero() {
		return
	}
	passed := d.passed
	if left := time.Until(at); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(passed) })
		return
	}
	close(passed)
}
