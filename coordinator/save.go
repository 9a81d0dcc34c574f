package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

var errNoAnswer = errors.New("store gave no answer for the record")

// save stores the decisions that wait for it. Each one that got through is
// acted upon; a conflict is read again and decided again; anything else is tried
// again later, without keeping other partitions waiting unless the store takes
// nothing at all.
func (l *loop) save(ctx context.Context) {
	batch := l.due(time.Now())
	if len(batch) == 0 || ctx.Err() != nil {
		l.fresh = append(l.fresh, batch...)
		return
	}
	records := make([]Record, len(batch))
	for i, ch := range batch {
		records[i] = ch.next
	}
	errs := l.store.Save(ctx, l.mirror, records)
	var conflicts, again []*change
	var trouble error
	for i, ch := range batch {
		err := errNoAnswer
		if i < len(errs) {
			err = errs[i]
		}
		switch {
		case err == nil:
			l.commit(ctx, ch)
		case errors.Is(err, ErrConflict):
			conflicts = append(conflicts, ch)
		default:
			again, trouble = append(again, ch), err
		}
	}
	if len(conflicts) > 0 {
		if err := l.resolve(ctx, conflicts); err != nil {
			again, trouble = append(again, conflicts...), err
		}
	}
	l.down = len(again) == len(batch)
	if len(again) == 0 {
		if len(l.failed) == 0 {
			l.pace.Reset()
		}
		return
	}
	l.postpone(ctx, again, trouble)
}

// due takes what may be saved now.
func (l *loop) due(now time.Time) []*change {
	var batch []*change
	switch {
	case !now.Before(l.saveAt):
		batch = append(l.failed, l.fresh...)
		l.failed, l.fresh = nil, nil
	case !l.down:
		batch, l.fresh = l.fresh, nil
	}
	return batch
}

func (l *loop) postpone(ctx context.Context, again []*change, trouble error) {
	l.failed = append(l.failed, again...)
	wait := l.pace.NextBackOff()
	l.saveAt = time.Now().Add(wait)
	if ctx.Err() == nil {
		l.opts.Logger.Warn("state is not stored, trying again",
			"mirror", l.mirror, "records", len(again), "wait", wait, "err", trouble)
	}
}

// commit takes a stored decision as done, tells of it and acts upon it.
func (l *loop) commit(ctx context.Context, ch *change) {
	e := ch.entry
	before := e.rec
	e.rec, e.err, e.owned, e.pending = ch.next, ch.err, true, nil
	if before.State != e.rec.State {
		e.halt()
	}
	if e.rec.State != StateFailed || !e.rec.Retriable {
		e.retryAt = time.Time{}
	}
	l.show(e)
	l.tell(ctx, before, e)
	ack(ch.ev, nil)
	l.act(ctx, e, ch.effects)
	l.release(e)
}

func (l *loop) tell(ctx context.Context, before Record, e *entry) {
	if before.State != e.rec.State {
		level := slog.LevelInfo
		if e.rec.State == StateFailed {
			level = slog.LevelWarn
		}
		l.opts.Logger.Log(ctx, level, "partition state", "mirror", l.mirror, "topic", e.rec.Partition.Topic,
			"partition", e.rec.Partition.Partition, "from", string(before.State), "to", string(e.rec.State),
			"reason", e.rec.Reason)
	}
	if l.opts.OnChange != nil {
		l.opts.OnChange(before, e.rec, e.err)
	}
}

// release lets the events go that waited for the decision before them.
func (l *loop) release(e *entry) {
	l.ready = append(l.ready, e.held...)
	e.held = nil
}

// resolve reads again what another has written, and decides again.
func (l *loop) resolve(ctx context.Context, conflicts []*change) error {
	records, err := l.store.Load(ctx, l.mirror)
	if err != nil {
		return err
	}
	now := make(map[cluster.Partition]Record, len(conflicts))
	for _, ch := range conflicts {
		now[ch.next.Partition] = Record{}
	}
	for _, rec := range records {
		if _, asked := now[rec.Partition]; asked {
			now[rec.Partition] = rec
		}
	}
	for _, ch := range conflicts {
		l.settleConflict(ctx, ch, now[ch.next.Partition])
	}
	return nil
}

func (l *loop) settleConflict(ctx context.Context, ch *change, now Record) {
	e := ch.entry
	created := e.rec.StateEpoch == 0
	switch {
	case now.equal(ch.next):
		l.commit(ctx, ch) // our own write, whose answer was lost
	case now.StateEpoch == 0:
		l.lose(ch, "the record was deleted")
		l.drop(e)
	case now.OwnerEpoch > e.rec.OwnerEpoch && !created && ch.ev.Kind != eventTakeOver:
		e.rec = now
		l.lose(ch, fmt.Sprintf("owner epoch is %d by now", now.OwnerEpoch))
		l.show(e)
	default:
		now.OwnerEpoch = max(now.OwnerEpoch, e.rec.OwnerEpoch)
		e.halt()
		e.rec, e.pending = now, nil
		l.show(e)
		l.decideAgain(ch, created)
	}
}

// decideAgain repeats a decision on the record as it is now. Whoever wrote it
// may have changed the state: its effect comes first.
func (l *loop) decideAgain(ch *change, created bool) {
	first := Event{Partition: ch.next.Partition, Kind: eventReconsider}
	switch {
	case ch.ev.Kind == eventTakeOver:
		l.ready = append(l.ready, ch.ev)
	case created:
		first.Kind = eventTakeOver // another worker created it: last comer owns it
		l.ready = append(l.ready, first, ch.ev)
	default:
		l.ready = append(l.ready, first, ch.ev)
	}
	l.release(ch.entry)
}

// lose gives a partition up: it is another worker's. Nothing is fought for, the
// owner epoch says who came last.
func (l *loop) lose(ch *change, why string) {
	e := ch.entry
	e.halt()
	e.pending, e.owned, e.retryAt = nil, false, time.Time{}
	e.err = fmt.Errorf("%v: %s: %w", ch.next.Partition, why, cluster.ErrFenced)
	l.opts.Logger.Warn("partition lost", "mirror", l.mirror, "topic", ch.next.Partition.Topic,
		"partition", ch.next.Partition.Partition, "err", e.err)
	if l.opts.OnLost != nil {
		l.opts.OnLost()
	}
	ack(ch.ev, e.err)
	l.release(e)
}
