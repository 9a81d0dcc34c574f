package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// scanned is what the logs of a partition's real replicas show.
type scanned struct {
	start   int64
	end     int64
	high    int64         // the highest high watermark that one of them knows
	history epoch.History // of what they hold below end, when it could all be read
	proven  bool          // history is all there is
	replica int32         // that has the longest log
}

// patience is how long a partition's log is looked into, and waited for.
const patience = 5 * time.Second

// scan looks into the logs of real replicas, as they are once those that missed a cut have
// made it. What cannot be found out is left to the followers to tell.
func (d *Destination) scan(ctx context.Context, name cluster.Partition, id metalog.PartitionID, missed func() map[int32]int64) scanned {
	select {
	case d.scans <- struct{}{}:
		defer func() { <-d.scans }()
	case <-ctx.Done():
		return scanned{}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := d.scanOnce(ctx, name, id, missed)
	if err != nil && ctx.Err() == nil {
		d.cfg.Logger.Info("a log was not looked into", "topic", name.Topic, "partition", name.Partition, "error", err)
	}
	return found
}

func (d *Destination) scanOnce(ctx context.Context, name cluster.Partition, id metalog.PartitionID, missed func() map[int32]int64) (scanned, error) {
	image := d.m.log.Image()
	p, ok := image.Partition(id)
	if !ok {
		return scanned{}, cluster.ErrUnknownTopic
	}
	out := scanned{start: -1, end: -1}
	var errs []error
	replicas := living(image, d.m.party().reals(p.Replicas))
	logs := make([]bounds, len(replicas))
	var asking sync.WaitGroup
	for n, replica := range replicas {
		asking.Go(func() { logs[n].start, logs[n].end, logs[n].err = d.ends(ctx, replica, name) })
	}
	asking.Wait()
	for n, replica := range replicas {
		start, end := logs[n].start, logs[n].end
		if err := logs[n].err; err != nil {
			errs = append(errs, fmt.Errorf("replica %d: %w", replica, err))
			continue
		}
		if at, ok := missed()[replica]; ok {
			end = max(start, min(end, at))
		}
		if out.start < 0 || start < out.start {
			out.start = start
		}
		if end > out.end {
			out.end, out.replica = end, replica
		}
	}
	if out.end < 0 {
		return scanned{}, errors.Join(errs...)
	}
	if len(errs) > 0 { // one that has not answered may have more, and it must not be cut
		return scanned{start: out.start}, errors.Join(errs...)
	}
	if out.start == out.end {
		out.proven = true
		return out, nil
	}
	read := func(offset int64) (glimpse, error) { return d.glimpse(ctx, out.replica, name, id, offset) }
	last, err := read(out.end - 1)
	if err != nil {
		return scanned{start: out.start}, err
	}
	if out.high = last.high; last.high < out.end || !last.some {
		return out, nil // the rest cannot be read yet, or the end is a hole
	}
	out.history, err = historyOf(max(out.start, last.start), last, read)
	return out, err
}

// glimpse is what a log shows at one place: the batch that holds an offset or is the
// next one, if there is some.
type glimpse struct {
	some        bool
	base, next  int64
	epoch       int32
	high, start int64 // of the log
}

// historyOf finds where epochs begin in a log from start to its last batch. It has
// them in rising order, so that halving finds the first batch of a later one.
func historyOf(start int64, last glimpse, read func(offset int64) (glimpse, error)) (h epoch.History, err error) {
	at, err := read(start)
	for err == nil && at.some {
		if h = h.Assign(at.epoch, max(at.base, start)); at.epoch >= last.epoch {
			return h, nil
		}
		// Up to from there is nothing later than at, and the first batch from to on is next.
		next, from, to := last, at.next, last.base
		for from < to {
			middle := from + (to-from)/2
			var mid glimpse
			if mid, err = read(middle); err != nil {
				return nil, err
			}
			switch {
			case !mid.some:
				return nil, errNothing
			case mid.epoch > at.epoch:
				next, to = mid, min(middle, mid.base)
			default:
				from = mid.next
			}
		}
		at = next
	}
	if err == nil {
		err = errNothing
	}
	return nil, err
}

// glimpse reads a batch from a replica, as consumers do.
func (d *Destination) glimpse(ctx context.Context, replica int32, name cluster.Partition, id metalog.PartitionID, offset int64) (glimpse, error) {
	conn, err := d.m.brokers.Conn(ctx, replica, "scan")
	if err != nil {
		return glimpse{}, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch = 1, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = name.Topic, id.Topic
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = name.Partition, offset, 1
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := conn.Do(ctx, req)
	if err != nil {
		return glimpse{}, err
	}
	answer := resp.(*kmsg.FetchResponse)
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return glimpse{}, err
	}
	for _, t := range answer.Topics {
		for i := range t.Partitions {
			got := &t.Partitions[i]
			if err := wire.CodeError(got.ErrorCode); err != nil {
				return glimpse{}, err
			}
			return glimpseOf(got.RecordBatches, offset, got.HighWatermark, got.LogStartOffset), nil
		}
	}
	return glimpse{}, errNothing
}

func glimpseOf(b []byte, offset, high, start int64) glimpse {
	out := glimpse{high: high, start: start}
	for w := batch.Walk(b); w.Next(); {
		h := w.Header()
		next := h.Base() + 1 // old formats: the offset is that of the last message in it
		if h.Magic() == 2 {
			next = h.Next()
		}
		if next > offset {
			out.some, out.base, out.next, out.epoch = true, h.Base(), next, cluster.NoEpoch
			if h.Magic() == 2 {
				out.epoch = h.LeaderEpoch()
			}
			return out
		}
	}
	return out
}
