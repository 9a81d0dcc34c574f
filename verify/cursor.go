package verify

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// cursor steps through one side's records as they stand in the log: without
// control batches and phantoms, and only inside the spans.
type cursor struct {
	*stream
	reader           Reader
	chunkBytes       int32
	decoder, control batch.Decoder
	old              oldDecoder
	olds             []batch.Record // of the present batch, where it is an old one
	walker           batch.Walker
	release          func()
	h                batch.Header // the present batch; nil between batches
	opened           bool         // the decoder is in h
	left             int32        // records of h that were not taken yet
	passed           int64        // all below it was taken, inside the spans
	chunk            func()       // called when a new chunk is taken
	contents         Contents
	open             transactions
	within           cluster.Span       // the present one
	searched         int64              // how far the last search for markers came
	undecided        int64              // records summed in transactions whose end is not known
	ended            func(*transaction) // called when one is decided
	malformed        func(batch.Header) // called for a batch with offsets beyond its end
	flawed           bool               // it was called for h
	sums             *summing           // nil: no checksum is wanted

	// record is the present one while ok; its bytes are good until the next step.
	record batch.Record
	in     *transaction // that the record is part of
	first  bool         // of its batch
	ok     bool
}

// settle leaves a batch that is used up and takes the next one that may have
// records in the spans; h is nil at the end.
func (c *cursor) settle(ctx context.Context) error {
	if c.opened && c.left == 0 {
		if !old(c.h) {
			c.decoder.Next() // finds what stands behind the last record
			if err := c.decoder.Err(); err != nil {
				return c.fail(c.h.Base(), err)
			}
		}
		c.drop()
	}
	for c.h == nil {
		for !c.walker.Next() {
			if more, err := c.take(ctx); !more {
				return err
			}
		}
		if err := c.enter(ctx, c.walker.Header()); err != nil {
			return err
		}
	}
	return nil
}

// enter makes a batch the present one, unless it has nothing for a comparison.
func (c *cursor) enter(ctx context.Context, h batch.Header) error {
	if old(h) {
		// The first offset of a wrapper is known when it is open.
		if len(c.spans) > 0 && h.Base() >= c.spans[0].From {
			c.h, c.left, c.in, c.flawed = h, -1, nil, false
			c.count(h)
		}
		return nil
	}
	if h.Control() {
		if len(c.spans) > 0 && h.Next() > c.spans[0].From {
			return c.mark(h)
		}
		return nil
	}
	if !c.spans.touches(h.Base(), h.Next()) {
		return nil
	}
	if err := c.cross(ctx, h.Base()); err != nil {
		return err
	}
	c.count(h)
	if h.Count() == 0 {
		c.contents.Empty++
		return nil
	}
	c.h, c.left, c.flawed = h, h.Count(), false
	c.in = c.open.of(h)
	return nil
}

// cross notes that a batch is in another span than those before. Transactions that
// are open there may have ended in between.
func (c *cursor) cross(ctx context.Context, offset int64) error {
	over, ok := c.spans.over(offset)
	if !ok || over.To == c.within.To {
		return nil
	}
	between := cluster.Span{From: c.within.To, To: over.From}
	c.within = over
	waits := func() bool { return len(c.open) > 0 }
	if err := c.search(ctx, between, bridge, waits); err != nil {
		return err
	}
	if c.searched >= between.To {
		return nil
	}
	for id, t := range c.open {
		t.fate = unknown
		delete(c.open, id)
		c.undecided += t.n
		c.ended(t)
	}
	return nil
}

// mark takes a control batch. Those behind the spans are of use too: a chunk may
// reach that far.
func (c *cursor) mark(h batch.Header) error {
	if c.spans.touches(h.Base(), h.Next()) {
		c.count(h)
	}
	t, err := c.open.end(h, &c.control)
	if err != nil {
		return c.fail(h.Base(), err)
	}
	if t != nil {
		if c.sums != nil {
			c.sums.ended(t)
		}
		c.ended(t)
	}
	return nil
}

func (c *cursor) count(h batch.Header) {
	n := &c.contents
	n.Bytes += int64(len(h))
	n.Batches++
	if old(h) {
		n.OldFormat++
		return
	}
	if n.Codecs == nil {
		n.Codecs = map[string]int64{}
	}
	for _, is := range []struct {
		so    bool
		count *int64
	}{{h.Control(), &n.Control}, {h.Transactional(), &n.Transactional}, {h.LogAppendTime(), &n.LogAppendTime}} {
		if is.so {
			*is.count++
		}
	}
	if !h.Control() {
		n.Codecs[h.Codec().String()]++
	}
}

// take waits for the next chunk; false at the end.
func (c *cursor) take(ctx context.Context) (bool, error) {
	c.free()
	select {
	case next, more := <-c.chunks:
		if !more {
			return false, ctx.Err()
		}
		if c.chunk != nil {
			c.chunk()
		}
		c.walker, c.release = batch.Walk(next.bytes), next.release
		return next.err == nil, next.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// free gives the present chunk back.
func (c *cursor) free() {
	if c.release != nil {
		c.release()
		c.release = nil
	}
	c.walker = batch.Walk(nil)
}

// drop is done with the present batch.
func (c *cursor) drop() {
	next := c.h.Base() + 1
	if !old(c.h) {
		next = c.h.Next()
	}
	if n := len(c.spans); n > 0 {
		c.passed = max(c.passed, min(next, c.spans[n-1].To))
	}
	c.h, c.opened, c.left = nil, false, 0
}

// step goes to the next record.
func (c *cursor) step(ctx context.Context) error {
	c.ok = false
	for {
		if err := c.settle(ctx); err != nil || c.h == nil {
			return err
		}
		first := !c.opened
		if err := c.next(); err != nil {
			return err
		}
		r := &c.record
		if r.Phantom {
			c.phantom()
		} else if c.spans.has(r.Offset) {
			c.first, c.ok = first, true
			return nil
		}
	}
}

// next reads the next record of the present batch, open or not.
func (c *cursor) next() (err error) {
	if old(c.h) {
		if !c.opened {
			if c.olds, err = c.old.decode(c.h); err != nil {
				return c.fail(c.h.Base(), err)
			}
			c.opened, c.left = true, int32(len(c.olds))
		}
		c.record = c.olds[len(c.olds)-int(c.left)]
		c.left--
		return nil
	}
	if !c.opened {
		c.decoder.Reset(c.h)
		c.opened = true
	}
	if !c.decoder.Next() {
		return c.fail(c.h.Base(), c.decoder.Err())
	}
	c.left--
	c.record = c.decoder.Record()
	return nil
}

// phantom looks at a record outside of its batch's offsets: a filler before it, or
// one behind it, as clients left that wrote a wrong last offset.
func (c *cursor) phantom() {
	if c.record.Offset < c.h.Base() {
		c.contents.Phantoms++
		return
	}
	if !c.flawed {
		c.flawed = true
		c.malformed(c.h)
	}
}

// fresh reports that no record of the present batch was taken and all of them are
// in a span.
func (c *cursor) fresh() bool {
	return c.h != nil && !c.opened && !old(c.h) && c.spans.holds(c.h.Base(), c.h.Next())
}

// sum hashes the present record.
func (c *cursor) sum() {
	if c.sums != nil {
		c.sums.add(c.sums.of(&c.record), c.in)
	}
}

// codec and stamped are the present batch's.
func (c *cursor) codec() batch.Codec {
	if old(c.h) {
		return batch.Codec(c.h[oldAttributes] & 7)
	}
	return c.h.Codec()
}

func (c *cursor) stamped() bool {
	if old(c.h) {
		return c.h.Magic() == 1 && c.h[oldAttributes]&oldLogAppendTime != 0
	}
	return c.h.LogAppendTime()
}
