package main

import (
	"context"
	"slices"
	"sync"

	"github.com/clustermirror/mirror/coordinator"
)

// watches are those who want to know what operators want. Each channel holds at most
// one piece, which grows until it is taken: nobody waits for a slow reader. Channels
// are sent to and closed under the lock only.
type watches struct {
	mu    sync.Mutex
	of    map[string]map[chan []coordinator.Intent]func() bool // what keeps its context from being followed
	ended bool
}

// add begins a watch; the lock is held.
func (w *watches) add(ctx context.Context, mirror string, first []coordinator.Intent) <-chan []coordinator.Intent {
	ch := make(chan []coordinator.Intent, 1)
	ch <- first
	if w.of == nil {
		w.of = map[string]map[chan []coordinator.Intent]func() bool{}
	}
	if w.of[mirror] == nil {
		w.of[mirror] = map[chan []coordinator.Intent]func() bool{}
	}
	if w.ended {
		close(ch)
		return ch
	}
	w.of[mirror][ch] = context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, there := w.of[mirror][ch]; there {
			delete(w.of[mirror], ch)
			close(ch)
		}
	})
	return ch
}

// tell hands out what has changed; the lock is held.
func (w *watches) tell(mirror string, changed []coordinator.Intent) {
	for ch := range w.of[mirror] {
		var piece []coordinator.Intent
		select {
		case piece = <-ch:
		default:
		}
		ch <- append(slices.Clip(piece), changed...)
	}
}

// end closes every channel.
func (w *watches) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, of := range w.of {
		for ch, follow := range of {
			follow()
			close(ch)
		}
		clear(of)
	}
}
