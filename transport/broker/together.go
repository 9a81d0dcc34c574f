package broker

import (
	"context"
	"sync"
)

// together has the questions to one broker that come while one is on its way asked in one
// request: a process that takes over leads many partitions at the same moment, and a stop is of
// many as well, while a broker answers one request of a connection after the other.
type together[K comparable, A any] struct {
	turn chan struct{} // taken by who asks, for all that wait

	mu      sync.Mutex
	waiting []*question[K, A]
}

type question[K comparable, A any] struct {
	of     K
	done   chan struct{} // closed with the answer
	answer A
}

func newTogether[K comparable, A any]() *together[K, A] {
	return &together[K, A]{turn: make(chan struct{}, 1)}
}

// ask gives the answer of send, which has one for each of those that it is given. The error is
// ctx's.
func (t *together[K, A]) ask(ctx context.Context, of K, send func(context.Context, []K) map[K]A) (answer A, err error) {
	q := &question[K, A]{of: of, done: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, q)
	t.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done(): // who asks next asks for nobody
		return answer, ctx.Err()
	case t.turn <- struct{}{}:
		t.sendAll(ctx, send)
		<-t.turn
	}
	return q.answer, nil
}

// sendAll asks for all that wait, each once. It needs the turn. A question that does not wait any
// more was answered by who had the turn before.
func (t *together[K, A]) sendAll(ctx context.Context, send func(context.Context, []K) map[K]A) {
	t.mu.Lock()
	all := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	asked, seen := make([]K, 0, len(all)), make(map[K]struct{}, len(all))
	for _, q := range all {
		if _, twice := seen[q.of]; !twice {
			seen[q.of] = struct{}{}
			asked = append(asked, q.of)
		}
	}
	if len(asked) == 0 {
		return
	}
	answers := send(ctx, asked)
	for _, q := range all {
		q.answer = answers[q.of]
		close(q.done)
	}
}

// askers are those of all real brokers. The zero value is ready.
type askers[K comparable, A any] struct {
	mu  sync.Mutex
	all map[int32]*together[K, A]
}

func (a *askers[K, A]) of(broker int32) *together[K, A] {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.all[broker]
	if t == nil {
		if a.all == nil {
			a.all = make(map[int32]*together[K, A])
		}
		t = newTogether[K, A]()
		a.all[broker] = t
	}
	return t
}
