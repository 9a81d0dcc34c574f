package verify

import (
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Progress of one partition.
type Progress struct {
	Partition cluster.Partition
	Span      cluster.Span // what is compared
	Offset    int64        // all below it is compared
	Records   int64
	Bytes     int64         // of the source's batches, as stored
	Elapsed   time.Duration // since the comparison of the partition began
}

// Rate is in bytes a second.
func (p Progress) Rate() float64 {
	if p.Elapsed <= 0 {
		return 0
	}
	return float64(p.Bytes) / p.Elapsed.Seconds()
}

// Report is the outcome for one partition.
type Report struct {
	Partition   cluster.Partition `json:"partition"`
	Source      cluster.Offsets   `json:"source"`
	Destination cluster.Offsets   `json:"destination"`
	// Compared is the common range: from the later log start to the lower high
	// watermark, or what Options.Span leaves of it. It may be empty; then Equal says nothing.
	Compared cluster.Span `json:"compared"`
	// Sampled is how many offsets of Compared were looked at, where Options.Sample left
	// some out.
	Sampled int64 `json:"sampled,omitempty"`
	Records int64 `json:"records"` // that readers of committed records see, equal on both sides
	Bytes   int64 `json:"bytes"`   // of the source's batches, as stored
	// Aborted records are the same, and aborted, on both sides; LeftOut are the source's
	// that were never committed, where the destination has nothing.
	Aborted int64 `json:"aborted,omitempty"`
	LeftOut int64 `json:"leftOut,omitempty"`
	// Undecided records are the same on both sides, or only the source's, and how their
	// transaction ends is not known: it has no marker yet, or a sample left it out.
	Undecided int64 `json:"undecided,omitempty"`
	// Equal: no difference in the common range.
	Equal bool `json:"equal"`
	// EndsEqual: same log start and same high watermark. It is false while a mirror
	// lags, and after a stop that left its fence in the destination.
	EndsEqual bool `json:"endsEqual"`
	// Different counts the differences, Differences describes the first of them.
	Different   int64        `json:"different"`
	Differences []Difference `json:"differences,omitempty"`
	// Noted counts, and Notes describes the first of, what no consumer is misled by:
	// ends, batch bounds, codecs, timestamp types, what was aborted. With
	// Options.Strict they are differences instead.
	Noted int64        `json:"noted,omitempty"`
	Notes []Difference `json:"notes,omitempty"`
	// Shift is set where the records differ because the same ones stand at other
	// offsets.
	Shift *Shift `json:"shift,omitempty"`
	// SourceLog and DestinationLog describe what was read.
	SourceLog      Contents `json:"sourceLog"`
	DestinationLog Contents `json:"destinationLog"`
	// SourceSum and DestinationSum are set with Options.Checksums.
	SourceSum      *Checksum `json:"sourceSum,omitempty"`
	DestinationSum *Checksum `json:"destinationSum,omitempty"`
	// Error is why the comparison did not come to an end; Equal is false then.
	Error string `json:"error,omitempty"`
}

// Contents counts what one side's log is made of, where it was read.
type Contents struct {
	Bytes         int64            `json:"bytes"` // of the batches below, as stored
	Batches       int64            `json:"batches"`
	Codecs        map[string]int64 `json:"codecs,omitempty"` // batches by compression
	Control       int64            `json:"control,omitempty"`
	Transactional int64            `json:"transactional,omitempty"`
	LogAppendTime int64            `json:"logAppendTime,omitempty"`
	OldFormat     int64            `json:"oldFormat,omitempty"` // messages before format 2; a wrapper is one
	Empty         int64            `json:"empty,omitempty"`     // batches whose records compaction has taken
	Phantoms      int64            `json:"phantoms,omitempty"`  // fillers of ours, as records
}

// String is one line for a person.
func (r Report) String() string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("%v %v: not compared: %s", r.Partition, r.Compared, r.Error)
	case r.Shift != nil:
		return fmt.Sprintf("%v %v: %d differences, %d records equal; %v", r.Partition, r.Compared, r.Different, r.Records, r.Shift)
	case !r.Equal:
		return fmt.Sprintf("%v %v: %d differences, %d records equal; %v", r.Partition, r.Compared, r.Different, r.Records, r.Differences[0])
	case !r.EndsEqual:
		return fmt.Sprintf("%v %v: %d records equal; source is [%d,%d), destination [%d,%d)", r.Partition, r.Compared, r.Records,
			r.Source.LogStart, r.Source.HighWatermark, r.Destination.LogStart, r.Destination.HighWatermark)
	}
	return fmt.Sprintf("%v %v: %d records equal", r.Partition, r.Compared, r.Records)
}
