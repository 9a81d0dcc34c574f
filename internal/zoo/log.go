// Package zoo makes logs that hold everything a Kafka log can hold: every codec,
// kind of producer, end of a transaction, hole of compaction, message format and
// odd record. The same seed makes the same log. What consumers must see is kept
// beside the bytes, by whoever made them up, so that no decoder has to be trusted.
package zoo

import (
	"slices"

	"github.com/clustermirror/mirror/internal/batch"
)

// Options of a log. The zero value is a log of about 200 batches of format 2 from
// offset 0 on, with everything but what is named below.
type Options struct {
	// Batches is how many batches of data there are. Default: 200.
	Batches int
	// Start is the first offset of the first batch.
	Start int64
	// Producers write by turns. Default: 6.
	Producers int
	// MaxValue bounds the largest values, in bytes. Default: 64 KiB.
	MaxValue int
	// OldFormats: the first half of the log is mixed with messages of formats 0 and 1,
	// plain and wrapped. Brokers before 4.0 keep such; a cluster of package memory takes
	// none.
	OldFormats bool
	// Trim moves the log start into a batch: those before are gone, and a part of it.
	Trim bool
	// Settled ends every transaction; otherwise some stay open.
	Settled bool
	// Plain leaves out transactions.
	Plain bool
	// Dense leaves out every hole, also those at the heads and tails of batches.
	Dense bool
	// Produced is a log that clients can write into a real cluster, batch by batch, and
	// that then stands there as it was made: Dense, from offset 0 on, without what only
	// brokers set in batches. Producers with transactions write nothing outside of them.
	Produced bool
	// Keyed leaves out null keys, which compacted topics refuse.
	Keyed bool
	// Tame leaves out odd timestamps, which keep segments from being rolled and deleted.
	Tame bool
}

func (o Options) withDefaults() Options {
	if o.Batches <= 0 {
		o.Batches = 200
	}
	if o.Producers <= 0 {
		o.Producers = 6
	}
	if o.MaxValue <= 0 {
		o.MaxValue = 64 << 10
	}
	o.Dense = o.Dense || o.Produced
	return o
}

// Fate is how a transaction ended.
type Fate string

// The fates.
const (
	Open      Fate = "open"
	Committed Fate = "committed"
	Aborted   Fate = "aborted"
)

// Transaction is what one producer wrote between two markers.
type Transaction struct {
	Producer int64
	Fate     Fate
}

// Batch is one batch, or one message of an old format, as a broker stores it.
type Batch struct {
	Bytes []byte
	Base  int64
	Next  int64 // offset after it
	Says  string
	// Transaction is nil where the batch is in none. Markers have the one they end.
	Transaction *Transaction
	Marker      bool
	// Records are what consumers see who read uncommitted records, from offset Base on.
	Records []batch.Record
}

// Log is one partition.
type Log struct {
	Seed    uint64
	Start   int64 // log start; may be inside the first batch
	End     int64
	Batches []Batch
}

// Bytes are the batches, one in each slice.
func (l *Log) Bytes() [][]byte {
	out := make([][]byte, len(l.Batches))
	for i, b := range l.Batches {
		out[i] = b.Bytes
	}
	return out
}

// LastStable is the first offset of the oldest open transaction, or the end.
func (l *Log) LastStable() int64 {
	for _, b := range l.Batches {
		if t := b.Transaction; t != nil && t.Fate == Open {
			return b.Base
		}
	}
	return l.End
}

// Visible is what a consumer must read from the log start on: all records, or, if it
// reads committed ones, those below the last stable offset that were not aborted.
func (l *Log) Visible(committed bool) []batch.Record {
	var out []batch.Record
	stable := l.LastStable()
	for _, b := range l.Batches {
		if committed && (b.Base >= stable || b.Transaction != nil && b.Transaction.Fate != Committed) {
			continue
		}
		for _, r := range b.Records {
			if r.Offset >= l.Start {
				out = append(out, r)
			}
		}
	}
	return out
}

// Offsets are those of the records that Visible gives: what else there is up to End
// is a hole to the consumer.
func (l *Log) Offsets(committed bool) []int64 {
	var out []int64
	for _, r := range l.Visible(committed) {
		out = append(out, r.Offset)
	}
	return out
}

// trim moves the log start into the middle of a batch in the first third.
func (l *Log) trim(g *generator) {
	i := 1 + g.r.IntN(max(1, len(l.Batches)/3))
	for ; i < len(l.Batches); i++ {
		if b := l.Batches[i]; len(b.Records) > 1 {
			l.Start = b.Records[len(b.Records)/2].Offset
			l.Batches = slices.Delete(l.Batches, 0, i)
			return
		}
	}
}
