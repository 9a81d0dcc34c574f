package fetcher

import (
	"context"
	"errors"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Messages of formats 0 and 1 are converted to record batches before they are handed
// over: a produce request of our day takes nothing else. That costs a decompression and a
// compression, so it is done beside the session's loop, for a few partitions at a time;
// what comes of it is counted in the budget like an answer.

// conversions is how many partitions are converted at a time.
const conversions = 2

// converted is what came of messages in old formats.
type converted struct {
	t       *tracker
	gen     uint32
	seen    visibility // of the answer they came in
	records []byte
	from    *response
	err     error // at what stands behind records
}

// convert begins with the rest of an answer. The partition is not fetched meanwhile.
func (s *session) convert(ctx context.Context, t *tracker, rest []byte, from *response) {
	t.phase = converting
	c := &converted{t: t, gen: t.gen, seen: s.seen}
	c.seen.aborted = slices.Clone(s.seen.aborted)
	from.refs.Add(1)
	f := s.f
	f.spawn(func() {
		release := func() {}
		select {
		case f.converters <- struct{}{}:
			release = func() { <-f.converters }
		case <-ctx.Done():
			c.err = ctx.Err()
		}
		if c.err == nil {
			c.records, c.err = f.modern(rest)
		}
		release()
		from.done() // before memory is waited for: nobody waits with memory in the hand
		n, err := f.budget.take(ctx, int64(len(c.records)))
		if err != nil {
			c.records, c.err = nil, err
		}
		c.from = newResponse(func() { f.budget.drop(n) }, len(c.records))
		if !s.box.put(message{converted: c}) {
			c.from.done()
		}
	})
}

// modern are the same records in batches of magic 2, in memory of their own. With an
// error come those before it.
func (f *Fetcher) modern(b []byte) ([]byte, error) {
	c := batch.Converter{KeepAppendTime: f.traits.LogAppendTime}
	hs, err := c.Convert(b)
	parts := make([][]byte, len(hs))
	for i, h := range hs {
		parts[i] = h
	}
	return slices.Concat(parts...), err
}

func (s *session) onConverted(ctx context.Context, c *converted) {
	defer c.from.done()
	t := c.t
	if !s.mine(t) || t.gen != c.gen || t.phase != converting {
		return
	}
	t.phase, t.dirty = fetching, true
	s.seen = c.seen
	s.takeAll(ctx, t, batch.Walk(c.records), c.from) // nothing in it is of an old format
	if c.err != nil && s.mine(t) && t.phase == fetching && t.held == nil {
		s.onBad(t, oldFault(t, c.err))
	}
	if s.mine(t) {
		s.look(t)
	}
}

// oldFault names the place, unless the error does.
func oldFault(t *tracker, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return t.err(t.next, t.next+1, err, "a message of an old format")
}

// readAt reads the batch that holds an offset, or the first after it, as record batches
// whatever the format; empty at the end. Behind it may be more.
func readAt(ctx context.Context, from Reader, p cluster.Partition, at int64) ([]byte, error) {
	b, err := from.Read(ctx, p, at, 1)
	if err != nil || !batch.HasOld(b) {
		return b, err
	}
	hs, err := new(batch.Converter).Convert(b)
	for _, h := range hs { // an old message set may begin further back
		if h.Next() > at {
			return h, nil
		}
	}
	return nil, err
}
