package verify

import (
	"bytes"
	"context"
	"sync"

	"github.com/clustermirror/mirror/internal/batch"
)

// comparison merges two cursors by offset.
type comparison struct {
	source, destination *cursor
	report              *Report
	most                int // differences that are described
}

// compare fills the report. Its two reading goroutines are gone when it returns.
func compare(ctx context.Context, source, destination Reader, report *Report, o Options) error {
	if err := report.ends(ctx, source, destination); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel()
	open := func(side string, r Reader) *cursor {
		s := &stream{side: side, reader: r, p: report.Partition, span: report.Compared, size: o.ChunkBytes, chunks: make(chan chunk)}
		streams.Go(func() { s.run(ctx) })
		return &cursor{stream: s, decoder: batch.Decoder{Limit: o.Limit}, passed: s.span.From}
	}
	c := &comparison{source: open("source", source), destination: open("destination", destination), report: report, most: o.Differences}
	if o.Progress != nil {
		c.source.chunk = func() {
			o.Progress(Progress{report.Partition, report.Compared, c.source.passed, report.Records})
		}
	}
	err := c.run(ctx)
	report.Bytes = c.source.bytes
	if err == nil && o.Progress != nil {
		o.Progress(Progress{report.Partition, report.Compared, report.Compared.To, report.Records})
	}
	return err
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
				c.add(Difference{Offset: s.record.Offset, Kind: Missing, Source: renderRecord(s.record)})
				err = s.step(ctx)
			} else {
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
		found := c.report.Different
		differences(s.record, d.record, c.add)
		if c.report.Different == found {
			c.report.Records++
		}
	}
}

// advance steps both sides. Compressed batches that are the same to the byte are
// not decompressed: their records are the same.
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
		c.report.Records += int64(s.h.Count())
		s.drop()
		d.drop()
	}
	if err := s.step(ctx); err != nil {
		return err
	}
	return d.step(ctx)
}

// identical: all that makes the records, but not who produced or led them, is the
// same. An uncompressed batch is read anyway, because only there can phantoms be.
func identical(a, b batch.Header) bool {
	return a.Codec() != batch.None && a.Codec() == b.Codec() && a.LogAppendTime() == b.LogAppendTime() &&
		a.Base() == b.Base() && a.LastOffsetDelta() == b.LastOffsetDelta() && a.Count() == b.Count() &&
		a.BaseTimestamp() == b.BaseTimestamp() && a.MaxTimestamp() == b.MaxTimestamp() &&
		bytes.Equal(a[batch.HeaderSize:], b[batch.HeaderSize:])
}

func (c *comparison) add(d Difference) {
	if c.report.Different++; len(c.report.Differences) < c.most {
		c.report.Differences = append(c.report.Differences, d)
	}
}
