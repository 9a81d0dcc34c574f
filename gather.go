package mirror

import (
	"context"
	"sync"

	"github.com/clustermirror/mirror/coordinator"
)

// A task is an effect that the coordinator wants performed.
type task struct {
	ctx    context.Context
	rec    coordinator.Record
	effect coordinator.Effect
}

// A gatherer performs tasks in batches: all that have come while it looked away
// go together, each batch in a goroutine of its own, so that a slow one keeps
// nobody waiting.
type gatherer[T any] struct {
	perform func(context.Context, []T)
	wake    chan struct{}

	mu    sync.Mutex
	tasks []T
}

func newGatherer[T any](perform func(context.Context, []T)) *gatherer[T] {
	return &gatherer[T]{perform: perform, wake: make(chan struct{}, 1)}
}

func (g *gatherer[T]) put(t T) {
	g.mu.Lock()
	g.tasks = append(g.tasks, t)
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// run performs until ctx ends and waits for the batches under way.
func (g *gatherer[T]) run(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.wake:
		}
		g.mu.Lock()
		batch := g.tasks
		g.tasks = nil
		g.mu.Unlock()
		if len(batch) > 0 {
			under.Go(func() { g.perform(ctx, batch) })
		}
	}
}
