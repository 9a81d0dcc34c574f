package broker

import "sync"

// answers calls functions of others in order, from a goroutine of its own that ends
// when there are none.
type answers struct {
	mu      sync.Mutex
	queue   []func()
	running bool
}

func (a *answers) put(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(a.queue, f)
	if !a.running {
		a.running = true
		go a.call()
	}
}

func (a *answers) call() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.queue) > 0 {
		calls := a.queue
		a.queue = nil
		a.mu.Unlock()
		for _, f := range calls {
			f()
		}
		a.mu.Lock()
	}
	a.running = false
}

// wait returns when all that were put before have been called.
func (a *answers) wait() {
	done := make(chan struct{})
	a.put(func() { close(done) })
	<-done
}
