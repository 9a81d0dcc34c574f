package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Producers of the source whose ids the cluster is too far from get others (decision
// 0023): from an id on, that is stored before the first is changed, all are lifted to where
// no cluster comes by counting. So the same producer has the same id in all batches and
// markers, in each life of each process; those below are kept as they are.

// lifts is from which id on producers get others.
type lifts struct {
	store Overrides
	turn  chan struct{} // taken by who reads or stores it
	from  atomic.Int64  // math.MaxInt64: none does
	known atomic.Bool   // from is what is stored
	need  atomic.Int64  // an id that is too far and waits for the decision, -1 none
}

func newLifts(store Overrides) *lifts {
	l := &lifts{store: store, turn: make(chan struct{}, 1)}
	l.from.Store(math.MaxInt64)
	l.need.Store(-1)
	return l
}

// learn reads what is stored, once. Until a process has its turn another one may decide.
func (l *lifts) learn(ctx context.Context) error {
	if l.known.Load() {
		return nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	from, ok, err := l.store.Lifted(ctx)
	if err != nil {
		return fmt.Errorf("from which producer id on others are given: %w", err)
	}
	if ok {
		l.from.Store(from)
	}
	l.known.Store(true)
	return nil
}

// decide stores that ids are lifted from one on, if nothing is decided yet.
func (l *lifts) decide(ctx context.Context, from int64) (decided bool, err error) {
	if err := l.learn(ctx); err != nil || l.from.Load() < math.MaxInt64 {
		return false, err
	}
	if err := l.store.SaveLifted(ctx, from); err != nil {
		l.known.Store(false) // it may be stored all the same
		return false, fmt.Errorf("storing from which producer id on others are given: %w", err)
	}
	l.from.Store(from)
	return true, nil
}

// apply lifts producers of batches in place, and gives the highest id that stays.
func (l *lifts) apply(batches []cluster.Batch) (highest int64, err error) {
	highest = highestOf(batches)
	from := l.from.Load()
	if from == math.MaxInt64 {
		return highest, nil
	}
	highest = -1
	for _, b := range batches {
		h := batch.Header(b.Bytes)
		if h.Magic() != 2 || h.ProducerID() >= batch.OwnProducers {
			continue
		}
		if h.ProducerID() < from {
			highest = max(highest, h.ProducerID())
			continue
		}
		id, ok := batch.Lifted(h.ProducerID())
		if !ok {
			return highest, fmt.Errorf("%w: there is no other id for %d: %w", ErrProducerIDs, h.ProducerID(), errors.ErrUnsupported)
		}
		h.SetProducer(id, h.ProducerEpoch(), h.BaseSequence())
	}
	return highest, nil
}

// applyTo is apply for what is read again.
func (l *lifts) applyTo(b []byte) error {
	var all []cluster.Batch
	for w := batch.Walk(b); w.Next(); {
		all = append(all, cluster.Batch{Bytes: w.Header()})
	}
	_, err := l.apply(all)
	return err
}

// errDeciding is for the moment until it is stored which ids are changed.
var errDeciding = fmt.Errorf("%w: other producer ids are being decided on", cluster.ErrUnavailable)

// liftNow decides for an id that waits. Those that were appended are below what is decided:
// the cluster was never further ahead than now.
func (d *Destination) liftNow(ctx context.Context) {
	id := d.lifts.need.Swap(-1)
	if id < 0 {
		return
	}
	from := d.m.log.Image().NextProducerID + d.cfg.ProducerIDBudget
	if id < from {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	decided, err := d.lifts.decide(bounded, from)
	switch {
	case err != nil && ctx.Err() == nil:
		d.cfg.Logger.Warn("producer ids of the source are too far ahead, and others cannot be given yet", "id", id, "error", err)
	case decided:
		d.cfg.Logger.Warn("producer ids of the source are too far ahead of the cluster's: from one on they are others here, and those batches not the source's byte for byte",
			"id", id, "from", from)
	}
}

// ProducersFrom is from which id on producers of the source have others here: batches of
// those are not the same byte for byte. ok is false while none has.
func (d *Destination) ProducersFrom() (id int64, ok bool) {
	id = d.lifts.from.Load()
	return id, id < math.MaxInt64
}

// learnLifts has it known what was decided before anything is appended.
func (d *Destination) learnLifts(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return d.lifts.learn(bounded)
}
