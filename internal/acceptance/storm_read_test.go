package acceptance

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// follower reads a topic while it is written, and remembers what it saw.
type follower struct {
	name, topic string

	mu    sync.Mutex
	saw   [][]seen    // by partition, in the order they came
	fresh []time.Time // the newest record's, by partition
	errs  []error
}

// seen is a record: where it stood and what it was.
type seen struct {
	Offset int64
	Value  uint64 // hashed
}

func seenAs(offset int64, key, value []byte) seen {
	h := fnv.New64a()
	h.Write(key)
	h.Write(value)
	return seen{offset, h.Sum64()}
}

// follows reads a topic from its start on, without a group: nobody but the follower itself
// remembers where it is.
func (b *background) follows(c *kafkatest.Cluster, name, topic string, partitions int32, beats *pulse, opts ...kgo.Opt) *follower {
	f := &follower{name: name, topic: topic, saw: make([][]seen, partitions), fresh: make([]time.Time, partitions)}
	from := make(map[int32]kgo.Offset)
	for p := range partitions {
		from[p] = kgo.NewOffset().AtStart()
	}
	opts = append(append(opts, nimble...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(500*time.Millisecond))
	cl := c.Client(b.t, opts...)
	b.under.Go(func() {
		for b.ctx.Err() == nil {
			fetches := cl.PollFetches(b.ctx)
			f.take(fetches, beats)
		}
	})
	return f
}

func (f *follower) take(fetches kgo.Fetches, beats *pulse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fetches.EachError(func(topic string, p int32, err error) {
		if !errors.Is(err, context.Canceled) {
			f.errs = append(f.errs, fmt.Errorf("%s: %s-%d: %w", f.name, topic, p, err))
		}
	})
	fetches.EachRecord(func(r *kgo.Record) {
		f.saw[r.Partition] = append(f.saw[r.Partition], seenAs(r.Offset, r.Key, r.Value))
		f.fresh[r.Partition] = r.Timestamp
		if beats != nil {
			beats.beat(cluster.Partition{Topic: f.topic, Partition: r.Partition})
		}
	})
}

// past says whether it has read, in all partitions, records that were written after a moment.
func (f *follower) past(moment time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, at := range f.fresh {
		if !at.After(moment) {
			return fmt.Errorf("%s: the newest of %s-%d was written %v before that", f.name, f.topic, p, moment.Sub(at))
		}
	}
	return errors.Join(f.errs...)
}

// upTo says whether it has read the last records given, by partition.
func (f *follower) upTo(last []int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, of := range f.saw {
		if len(of) == 0 || of[len(of)-1].Offset < last[p] {
			return fmt.Errorf("%s: has read %d records of %s-%d, not up to %d: %w", f.name, len(of), f.topic, p, last[p], errors.Join(f.errs...))
		}
	}
	return nil
}

// sameAs compares what two have read, record by record: no hole, no repeat, nothing else.
func (f *follower) sameAs(t *testing.T, want *follower) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	want.mu.Lock()
	defer want.mu.Unlock()
	for _, err := range f.errs {
		t.Error(err)
	}
	total := 0
	for p := range want.saw {
		a, b := want.saw[p], f.saw[p]
		total += len(b)
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		if n < max(len(a), len(b)) {
			t.Errorf("%s: record %d of %s-%d: read were %v, the source has %v (%d and %d records in all)", f.name, n, f.topic, p,
				b[min(n, len(b)):min(n+3, len(b))], a[min(n, len(a)):min(n+3, len(a))], len(b), len(a))
		}
	}
	t.Logf("%s: %d records of %s, each once and in order", f.name, total, f.topic)
}

// neighbour is what happens to topics of others at the destination.
type neighbour struct {
	mu           sync.Mutex
	made         int
	onUs         []string      // topics that were seen on us
	longest, now time.Duration // that one was: ever, and since begin
	since        time.Time     // the one that is was made; zero: none is
}

// begin forgets what was before.
func (o *neighbour) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = 0
}

// on is for how long one was on us since begin, or still is.
func (o *neighbour) on() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		return max(o.now, time.Since(o.since))
	}
	return o.now
}

// seen notes that a topic that was made at a moment is on us, or is not any more.
func (o *neighbour) seen(topic string, made time.Time, here bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case here && o.since.IsZero():
		o.since, o.onUs = made, append(o.onUs, topic)
	case !here && !o.since.IsZero():
		o.now = max(o.now, time.Since(o.since))
		o.longest, o.since = max(o.longest, o.now), time.Time{}
	}
}

// neighbours has topics created by others, each two seconds, of three replicas and of one
// in turn, and looks for whether they are placed on us.
func (b *background) neighbours(c *kafkatest.Cluster, prefix string) *neighbour {
	o := &neighbour{}
	cl := c.Client(b.t, nimble...)
	b.every(2*time.Second, func(ctx context.Context, n int) {
		topic := fmt.Sprint(prefix, n)
		if createPlain(ctx, cl, topic, 3, int16(1+2*(n%2))) != nil {
			return // brokers are missing just now
		}
		made := time.Now()
		for ctx.Err() == nil {
			here, known := placedOnUs(ctx, cl, topic)
			if known {
				o.seen(topic, made, here)
			}
			if known && !here {
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.made++
	})
	return o
}

// placedOnUs says whether a topic has a replica that is none of the real brokers', which
// have low ids here.
func placedOnUs(ctx context.Context, cl *kgo.Client, topic string) (on, known bool) {
	m, err := metadataOf(ctx, cl, topic)
	if err != nil {
		return false, false
	}
	for _, p := range m.Partitions {
		on = on || slices.ContainsFunc(p.Replicas, func(id int32) bool { return id >= 100 })
	}
	return on, true
}
