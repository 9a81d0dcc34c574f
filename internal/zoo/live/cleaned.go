package live

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// forCleaner are the settings of a topic that the cleaner looks at whenever a batch was
// written.
var forCleaner = map[string]string{
	"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1", "segment.index.bytes": "4096",
}

// compacted is a topic that the broker's cleaner went through.
func (f *filler) compacted(ctx context.Context) (Topic, error) {
	wants := []Shape{HoleAtHead, HoleInMiddle, HoleAtTail, HoleCompressed, BatchesGone, Empty, Tombstone, Committed}
	if !f.old() { // KIP-534
		wants = append(wants, DeleteHorizon)
	}
	t, configs, err := f.make(ctx, "compacted", "compaction: holes at head, middle and tail, whole batches, empty batches, tombstones", 2, forCleaner, wants...)
	if err != nil {
		return t, err
	}
	for i, o := range []zoo.Options{{Plain: true}, {Settled: true}} {
		o.Keyed, o.Tame = true, true
		p := cluster.Partition{Topic: t.Name, Partition: int32(i)}
		if _, err := f.w.replay(ctx, p, f.log(uint64(20+i), o)); err != nil {
			return t, err
		}
		if err := f.overwrite(ctx, p); err != nil {
			return t, err
		}
	}
	return t, f.settle(ctx, &t, configs)
}

// overwrite leaves batches of which the cleaner takes the head, the middle, the tail, or
// all, in every codec; the last ones of an idempotent producer stay without records.
func (f *filler) overwrite(ctx context.Context, p cluster.Partition) error {
	number, now := 0, time.Now().UnixMilli()
	put := func(as *producer, sequence int32, codec batch.Codec, keys ...string) error {
		var rs []batch.Record
		for i, k := range keys {
			number++
			r := batch.Record{Offset: int64(i), Timestamp: now + int64(number), Key: []byte(k), Value: fmt.Append(nil, "value ", number)}
			if k[0] == 'x' { // a tombstone
				r.Value = nil
			}
			rs = append(rs, r)
		}
		_, err := f.w.produce(ctx, p, nil, batch.Encode(batch.Spec{
			Records: rs, Codec: codec, LeaderEpoch: -1, Producer: &batch.Producer{ID: as.id, Epoch: as.epoch, Sequence: sequence},
		}))
		return err
	}
	for codec := batch.None; codec <= batch.Zstd; codec++ {
		of := func(k string) string { return fmt.Sprint(k, codec) }
		var producers [4]producer
		for i := range producers {
			if err := f.w.begin(ctx, &producers[i]); err != nil {
				return err
			}
		}
		for _, one := range []struct {
			as       int
			sequence int32
			keys     []string
		}{
			{0, 0, []string{"gone1", "gone2"}}, // whole, and not its producer's last
			{0, 2, []string{"head1", "head2", "k1", "k2"}},
			{1, 0, []string{"k3", "tail1", "tail2"}},
			{2, 0, []string{"k4", "middle1", "k5", "middle2", "middle3", "xk6"}},
			{3, 0, []string{"all1", "all2", "all3"}}, // whole, and its producer's last
			{0, 6, []string{"gone1", "gone2", "head1", "head2", "tail1", "tail2", "middle1", "middle2", "middle3", "all1", "all2", "all3"}},
		} {
			for i := range one.keys {
				one.keys[i] = of(one.keys[i])
			}
			if err := put(&producers[one.as], one.sequence, codec, one.keys...); err != nil {
				return err
			}
		}
	}
	// What is in the last segment is not cleaned: two records of their own, far later.
	for i := range 2 {
		number += 1000
		if err := put(&producer{id: -1, epoch: -1}, -1, batch.None, fmt.Sprint("last", i)); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the cleaner has made the shapes that are wanted, then tells it to
// stop, so that whoever compares finds the same log twice.
func (f *filler) settle(ctx context.Context, t *Topic, configs map[string]string) error {
	err := until(ctx, func() error {
		if err := f.count(ctx, t); err != nil {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	configs = maps.Clone(configs)
	configs["min.compaction.lag.ms"] = "9223372036854775807"
	if err := f.w.alter(ctx, t.Name, configs); err != nil {
		return err
	}
	return f.quiet(ctx, t)
}

// calm is for how long a log must be the same to be at rest.
const calm = 1500 * time.Millisecond

// quiet waits until the logs of a topic stay as they are.
func (f *filler) quiet(ctx context.Context, t *Topic) error {
	var before []byte
	since := time.Now()
	return until(ctx, func() error {
		var now []byte
		for i := range t.Partitions {
			raw, err := f.raw(ctx, cluster.Partition{Topic: t.Name, Partition: i})
			if err != nil {
				return err
			}
			now = append(now, raw...)
		}
		if !bytes.Equal(now, before) {
			before, since = now, time.Now()
		}
		if time.Since(since) < calm {
			return fmt.Errorf("%w: %s changes", errNotYet, t.Name)
		}
		return nil
	})
}

// raw reads all batches of a partition.
func (f *filler) raw(ctx context.Context, p cluster.Partition) (all []byte, err error) {
	offsets, err := f.Reader.LogOffsets(ctx, p)
	if err != nil {
		return nil, err
	}
	for at := offsets.LogStart; at < offsets.HighWatermark; {
		raw, err := f.Reader.Read(ctx, p, at, 4<<20)
		if err != nil {
			return nil, err
		}
		before := at
		for w := batch.Walk(raw); w.Next(); {
			h := w.Header()
			at = h.Base() + 1
			if h.Magic() == 2 {
				at = h.Next()
			}
			all = append(all, h...)
		}
		if at == before {
			break
		}
	}
	return all, nil
}

// stamped is a topic whose timestamps the broker set, first and last; in between the
// producers' were kept. The cleaner went through it as well.
func (f *filler) stamped(ctx context.Context) (Topic, error) {
	t, configs, err := f.make(ctx, "stamped", "log append time, then create time, then log append time, compacted", 2,
		with(forCleaner, "message.timestamp.type", "LogAppendTime"), LogAppendTime, CreateTime, HoleStamped)
	if err != nil {
		return t, err
	}
	for round, kind := range []string{"LogAppendTime", "CreateTime", "LogAppendTime"} {
		configs["message.timestamp.type"] = kind
		if err := f.w.alter(ctx, t.Name, configs); err != nil {
			return t, err
		}
		for i := range t.Partitions {
			p := cluster.Partition{Topic: t.Name, Partition: i}
			l := f.log(uint64(30+round*4)+uint64(i), zoo.Options{Settled: true, Keyed: true, Tame: true, Plain: i == 0, Batches: f.Batches / 3})
			if _, err := f.w.replay(ctx, p, l); err != nil {
				return t, err
			}
			if err := f.overwrite(ctx, p); err != nil {
				return t, err
			}
		}
	}
	return t, f.settle(ctx, &t, configs)
}

func with(m map[string]string, k, v string) map[string]string {
	m = maps.Clone(m)
	m[k] = v
	return m
}
