package coordinator

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/clustermirror/mirror/cluster"
)

// open reads the mirror's records and begins to watch its intents; it goes on
// until it has both, and fails only when ctx ends.
func (l *loop) open(ctx context.Context) ([]Record, error) {
	var records []Record
	attempt := func() (err error) {
		if l.intents == nil {
			if err := l.watch(ctx); err != nil {
				return err
			}
		}
		records, err = l.store.Load(ctx, l.mirror)
		return err
	}
	warn := func(err error, wait time.Duration) {
		l.opts.Logger.Warn("state cannot be read, trying again", "mirror", l.mirror, "wait", wait, "err", err)
	}
	if err := backoff.RetryNotify(attempt, backoff.WithContext(storePace(), ctx), warn); err != nil {
		return nil, err
	}
	return records, ctx.Err()
}

// watch subscribes to intents and takes the first piece, which is all of them:
// no new topic is started before it is known that an operator stopped it.
func (l *loop) watch(ctx context.Context) error {
	l.watchAt = time.Time{}
	ch, err := l.store.Watch(ctx, l.mirror)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	select {
	case intents, ok := <-ch:
		if !ok {
			return errors.New("store ended the watch at once")
		}
		l.intents = ch
		l.intended(intents)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// intended follows what operators want of topics that have records here.
func (l *loop) intended(intents []Intent) {
	if len(intents) == 0 {
		return
	}
	l.board.intend(intents)
	changed := make(map[string]Intent, len(intents))
	for _, in := range intents {
		if in.Revision > changed[in.Topic].Revision {
			changed[in.Topic] = in
		}
	}
	for _, e := range l.entries {
		if in, ok := changed[e.rec.Partition.Topic]; ok {
			l.follow(e, in)
		}
	}
}

// follow turns an intent that was not followed yet into events.
func (l *loop) follow(e *entry, in Intent) {
	if in.Revision <= max(e.intent, e.rec.Intent) {
		return
	}
	e.intent = in.Revision
	p := e.rec.Partition
	l.ready = append(l.ready, Event{Partition: p, Kind: EventWant, Desired: in.Desired, Revision: in.Revision})
	if in.Recover {
		l.ready = append(l.ready, Event{Partition: p, Kind: EventRecover, Revision: in.Revision})
	}
}

// wait blocks until there is something to do.
func (l *loop) wait(ctx context.Context) {
	if at, ok := l.next(); ok {
		l.timer.Reset(time.Until(at))
	} else {
		l.timer.Stop()
	}
	select {
	case <-ctx.Done():
	case <-l.queue.wake:
	case intents, ok := <-l.intents:
		if !ok {
			l.intents, l.watchAt = nil, time.Now().Add(l.pace.NextBackOff())
			return
		}
		l.intended(intents)
	case <-l.timer.C:
		l.tick(ctx)
	}
}

// next is when the loop has something to do by itself.
func (l *loop) next() (at time.Time, ok bool) {
	sooner := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if len(l.retries) > 0 {
		sooner(l.retries[0].at)
	}
	if len(l.failed)+len(l.fresh) > 0 {
		sooner(l.saveAt)
	}
	if !l.watchAt.IsZero() {
		sooner(l.watchAt)
	}
	return at, ok
}

// tick does what has come due.
func (l *loop) tick(ctx context.Context) {
	now := time.Now()
	for len(l.retries) > 0 && !l.retries[0].at.After(now) {
		r := heap.Pop(&l.retries).(retry)
		// A timer that was armed again or disarmed leaves a dead entry behind.
		if e := l.entries[r.partition]; e != nil && e.retryAt.Equal(r.at) {
			l.ready = append(l.ready, Event{Partition: r.partition, Kind: eventRetryDue})
		}
	}
	if !l.watchAt.IsZero() && !l.watchAt.After(now) {
		if err := l.watch(ctx); err != nil && ctx.Err() == nil {
			l.watchAt = time.Now().Add(l.pace.NextBackOff())
			l.opts.Logger.Warn("intents cannot be watched, trying again", "mirror", l.mirror, "err", err)
		}
	}
}

// arm sets the time of the next attempt of a FAILED partition.
func (l *loop) arm(e *entry) {
	e.retryAt = time.Now().Add(l.opts.delay(e.rec.Attempts))
	heap.Push(&l.retries, retry{at: e.retryAt, partition: e.rec.Partition})
}

// delay is the wait after so many failures in a row.
func (o *Options) delay(attempts int) time.Duration {
	d := o.RetryMin
	for ; attempts > 1 && d < o.RetryMax; attempts-- {
		d *= 2
	}
	d = min(d, o.RetryMax)
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(d), backoff.WithRandomizationFactor(o.Jitter), backoff.WithMaxElapsedTime(0))
	return min(b.NextBackOff(), o.RetryMax)
}

type retry struct {
	at        time.Time
	partition cluster.Partition
}

// retryHeap is ordered by time (container/heap).
type retryHeap []retry

func (h retryHeap) Len() int           { return len(h) }
func (h retryHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h retryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *retryHeap) Push(x any)        { *h = append(*h, x.(retry)) }
func (h *retryHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
