package batch

import "github.com/clustermirror/mirror/cluster"

// Pieces appends b to into as batches that have a record at each of their offsets, and
// the holes between, before and behind them (cluster.Batch without bytes), which
// compaction made; together they take up b's offsets. Each is compressed as b is. A hole
// has the timestamp of the record before it, or else behind it: what fills it takes that,
// so that look-ups by time stay as they were. b is appended as it is when it is a hole,
// or has nothing missing and no append time. A batch without records is one hole. With an
// error into is as it was.
func (c *Converter) Pieces(into []cluster.Batch, b cluster.Batch) ([]cluster.Batch, error) {
	if b.Hole() {
		return append(into, b), nil
	}
	h := Header(b.Bytes)
	if as, err := c.pass(h); err != nil || as != nil {
		return c.one(into, b, as), err
	}
	p := pieces{dissection{c: c, b: b, builder: c.build(h), out: into, at: h.Base(), timestamp: h.MaxTimestamp()}}
	if err := c.records(h, p.record); err != nil {
		return into, err
	}
	if p.cut(); p.err != nil {
		return into, p.err
	}
	p.hole(h.Next())
	return p.out, nil
}

// one appends h in the place of b, if there is one.
func (c *Converter) one(into []cluster.Batch, b cluster.Batch, h Header) []cluster.Batch {
	if h == nil {
		return into
	}
	return append(into, cluster.Batch{
		Base: h.Base(), Next: h.Next(), Epoch: b.Epoch, MaxTimestamp: h.MaxTimestamp(), Gone: b.Gone, Bytes: h,
	})
}

// dissection is one batch that is taken apart. The builder holds the records [its base, at).
type dissection struct {
	*builder
	c         *Converter
	b         cluster.Batch
	out       []cluster.Batch
	at        int64
	timestamp int64 // of the record before at
	any       bool  // there was one
	parts     []Header
	err       error
}

// pieces is one run of Pieces.
type pieces struct{ dissection }

func (p *pieces) record(r *Record) {
	if !p.any {
		p.any, p.timestamp = true, r.Timestamp // nothing before it has one
	}
	if r.Offset > p.at {
		p.cut()
		p.hole(r.Offset)
		p.start(r.Offset)
	}
	p.add(r)
	p.at, p.timestamp = r.Offset+1, r.Timestamp
}

// cut ends the batch with the records so far.
func (p *pieces) cut() {
	if p.count == 0 || p.err != nil {
		return
	}
	p.parts, p.err = p.c.fit(p.parts[:0], p.finish(p.at))
	for _, h := range p.parts {
		p.out = p.c.one(p.out, p.b, h)
	}
	p.count = 0
}

// hole appends the offsets [at, to), if there are any.
func (p *pieces) hole(to int64) {
	if to > p.at {
		p.out = append(p.out, cluster.Batch{Base: p.at, Next: to, Epoch: p.b.Epoch, MaxTimestamp: p.timestamp})
		p.at = to
	}
}
