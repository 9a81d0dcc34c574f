package verify

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

func newCursor(s *stream, limit int, sums bool) *cursor {
	c := &cursor{
		stream: s, open: transactions{}, within: -1,
		decoder: batch.Decoder{Limit: limit}, control: batch.Decoder{Limit: limit}, old: oldDecoder{limit: limit},
	}
	if len(s.spans) > 0 {
		c.passed, c.within = s.spans[0].From, s.spans[0].From
	}
	if sums {
		c.sums = newSumming()
	}
	return c
}

// search looks for transaction markers behind what was compared, as long as somebody
// waits for one. Records are not read.
func (c *cursor) search(ctx context.Context, r Reader, behind cluster.Span, maxBytes int32, waits func() bool) error {
	if !waits() || behind.Len() == 0 {
		return nil
	}
	from := open(r, c.p, maxBytes)
	defer from.Close()
	for at := behind.From; at < behind.To && waits(); {
		b, release, err := from.Next(ctx, at)
		if err != nil {
			return c.fail(at, err)
		}
		n, next, err := checked(b, at)
		if err == nil {
			err = c.markers(b[:n], behind.To, waits)
		}
		release()
		if err != nil {
			return c.fail(next, err)
		}
		if next == at {
			return nil
		}
		at = next
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
