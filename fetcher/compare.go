package fetcher

import (
	"bytes"
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// compare looks whether the two logs hold the same at the end of span, at its
// start and in its middle, a batch each. It returns the source epoch of the last
// offset in span.
func (a *aligner) compare(ctx context.Context, p cluster.Partition, span cluster.Span) (int32, error) {
	epoch := cluster.NoEpoch
	for i, at := range []int64{span.To - 1, span.From, span.From + span.Len()/2} {
		theirs, err := a.source.Read(ctx, p, at, 1)
		if err != nil {
			return epoch, fmt.Errorf("source at offset %d: %w", at, err)
		}
		ours, err := a.destination.Read(ctx, p, at, 1)
		if err != nil {
			return epoch, fmt.Errorf("destination at offset %d: %w", at, err)
		}
		e, err := sameAt(p, at, span, theirs, ours)
		if err != nil {
			return epoch, err
		}
		if i == 0 {
			epoch = e
		}
	}
	return epoch, nil
}

// firstBase is the base offset of the first batch in b.
func firstBase(b []byte) (int64, bool) {
	w := batch.Walk(b)
	if !w.Next() {
		return 0, false
	}
	return w.Header().Base(), true
}

// A side is what one log shows of a stretch of offsets.
type side struct {
	span    cluster.Span     // all its records are known
	records map[int64][]byte // those a consumer sees, each as bytes that are equal only for equal records
	epoch   int32            // of the batch; cluster.NoEpoch in a hole
}

// sideAt reads what b, the log from the batch at or after the offset on, says of
// the batch or the hole there.
func sideAt(b []byte, at int64, within cluster.Span) (side, error) {
	h, err := whole(b)
	switch {
	case err != nil:
		return side{}, err
	case h == nil:
		return side{span: cluster.Span{From: at, To: within.To}, epoch: cluster.NoEpoch}, nil
	case h.Base() > at:
		return side{span: cluster.Span{From: at, To: min(h.Base(), within.To)}, epoch: cluster.NoEpoch}, nil
	case h.Next() <= at:
		return side{}, fmt.Errorf("%w: asked for offset %d, got the batch before it, [%d,%d)", cluster.ErrUnavailable, at, h.Base(), h.Next())
	}
	out := side{span: cluster.Span{From: max(h.Base(), within.From), To: min(h.Next(), within.To)}, epoch: h.LeaderEpoch()}
	out.records, err = recordsOf(h, out.span)
	return out, err
}

// sameAt compares the records of both sides where they overlap within span, and
// gives the source's epoch there. Batches may be cut differently: fillers of the
// destination stand where the source has a hole.
func sameAt(p cluster.Partition, at int64, span cluster.Span, theirs, ours []byte) (int32, error) {
	s, err := sideAt(theirs, at, span)
	if err != nil {
		return cluster.NoEpoch, fmt.Errorf("source at offset %d: %w", at, err)
	}
	d, err := sideAt(ours, at, span)
	if err != nil {
		return cluster.NoEpoch, fmt.Errorf("destination at offset %d: %w", at, err)
	}
	first, what := int64(-1), ""
	look := func(one, other map[int64][]byte, missing string) {
		for o, record := range one {
			if o < max(s.span.From, d.span.From) || o >= min(s.span.To, d.span.To) || first >= 0 && o >= first {
				continue
			}
			if twin, ok := other[o]; !ok {
				first, what = o, missing
			} else if !bytes.Equal(record, twin) {
				first, what = o, "the records differ"
			}
		}
	}
	look(s.records, d.records, "only the source has a record there")
	look(d.records, s.records, "only the destination has a record there")
	if first >= 0 {
		return cluster.NoEpoch, &cluster.OffsetError{
			Partition: p, Span: cluster.Span{From: first, To: first + 1}, Err: cluster.ErrDiverged, Detail: what,
		}
	}
	return s.epoch, nil
}

// whole is the first batch of b, checked; nil when there is none.
func whole(b []byte) (batch.Header, error) {
	w := batch.Walk(b)
	if !w.Next() {
		return nil, w.Err()
	}
	h := w.Header()
	return h, h.Check()
}

// recordsOf gives the visible records of a batch within span, each as bytes that
// are equal only for equal records. What no consumer sees (fillers, markers) is
// left out.
func recordsOf(h batch.Header, span cluster.Span) (map[int64][]byte, error) {
	out := map[int64][]byte{}
	if h.Control() {
		return out, nil
	}
	err := batch.Decode(h, func(r batch.Record) error {
		if !r.Phantom && r.Offset >= span.From && r.Offset < span.To {
			out[r.Offset] = render(r)
		}
		return nil
	})
	return out, err
}

func render(r batch.Record) []byte {
	b := fmt.Appendf(nil, "%d", r.Timestamp)
	field := func(v []byte) {
		if v == nil {
			b = append(b, " null"...)
			return
		}
		b = fmt.Appendf(b, " %d:", len(v))
		b = append(b, v...)
	}
	field(r.Key)
	field(r.Value)
	for _, h := range r.Headers {
		field(h.Key)
		field(h.Value)
	}
	return b
}
