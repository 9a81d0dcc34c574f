package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// landed reads one partition's answer. A success answer has no append time in a
// topic that keeps producers' timestamps, unless the broker recognised a duplicate:
// then it fills in the largest timestamp of the batch it has (UnifiedLog.append).
// Any other time there means that the topic stamps records itself.
func (c *Cluster) landed(it item, got *kmsg.ProduceResponseTopicPartition) {
	if got.ErrorCode == 0 {
		o := outcome{base: got.BaseOffset, sent: it.sent, duplicate: got.LogAppendTime != -1 && got.LogAppendTime == it.stamp}
		if got.LogAppendTime != -1 && !o.duplicate {
			o = outcome{unknown: true, err: &cluster.OffsetError{Partition: it.lane.p, Span: cluster.Span{From: it.base, To: it.next},
				Err: cluster.ErrLogAppendTime, Detail: fmt.Sprintf("the destination topic stamps records itself (message.timestamp.type), it answered with time %d", got.LogAppendTime)}}
		}
		if o.duplicate { // looked at elsewhere: this is the connection's reader
			c.generation().spawn(func(ctx context.Context) { c.complete(it.lane, it.run, it.base, it.next, c.twin(ctx, it, o)) })
			return
		}
		c.complete(it.lane, it.run, it.base, it.next, o)
		return
	}
	err := saying(got.ErrorCode, got.ErrorMessage)
	if moved(err) {
		c.stale(it.lane.p)
	}
	if errors.Is(err, cluster.ErrTooLarge) {
		size := it.size
		// The topic's limit is asked for elsewhere: this is the connection's reader.
		c.generation().spawn(func(ctx context.Context) {
			c.complete(it.lane, it.run, it.base, it.next, outcome{err: &cluster.OffsetError{
				Partition: it.lane.p, Span: cluster.Span{From: it.base, To: it.next}, Err: err, Detail: c.tooLarge(ctx, it.lane.p.Topic, size),
			}})
		})
		return
	}
	if errors.Is(err, cluster.ErrCorrupt) {
		err = &cluster.OffsetError{Partition: it.lane.p, Span: cluster.Span{From: it.base, To: it.next}, Err: err}
	}
	c.complete(it.lane, it.run, it.base, it.next, outcome{err: err, unknown: mayHaveLanded(got.ErrorCode)})
}

// twin looks at the batch that a duplicate was taken for. Brokers compare sequences only:
// a request of ours that was on its way when the source lost its tail may have landed since,
// and then other records stand there. Where the broker has compressed the batch anew it
// is not the same either; who compares the records finds out.
func (c *Cluster) twin(ctx context.Context, it item, o outcome) outcome {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout/2)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		b, err := c.Read(ctx, it.lane.p, o.base, 1)
		if err == nil && len(b) >= batch.HeaderSize { // else it is above the high watermark still
			if h := batch.Header(b); h.Base() != o.base || h.CRC() != it.crc {
				return outcome{err: &cluster.OffsetError{Partition: it.lane.p, Span: cluster.Span{From: it.base, To: it.next}, Err: cluster.ErrDiverged,
					Detail: "an earlier batch of this mirror stands there, and is another one"}}
			}
			return o
		}
		if err != nil && !errors.Is(err, cluster.ErrOutOfRange) || !sleep(ctx, wait) {
			return outcome{unknown: true, err: fmt.Errorf("%w: a duplicate at offset %d could not be looked at", cluster.ErrUnknownOutcome, o.base)}
		}
	}
}

// mayHaveLanded are the codes after which the batch may stand in the leader's log:
// REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND; UNKNOWN_SERVER_ERROR and
// NOT_LEADER_OR_FOLLOWER (sent also when leadership ends while acks=all waits).
func mayHaveLanded(code int16) bool { return code == 7 || code == 20 || code == -1 || code == 6 }

// tooLarge says how large, and what the topic allows if that can be read.
func (c *Cluster) tooLarge(ctx context.Context, topic string, size int) string {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout/4)
	defer cancel()
	limit, err := c.effectiveConfig(ctx, kmsg.ConfigResourceTypeTopic, topic, "max.message.bytes")
	if err != nil {
		return fmt.Sprintf("the batch has %d bytes", size)
	}
	return fmt.Sprintf("the batch has %d bytes, the topic's max.message.bytes is %s", size, limit)
}
