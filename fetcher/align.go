package fetcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// alignParallel is how many partitions are compared at a time: each waits for a few
// round trips.
const alignParallel = 64

// A high watermark below its log end is looked at that often at first, and less
// and less often.
const (
	replicationLook    = 50 * time.Millisecond
	replicationLookMax = time.Second
)

// Align finds for each target where the common log ends (state LOG_ALIGNMENT), and
// is also for a partition whose fetch has found that the logs part. What tells is, in
// this order: the position of the mirror the other way or of the own stop; the
// history of a running stretch against the source's epochs; the records themselves,
// compared from the end backwards where nothing else is known, and in any case at
// the end, at the start and in the middle. An empty destination is made to start
// where Policy.Start says. Align cuts nothing: it says where (Aligned.Cut), or why
// the policy does not allow it. done is called once for each target, by its index, as
// soon as that one is known, from any goroutine; nothing is done for the target any
// more then. Align returns when all are known. destination reads the destination's
// log. When ctx ends, the error of what is left says what was waited for.
func Align(ctx context.Context, source Source, log Log, destination Reader, targets []Target, done func(int, Aligned)) {
	ctx, cancel := context.WithCancel(ctx)
	a := &aligner{from: source, log: log, destination: destination, slots: make(chan struct{}, alignParallel)}
	looked := make(chan first, 1)
	var looking sync.WaitGroup
	looking.Go(func() { looked <- a.look(ctx, targets) })
	defer looking.Wait()
	defer cancel()
	var group sync.WaitGroup
	known := make(chan struct{})
	var found first
	for i, t := range targets {
		group.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if t.Context != nil {
				defer context.AfterFunc(t.Context, cancel)()
			}
			select { // a cluster that does not answer holds up nobody who has given up
			case <-known:
				if found.err != nil {
					done(i, Aligned{Cut: -1, Err: found.err})
					return
				}
				done(i, a.one(ctx, t, found.leaders[i], found.offsets[i], found.ends[i]))
			case <-ctx.Done():
				done(i, Aligned{Cut: -1, Err: ctx.Err()})
			}
		})
	}
	all := make(chan struct{})
	go func() {
		group.Wait()
		close(all)
	}()
	select {
	case found = <-looked:
		close(known)
		<-all
	case <-all:
	}
}

// first is what is asked for all targets together.
type first struct {
	leaders []LeaderAnswer
	ends    []End
	offsets []OffsetsAnswer
	err     error
}

func (a *aligner) look(ctx context.Context, targets []Target) (f first) {
	ps := make([]cluster.Partition, len(targets))
	stretches := make([]Stretch, len(targets))
	for i, t := range targets {
		ps[i], stretches[i] = t.Stretch.Partition, t.Stretch
		stretches[i].New = false // what stands in the log is looked at first
	}
	if f.leaders, f.err = a.from.Leaders(ctx, ps, true); f.err != nil {
		f.err = fmt.Errorf("source leaders: %w", f.err)
		return f
	}
	// The destination first: the source's end only grows, so that a worker that
	// appends meanwhile does not make the destination look longer.
	if f.ends, f.err = a.log.Ends(ctx, stretches); f.err != nil {
		f.err = fmt.Errorf("destination log end: %w", f.err)
		return f
	}
	if f.offsets, f.err = a.from.Offsets(ctx, ps); f.err != nil {
		f.err = fmt.Errorf("source offsets: %w", f.err)
	}
	return f
}

type aligner struct {
	from        Source
	log         Log
	destination Reader
	slots       chan struct{} // taken to read or fill logs, not to wait for replicas (I10)
}

func (a *aligner) one(ctx context.Context, t Target, l LeaderAnswer, o OffsetsAnswer, e End) Aligned {
	out := Aligned{Source: o.Offsets, Cut: -1}
	out.Assignment = Assignment{
		Stretch: t.Stretch, TopicID: l.TopicID, There: e.TopicID, Next: e.LogEnd, LastEpoch: cluster.NoEpoch, Trimmed: e.LogStart,
		Ceiling: e.LeaderEpoch, Progress: t.Progress, RoundTrip: e.RoundTrip,
	}
	fail := func(err error) Aligned {
		out.Err = err
		return out
	}
	switch {
	case l.Err != nil:
		return fail(fmt.Errorf("source leader: %w", l.Err))
	case !t.TopicID.IsZero() && !l.TopicID.IsZero() && l.TopicID != t.TopicID:
		return fail(fmt.Errorf("%w: source topic has id %v, this mirror recorded %v", cluster.ErrTopicReplaced, l.TopicID, t.TopicID))
	case o.Err != nil:
		return fail(fmt.Errorf("source offsets: %w", o.Err))
	}
	err := endErr(e, t.Stretch)
	if err == nil && e.LogStart < e.LogEnd {
		e, err = a.replicated(ctx, t.Stretch, e)
	}
	if err != nil {
		return fail(err)
	}
	out.Next, out.Trimmed = e.LogEnd, e.LogStart
	a.slots <- struct{}{}
	defer func() { <-a.slots }()
	j := &alignment{aligner: a, t: t, p: t.Stretch.Partition, leader: l.Leader, source: o.Offsets, end: e, out: &out, seenAt: -1, seen: cluster.NoEpoch}
	if err := j.align(ctx); err != nil {
		return fail(err)
	}
	// Where clients can be kept out, they are from here on: what they wrote before was
	// compared.
	if out.Cut < 0 && (e.Stopped || t.Stretch.New || a.log.Traits().ReadOnly) {
		return a.renew(ctx, out)
	}
	return out
}

// endErr is what Ends said against a partition. Records written after our stop
// are accepted by a new stretch, where the source has them too.
func endErr(e End, s Stretch) error {
	if e.Err == nil || s.New && errors.Is(e.Err, cluster.ErrForeignWrite) {
		return nil
	}
	return fmt.Errorf("destination log end: %w", e.Err)
}

// replicated waits until the whole log can be read: what a leader has appended
// just before may not have reached its followers.
func (a *aligner) replicated(ctx context.Context, s Stretch, e End) (End, error) {
	ask := s
	ask.New = false
	for look := replicationLook; e.HighWatermark < e.LogEnd; look = min(2*look, replicationLookMax) {
		select {
		case <-ctx.Done():
			return e, fmt.Errorf("%w: destination's high watermark %d stays below its log end %d", cluster.ErrUnavailable, e.HighWatermark, e.LogEnd)
		case <-time.After(look):
		}
		ends, err := a.log.Ends(ctx, []Stretch{ask})
		if err != nil {
			return e, fmt.Errorf("destination log end: %w", err)
		}
		if err := endErr(ends[0], s); err != nil {
			return e, err
		}
		e = ends[0]
	}
	return e, nil
}

// renew begins a new stretch at the end of a log that was found to be a prefix.
func (a *aligner) renew(ctx context.Context, out Aligned) Aligned {
	s := out.Stretch
	s.New = true
	ends, err := a.log.Ends(ctx, []Stretch{s})
	if err == nil {
		err = ends[0].Err
	}
	if err == nil && ends[0].LogEnd != out.Next {
		err = fmt.Errorf("%w: log end moved from %d to %d during alignment", cluster.ErrFenced, out.Next, ends[0].LogEnd)
	}
	out.Err = err
	return out
}
