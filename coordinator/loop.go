package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/clustermirror/mirror/cluster"
)

// entry is what the loop keeps of one partition.
type entry struct {
	rec   Record // as it is stored
	err   error  // the last error's value, beside rec.Reason
	owned bool

	seq     uint64 // of the effect that runs now; zero when none does
	cancel  context.CancelFunc
	retryAt time.Time
	intent  int64 // revision of the last intent that was handed to step

	// pending is the decision that is being stored. Until it is, events wait in
	// held: two decisions never share one write.
	pending *change
	held    []Event
}

// change is a decision that is not stored yet.
type change struct {
	entry   *entry
	ev      Event
	next    Record
	effects []Effect
	err     error
}

// loop owns the records. All its fields belong to the goroutine of Run.
type loop struct {
	*Coordinator
	entries map[cluster.Partition]*entry
	ready   []Event // to be stepped in the next round, before what is queued
	seq     uint64

	fresh   []*change // never tried to be saved
	failed  []*change // tried again at saveAt
	saveAt  time.Time
	down    bool // the last save got nothing through: nothing is tried before saveAt
	pace    backoff.BackOff
	retries retryHeap
	timer   *time.Timer

	intents <-chan []Intent // nil: not watching
	watchAt time.Time       // when to try to watch again; zero: never
}

func newLoop(c *Coordinator) *loop {
	return &loop{Coordinator: c, entries: map[cluster.Partition]*entry{}, pace: storePace()}
}

// storePace spaces attempts on a store that does not answer.
func storePace() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(10*time.Second),
		backoff.WithMaxElapsedTime(0))
}

func (l *loop) run(ctx context.Context) error {
	records, err := l.open(ctx)
	if err != nil {
		return nil // only ctx ends the attempts
	}
	for _, rec := range records {
		e := &entry{rec: rec}
		if rec.Reason != "" {
			e.err = storedError(rec.Reason)
		}
		l.entries[rec.Partition] = e
		l.show(e)
	}
	if l.opts.OnLoad != nil {
		l.opts.OnLoad(records)
	}
	for _, rec := range records {
		l.ready = append(l.ready, Event{Partition: rec.Partition, Kind: eventTakeOver})
		if in, ok := l.board.intent(rec.Partition.Topic); ok {
			l.follow(l.entries[rec.Partition], in)
		}
	}
	l.timer = time.NewTimer(0)
	defer l.timer.Stop()
	for ctx.Err() == nil {
		l.ready = append(l.ready, l.queue.take()...)
		l.round(ctx)
		if len(l.ready) == 0 {
			l.wait(ctx)
		}
	}
	return nil
}

// storedError is an error of which only the text survived a restart.
type storedError string

func (e storedError) Error() string { return string(e) }

// round steps what is ready and stores what came of it.
func (l *loop) round(ctx context.Context) {
	events := l.ready
	l.ready = nil
	for _, ev := range events {
		l.apply(ctx, ev)
	}
	l.save(ctx)
}

// apply steps one event. What changes the record waits to be stored.
func (l *loop) apply(ctx context.Context, ev Event) {
	e, ok := l.entries[ev.Partition]
	switch {
	case !ok:
		l.create(ctx, ev)
		return
	case e.pending != nil:
		e.held = append(e.held, ev)
		return
	case !e.owned && ev.Kind != eventTakeOver:
		l.refuse(ev, fmt.Errorf("%v: %s: %w", ev.Partition, ev.Kind, cluster.ErrFenced))
		return
	case ev.Seq != 0 && ev.Seq != e.seq:
		l.refuse(ev, fmt.Errorf("%v: %s of an effect that was superseded: %w", ev.Partition, ev.Kind, ErrUnfit))
		return
	}
	next, effects, err := step(e.rec, ev)
	switch {
	case err != nil:
		l.refuse(ev, err)
		if ev.Seq != 0 && ev.Kind != EventFailed { // the effect has ended, and nothing came of it
			l.ready = append(l.ready, Event{Partition: ev.Partition, Kind: EventFailed, Err: err, Seq: ev.Seq})
		}
	case ev.Kind == EventForget:
		l.forget(ctx, e, ev)
	case next.equal(e.rec):
		l.act(ctx, e, effects)
		ack(ev, nil)
	default:
		l.stage(&change{entry: e, ev: ev, next: next, effects: effects})
	}
}

// create makes the record of a partition that is wanted for the first time.
func (l *loop) create(ctx context.Context, ev Event) {
	if ev.Kind == EventForget {
		ack(ev, nil)
		return
	}
	e := &entry{rec: newRecord(ev.Partition), owned: true}
	e.rec.Later = ev.Later
	next, effects, err := step(e.rec, ev)
	if err == nil && ev.Kind != EventWant {
		err = fmt.Errorf("%v: %s of a partition without a record: %w", ev.Partition, ev.Kind, ErrUnfit)
	}
	if err != nil {
		l.refuse(ev, err)
		return
	}
	l.entries[ev.Partition] = e
	l.stage(&change{entry: e, ev: ev, next: next, effects: effects})
	if in, ok := l.board.intent(ev.Partition.Topic); ok {
		l.follow(e, in)
	}
}

// stage readies a decision to be stored.
func (l *loop) stage(ch *change) {
	ch.next.StateEpoch = ch.entry.rec.StateEpoch + 1
	switch {
	case ch.next.Reason == "":
	case ch.ev.Kind == EventFailed:
		ch.err = ch.ev.Err
	default:
		ch.err = ch.entry.err
	}
	ch.entry.pending = ch
	l.fresh = append(l.fresh, ch)
}

func (l *loop) forget(ctx context.Context, e *entry, ev Event) {
	p := ev.Partition
	if err := l.store.Delete(ctx, l.mirror, []cluster.Partition{p}); err != nil {
		l.refuse(ev, fmt.Errorf("%v: delete the record: %w", p, err))
		return
	}
	l.drop(e)
	ack(ev, nil)
}

// drop forgets an entry whose record is gone.
func (l *loop) drop(e *entry) {
	e.halt()
	delete(l.entries, e.rec.Partition)
	l.board.remove(e.rec.Partition)
}

func (l *loop) refuse(ev Event, err error) {
	l.opts.Logger.Debug("event refused", "mirror", l.mirror, "topic", ev.Partition.Topic,
		"partition", ev.Partition.Partition, "event", string(ev.Kind), "err", err)
	ack(ev, err)
}

func ack(ev Event, err error) {
	if ev.Ack != nil {
		ev.Ack(err)
	}
}

// act does what was decided, now that it is stored.
func (l *loop) act(ctx context.Context, e *entry, effects []Effect) {
	for _, eff := range effects {
		switch eff.Kind {
		case effectReconsider:
			l.ready = append(l.ready, Event{Partition: e.rec.Partition, Kind: eventReconsider})
		case effectArmRetry:
			l.arm(e)
			l.show(e)
		default:
			e.halt()
			if ctx.Err() != nil {
				return
			}
			l.seq++
			eff.Seq = l.seq
			e.seq = eff.Seq
			var effectCtx context.Context
			effectCtx, e.cancel = context.WithCancel(ctx)
			l.perf.Perform(effectCtx, e.rec, eff)
		}
	}
}

// halt ends the effect that runs now.
func (e *entry) halt() {
	if e.cancel != nil {
		e.cancel()
	}
	e.cancel, e.seq = nil, 0
}

func (l *loop) show(e *entry) {
	l.board.show(Snapshot{Record: e.rec, Err: e.err, RetryAt: e.retryAt, Owned: e.owned})
}

// end tells everybody who still waits that nothing will come of it.
func (l *loop) end(queued []Event) {
	for _, ev := range append(l.ready, queued...) {
		ack(ev, ErrEnded)
	}
	for _, e := range l.entries {
		e.halt()
		if e.pending != nil {
			ack(e.pending.ev, ErrEnded)
		}
		for _, ev := range e.held {
			ack(ev, ErrEnded)
		}
	}
}
