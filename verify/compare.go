package verify

import (
	"bytes"
	"context"
	"math"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// comparison merges two cursors by offset.
type comparison struct {
	source, destination *cursor
	report              *Report
	options             Options
	spans               spans
	pending             map[pair]*tally
}

// compare fills the report. Its two reading goroutines are gone when it returns.
func compare(ctx context.Context, source, destination Reader, report *Report, o Options) error {
	began := time.Now()
	if err := report.ends(ctx, source, destination, o.Span); err != nil {
		return err
	}
	c := &comparison{report: report, options: o, pending: map[pair]*tally{}, spans: o.Sample.of(report.Partition, report.Compared)}
	if !o.Sample.all() {
		report.Sampled = c.spans.len()
		o.ChunkBytes = min(o.ChunkBytes, sampleChunk)
	}
	c.noteEnds()
	inner, cancel := context.WithCancel(ctx)
	var streams sync.WaitGroup
	start := func(side string, r Reader) *cursor {
		s := &stream{side: side, p: report.Partition, spans: c.spans, from: open(r, report.Partition, o.ChunkBytes), chunks: make(chan chunk)}
		streams.Go(func() { s.run(inner) })
		return c.cursor(s, r, o)
	}
	c.source, c.destination = start("source", source), start("destination", destination)
	defer streams.Wait()
	defer cancel()
	defer c.source.free()
	defer c.destination.free()
	tell := func(offset int64) {
		if o.Progress != nil {
			o.Progress(Progress{report.Partition, report.Compared, offset, report.Records, c.source.contents.Bytes, time.Since(began)})
		}
	}
	c.source.chunk = func() { tell(max(c.source.passed, report.Compared.From)) }
	err := c.run(ctx)
	if err == nil {
		err = c.finish(ctx)
	}
	report.SourceLog, report.DestinationLog = c.source.contents, c.destination.contents
	report.Bytes = c.source.contents.Bytes
	if err == nil {
		tell(report.Compared.To)
		report.SourceSum, report.DestinationSum = c.source.checksum(report.Compared), c.destination.checksum(report.Compared)
	}
	return err
}

// cursor is one side's.
func (c *comparison) cursor(s *stream, r Reader, o Options) *cursor {
	k := newCursor(s, r, o)
	k.ended = c.resolve
	k.malformed = func(h batch.Header) {
		d := Difference{Offset: h.Base(), Kind: Malformed}
		if text := renderMalformed(h); s.side == "source" {
			d.Source = text
		} else {
			d.Destination = text
		}
		c.add(d)
	}
	return k
}

func (c *comparison) run(ctx context.Context) error {
	s, d := c.source, c.destination
	for {
		if err := c.advance(ctx); err != nil {
			return err
		}
		// Strictly by offset: a record that stands twice, or behind one with a higher
		// offset, finds no partner and is missing or extra.
		for s.ok != d.ok || s.ok && s.record.Offset != d.record.Offset {
			var err error
			if !d.ok || s.ok && s.record.Offset < d.record.Offset {
				c.missing()
				err = s.step(ctx)
			} else {
				d.sum()
				c.add(Difference{Offset: d.record.Offset, Kind: Extra, Destination: renderRecord(d.record)})
				err = d.step(ctx)
			}
			if err != nil {
				return err
			}
		}
		if !s.ok {
			return nil
		}
		c.match()
	}
}

// missing takes the source's record, of which the destination has none.
func (c *comparison) missing() {
	s := c.source
	s.sum()
	if s.in == nil {
		c.add(Difference{Offset: s.record.Offset, Kind: Missing, Source: renderRecord(s.record)})
		return
	}
	c.wait(pair{source: s.in, gone: true}, s.record.Offset, 1)
}

// match compares the two records of one offset.
func (c *comparison) match() {
	s, d := c.source, c.destination
	found := c.report.Different
	differences(s.record, d.record, c.add)
	equal := c.report.Different == found
	if s.sums != nil {
		one := s.sums.of(&s.record)
		s.sums.add(one, s.in)
		if !equal {
			one = d.sums.of(&d.record)
		}
		d.sums.add(one, d.in)
	}
	if equal {
		c.wait(pair{source: s.in, destination: d.in}, s.record.Offset, 1)
	}
	c.noteStructure()
}

// wait counts equal records of one pair, or such as the destination lacks, once it
// is known what to make of them.
func (c *comparison) wait(p pair, first, n int64) {
	if p.source == nil && p.destination == nil {
		c.report.Records += n
		return
	}
	t := c.pending[p]
	if t == nil {
		t = &tally{}
		c.pending[p] = t
	}
	for i := int64(0); i < n && len(t.first) < c.options.Differences; i++ {
		t.first = append(t.first, first+i)
	}
	t.n += n
}

// resolve judges what waited for the end of a transaction.
func (c *comparison) resolve(ended *transaction) {
	for p, t := range c.pending {
		if (p.source == ended || p.destination == ended) && p.decided() {
			delete(c.pending, p)
			c.settle(p, t)
		}
	}
}

func (c *comparison) settle(p pair, t *tally) {
	kind := Kind("")
	switch p.judged(c.report.Destination.HighWatermark) {
	case both:
		c.report.Records += t.n
	case bothAborted:
		c.report.Aborted += t.n
	case undecidable:
		c.report.Undecided += t.n
	case leftOut:
		c.report.LeftOut += t.n
		c.several(t, AbortedGone, c.note)
	case absent:
		kind = Missing
	case hidden:
		kind = Hidden
	case exposed:
		kind = Exposed
	}
	if kind != "" {
		c.several(t, kind, c.add)
	}
}

// several reports all records of a tally, those first that are described.
func (c *comparison) several(t *tally, kind Kind, add func(Difference)) {
	for i := range t.n {
		d := Difference{Offset: t.first[min(int(i), len(t.first)-1)], Kind: kind}
		add(d)
	}
}

// advance steps both sides. Batches that are the same to the byte are read once, and
// not at all where that is enough.
func (c *comparison) advance(ctx context.Context) error {
	s, d := c.source, c.destination
	for {
		if err := s.settle(ctx); err != nil {
			return err
		}
		if err := d.settle(ctx); err != nil {
			return err
		}
		if !s.fresh() || !d.fresh() || !identical(s.h, d.h) {
			break
		}
		if err := c.both(); err != nil {
			return err
		}
	}
	if err := s.step(ctx); err != nil {
		return err
	}
	return d.step(ctx)
}

// identical: all that makes the records, but not who produced or led them, is the
// same.
func identical(a, b batch.Header) bool {
	const makes = batch.AttrLogAppendTime | batch.AttrTransactional
	return a.Codec() == b.Codec() && a.Attributes()&makes == b.Attributes()&makes &&
		a.Base() == b.Base() && a.LastOffsetDelta() == b.LastOffsetDelta() && a.Count() == b.Count() &&
		a.BaseTimestamp() == b.BaseTimestamp() && a.MaxTimestamp() == b.MaxTimestamp() &&
		bytes.Equal(a[batch.HeaderSize:], b[batch.HeaderSize:])
}

// both takes a batch that is the same on both sides. It need not be opened if it is
// in no transaction, whose records might have to be named, and is compressed: only
// uncompressed ones can hold phantoms, which are not counted.
func (c *comparison) both() error {
	s, d := c.source, c.destination
	p := pair{source: s.in, destination: d.in}
	if s.h.Codec() != batch.None && s.sums == nil && p.source == nil && p.destination == nil {
		c.wait(p, s.h.Base(), int64(s.h.Count()))
	} else {
		for range s.h.Count() {
			if err := s.next(); err != nil {
				return err
			}
			if s.record.Phantom {
				s.contents.Phantoms++
				d.contents.Phantoms++
				continue
			}
			c.wait(p, s.record.Offset, 1)
			if s.sums != nil {
				one := s.sums.of(&s.record)
				s.sums.add(one, s.in)
				d.sums.add(one, d.in)
			}
		}
	}
	s.drop()
	d.drop()
	return nil
}

// add counts a difference. Those with the lowest offsets are described: what a
// transaction's end tells comes late.
func (c *comparison) add(d Difference) {
	c.report.Different++
	c.report.Differences = insert(c.report.Differences, d, c.options.Differences)
}

func insert(all []Difference, d Difference, most int) []Difference {
	at := len(all)
	for at > 0 && all[at-1].Offset > d.Offset {
		at--
	}
	if at >= most {
		return all
	}
	all = append(all, Difference{})
	copy(all[at+1:], all[at:])
	all[at] = d
	return all[:min(len(all), most)]
}

// finish looks for the markers that stand behind the compared range, and judges
// what is left.
func (c *comparison) finish(ctx context.Context) error {
	for _, side := range []struct {
		k   *cursor
		end int64
		of  func(pair) *transaction
	}{
		{c.source, c.report.Source.HighWatermark, func(p pair) *transaction { return p.source }},
		{c.destination, c.report.Destination.HighWatermark, func(p pair) *transaction { return p.destination }},
	} {
		waits := func() bool {
			for p := range c.pending {
				if !side.of(p).decided() {
					return true
				}
			}
			return false
		}
		if err := side.k.search(ctx, cluster.Span{From: c.report.Compared.To, To: side.end}, math.MaxInt, waits); err != nil {
			return err
		}
	}
	for p, t := range c.pending {
		c.settle(p, t)
	}
	for _, k := range []*cursor{c.source, c.destination} {
		for _, t := range k.open {
			k.undecided += t.n
		}
	}
	return nil
}
