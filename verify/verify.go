// Package verify compares what two clusters hold of a partition, record by record
// and offset by offset, from raw batches: whether the readers of one see what the
// readers of the other see. How records are batched, compressed and formatted makes
// no difference, and neither does what fills the offsets that have no record for
// readers of committed ones. Every checksum is verified on the way. Memory is bounded
// by chunks and single batches, whatever the size of the log.
//
// Partition and Topics compare, Total works out the checksum of one side alone. All
// work on any cluster, whoever made the copy, and while it is written to.
package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
)

// Options of a comparison; nil means all defaults.
type Options struct {
	// ChunkBytes is how much one Read asks for; up to two chunks of each side are
	// in memory for each partition under comparison. Default: 4 MiB.
	ChunkBytes int32
	// Limit bounds the uncompressed records of one batch, in bytes. Default: 256 MiB.
	Limit int
	// Span leaves out what is outside of the offsets that it answers; it is asked once
	// for each comparison. So a comparison begins at a time (the source's first offset
	// of it), and a checksum is worked out again for the span it had. Default: nothing is
	// left out.
	Span func(ctx context.Context, p cluster.Partition) (cluster.Span, error)
	// Sample compares a part of each log. Default: all of it.
	Sample *Sample
	// Strict makes differences of what else is only noted: log ends, batch bounds,
	// codecs, timestamp types, aborted records that are not there.
	Strict bool
	// Checksums are worked out for both sides on the way. Every record is then read.
	Checksums bool
	// Differences is how many are described; all are counted. Default: 10.
	Differences int
	// Parallelism is how many partitions Topics compares at once. Default: 2.
	Parallelism int
	// Progress is told how far a partition is: about once a chunk, in order for each
	// partition, from several goroutines when Topics compares several. The comparison
	// waits for it. Default: nobody is told.
	Progress func(Progress)
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	for _, f := range []struct {
		field *int
		value int
	}{{&c.Differences, 10}, {&c.Parallelism, 2}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	if c.ChunkBytes <= 0 {
		c.ChunkBytes = 4 << 20
	}
	return c
}

// retentionRounds is how often a comparison starts again because records were
// deleted under it.
const retentionRounds = 5

// Partition compares one partition over the common range: offset, timestamp, key,
// value and headers (their order too; null and empty are kept apart). Control
// batches and phantom records are holes, as they are to a consumer. Differences
// are no error: the error says why the comparison could not be made, wraps
// cluster.ErrCorrupt where a batch's checksum or records are wrong, and names
// side, partition and offset; the report then holds what was found until there.
// When one side's log start moves past the beginning of the range meanwhile, a
// comparison that found differences is made again over what is left.
func Partition(ctx context.Context, source, destination Reader, p cluster.Partition, o *Options) (Report, error) {
	options := o.withDefaults()
	for round := 1; ; round++ {
		report := Report{Partition: p}
		err := compare(ctx, source, destination, &report, options)
		report.Equal = err == nil && report.Different == 0
		if err == nil && (report.Different > 0 || report.disjoint()) {
			report.Shift, err = findShift(ctx, source, destination, report, options)
		}
		if report.Equal || ctx.Err() != nil || round == retentionRounds {
			return report.closed(err)
		}
		now := Report{Partition: p}
		if now.ends(ctx, source, destination, nil) != nil || now.Compared.From <= report.Compared.From {
			return report.closed(err)
		}
	}
}

// disjoint: both have records, and nothing in common.
func (r *Report) disjoint() bool {
	return r.Compared.Len() == 0 && r.Source.HighWatermark > r.Source.LogStart && r.Destination.HighWatermark > r.Destination.LogStart
}

func (r Report) closed(err error) (Report, error) {
	if err != nil {
		r.Error = err.Error()
	}
	return r, err
}

// ends asks both sides for their offsets and works out the common range.
// The destination is asked first: a mirror that runs is then never ahead.
func (r *Report) ends(ctx context.Context, source, destination Reader, within func(context.Context, cluster.Partition) (cluster.Span, error)) (err error) {
	if r.Destination, err = destination.LogOffsets(ctx, r.Partition); err != nil {
		return fmt.Errorf("destination: %v: offsets: %w", r.Partition, err)
	}
	if r.Source, err = source.LogOffsets(ctx, r.Partition); err != nil {
		return fmt.Errorf("source: %v: offsets: %w", r.Partition, err)
	}
	from := max(r.Source.LogStart, r.Destination.LogStart)
	to := max(from, min(r.Source.HighWatermark, r.Destination.HighWatermark))
	if within != nil {
		span, err := within(ctx, r.Partition)
		if err != nil {
			return fmt.Errorf("%v: span: %w", r.Partition, err)
		}
		to = max(from, min(to, span.To))
		from = min(to, max(from, span.From))
	}
	r.Compared = cluster.Span{From: from, To: to}
	r.EndsEqual = r.Source == r.Destination
	return nil
}

// Topics compares many partitions, a few at a time. There is a report for each, in
// their order; one that cannot be compared does not stop the others. The error
// joins those of the partitions.
func Topics(ctx context.Context, source, destination Reader, partitions []cluster.Partition, o *Options) ([]Report, error) {
	options := o.withDefaults()
	reports := make([]Report, len(partitions))
	errs := make([]error, len(partitions))
	var taken atomic.Int64
	var workers sync.WaitGroup
	for range min(options.Parallelism, len(partitions)) {
		workers.Go(func() {
			for i := taken.Add(1) - 1; i < int64(len(partitions)); i = taken.Add(1) - 1 {
				reports[i], errs[i] = Partition(ctx, source, destination, partitions[i], &options)
			}
		})
	}
	workers.Wait()
	return reports, errors.Join(errs...)
}
