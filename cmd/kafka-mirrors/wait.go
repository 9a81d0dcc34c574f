package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// waiting waits until topics are where an operation wants them.
type waiting struct {
	d      *desk
	mirror string
	want   coordinator.State
	since  map[string]int64 // the wish of each topic that is to have been followed
	names  []string
	verb   string // what is said of a topic that is there

	shown   *progress
	settled map[string]bool
	failed  map[string]error
	why     map[string]string // what keeps topics up that are not settled
	fallen  map[cluster.Partition]fallen
}

// fallen is a partition that has failed for good, by a stored write, since it was first seen so.
type fallen struct {
	write int32
	since time.Time
}

// settling is how long a failure has to stand to be an answer: that a wish was followed is stored before what
// comes of it, and until then an old failure stands there.
const settling = time.Second

// partitionState is a partition as far as waiting is concerned.
type partitionState int

const (
	onItsWay partitionState = iota
	there
	failedForGood
)

// judge says where a partition is on its way.
func judge(r coordinator.Record, want coordinator.State, since int64) partitionState {
	switch {
	case r.Intent < since:
		return onItsWay
	case r.State == want:
		return there
	case want == coordinator.StateStopped && r.State == coordinator.StateUnknown && !r.Appended:
		return there // nothing of it was ever copied
	case r.State != coordinator.StateFailed || want == coordinator.StateStopped || want == coordinator.StatePaused:
		return onItsWay
	case r.Retriable:
		return onItsWay // it is tried again
	}
	return failedForGood
}

// look looks once; left is how many topics are not settled.
func (w *waiting) look(ctx context.Context) (left int, err error) {
	records, err := w.d.store.Load(ctx, w.mirror)
	if err != nil {
		return len(w.names) - len(w.settled), err
	}
	of := map[string][]coordinator.Record{}
	for _, r := range records {
		of[r.Partition.Topic] = append(of[r.Partition.Topic], r)
	}
	done, all := 0, 0
	for _, name := range w.names {
		n, err := w.topic(name, of[name])
		done, all = done+n, all+len(of[name])
		switch {
		case w.settled[name]:
		case err != nil:
			w.settled[name], w.failed[name] = true, err
		case n == len(of[name]) && (n > 0 || w.want != coordinator.StateMirroring):
			w.settled[name] = true
			w.shown.line(fmt.Sprintf("%s: %s, %s", name, w.verb, plural(int64(n), "partition")))
		}
	}
	w.shown.at(done, all)
	return len(w.names) - len(w.settled), nil
}

// topic counts the partitions of a topic that are there; the error is that of one that has
// failed for good, when none is on its way any more.
func (w *waiting) topic(name string, records []coordinator.Record) (done int, err error) {
	w.why[name] = ""
	open := 0
	for _, r := range records {
		s := judge(r, w.want, w.since[name])
		if s != there && r.Reason != "" {
			w.why[name] = ": " + r.Reason
		}
		switch {
		case s == there:
			done++
		case s == failedForGood && w.stands(r):
			if err == nil {
				err = fmt.Errorf("mirror %q: partition %v is %s: %s", w.mirror, r.Partition, r.State, r.Reason)
			}
		default:
			open++
		}
	}
	if open > 0 {
		err = nil
	}
	return done, err
}

// stands: a partition has failed for good, and nothing comes after it.
func (w *waiting) stands(r coordinator.Record) bool {
	seen, ok := w.fallen[r.Partition]
	if !ok || seen.write != r.StateEpoch {
		w.fallen[r.Partition] = fallen{r.StateEpoch, time.Now()}
		return false
	}
	return time.Since(seen.since) >= settling
}

// run waits, and says what is missing when the time is over. more takes up topics that were found
// meanwhile; whole: there will not be others.
func (w *waiting) run(ctx context.Context, more func(ctx context.Context) (whole bool, err error)) error {
	w.settled, w.failed, w.why, w.fallen = map[string]bool{}, map[string]error{}, map[string]string{}, map[cluster.Partition]fallen{}
	tick := time.NewTicker(post.look)
	defer tick.Stop()
	defer w.shown.end()
	var last error
	for {
		whole, err := more(ctx)
		if err != nil && ctx.Err() == nil {
			return errors.Join(append(w.left(), err)...)
		}
		left, err := w.look(ctx)
		if err == nil && whole && left == 0 {
			return errors.Join(w.left()...)
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(append(w.left(), last, fmt.Errorf("what is wanted is stored, and goes on: %w", ctx.Err()))...)
		}
	}
}

// left are what has failed, and the topics that are not there.
func (w *waiting) left() (errs []error) {
	for _, name := range sortedKeys(w.failed) {
		errs = append(errs, w.failed[name])
	}
	for _, name := range w.names {
		if !w.settled[name] {
			errs = append(errs, &outcome{exitPending, fmt.Errorf("mirror %q: topic %s is not %s yet%s", w.mirror, name, w.verb, w.why[name])})
		}
	}
	return errs
}

// sinceOf are the revisions of what operators want last.
func sinceOf(ctx context.Context, store coordinator.Store, name string) (map[string]int64, error) {
	intents, err := intentsOf(ctx, store, name)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(intents))
	for _, in := range intents {
		out[in.Topic] = max(out[in.Topic], in.Revision)
	}
	return out, nil
}

// good are the topics of results without an error; the others' are joined.
func good(results []mirror.TopicResult) (names []string, err error) {
	var errs []error
	for _, r := range results {
		if r.Err != nil {
			errs = append(errs, r.Err)
			continue
		}
		names = append(names, r.Topic)
	}
	return names, errors.Join(errs...)
}

// sortedKeys are the keys of a map in order.
func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
