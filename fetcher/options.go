package fetcher

import (
	"cmp"
	"log/slog"
	"time"
)

// Options tune a Fetcher. The zero value is ready for use.
type Options struct {
	// MaxWait is how long a broker may hold an empty answer. Default: 500 ms.
	MaxWait time.Duration
	// PartitionBytes is asked for of each partition at first; it grows with the
	// round trip. Default: 1 MiB.
	PartitionBytes int32
	// ResponseBytes bounds one answer; it grows with the round trip.
	// Default: 4 MiB.
	ResponseBytes int32
	// BudgetBytes bounds the memory of all answers that have not been appended.
	// Default: 256 MiB.
	BudgetBytes int64
	// BackoffMin and BackoffMax bound the waiting of a partition or a broker after
	// errors in a row. Default: 100 ms and 3 s.
	BackoffMin, BackoffMax time.Duration
	// RetryBudget is how long errors in a row are the fetcher's own affair; after
	// it the partition is reported as failed. Default: 5 min.
	RetryBudget time.Duration
	// CorruptTries is how often a batch is fetched again whose bytes are wrong,
	// before the partition is reported as failed. Default: 5.
	CorruptTries int
	// StallAfter is how long a partition may stand still though the source has
	// more, before it is reported as stalled. Default: 30 s.
	StallAfter time.Duration
	// RetentionGap says what becomes of a partition when the source's retention has
	// deleted records before they were copied. A destination that takes no gaps fails
	// it in any case. Default: RetentionContinue.
	RetentionGap RetentionGap
	// Logger. Default: silent.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxWait = cmp.Or(o.MaxWait, 500*time.Millisecond)
	o.PartitionBytes = cmp.Or(o.PartitionBytes, 1<<20)
	o.ResponseBytes = cmp.Or(o.ResponseBytes, 4<<20)
	o.BudgetBytes = cmp.Or(o.BudgetBytes, 256<<20)
	o.BackoffMin = cmp.Or(o.BackoffMin, 100*time.Millisecond)
	o.BackoffMax = cmp.Or(o.BackoffMax, 3*time.Second)
	o.RetryBudget = cmp.Or(o.RetryBudget, 5*time.Minute)
	o.CorruptTries = cmp.Or(o.CorruptTries, 5)
	o.StallAfter = cmp.Or(o.StallAfter, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// RetentionGap says what to do when the source's retention ran ahead.
type RetentionGap int

const (
	// RetentionContinue goes on at the source's log start and leaves the gap. Where
	// nothing is left in the source's log, the destination's stays where it ends until
	// there is something again: no log can be made to end higher without a record.
	RetentionContinue RetentionGap = iota
	// RetentionFail stops the partition with cluster.ErrRetention.
	RetentionFail
)
