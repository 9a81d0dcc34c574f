package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Truncate cuts tails on every real replica. One that is away cuts when it fetches
// again; a log that a real broker leads comes to us first.
func (d *Destination) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	errs := make([]error, len(cuts))
	ps := make([]cluster.Partition, len(cuts))
	for i, c := range cuts {
		if ps[i] = c.Partition; c.Offset < 0 {
			errs[i] = fmt.Errorf("%v: %w: offset %d", c.Partition, cluster.ErrRefused, c.Offset)
		}
	}
	leds := d.takeAll(ctx, ps, errs)
	waits, raise := make([]<-chan error, len(cuts)), make(map[metalog.PartitionID]int32)
	for i, c := range cuts {
		if errs[i] != nil {
			continue
		}
		at, err := d.baseOf(ctx, leds[i], c)
		if err != nil {
			errs[i] = err
			continue
		}
		if s := leds[i].State(); at < s.Next || s.Cut {
			topic, name := leds[i].ID()
			raise[metalog.PartitionID{Topic: topic, Partition: name.Partition}] = s.Epoch + 1
			d.cfg.Logger.Warn("a log is cut", "topic", name.Topic, "partition", name.Partition, "from", at, "to", s.Next)
		}
		waits[i] = waitFor(func(done func(error)) { leds[i].Truncate(at, done) })
	}
	await(ctx, waits, errs)
	d.noteMissed(ctx, leds, errs)
	failed := d.raiseTo(ctx, raise) // what comes has a later epoch than what was cut
	for i, led := range leds {
		if led == nil || errs[i] != nil {
			continue
		}
		topic, name := led.ID()
		if err := failed[metalog.PartitionID{Topic: topic, Partition: name.Partition}]; err != nil {
			errs[i] = fmt.Errorf("%v: cut, but our leader epoch is not raised: %w", name, err)
		}
	}
	return errs
}

// baseOf is where the batch begins that holds the offset of a cut; the offset itself
// when none does.
func (d *Destination) baseOf(ctx context.Context, led *lead.Partition, c fetcher.Cut) (int64, error) {
	if s := led.State(); c.Offset >= s.Next || c.Offset <= s.LogStart {
		return c.Offset, nil
	}
	if base, ok := led.Base(c.Offset); ok {
		return base, nil
	}
	topic, _ := led.ID()
	id := metalog.PartitionID{Topic: topic, Partition: c.Partition.Partition}
	errs := []error{fmt.Errorf("%v: %w: no replica says which batch holds offset %d", c.Partition, cluster.ErrUnavailable, c.Offset)}
	for _, f := range led.State().Followers {
		if !f.Live || f.Holds <= c.Offset {
			continue
		}
		got, err := d.glimpse(ctx, f.Replica, c.Partition, id, c.Offset)
		switch {
		case err == nil && got.some:
			return min(got.base, c.Offset), nil
		case err == nil:
			err = errNothing
		}
		errs = append(errs, fmt.Errorf("replica %d: %w", f.Replica, err))
	}
	return 0, errors.Join(errs...)
}

// takeAll gives partitions as we lead them, taken over where it is needed. Those that
// have an error already are left out.
func (d *Destination) takeAll(ctx context.Context, ps []cluster.Partition, errs []error) []*lead.Partition {
	leds := make([]*lead.Partition, len(ps))
	image, err := d.joined(ctx)
	if err != nil {
		fill(errs, err)
		return leds
	}
	ids := make([]metalog.PartitionID, len(ps))
	var take []metalog.PartitionID
	for i, name := range ps {
		if errs[i] != nil {
			continue
		}
		var p *metalog.Partition
		if p, errs[i] = d.find(image, name, &ids[i]); errs[i] == nil && d.needed(image, ids[i], p, true) {
			take = append(take, ids[i])
		}
	}
	failed := d.takeOver(ctx, take)
	var hs []*holding
	var at []int
	for i, name := range ps {
		if errs[i] == nil {
			errs[i] = failed[ids[i]]
		}
		if errs[i] == nil {
			hs, at = append(hs, d.holding(name)), append(at, i)
		}
	}
	ready := d.ready(ctx, hs)
	for k, i := range at {
		if errs[i] = ready[k]; errs[i] == nil {
			leds[i], errs[i] = hs[k].act()
		}
	}
	return leds
}

// waitFor is the outcome of something that says so by a function.
func waitFor(do func(done func(error))) <-chan error {
	out := make(chan error, 1)
	do(func(err error) { out <- err })
	return out
}

// await waits for outcomes; those without a channel have none.
func await(ctx context.Context, waits []<-chan error, errs []error) {
	for i, w := range waits {
		if w == nil {
			continue
		}
		select {
		case errs[i] = <-w:
		case <-ctx.Done():
			errs[i] = ctx.Err()
		}
	}
}

// Trim moves log starts up, on every real replica.
func (d *Destination) Trim(ctx context.Context, cuts []fetcher.Cut) []error {
	errs := make([]error, len(cuts))
	if err := ctx.Err(); err != nil {
		return fill(errs, err)
	}
	waits := make([]<-chan error, len(cuts))
	for i, c := range cuts {
		h := d.known(c.Partition)
		if h == nil {
			errs[i] = fmt.Errorf("%v: %w: we do not lead it", c.Partition, cluster.ErrNotLeader)
			continue
		}
		led, err := h.act()
		if errs[i] = err; err == nil {
			waits[i] = waitFor(func(done func(error)) { led.Trim(c.Offset, done) })
		}
	}
	await(ctx, waits, errs)
	return errs
}

// StartAt makes an empty log begin at an offset, at once.
func (d *Destination) StartAt(ctx context.Context, s fetcher.Stretch, offset int64, progress func(done int64)) error {
	errs := make([]error, 1)
	leds := d.takeAll(ctx, []cluster.Partition{s.Partition}, errs)
	if errs[0] != nil {
		return errs[0]
	}
	if err := leds[0].StartAt(offset); err != nil {
		return err
	}
	if progress != nil {
		progress(offset)
	}
	return nil
}
