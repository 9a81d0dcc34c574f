package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/offsets"
)

// destination is the platform as a mirror writes to it. Each worker has its own: by
// that the platform tells them apart.
type destination struct {
	*platform

	mu     sync.Mutex
	begun  map[cluster.Partition]int64 // owner numbers of what this worker has taken over
	handed map[cluster.Partition]int64 // end of what it has handed over
}

var (
	_ mirror.Destination = (*destination)(nil)
	_ fetcher.Fencer     = (*destination)(nil)
	_ fetcher.Starter    = (*destination)(nil)
)

func newDestination(p *platform) *destination {
	return &destination{platform: p, begun: map[cluster.Partition]int64{}, handed: map[cluster.Partition]int64{}}
}

// Traits: bytes are kept as they come, nobody but mirrors writes, and a file can be
// cut anywhere. There are no leaders, so no epochs of the platform's own.
func (d *destination) Traits() fetcher.Traits {
	return fetcher.Traits{Gaps: true, ControlBatches: true, LogAppendTime: true, ReadOnly: true, Truncation: fetcher.TruncateExact}
}

func (d *destination) ID(context.Context) (string, error) { return d.state.ID, nil }

func (d *destination) Ends(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	ends := make([]fetcher.End, len(stretches))
	for i, s := range stretches {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := d.partition(s.Partition)
		if err != nil {
			ends[i].Err = err
			continue
		}
		var owner int64
		ends[i], owner = p.take(s)
		d.mu.Lock()
		d.begun[s.Partition], d.handed[s.Partition] = owner, ends[i].LogEnd
		d.mu.Unlock()
	}
	return ends, nil
}

func (d *destination) Append(at cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	p, err := d.partition(at)
	if err != nil {
		go (&appending{free: free, done: done}).answer(fetcher.Result{Partition: at, Err: err})
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock() // held while it is queued, so that the queue is in the order of the calls
	a := appending{owner: d.begun[at], from: d.handed[at], batches: batches, free: free, done: done}
	if n := len(batches); n > 0 {
		d.handed[at] = batches[n-1].Next
	}
	p.enqueue(a)
}

// each does something to many partitions.
func (d *destination) each(ctx context.Context, n int, at func(int) cluster.Partition, do func(i int, j *journal) error) []error {
	errs := make([]error, n)
	for i := range errs {
		if errs[i] = ctx.Err(); errs[i] != nil {
			continue
		}
		p, err := d.partition(at(i))
		if err == nil {
			err = p.locked(func(j *journal) error { return do(i, j) })
		}
		errs[i] = err
	}
	return errs
}

func (d *destination) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	return d.each(ctx, len(cuts), func(i int) cluster.Partition { return cuts[i].Partition }, func(i int, j *journal) error {
		return j.truncate(cuts[i].Offset)
	})
}

func (d *destination) Trim(ctx context.Context, cuts []fetcher.Cut) []error {
	return d.each(ctx, len(cuts), func(i int) cluster.Partition { return cuts[i].Partition }, func(i int, j *journal) error {
		return j.start(max(j.notes.Start, min(cuts[i].Offset, j.end)))
	})
}

func (d *destination) StartAt(ctx context.Context, s fetcher.Stretch, offset int64, progress func(int64)) error {
	err := d.each(ctx, 1, func(int) cluster.Partition { return s.Partition }, func(_ int, j *journal) error {
		if j.notes.Start != j.end || j.end > offset {
			return fmt.Errorf("%v: %w: %w", s.Partition, cluster.ErrRefused, errNotEmpty)
		}
		return j.start(offset)
	})[0]
	if err == nil && progress != nil {
		progress(offset)
	}
	return err
}

func (d *destination) Fence(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	ends := make([]fetcher.End, len(stretches))
	for i, s := range stretches {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := d.partition(s.Partition)
		if err != nil {
			ends[i].Err = err
			continue
		}
		ends[i] = p.fence(s)
	}
	return ends, nil
}

func (d *destination) Read(ctx context.Context, at cluster.Partition, offset int64, maxBytes int32) (b []byte, err error) {
	err = d.each(ctx, 1, func(int) cluster.Partition { return at }, func(_ int, j *journal) error {
		if offset < j.notes.Start || offset > j.end {
			return fmt.Errorf("%v: %w: %d is not in [%d,%d]", at, cluster.ErrOutOfRange, offset, j.notes.Start, j.end)
		}
		b, err = j.read(offset, int(maxBytes))
		return err
	})[0]
	return b, err
}

func (d *destination) Offsets(ctx context.Context, ps []cluster.Partition) ([]fetcher.OffsetsAnswer, error) {
	out := make([]fetcher.OffsetsAnswer, len(ps))
	errs := d.each(ctx, len(ps), func(i int) cluster.Partition { return ps[i] }, func(i int, j *journal) error {
		out[i].Offsets = cluster.Offsets{LogStart: j.notes.Start, HighWatermark: j.end}
		return nil
	})
	for i := range out {
		out[i].Err = errs[i]
	}
	return out, ctx.Err()
}

// LogOffsets is for package verify.
func (d *destination) LogOffsets(ctx context.Context, p cluster.Partition) (cluster.Offsets, error) {
	out, err := d.Offsets(ctx, []cluster.Partition{p})
	if err != nil {
		return cluster.Offsets{}, err
	}
	return out[0].Offsets, out[0].Err
}

func (d *destination) Topics(context.Context) ([]cluster.Topic, error) { return d.topics(), nil }

func (d *destination) CreateTopics(_ context.Context, news []cluster.NewTopic) []error {
	errs := make([]error, len(news))
	for i, n := range news {
		if _, err := d.partition(cluster.Partition{Topic: n.Name}); err == nil {
			errs[i] = fmt.Errorf("topic %s: %w", n.Name, cluster.ErrTopicExists)
			continue
		}
		errs[i] = d.setTopic(cluster.Topic{Name: n.Name, Partitions: n.Partitions})
	}
	return errs
}

func (d *destination) GrowTopics(_ context.Context, topics []cluster.Topic) []error {
	errs := make([]error, len(topics))
	for i, t := range topics {
		if _, errs[i] = d.partition(cluster.Partition{Topic: t.Name}); errs[i] == nil {
			errs[i] = d.setTopic(t)
		}
	}
	return errs
}

func (d *destination) Groups(context.Context) ([]cluster.Group, error) {
	var all []cluster.Group
	for _, name := range d.groups() {
		all = append(all, cluster.Group{Name: name, State: "Empty", Type: "classic"})
	}
	return all, nil
}

func (d *destination) Committed(_ context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	out := make([]offsets.CommittedAnswer, len(groups))
	for i, g := range groups {
		out[i].Offsets = d.committed(g)
	}
	return out, nil
}

func (d *destination) Commit(_ context.Context, group string, committed []cluster.Committed) error {
	return d.commit(group, committed)
}
