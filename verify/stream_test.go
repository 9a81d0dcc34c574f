package verify

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// lender is a Streamer that spoils what it has lent once it gets it back, and counts
// what it does not get back.
type lender struct {
	*log
	streams, lent atomic.Int64
	fails         error
}

func (l *lender) Stream(p cluster.Partition, maxBytes int32) Stream {
	l.streams.Add(1)
	return &loan{l, p, maxBytes}
}

type loan struct {
	l        *lender
	p        cluster.Partition
	maxBytes int32
}

func (s *loan) Next(ctx context.Context, offset int64) ([]byte, func(), error) {
	b, err := s.l.Read(ctx, s.p, offset, s.maxBytes)
	if err == nil && offset >= base+50 {
		err = s.l.fails
	}
	if err != nil {
		return nil, nil, err
	}
	b = append([]byte(nil), b...)
	s.l.lent.Add(1)
	return b, func() {
		s.l.lent.Add(-1)
		for i := range b {
			b[i] = 0xee
		}
	}, nil
}

func (s *loan) Close() error {
	s.l.streams.Add(-1)
	return nil
}

// What a stream lends is used until it is given back, and given back in any case.
func TestStreamer(t *testing.T) {
	boom := errors.New("boom")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		size  int // of the destination's batches
		fails error
		want  error
	}{
		"equal":         {t.Context(), 10, nil, nil},
		"other batches": {t.Context(), 7, nil, nil},
		"an error":      {t.Context(), 7, boom, boom},
		"cancelled":     {ctx, 7, nil, context.Canceled},
		"ends early":    {t.Context(), 10, nil, nil},
	} {
		for _, codec := range codecs {
			t.Run(name, func(t *testing.T) {
				source, destination := &lender{log: cut(records(100), 10, codec)}, &lender{log: cut(records(100), c.size, batch.None), fails: c.fails}
				if name == "ends early" { // the high watermark promises more than is there
					source.offsets.HighWatermark += 50
					destination.offsets.HighWatermark += 50
				}
				r, err := Partition(c.ctx, source, destination, foo, &Options{ChunkBytes: 1, Checksums: true})
				if !errors.Is(err, c.want) || err == nil && (!r.Equal || r.Records != 100 || r.SourceSum.Sum != r.DestinationSum.Sum) {
					t.Errorf("%v: %v", r, err)
				}
				for _, l := range []*lender{source, destination} {
					if l.lent.Load() != 0 || l.streams.Load() != 0 {
						t.Errorf("%d chunks not given back, %d streams not closed", l.lent.Load(), l.streams.Load())
					}
				}
			})
		}
	}
}
