package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Shift says that the destination has the source's records at other offsets. That is
// what is left by a consumer that produces what it reads, as MirrorMaker 2 does:
// offsets begin anew, and every hole of the source (compaction, transaction markers)
// moves what follows. Consumers cannot go on at their own offsets there.
type Shift struct {
	From    int64 `json:"from"`    // first source offset whose record was found elsewhere
	By      int64 `json:"by"`      // destination offset less source offset, there
	Later   int64 `json:"later"`   // the same of the last record that was looked at
	Matched int   `json:"matched"` // records found at other offsets
	Looked  int   `json:"looked"`  // of so many destination records
}

func (s *Shift) String() string {
	text := fmt.Sprintf("the same records at other offsets (%d of %d looked at): %+d from source offset %d on", s.Matched, s.Looked, s.By, s.From)
	if s.Later != s.By {
		text += fmt.Sprintf(", %+d later", s.Later)
	}
	return text + "; so MirrorMaker and others leave them that consume and produce"
}

const (
	shiftWindow = 400 // records of each side that are looked at
	shiftLeast  = 4   // matches that a shift needs
	shiftBytes  = 1 << 20
)

// findShift looks for the same records at other offsets: around the first
// difference, and where both logs begin. nil when there are none.
func findShift(ctx context.Context, source, destination Reader, r Report, o Options) (*Shift, error) {
	type place struct{ source, destination int64 }
	places := []place{{r.Source.LogStart, r.Destination.LogStart}}
	if r.Different > 0 {
		i := slices.IndexFunc(r.Differences, func(d Difference) bool { return d.Kind.ofRecord() })
		if i < 0 {
			return nil, nil
		}
		first := r.Differences[i].Offset
		places = []place{{first, max(r.Destination.LogStart, first-shiftWindow/2)}, {first, first}, places[0]}
	}
	for _, at := range places {
		from, err := window(ctx, source, r.Partition, at.source, r.Source.HighWatermark, o.Limit)
		if err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
		to, err := window(ctx, destination, r.Partition, at.destination, r.Destination.HighWatermark, o.Limit)
		if err != nil {
			return nil, fmt.Errorf("destination: %w", err)
		}
		if s := shifted(from, to); s != nil {
			return s, nil
		}
	}
	return nil, nil
}

// stood is a record without its offset, and the offset.
type stood struct {
	sum Sum
	at  int64
}

// window reads some records from an offset on, aborted ones too: MirrorMaker copies
// them unless it is told not to.
func window(ctx context.Context, r Reader, p cluster.Partition, at, end int64, limit int) ([]stood, error) {
	var out []stood
	s := &stream{p: p, spans: spans{{From: at, To: max(at, end)}}, from: open(r, p, shiftBytes)}
	defer s.from.Close()
	sums := newSumming()
	decoder, olds := batch.Decoder{Limit: limit}, oldDecoder{limit: limit}
	visit := func(r batch.Record) {
		if offset := r.Offset; !r.Phantom && offset >= at && len(out) < shiftWindow {
			r.Offset = 0
			out = append(out, stood{sums.of(&r), offset})
		}
	}
	for next := at; next < end && len(out) < shiftWindow; {
		c, n := s.read(ctx, next)
		if c.err != nil {
			return nil, c.err
		}
		err := eachRecord(c.bytes, &decoder, &olds, visit)
		c.release()
		if err != nil {
			return nil, s.fail(next, err)
		}
		if n == next {
			break
		}
		next = n
	}
	return out, nil
}

// eachRecord visits the records of checked batches, without control batches.
func eachRecord(b []byte, d *batch.Decoder, olds *oldDecoder, visit func(batch.Record)) error {
	for w := batch.Walk(b); w.Next(); {
		h := w.Header()
		if old(h) {
			rs, err := olds.decode(h)
			if err != nil {
				return err
			}
			for _, r := range rs {
				visit(r)
			}
			continue
		}
		if h.Control() {
			continue
		}
		if err := d.Decode(h, func(r batch.Record) error { visit(r); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// shifted follows the destination's records through the source's. Records that occur
// more than once in the window say nothing, since they may be others.
func shifted(from, to []stood) *Shift {
	at := map[Sum][]int64{}
	for _, r := range from {
		at[r.sum] = append(at[r.sum], r.at)
	}
	again := map[Sum]int{}
	for _, r := range to {
		again[r.sum]++
	}
	s := &Shift{}
	var offsets []int64
	for _, r := range to {
		found := at[r.sum]
		if len(found) != 1 || again[r.sum] != 1 {
			continue
		}
		s.Looked++
		by := r.at - found[0]
		if by == 0 {
			continue
		}
		if s.Matched++; s.Matched == 1 {
			s.From, s.By = found[0], by
		}
		s.Later = by
		offsets = append(offsets, found[0])
	}
	// What was merely swapped is no shift: the records must stand in their order, and
	// most of them elsewhere.
	if s.Matched < shiftLeast || !slices.IsSorted(offsets) || s.Matched*2 < s.Looked {
		return nil
	}
	return s
}
