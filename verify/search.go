package verify

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

func newCursor(s *stream, r Reader, o Options) *cursor {
	c := &cursor{
		stream: s, reader: r, chunkBytes: o.ChunkBytes, open: transactions{},
		decoder: batch.Decoder{Limit: o.Limit}, control: batch.Decoder{Limit: o.Limit}, old: oldDecoder{limit: o.Limit},
	}
	if len(s.spans) > 0 {
		c.passed, c.within = s.spans[0].From, s.spans[0]
	}
	if o.Checksums {
		c.sums = newSumming()
	}
	return c
}

// bridge is how many chunks are read between two spans of a sample to learn how a
// transaction ended.
const bridge = 16

// search looks for transaction markers in a span that is not compared, as long as
// somebody waits for one, in so many chunks at most. Records are not read.
func (c *cursor) search(ctx context.Context, between cluster.Span, chunks int, waits func() bool) error {
	c.searched = between.From
	if !waits() || between.Len() == 0 {
		return nil
	}
	from := open(c.reader, c.p, c.chunkBytes)
	defer from.Close()
	for at := between.From; at < between.To && waits() && chunks > 0; chunks-- {
		b, release, err := from.Next(ctx, at)
		if err != nil {
			return c.fail(at, err)
		}
		n, next, err := checked(b, at)
		if err == nil {
			err = c.markers(b[:n], between.To, waits)
		}
		release()
		if err != nil {
			return c.fail(next, err)
		}
		if next == at {
			return nil
		}
		at = next
		c.searched = at
	}
	return nil
}

func (c *cursor) markers(b []byte, to int64, waits func() bool) error {
	for w := batch.Walk(b); w.Next() && waits(); {
		if h := w.Header(); !old(h) && h.Control() && h.Next() <= to {
			if err := c.mark(h); err != nil {
				return err
			}
		}
	}
	return nil
}

// checksum of what was read; nil when none is wanted.
func (c *cursor) checksum(span cluster.Span) *Checksum {
	if c.sums == nil {
		return nil
	}
	return &Checksum{Span: span, Records: c.sums.records, Sum: c.sums.sum, Undecided: c.undecided}
}
