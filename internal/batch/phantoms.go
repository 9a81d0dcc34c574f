package batch

import (
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// phantomOverhead is more than what a phantom takes besides its key.
const phantomOverhead = 30

// WithPhantoms appends b to into as batches with as many records as offsets, and no
// holes: where b has none, there is a phantom (see AppendPhantoms), before the real
// records of the batch, which stand at their offsets. Batches with phantoms are not
// compressed, since a broker would look into them; the others are as b is. No batch is
// larger than MaxBytes or, with phantoms, takes up more than MaxOffsets: b may become
// several. A hole becomes phantoms with its MaxTimestamp: each 7 to 11 bytes and the key,
// all in memory at once, so hand over long ones bit by bit. b is appended as it is when
// nothing is missing and it has no append time. With an error into is as it was.
func (c *Converter) WithPhantoms(into []cluster.Batch, b cluster.Batch) ([]cluster.Batch, error) {
	if b.Hole() {
		p := mix{dissection{c: c, b: b, builder: c.build(emptyLike(b)), out: into, at: b.Base, timestamp: b.MaxTimestamp}}
		p.fill(b.Next)
		p.cut() // phantoms only: nothing that could fail
		return p.out, nil
	}
	h := Header(b.Bytes)
	if err := h.sane(); err != nil {
		return into, err
	}
	if h.Control() {
		return into, controlled(h)
	}
	if h.Count() > h.LastOffsetDelta() { // no more than append time, unless phantoms are in it already
		out, err := c.Pieces(into, b)
		if err != nil || !slices.ContainsFunc(out[len(into):], func(b cluster.Batch) bool { return b.Hole() }) {
			return out, err
		}
	}
	p := mix{dissection{c: c, b: b, builder: c.build(h), out: into, at: h.Base(), timestamp: h.MaxTimestamp()}}
	if err := c.records(h, p.record); err != nil {
		return into, err
	}
	p.fill(h.Next())
	if p.cut(); p.err != nil {
		return into, p.err
	}
	return p.out, nil
}

// emptyLike is a header for what fills a hole.
func emptyLike(b cluster.Batch) Header {
	h := make(Header, HeaderSize)
	f := fields{base: b.Base, leaderEpoch: b.Epoch, maxTimestamp: b.MaxTimestamp}
	f.put(h)
	return h
}

// mix is one run of WithPhantoms.
type mix struct{ dissection }

// size is more than what the batch [base, to) takes without compression, when so many
// of its offsets have a record.
func (p *mix) size(to int64, records int32) int64 {
	missing := to - p.base - int64(records)
	return HeaderSize + int64(len(p.payload)) + missing*int64(phantomOverhead+len(p.c.PhantomKey))
}

// fits reports whether the batch may reach up to to.
func (p *mix) fits(to int64, records int32, more int) bool {
	span := to - p.base
	return p.size(to, records)+int64(more) <= int64(p.c.maxBytes()) && (span == int64(records) || span <= p.c.maxOffsets())
}

func (p *mix) record(r *Record) {
	if !p.any {
		p.any, p.timestamp = true, r.Timestamp // nothing before it has one
	}
	if more := p.encode(r); !p.fits(r.Offset+1, p.count+1, more) {
		p.cut() // then there may be room for both what is missing and the record
		if more = p.encode(r); !p.fits(r.Offset+1, 1, more) {
			p.fill(r.Offset)
			p.cut()
		}
		p.encode(r)
	}
	p.put(r)
	p.at, p.timestamp = r.Offset+1, r.Timestamp
}

// fill takes the missing offsets [at, to) into the batch, or into several.
func (p *mix) fill(to int64) {
	if p.fits(to, p.count, 0) {
		p.at = to
		return
	}
	p.cut()
	room := int64(p.c.maxBytes()-HeaderSize) / int64(phantomOverhead+len(p.c.PhantomKey))
	room = max(1, min(room, p.c.maxOffsets()))
	for to-p.at > room {
		p.at += room
		p.cut()
	}
	p.at = to
}

// cut ends the batch with what it has.
func (p *mix) cut() {
	if p.at == p.base || p.err != nil {
		return
	}
	h := p.finishWhole(p.at, p.timestamp, p.c.PhantomKey)
	p.parts = append(p.parts[:0], h)
	if int64(p.count) == p.at-p.base { // noise is larger when it is compressed
		p.parts, p.err = p.c.fit(p.parts[:0], h)
	}
	for _, h := range p.parts {
		p.out = p.c.one(p.out, p.b, h)
	}
	p.start(p.at)
}
