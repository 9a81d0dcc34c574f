package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// stream reads one side's batches over spans, one chunk ahead of who takes them,
// and verifies their checksums there.
type stream struct {
	side   string // "source" or "destination", for errors
	p      cluster.Partition
	spans  spans
	from   Stream
	chunks chan chunk // unbuffered: one chunk is with the reader, one waits here
}

// chunk is a run of whole batches with right checksums, or the error behind the
// last one. Whoever takes it releases it.
type chunk struct {
	bytes   []byte
	release func()
	err     error
}

// run sends chunks until the end of the spans or of the log, or until ctx is done,
// and closes the channel. After an error nothing follows.
func (s *stream) run(ctx context.Context) {
	defer s.from.Close()
	defer close(s.chunks)
	at := int64(0)
	for _, span := range s.spans {
		for at = max(at, span.From); at < span.To; {
			c, next := s.more(ctx, at)
			if c.err == nil && next == at {
				c.release()
				return
			}
			select {
			case s.chunks <- c:
			case <-ctx.Done():
				if c.release != nil {
					c.release()
				}
				return
			}
			if c.err != nil {
				return
			}
			at = next
		}
	}
}

// A leader says how far a log goes, and a replica that is asked in its place may learn it a
// moment later: then there is nothing below the end. So it is asked again after firstPause,
// and twice that each time up to lastPause, before nothing counts as the end. It is the end
// where the last records of a log are gone.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 640 * time.Millisecond
)

// more is read, of who had nothing more than once.
func (s *stream) more(ctx context.Context, at int64) (chunk, int64) {
	for pause := firstPause; ; pause *= 2 {
		c, next := s.read(ctx, at)
		if c.err != nil || next > at || pause > lastPause {
			return c, next
		}
		c.release()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return chunk{err: s.fail(at, ctx.Err())}, at
		}
	}
}

// read gives the next chunk and the offset after it; that is at itself at the end
// of the log.
func (s *stream) read(ctx context.Context, at int64) (chunk, int64) {
	b, release, err := s.from.Next(ctx, at)
	if err != nil {
		return chunk{err: s.fail(at, err)}, at
	}
	n, next, err := checked(b, at)
	if err != nil {
		release()
		return chunk{err: s.fail(next, err)}, at
	}
	return chunk{bytes: b[:n], release: release}, next
}

// checked verifies the whole batches of b, an answer to a read at an offset. It
// gives their length and the offset after them, or the offset of what is wrong.
func checked(b []byte, at int64) (n int, next int64, err error) {
	next = at
	w := batch.Walk(b)
	for w.Next() {
		h := w.Header()
		if old(h) {
			if err := checkOld(h); err != nil {
				return 0, max(next, h.Base()), err
			}
			next = max(next, h.Base()+1)
			continue
		}
		if err := h.Check(); err != nil {
			return 0, max(next, h.Base()), err
		}
		next = max(next, h.Next())
	}
	if w.Err() != nil {
		return 0, next, w.Err()
	}
	if next == at && len(b) > 0 {
		return 0, at, fmt.Errorf("%w: %d bytes without a whole batch at or after the offset", cluster.ErrCorrupt, len(b))
	}
	return len(b) - len(w.Rest()), next, nil
}

func (s *stream) fail(at int64, err error) error {
	return fmt.Errorf("%s: %w", s.side, &cluster.OffsetError{Partition: s.p, Span: cluster.Span{From: at, To: at + 1}, Err: err})
}
