package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
)

// fenceKey is the fence's key on compacted topics, which refuse records without
// one. No client sees the record.
const fenceKey = batch.FenceKey

// invalidRecord is how a broker refuses a record without a key on a compacted topic.
const invalidRecord = wire.Code(87)

// Fence ends stretches: the last record of each is one that no client sees, with
// the stretch's producer id and a higher epoch. A batch that a late worker of ours
// sends afterwards has the old epoch and is refused. A log that was fenced before
// stays as it is. A stretch with records of others behind it is fenced behind
// them.
func (c *Cluster) Fence(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	looks, err := c.halted(ctx, stretches)
	if err != nil {
		return nil, err
	}
	c.readTails(ctx, stretches, looks)
	var partitions []cluster.Partition
	var idx []int
	for i := range looks {
		if l := &looks[i]; l.err == nil {
			l.verdict = c.lane(stretches[i].Partition).recall(l, judge(l.evidence, false))
			if !l.verdict.stopped {
				partitions, idx = append(partitions, stretches[i].Partition), append(idx, i)
			}
		}
	}
	bases, errs := c.appendFences(ctx, partitions, idx, looks)
	for k, i := range idx {
		if looks[i].err = errs[k]; errs[k] == nil {
			looks[i].logEnd = bases[k] + 1
			looks[i].highWatermark = bases[k] + 1
		}
	}
	ends := make([]fetcher.End, len(stretches))
	for i, s := range stretches {
		l := &looks[i]
		ends[i] = fetcher.End{LogStart: l.logStart, LogEnd: l.logEnd, HighWatermark: min(l.highWatermark, l.logEnd),
			Stopped: l.err == nil, TopicID: l.leader.TopicID, Err: at(s.Partition, l.err)}
		if l.err == nil {
			c.lane(s.Partition).forget()
		}
	}
	return ends, nil
}

// appendFences sends the fences, and again with a key where one is needed.
func (c *Cluster) appendFences(ctx context.Context, partitions []cluster.Partition, idx []int, looks []look) ([]int64, []error) {
	expiry := c.producerExpiry(ctx)
	fences := make([][]byte, len(idx))
	for k, i := range idx {
		fences[k] = looks[i].fence(nil, expiry)
	}
	bases, errs := c.produceEach(ctx, partitions, fences)
	var keyed []cluster.Partition
	var again []int
	fences = fences[:0]
	for k, err := range errs {
		if errors.Is(err, invalidRecord) {
			keyed, again = append(keyed, partitions[k]), append(again, k)
			fences = append(fences, looks[idx[k]].fence([]byte(fenceKey), expiry))
		}
	}
	if len(again) > 0 {
		secondBases, secondErrs := c.produceEach(ctx, keyed, fences)
		for n, k := range again {
			bases[k], errs[k] = secondBases[n], secondErrs[n]
		}
	}
	return bases, errs
}

// fence is the record behind which no batch of the stretch can land. It carries
// its neighbour's timestamp, so that look-ups by time stay as they were; but where
// that is so old that the broker would forget the fence with it, the present.
func (l *look) fence(key []byte, expiry time.Duration) []byte {
	now := time.Now()
	timestamp := now.UnixMilli()
	if l.last != nil && l.last.maxTimestamp > now.Add(-expiry/2).UnixMilli() {
		timestamp = l.last.maxTimestamp
	}
	b := batch.AppendPhantoms(nil, 1, timestamp, key)
	batch.Header(b).Patch(batch.Patch{LeaderEpoch: cluster.NoEpoch, ProducerID: l.verdict.id, ProducerEpoch: 1})
	return b
}

// recall finds the stretch to fence: the one that goes on at the log end, the one
// this process had begun there, or the one that others wrote behind.
func (l *lane) recall(k *look, v verdict) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.stopped || v.known {
		return v
	}
	if l.id != 0 && k.own.has(l.id) {
		v.id = l.id
	}
	for _, s := range k.states {
		if v.id == 0 && k.own.stretches(s.id) && s.epoch == 0 {
			v.id = s.id
		}
	}
	if v.id == 0 && k.last != nil && k.own.stretches(k.last.producerID) {
		v.id = k.last.producerID
	}
	if v.id == 0 {
		v.id = k.own.stretch(k.logEnd)
	}
	return v
}

// forget ends what the lane knew of a stretch.
func (l *lane) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.seen = 0, -1
}

// readTails reads the last batch of every log that has one.
func (c *Cluster) readTails(ctx context.Context, stretches []fetcher.Stretch, looks []look) {
	var wg sync.WaitGroup
	room := make(chan struct{}, tailReads)
	for i := range looks {
		l := &looks[i]
		if l.err != nil || l.logEnd <= l.logStart {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			l.last, l.err = c.lastBatch(ctx, stretches[i].Partition, l.logEnd)
		})
	}
	wg.Wait()
}
