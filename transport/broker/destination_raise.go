package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// maxRaises bounds how many requests for epochs are under way at once. Partitions come to
// need a later epoch one by one, a thousand of them in the same second: what comes
// meanwhile goes together, or a controller drowns in connections and misses heartbeats.
const maxRaises = 4

// epochWish is a leader epoch that somebody waits for.
type epochWish struct {
	ctx   context.Context // of who waits
	id    metalog.PartitionID
	epoch int32
	done  chan error // capacity 1
}

// epochWishes are those that nobody works at yet. It is safe for concurrent use.
type epochWishes struct {
	news chan struct{} // capacity 1
	over chan struct{} // closed when nobody works at them any more
	mu   sync.Mutex
	list []*epochWish
}

func newEpochWishes() *epochWishes {
	return &epochWishes{news: make(chan struct{}, 1), over: make(chan struct{})}
}

func (w *epochWishes) put(list []*epochWish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, list...)
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *epochWishes) take() []*epochWish {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.list
	w.list = nil
	return out
}

// ask waits until the partitions have at least these epochs, and gives the reasons of
// those that have not.
func (w *epochWishes) ask(ctx context.Context, want map[metalog.PartitionID]int32) map[metalog.PartitionID]error {
	list := make([]*epochWish, 0, len(want))
	for id, epoch := range want {
		list = append(list, &epochWish{ctx: ctx, id: id, epoch: epoch, done: make(chan error, 1)})
	}
	w.put(list)
	failed := make(map[metalog.PartitionID]error)
	for _, one := range list {
		if err := w.await(one); err != nil {
			failed[one.id] = err
		}
	}
	return failed
}

func (w *epochWishes) await(one *epochWish) error {
	var why error
	select {
	case err := <-one.done:
		return err
	case <-one.ctx.Done():
		why = one.ctx.Err()
	case <-w.over:
		why = fmt.Errorf("%w: the destination does not run any more", cluster.ErrUnavailable)
	}
	select {
	case err := <-one.done: // both
		return err
	default:
		return why
	}
}

// raiser is control.raise.
type raiser func(ctx context.Context, epochs map[metalog.PartitionID]int32, unwanted func(metalog.PartitionID) bool,
	ended func(metalog.PartitionID, error)) map[metalog.PartitionID]error

// run works at them until ctx ends.
func (w *epochWishes) run(ctx context.Context, raise raiser) error {
	defer close(w.over)
	var group sync.WaitGroup
	defer group.Wait()
	slots := make(chan struct{}, maxRaises)
	for {
		select {
		case <-w.news:
		case <-ctx.Done():
			return nil
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		list := w.take()
		group.Go(func() {
			defer func() { <-slots }()
			grant(ctx, raise, list)
		})
	}
}

// grant answers each as soon as it is done: one that cannot be helped holds up no others.
func grant(ctx context.Context, raise raiser, list []*epochWish) {
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	byID, want := make(map[metalog.PartitionID][]*epochWish), make(map[metalog.PartitionID]int32)
	for _, one := range list {
		if one.ctx.Err() != nil {
			continue // nobody waits any more
		}
		byID[one.id] = append(byID[one.id], one)
		want[one.id] = max(want[one.id], one.epoch)
	}
	if len(want) == 0 {
		return
	}
	unwanted := func(id metalog.PartitionID) bool {
		return !slices.ContainsFunc(byID[id], func(one *epochWish) bool { return one.ctx.Err() == nil })
	}
	ended := func(id metalog.PartitionID, err error) {
		for _, one := range byID[id] {
			one.done <- err
		}
		delete(byID, id)
	}
	for id, err := range raise(ctx, want, unwanted, ended) {
		ended(id, err)
	}
}

// raiseTo raises our epochs, and returns when the partitions have them.
func (d *Destination) raiseTo(ctx context.Context, want map[metalog.PartitionID]int32) map[metalog.PartitionID]error {
	if len(want) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	failed := d.wishes.ask(ctx, want)
	image := d.m.log.Image()
	for id := range want {
		p, ok := image.Partition(id)
		if h := d.byID(id); ok && h != nil && failed[id] == nil {
			if led, err := h.lead(); err == nil {
				led.Lead(p.LeaderEpoch) // before the loop over images comes to it
			}
		}
	}
	return failed
}
