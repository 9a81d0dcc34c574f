package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
)

// tail reads the topic from its beginning and then as it grows, into a view. It ends
// when it has lost the thread for good: the topic was deleted or replaced, reading is
// forbidden, or the Store was closed. A new one then begins anew.
type tail struct {
	s     *Store
	topic string
	id    cluster.TopicID
	all   []int32 // its partitions

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	view    view
	changed chan struct{} // closed and replaced when something was read
	trouble error         // why reading did not go on last; nil when it does
	err     error         // why it ended; nil while it lives
	loaded  bool          // it was read to its end once
}

func (s *Store) newTail(topic *wire.TopicMetadata) *tail {
	ctx, cancel := context.WithCancel(context.Background())
	t := &tail{
		s: s, topic: topic.Name, id: topic.ID, ctx: ctx, cancel: cancel,
		view:    newView(int32(len(topic.Partitions))),
		changed: make(chan struct{}),
	}
	for n := range topic.Partitions {
		t.all = append(t.all, int32(n))
	}
	t.wg.Go(t.run)
	return t
}

// end ends the tail for the reason given, unless it has ended.
func (t *tail) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	t.err = why
	for _, m := range t.view.mirrors {
		for ch := range m.watchers {
			close(ch)
		}
		clear(m.watchers)
	}
	t.cancel()
	t.wake()
}

// wake tells all who wait that something has changed. Needs mu.
func (t *tail) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// ended is why the tail has ended, nil while it lives.
func (t *tail) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// reader is a fetch loop at one broker.
type reader struct {
	broker int32
	parts  []int32
	cancel context.CancelFunc
	done   chan struct{}
	turns  int // answers that were taken; to be read when done is closed
}

func (r *reader) stop() {
	r.cancel()
	<-r.done
}

// unknownLimit: so many looks in a row at a cluster that does not know the topic, over
// some seconds, and it is deleted.
const unknownLimit = 8

// run keeps one fetch loop at each leader until the tail ends. A loop that meets an
// error ends; the others read on while leaders are looked up again.
func (t *tail) run() {
	running := map[int32]*reader{}
	failed := make(chan *reader)
	defer func() {
		for _, r := range running {
			r.stop()
		}
	}()
	unknown, fails, stale := 0, 0, false
	for t.ctx.Err() == nil {
		leaders, err := t.leaders(t.ctx, stale)
		if err == nil {
			unknown = 0
			err = t.place(leaders, running, failed)
		} else if unknown++; !errors.Is(err, cluster.ErrUnknownTopic) {
			unknown = 0
		}
		switch {
		case unknown >= unknownLimit:
			t.end(errors.Join(cluster.ErrTopicDeleted, err))
		case errors.Is(err, cluster.ErrAuthorization):
			t.end(err)
		}
		if err != nil {
			t.note(err)
		}
		var again <-chan time.Time
		switch stale = err != nil; {
		case unknown > 0:
			again = time.After(pause(fails))
		case stale:
			again = time.After(awaited(fails))
		}
		select {
		case <-t.ctx.Done():
		case <-again:
			fails++
		case r := <-failed:
			if running[r.broker] == r {
				delete(running, r.broker)
			}
			if stale = true; r.turns > 0 {
				fails = 0
			}
			if sleep(t.ctx, awaited(fails)) {
				fails++
			}
		}
	}
}

// place starts and ends fetch loops so that every partition is read at its leader.
func (t *tail) place(leaders []wire.PartitionMetadata, running map[int32]*reader, failed chan *reader) error {
	plan := map[int32][]int32{}
	var err error
	for n, l := range leaders {
		if l.Leader.Broker < 0 {
			err = cluster.ErrUnavailable
			continue
		}
		plan[l.Leader.Broker] = append(plan[l.Leader.Broker], int32(n))
	}
	for _, r := range slices.Collect(maps.Values(running)) {
		if !slices.Equal(plan[r.broker], r.parts) {
			r.stop()
			delete(running, r.broker)
		}
	}
	for broker, parts := range plan {
		if running[broker] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(t.ctx)
		r := &reader{broker: broker, parts: parts, cancel: cancel, done: make(chan struct{})}
		running[broker] = r
		t.wg.Go(func() {
			err := t.read(ctx, r)
			close(r.done)
			if ctx.Err() != nil {
				return
			}
			t.note(err)
			select {
			case failed <- r:
			case <-ctx.Done():
			}
		})
	}
	return err
}

// note keeps why reading stands still, for those who wait for it.
func (t *tail) note(err error) {
	if t.ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	t.trouble = err
	t.mu.Unlock()
	t.s.cfg.Logger.Debug("state topic is not read", "topic", t.topic, "err", err)
	if errors.Is(err, cluster.ErrAuthorization) || errors.Is(err, cluster.ErrCorrupt) || errors.Is(err, cluster.ErrOldFormat) {
		t.end(err)
	}
}

// positions are where to read partitions from, and the epochs of what was read.
func (t *tail) positions(parts []int32) (next []int64, epochs []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range parts {
		next, epochs = append(next, t.view.parts[n].next), append(epochs, t.view.parts[n].epoch)
	}
	return next, epochs
}

// take takes the batches that were fetched of partitions, by number.
func (t *tail) take(fetched map[int32][]byte, d *batch.Decoder) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, b := range fetched {
		w := batch.Walk(b)
		for w.Next() {
			h := w.Header()
			if h.Magic() != 2 {
				return fmt.Errorf("%w: magic %d in partition %d at offset %d", cluster.ErrOldFormat, h.Magic(), n, h.Base())
			}
			if err := t.view.apply(n, h, d, t.warn); err != nil {
				return err
			}
		}
		if err := w.Err(); err != nil {
			return err
		}
	}
	t.view.tell()
	t.trouble = nil
	t.wake()
	return nil
}

func (t *tail) warn(key string, err error) {
	t.s.cfg.Logger.Warn("stored intent is left out", "topic", t.topic, "key", key, "err", err)
}

// begin sets where to read a partition from, when that is not known.
func (t *tail) begin(n int32, start int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := &t.view.parts[n]; p.next < 0 {
		p.next, p.hole = start, start
		t.wake()
	}
}

// skip goes to an offset where the log has nothing before it.
func (t *tail) skip(n int32, from, to int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := &t.view.parts[n]; p.next == from && to > from {
		// The epoch of what was read last says nothing about what was left out.
		p.next, p.hole, p.epoch = to, to, cluster.NoEpoch
		t.wake()
	}
}

// forget begins a partition anew, whose log was cut.
func (t *tail) forget(n int32) {
	t.s.cfg.Logger.Warn("state topic was cut, reading it again", "topic", t.topic, "partition", n)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.view.forget(n)
	t.wake()
}

// close ends the tail and waits until nothing of it runs.
func (t *tail) close(why error) {
	t.end(why)
	t.wg.Wait()
}
