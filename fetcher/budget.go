package fetcher

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

const (
	leastShare = 64 << 10 // bytes that a partition or an answer may always have
	mostShare  = 32 << 20

	// nearBytes is what all partitions together may have in flight on short ways, and
	// leastNear what each of many may. More would not be faster there, and the bytes
	// would have left the processor's caches before they are written: with 16 partitions of
	// 4 MiB each a copy took a quarter more processor time.
	nearBytes = 32 << 20
	leastNear = 256 << 10
)

// A budget bounds the memory of answers: what is reserved for those that are
// waited for, and what has arrived and was not given back. One answer may be
// larger than it was asked to be (a first batch is never cut); what exceeds the
// budget then is not waited for, since waiting while holding could deadlock.
type budget struct {
	total int64
	free  *semaphore.Weighted
	used  atomic.Int64 // bytes of what has arrived
}

func newBudget(total int64) *budget {
	return &budget{total: total, free: semaphore.NewWeighted(total)}
}

// reserve waits for room for an answer of n bytes.
func (b *budget) reserve(ctx context.Context, n int64) error { return b.free.Acquire(ctx, n) }

// keep turns a reservation into the size of what arrived and answers how much is
// to be given back by drop.
func (b *budget) keep(reserved, size int64) int64 {
	held := min(size, reserved)
	if over := size - reserved; over > 0 && b.free.TryAcquire(over) {
		held = size
	} else {
		b.free.Release(reserved - held)
	}
	b.used.Add(held)
	return held
}

// extra takes n bytes more if they are there.
func (b *budget) extra(n int64) bool {
	if !b.free.TryAcquire(n) {
		return false
	}
	b.used.Add(n)
	return true
}

// take waits for n bytes, all there are at most, and answers how much is to be given back.
func (b *budget) take(ctx context.Context, n int64) (int64, error) {
	n = min(n, b.total)
	if err := b.free.Acquire(ctx, n); err != nil {
		return 0, err
	}
	b.used.Add(n)
	return n, nil
}

func (b *budget) drop(held int64) {
	b.used.Add(-held)
	b.free.Release(held)
}

// tight reports that half of the budget is waiting for the destination. From
// then on partitions have small shares, and what they hold is copied out of the
// answers it arrived in, so that those that wait for a dead broker cannot hold
// the memory that the others need (I10).
func (b *budget) tight() bool { return 2*b.used.Load() >= b.total }

// A share is how many bytes of one partition may be in flight.
type share struct {
	most int64 // on the longest way
	near int64 // on a short one
}

// share is that of one of n partitions, of which busy have something in flight. In
// tight times all partitions together may add a quarter of the budget.
func (b *budget) share(n, busy int64) share {
	near := max(nearBytes/max(busy, 1), leastNear)
	if b.tight() {
		return share{most: max(b.total/(4*max(n, 1)), leastShare), near: near}
	}
	return share{most: min(max(b.total/4, leastShare), mostShare), near: near}
}

// bound is how many bytes one answer may have: n sessions together wait with at
// most half of what is free.
func (b *budget) bound(want int32, n int64) int32 {
	most := max((b.total-b.used.Load())/(2*max(n, 1)), leastShare)
	return int32(min(int64(want), most, b.total))
}
