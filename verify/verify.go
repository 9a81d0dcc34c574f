// Package verify compares what two clusters hold of a partition, record by record
// and offset by offset, from raw batches. How records are batched and compressed
// makes no difference; every checksum is verified on the way. Memory is bounded
// by chunks and single batches, whatever the size of the log.
package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
)

// Reader is one of the two clusters. Its methods are safe for concurrent use and
// return soon after ctx is cancelled.
type Reader interface {
	// Read returns up to about maxBytes of whole record batches, the first of which
	// holds offset or is the first after it, in memory of their own. Empty means
	// there is nothing below the high watermark at or after offset.
	Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error)
	// LogOffsets gives log start and high watermark at the leader.
	LogOffsets(ctx context.Context, p cluster.Partition) (cluster.Offsets, error)
}

// Options of a comparison; nil means all defaults.
type Options struct {
	// ChunkBytes is how much one Read asks for; up to two chunks of each side are
	// in memory for each partition under comparison. Default: 4 MiB.
	ChunkBytes int32
	// Limit bounds the uncompressed records of one batch, in bytes. Default: 256 MiB.
	Limit int
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

// Progress of one partition.
type Progress struct {
	Partition cluster.Partition
	Span      cluster.Span // what is compared
	Offset    int64        // all below it is compared
	Records   int64
}

// Report is the outcome for one partition.
type Report struct {
	Partition   cluster.Partition `json:"partition"`
	Source      cluster.Offsets   `json:"source"`
	Destination cluster.Offsets   `json:"destination"`
	// Compared is the common range: from the later log start to the lower high
	// watermark. It may be empty; then Equal says nothing.
	Compared cluster.Span `json:"compared"`
	Records  int64        `json:"records"` // found equal on both sides
	Bytes    int64        `json:"bytes"`   // of the source's batches, as stored
	// Equal: no difference in the common range.
	Equal bool `json:"equal"`
	// EndsEqual: same log start and same high watermark. It is false while a mirror
	// lags, and after a stop that left its fence in the destination.
	EndsEqual bool `json:"endsEqual"`
	// Different counts the differences, Differences describes the first of them.
	Different   int64        `json:"different"`
	Differences []Difference `json:"differences,omitempty"`
	// Error is why the comparison did not come to an end; Equal is false then.
	Error string `json:"error,omitempty"`
}

// String is one line for a person.
func (r Report) String() string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("%v %v: not compared: %s", r.Partition, r.Compared, r.Error)
	case !r.Equal:
		return fmt.Sprintf("%v %v: %d differences, %d records equal; %v", r.Partition, r.Compared, r.Different, r.Records, r.Differences[0])
	case !r.EndsEqual:
		return fmt.Sprintf("%v %v: %d records equal; source is [%d,%d), destination [%d,%d)", r.Partition, r.Compared, r.Records,
			r.Source.LogStart, r.Source.HighWatermark, r.Destination.LogStart, r.Destination.HighWatermark)
	}
	return fmt.Sprintf("%v %v: %d records equal", r.Partition, r.Compared, r.Records)
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
		if report.Equal || ctx.Err() != nil || round == retentionRounds {
			return report.closed(err)
		}
		now := Report{Partition: p}
		if now.ends(ctx, source, destination) != nil || now.Compared.From <= report.Compared.From {
			return report.closed(err)
		}
	}
}

func (r Report) closed(err error) (Report, error) {
	if err != nil {
		r.Error = err.Error()
	}
	return r, err
}

// ends asks both sides for their offsets and works out the common range.
func (r *Report) ends(ctx context.Context, source, destination Reader) (err error) {
	if r.Source, err = source.LogOffsets(ctx, r.Partition); err != nil {
		return fmt.Errorf("source: %v: offsets: %w", r.Partition, err)
	}
	if r.Destination, err = destination.LogOffsets(ctx, r.Partition); err != nil {
		return fmt.Errorf("destination: %v: offsets: %w", r.Partition, err)
	}
	from := max(r.Source.LogStart, r.Destination.LogStart)
	r.Compared = cluster.Span{From: from, To: max(from, min(r.Source.HighWatermark, r.Destination.HighWatermark))}
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
