package fetcher

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// destination is a Log in memory with compare-and-append, and faults on demand.
type destination struct {
	filling time.Duration // that StartAt takes
	fills   func() int64  // how far it is with a hole; nil: it does not say
	t       testing.TB
	mu      sync.Mutex
	traits  Traits
	logs    map[cluster.Partition]*destinationLog
	wg      sync.WaitGroup

	endsCalls int
	endsErr   error
	trims     []Cut
	trimErr   error
	started   []int64 // StartAt
	fenced    bool    // accept no append: Remove has returned
}

type destinationLog struct {
	start, end int64
	high       int64 // -1: the end
	batches    []sourceBatch
	landed     map[int64]int // appends by base offset
	gone       map[int64]bool
	refusing   bool // after an error, until Ends
	queue      []*appending
	working    bool
	delay      time.Duration
	faults     []fault
	silent     bool // never answers
	stopped    bool
	endErr     error
	endsLeft   int // Ends that answer endErr; -1: all
	misplaced  int // appends at another offset than the end
	forbidden  bool
	handed     int // batches handed over
	ours       bool
	topic      cluster.TopicID
	leader     int32 // epoch
	waiting    int64 // bytes handed over, not answered
	mostWaits  int64
}

// A fault is the outcome of one append.
type fault struct {
	err   error
	lands bool // the batches land all the same
	// torn: the last of them only up to one of its records
	torn bool
}

type appending struct {
	batches  []cluster.Batch
	free     func()
	done     func(Result)
	answered bool
}

func newDestination(t testing.TB) *destination {
	return &destination{t: t, logs: map[cluster.Partition]*destinationLog{}, traits: Traits{}}
}

// log holds the lock.
func (d *destination) log(p cluster.Partition) *destinationLog {
	if d.logs[p] == nil {
		d.logs[p] = &destinationLog{high: -1, landed: map[int64]int{}, gone: map[int64]bool{}}
	}
	return d.logs[p]
}

func (d *destination) with(p cluster.Partition, change func(*destinationLog)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d.log(p))
}

func (d *destination) end(p cluster.Partition) (end int64) {
	d.with(p, func(l *destinationLog) { end = l.end })
	return end
}

// asked is how often Ends was called.
func (d *destination) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.endsCalls
}

func (d *destination) Traits() Traits { return d.traits }

func (d *destination) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(Result)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.log(p)
	if l.forbidden {
		d.t.Errorf("%v: appended after Remove has returned", p)
	}
	for _, b := range batches {
		l.waiting += int64(len(b.Bytes))
		if b.Hole() && d.traits.Fills {
			continue
		}
		h := batch.Header(b.Bytes)
		err := h.Check()
		if h.Magic() < 2 && d.traits.OldFormats {
			_, _, err = h.Old()
		}
		if err != nil {
			d.t.Errorf("%v: handed over: %v", p, err)
		}
	}
	l.mostWaits = max(l.mostWaits, l.waiting)
	l.handed += len(batches)
	l.queue = append(l.queue, &appending{batches: batches, free: free, done: done})
	if !l.working {
		l.working = true
		d.wg.Go(func() { d.work(p, l) })
	}
}

// work answers the appends of a partition in their order.
func (d *destination) work(p cluster.Partition, l *destinationLog) {
	for {
		d.mu.Lock()
		if l.silent || len(l.queue) == 0 {
			l.working = false
			d.mu.Unlock()
			return
		}
		a, delay := l.queue[0], l.delay
		d.mu.Unlock()
		if delay > 0 {
			<-time.After(delay)
		}
		d.mu.Lock()
		if a.answered { // forgotten by Ends
			d.mu.Unlock()
			continue
		}
		l.queue = l.queue[1:]
		res := l.decide(p, a, d.traits.Gaps && !d.traits.Fills)
		d.mu.Unlock()
		a.end(res)
	}
}

// end gives the bytes back and tells the outcome, in an order that nobody may
// rely on.
func (a *appending) end(res Result) {
	if res.Next%2 == 0 {
		a.done(res)
		a.free()
		return
	}
	a.free()
	a.done(res)
}

// decide appends or not. It holds the lock.
func (l *destinationLog) decide(p cluster.Partition, a *appending, gaps bool) Result {
	l.settle(a)
	res := Result{Partition: p, Next: l.end}
	if l.refusing {
		res.Err = cluster.ErrOutOfOrder
		return res
	}
	var f fault
	if len(l.faults) > 0 {
		f, l.faults = l.faults[0], l.faults[1:]
	}
	if f.err == nil || f.lands {
		for _, b := range a.batches {
			if b.Base != l.end && (b.Base < l.end || !gaps) {
				l.misplaced++
				l.refusing = true
				res.Err = cluster.ErrOutOfOrder
				return res
			}
			if f.torn && b.Base == a.batches[len(a.batches)-1].Base {
				l.tear(b)
				break
			}
			l.batches = append(l.batches, sourceBatch{b.Base, b.Next, b.Epoch, slices.Clone(b.Bytes)})
			l.landed[b.Base]++
			l.gone[b.Base] = b.Gone
			l.end, l.ours = b.Next, true
			if f.err == nil {
				res.Batches, res.Next = res.Batches+1, b.Next
			}
		}
	}
	res.Err = f.err
	l.refusing = f.err != nil
	return res
}

func (l *destinationLog) settle(a *appending) {
	a.answered = true
	for _, b := range a.batches {
		l.waiting -= int64(len(b.Bytes))
	}
}

func (d *destination) Ends(ctx context.Context, stretches []Stretch) ([]End, error) {
	d.mu.Lock()
	d.endsCalls++
	if d.endsErr != nil || ctx.Err() != nil {
		defer d.mu.Unlock()
		if d.endsErr != nil {
			return nil, d.endsErr
		}
		return nil, ctx.Err()
	}
	var forgotten []func()
	out := make([]End, len(stretches))
	for i, s := range stretches {
		l := d.log(s.Partition)
		for _, a := range l.queue {
			l.settle(a)
			res := Result{Partition: s.Partition, Next: l.end, Err: cluster.ErrTimeout}
			forgotten = append(forgotten, func() { a.end(res) })
		}
		l.queue, l.refusing = nil, false
		out[i] = End{LogStart: l.start, LogEnd: l.end, HighWatermark: l.end, Stopped: l.stopped, Ours: l.ours, TopicID: l.topic, LeaderEpoch: l.leader}
		if s.New {
			l.stopped = false
			out[i].Stopped = false
		}
		if l.high >= 0 {
			out[i].HighWatermark = l.high
		}
		if l.endErr != nil && l.endsLeft != 0 {
			l.endsLeft--
			out[i].Err = l.endErr
		}
	}
	d.mu.Unlock()
	for _, done := range forgotten {
		done()
	}
	return out, nil
}

func (d *destination) Truncate(context.Context, []Cut) []error { return nil }

func (d *destination) Trim(_ context.Context, cuts []Cut) []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := make([]error, len(cuts))
	for i, c := range cuts {
		errs[i] = d.trimErr
		if d.trimErr == nil {
			d.trims = append(d.trims, c)
			l := d.log(c.Partition)
			l.start = max(l.start, min(c.Offset, l.end))
		}
	}
	return errs
}

// StartAt makes destination a Starter.
func (d *destination) StartAt(ctx context.Context, s Stretch, offset int64, progress func(int64)) error {
	progress(offset)
	if d.filling > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d.filling):
		}
	}
	d.with(s.Partition, func(l *destinationLog) { l.start, l.end = offset, offset })
	d.started = append(d.started, offset)
	return nil
}

// Filling makes destination a Filler.
func (d *destination) Filling(cluster.Partition) (Filling, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fills == nil {
		return Filling{}, false
	}
	return Filling{At: d.fills()}, true
}

func (d *destination) Read(_ context.Context, p cluster.Partition, offset int64, _ int32) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.log(p).batches {
		switch {
		case b.next <= offset:
		case b.bytes == nil: // a hole
			return filler(b.base, b.next), nil
		case d.traits.Fills:
			return ordinary(b.bytes), nil
		default:
			return b.bytes, nil
		}
	}
	return nil, nil
}

// answer has a silent partition answered again.
func (d *destination) answer(p cluster.Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.log(p)
	l.silent = false
	if !l.working {
		l.working = true
		d.wg.Go(func() { d.work(p, l) })
	}
}

// close answers what is still open and waits for it.
func (d *destination) close() {
	d.mu.Lock()
	var ps []cluster.Partition
	for p := range d.logs {
		ps = append(ps, p)
	}
	d.mu.Unlock()
	for _, p := range ps {
		d.answer(p)
	}
	d.wg.Wait()
}

// tear appends a batch up to its second record only, as a destination does that takes
// batches apart and is stopped between two pieces.
func (l *destinationLog) tear(b cluster.Batch) {
	to, bytes := b.Base+(b.Next-b.Base)/2, []byte(nil)
	if !b.Hole() {
		var rs []batch.Record
		if err := batch.Decode(b.Bytes, func(r batch.Record) error {
			if r.Offset < to {
				r.Key, r.Value = slices.Clone(r.Key), slices.Clone(r.Value)
				rs = append(rs, r)
			}
			return nil
		}); err != nil {
			panic(err)
		}
		bytes = batch.Encode(batch.Spec{Base: b.Base, LeaderEpoch: b.Epoch, Records: rs, Next: to})
	}
	if to > b.Base {
		l.batches = append(l.batches, sourceBatch{b.Base, to, b.Epoch, bytes})
		l.end, l.ours = to, true
	}
}
