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

// sameAt compares the records of the first batch of each side, where they
// overlap within span, and gives the source's epoch there.
func sameAt(p cluster.Partition, at int64, span cluster.Span, theirs, ours []byte) (int32, error) {
	differ := func(offset int64, what string) error {
		return &cluster.OffsetError{Partition: p, Span: cluster.Span{From: offset, To: offset + 1}, Err: cluster.ErrDiverged, Detail: what}
	}
	sh, err := whole(theirs)
	if err != nil {
		return cluster.NoEpoch, fmt.Errorf("source at offset %d: %w", at, err)
	}
	dh, err := whole(ours)
	if err != nil {
		return cluster.NoEpoch, fmt.Errorf("destination at offset %d: %w", at, err)
	}
	if sh == nil || dh == nil || sh.Base() > at || dh.Base() > at {
		if (sh == nil || sh.Base() > at) && (dh == nil || dh.Base() > at) {
			return cluster.NoEpoch, nil // a hole on both sides
		}
		return cluster.NoEpoch, differ(at, "only one side has a batch there")
	}
	common := cluster.Span{
		From: max(sh.Base(), dh.Base(), span.From), To: min(sh.Next(), dh.Next(), span.To),
	}
	s, err := recordsOf(sh, common)
	if err != nil {
		return cluster.NoEpoch, fmt.Errorf("source at offset %d: %w", at, err)
	}
	d, err := recordsOf(dh, common)
	if err != nil {
		return cluster.NoEpoch, fmt.Errorf("destination at offset %d: %w", at, err)
	}
	for o := common.From; o < common.To; o++ {
		if !bytes.Equal(s[o], d[o]) {
			return cluster.NoEpoch, differ(o, "the records differ")
		}
	}
	return sh.LeaderEpoch(), nil
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
