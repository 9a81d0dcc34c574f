package fetcher

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// firstBase is the base offset of the first batch in b.
func firstBase(b []byte) (int64, bool) {
	w := batch.Walk(b)
	if !w.Next() {
		return 0, false
	}
	return w.Header().Base(), true
}

// likeness says what counts as the same.
type likeness struct {
	// control: transaction markers count, and the producers of transactional records.
	// It is for destinations that take them as they are.
	control bool
	// holes: where only one side has a record, the other's was compacted away.
	holes bool
	// epochs: the batches have the same leader epoch. markers: transaction markers have.
	epochs, markers bool
}

// A side is what one log shows of a stretch of offsets.
type side struct {
	span    cluster.Span     // all its records are known
	records map[int64][]byte // those that count, each as bytes that are equal only for equal records
	epoch   int32            // of the batch; cluster.NoEpoch in a hole
	// never: nothing that counts ever stood there, so that a record at the other side was
	// not compacted away at this one. That cannot be said of what a mirror fills gaps of a
	// compacted log with: another replica may still have what one lacked.
	never []cluster.Span
}

func (s *side) neverHad(o int64) bool {
	return slices.ContainsFunc(s.never, func(n cluster.Span) bool { return n.From <= o && o < n.To })
}

// nothing says that readers see nothing of the whole stretch, and never did.
func (s *side) nothing() { s.records, s.never = nil, []cluster.Span{s.span} }

// sideAt reads what b, the log from the batch at or after the offset on, says of
// the batch or the hole there.
func sideAt(b []byte, at int64, within cluster.Span, like likeness) (side, error) {
	h, err := whole(b)
	switch {
	case err != nil:
		return side{epoch: cluster.NoEpoch}, err
	case h == nil:
		return side{span: cluster.Span{From: at, To: within.To}, epoch: cluster.NoEpoch}, nil
	case h.Base() > at:
		return side{span: cluster.Span{From: at, To: min(h.Base(), within.To)}, epoch: cluster.NoEpoch}, nil
	case h.Next() <= at:
		return side{epoch: cluster.NoEpoch}, fmt.Errorf("%w: asked for offset %d, got the batch before it, [%d,%d)", cluster.ErrUnavailable, at, h.Base(), h.Next())
	}
	out := side{span: cluster.Span{From: max(h.Base(), within.From), To: min(h.Next(), within.To)}, epoch: h.LeaderEpoch()}
	err = out.read(h, like)
	return out, err
}

// A sight is what comparing both logs at one place has shown.
type sight struct {
	span  cluster.Span // what both sides know there
	first int64        // first offset that differs; -1: none
	what  string       // how
	same  int          // records that both have, and that are the same
	epoch int32        // the source's
}

// sightOf compares the records of both sides where they overlap. Batches may be cut
// differently: fillers of the destination stand where the source has a hole.
func sightOf(s, d side, like likeness) sight {
	out := sight{span: cluster.Span{From: max(s.span.From, d.span.From), To: min(s.span.To, d.span.To)}, first: -1, epoch: s.epoch}
	differ := func(o int64, what string) {
		if out.first < 0 || o < out.first {
			out.first, out.what = o, what
		}
	}
	for o, record := range s.records {
		if o < out.span.From || o >= out.span.To {
			continue
		}
		switch twin, ok := d.records[o]; {
		case ok && bytes.Equal(record, twin):
			out.same++
		case ok:
			differ(o, "the records differ")
		case !like.holes || d.neverHad(o):
			differ(o, "only the source has a record there")
		}
	}
	for o := range d.records {
		if _, ok := s.records[o]; !ok && (!like.holes || s.neverHad(o)) && o >= out.span.From && o < out.span.To {
			differ(o, "only the destination has a record there")
		}
	}
	return out
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

// read takes the records of a batch within the span that count. What no consumer sees
// (fillers, and markers unless they count) is left out.
func (s *side) read(h batch.Header, like likeness) error {
	s.records = map[int64][]byte{}
	if h.Control() && !like.control {
		if h.ProducerID() < batch.OwnProducers {
			s.nothing()
		}
		return nil
	}
	var prefix []byte
	if like.control && (h.Control() || h.Transactional()) {
		prefix = fmt.Appendf(prefix, "producer %d/%d control %v ", batch.Grounded(h.ProducerID()), h.ProducerEpoch(), h.Control())
	}
	if like.epochs || like.markers && h.Control() {
		prefix = fmt.Appendf(prefix, "epoch %d ", h.LeaderEpoch())
	}
	place := h.Base()
	return batch.Decode(h, func(r batch.Record) error {
		switch {
		case r.Phantom && (r.Key == nil || string(r.Key) == batch.FenceKey): // compacted logs take none without a key
			s.never = append(s.never, cluster.Span{From: place, To: place + 1})
		case !r.Phantom && r.Offset >= s.span.From && r.Offset < s.span.To:
			s.records[r.Offset] = render(prefix, r)
		}
		place++
		return nil
	})
}

func render(prefix []byte, r batch.Record) []byte {
	b := fmt.Appendf(bytes.Clone(prefix), "%d", r.Timestamp)
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
