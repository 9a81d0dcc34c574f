package verify

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	for name, c := range map[string]struct {
		cancelled bool
		size      int // of the destination's batches
		fails     error
		want      error
	}{
		"equal":         {false, 10, nil, nil},
		"other batches": {false, 7, nil, nil},
		"an error":      {false, 7, boom, boom},
		"cancelled":     {true, 7, nil, context.Canceled},
		"ends early":    {false, 10, nil, nil},
	} {
		for _, codec := range codecs {
			bubble(t, name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancelled {
					cancel()
				}
				source, destination := &lender{log: cut(records(100), 10, codec)}, &lender{log: cut(records(100), c.size, batch.None), fails: c.fails}
				if name == "ends early" { // the high watermark promises more than is there
					source.offsets.HighWatermark += 50
					destination.offsets.HighWatermark += 50
				}
				r, err := Partition(ctx, source, destination, foo, &Options{ChunkBytes: 1, Checksums: true})
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

// tardy has nothing to give some times, from an offset on.
type tardy struct {
	*log
	from  int64
	times atomic.Int64
}

func (l *tardy) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	if offset >= l.from && l.times.Add(-1) >= 0 {
		return nil, nil
	}
	return l.log.Read(ctx, p, offset, maxBytes)
}

// TestAsksAgain: nothing below the high watermark is not the end of a log when a moment
// later there is something.
func TestAsksAgain(t *testing.T) {
	for _, tt := range []struct {
		name        string
		from, times int64
		missing     int64
		within      time.Duration
	}{
		{"at once", base + 100, 0, 0, 0},
		{"the last batch, a moment later", base + 90, 3, 0, 70 * time.Millisecond},
		{"the first one", base, 7, 0, 1270 * time.Millisecond},
		{"never", base + 90, 100, 10, 1270 * time.Millisecond},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			began := time.Now()
			destination := &tardy{log: cut(records(100), 10, batch.None), from: tt.from}
			destination.times.Store(tt.times)
			r, err := Partition(t.Context(), cut(records(100), 10, batch.None), destination, foo, small)
			if err != nil || r.Different != tt.missing || r.Equal != (tt.missing == 0) {
				t.Errorf("%v: %v", r, err)
			}
			if took := time.Since(began); took != tt.within {
				t.Errorf("took %v, want %v", took, tt.within)
			}
		})
	}
}

// bubble runs a subtest in which waiting takes no time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
