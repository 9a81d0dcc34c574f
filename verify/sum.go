package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Total works out the checksum of one partition on one cluster, up to the high
// watermark, for those who cannot reach both at once, or will compare later. Of the
// options Strict and Differences do not matter. The error is as that of Partition.
func Total(ctx context.Context, r Reader, p cluster.Partition, o *Options) (Checksum, error) {
	options := o.withDefaults()
	options.Checksums = true
	began := time.Now()
	ends := Report{Partition: p}
	if err := ends.ends(ctx, r, r, options.Span); err != nil {
		return Checksum{}, fmt.Errorf("%v: %w", p, err)
	}
	spans := options.Sample.of(p, ends.Compared)
	if !options.Sample.all() {
		options.ChunkBytes = min(options.ChunkBytes, sampleChunk)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{side: "log", p: p, spans: spans, from: open(r, p, options.ChunkBytes), chunks: make(chan chunk)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx)
	}()
	c := newCursor(s, r, options)
	defer func() {
		cancel()
		c.free()
		<-done
	}()
	c.ended, c.malformed = func(*transaction) {}, func(batch.Header) {} // a comparison tells of them
	c.chunk = func() {
		if options.Progress != nil {
			options.Progress(Progress{p, ends.Compared, c.passed, c.sums.records, c.contents.Bytes, time.Since(began)})
		}
	}
	for {
		if err := c.step(ctx); err != nil {
			return Checksum{}, err
		}
		if !c.ok {
			break
		}
		c.sum()
	}
	for _, t := range c.open {
		c.undecided += t.n
	}
	return *c.checksum(ends.Compared), nil
}
