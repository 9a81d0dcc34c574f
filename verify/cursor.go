package verify

import (
	"context"

	"github.com/clustermirror/mirror/internal/batch"
)

// cursor steps through one side's records as a consumer sees them: without
// control batches and phantoms, and only inside the span.
type cursor struct {
	*stream
	decoder batch.Decoder
	walker  batch.Walker
	h       batch.Header // the present batch; nil between batches
	opened  bool         // the decoder is in h
	left    int32        // records of h that were not taken yet
	bytes   int64        // of the batches taken
	passed  int64        // all below it was taken, inside the span
	chunk   func()       // called when a new chunk is taken

	// record is the present one while ok; its bytes are good until the next step.
	record batch.Record
	ok     bool
}

// settle leaves a batch that is used up and takes the next one that may have
// records in the span; h is nil at the end.
func (c *cursor) settle(ctx context.Context) error {
	if c.opened && c.left == 0 {
		c.decoder.Next() // finds what stands behind the last record
		if err := c.decoder.Err(); err != nil {
			return c.fail(c.h.Base(), err)
		}
		c.drop()
	}
	for c.h == nil {
		for !c.walker.Next() {
			if more, err := c.take(ctx); !more {
				return err
			}
		}
		h := c.walker.Header()
		if h.Next() <= c.span.From || h.Base() >= c.span.To || h.Control() || h.Count() == 0 {
			continue
		}
		c.h, c.left = h, h.Count()
		c.bytes += int64(len(h))
	}
	return nil
}

// take waits for the next chunk; false at the end.
func (c *cursor) take(ctx context.Context) (bool, error) {
	select {
	case next, more := <-c.chunks:
		if !more {
			return false, ctx.Err()
		}
		if c.chunk != nil {
			c.chunk()
		}
		c.walker = batch.Walk(next.bytes)
		return next.err == nil, next.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// drop is done with the present batch.
func (c *cursor) drop() {
	c.passed = max(c.passed, min(c.h.Next(), c.span.To))
	c.h, c.opened, c.left = nil, false, 0
}

// step goes to the next record.
func (c *cursor) step(ctx context.Context) error {
	c.ok = false
	for {
		if err := c.settle(ctx); err != nil || c.h == nil {
			return err
		}
		if !c.opened {
			c.decoder.Reset(c.h)
			c.opened = true
		}
		if !c.decoder.Next() {
			return c.fail(c.h.Base(), c.decoder.Err())
		}
		c.left--
		r := c.decoder.Record()
		if r.Phantom || r.Offset < c.span.From || r.Offset >= c.span.To {
			continue
		}
		c.record, c.ok = r, true
		return nil
	}
}

// fresh reports that no record of the present batch was taken and all of them are
// in the span.
func (c *cursor) fresh() bool {
	return c.h != nil && !c.opened && c.h.Base() >= c.span.From && c.h.Next() <= c.span.To
}
