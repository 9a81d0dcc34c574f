package kafka

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// narrow finds where a foreign write begins when batches of ours stand displaced
// behind it. Before that place every batch of the stretch is at its own offset,
// behind it none is: back from the end in doubling steps until one is in place,
// then by halves.
func (c *Cluster) narrow(ctx context.Context, p cluster.Partition, l *look, found *cluster.Span) error {
	good, bad := l.logStart, found.From
	for step := int64(1); bad-step > l.logStart; step *= 2 {
		next, ok, err := c.inPlace(ctx, p, l, bad-step)
		if err != nil {
			return err
		}
		if ok {
			good = next
			break
		}
		bad -= step
	}
	for good < bad {
		middle := good + (bad-good)/2
		next, ok, err := c.inPlace(ctx, p, l, middle)
		if err != nil {
			return err
		}
		if ok {
			good = next
		} else {
			bad = middle
		}
	}
	found.From = good
	// A gap that markers of ours fill, and which the broker has forgotten, looks the same.
	if b, err := c.Read(ctx, p, good, 1); err != nil {
		return err
	} else if len(b) >= batch.HeaderSize {
		l.filled = l.marks.has(tailOf(b).producerID)
	}
	return nil
}

// inPlace reports whether the batch at an offset is one of ours at its own offset,
// and where the next one begins.
func (c *Cluster) inPlace(ctx context.Context, p cluster.Partition, l *look, offset int64) (next int64, ok bool, err error) {
	b, err := c.Read(ctx, p, offset, 1)
	if err != nil || len(b) < batch.HeaderSize {
		return 0, false, err
	}
	h := batch.Header(b)
	return h.Next(), l.own.stretches(h.ProducerID()) && h.ProducerEpoch() == 0 && h.BaseSequence() == sequence(h.Base()), nil
}
