package verify

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// stream reads one side's batches over a span, one chunk ahead of who takes them,
// and verifies their checksums there.
type stream struct {
	side   string // "source" or "destination", for errors
	reader Reader
	p      cluster.Partition
	span   cluster.Span
	size   int32
	chunks chan chunk // unbuffered: one chunk is with the reader, one waits here
}

// chunk is a run of whole batches with right checksums, or the error behind the
// last one.
type chunk struct {
	bytes []byte
	err   error
}

// run sends chunks until the end of the span or of the log, or until ctx is done,
// and closes the channel. After an error nothing follows.
func (s *stream) run(ctx context.Context) {
	defer close(s.chunks)
	for at := s.span.From; at < s.span.To; {
		c, next := s.read(ctx, at)
		if c.err == nil && next == at {
			return
		}
		select {
		case s.chunks <- c:
		case <-ctx.Done():
			return
		}
		if c.err != nil {
			return
		}
		at = next
	}
}

// read gives the next chunk and the offset after it; that is at itself at the end
// of the log.
func (s *stream) read(ctx context.Context, at int64) (chunk, int64) {
	b, err := s.reader.Read(ctx, s.p, at, s.size)
	if err != nil {
		return chunk{err: s.fail(at, err)}, at
	}
	next := at
	w := batch.Walk(b)
	for w.Next() {
		h := w.Header()
		if err := h.Check(); err != nil {
			return chunk{err: s.fail(max(next, h.Base()), err)}, at
		}
		next = max(next, h.Next())
	}
	if w.Err() != nil {
		return chunk{err: s.fail(next, w.Err())}, at
	}
	if next == at && len(b) > 0 {
		return chunk{err: s.fail(at, fmt.Errorf("%w: %d bytes without a whole batch at or after the offset", cluster.ErrCorrupt, len(b)))}, at
	}
	return chunk{bytes: b[:len(b)-len(w.Rest())]}, next
}

func (s *stream) fail(at int64, err error) error {
	return fmt.Errorf("%s: %w", s.side, &cluster.OffsetError{Partition: s.p, Span: cluster.Span{From: at, To: at + 1}, Err: err})
}
