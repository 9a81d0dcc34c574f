package kafka

import (
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

// The acks of a produce request.
const (
	acksLeader = int16(1)
	acksAll    = int16(-1)
)

// laneFlight bounds the requests under way for one partition; on short ways the
// pipe's bounds are lower.
const laneFlight = 512

// lane is the way of one partition's batches to its leader. Runs are queued in
// order, batches are sent in order, and after the first thing that goes wrong
// nothing is sent until Ends begins anew.
//
// Its mutex is never held while anything waits or a caller's function runs.
type lane struct {
	p cluster.Partition

	mu     sync.Mutex
	broker int32
	id     int64 // producer id of the stretch; 0: Ends has not begun one
	topic  cluster.TopicID
	// proven: a batch of this stretch is below the high watermark, so that every
	// leader to come knows the id and refuses what is out of place. Until then
	// acks=all and one batch at a time.
	proven bool
	expiry time.Duration

	err        error // why nothing more is sent
	runs       []*run
	unsent     int       // index in runs of the first with an unsent batch
	inflight   int       // batches sent and not answered
	delivering int       // results being handed out
	acks       int16     // of the batches under way
	queued     *pipe     // the pipe in whose list the lane stands
	looked     time.Time // when the log end was last known to be end
	looking    bool      // a glance, a preparation or a filling is under way

	fills bool  // what the source has no records for may be appended (Config.GapFill)
	shift int64 // how far the sequence of the stretch is behind the offset: see verdict
	// sequenced: batches with the stretch's id have been sent, so that markers from now
	// on add to shift.
	sequenced bool
	marks     markIDs
	turn      turn
	doubtful  int64 // markers that may have landed
	refusing  bool  // runs are refused, what was queued before goes on
	stamp     int64 // timestamp of the last batch queued or found, what fills a gap behind it carries it too
	fill      *topicFill
	filled    filling // of the holes, the last part that has landed
	starting  filling // of StartAt, while it is at work
	startTo   int64   // where that ends; 0: it is not

	tail      int64 // after the last queued batch
	end       int64 // after the last batch known to have landed
	unknownTo int64 // batches up to here may have landed
	seen      int64 // log end when another writer was last suspected; -1: not suspected
	displaced cluster.Span
	waiters   []chan struct{} // closed when the lane is idle
}

// run is one Append.
type run struct {
	batches []cluster.Batch // to be sent; a hole among them is filled with markers
	prep    *preparation    // what has to be made fit to be sent before it joins batches; nil for most runs
	free    func()          // nil: called, the pipe's to call, or nobody waits for it
	done    func(fetcher.Result)
	sent    int
	flying  int
	landed  int
	err     error
	errAt   int64 // base of the batch err is about: the lowest counts
	shifted bool  // one of its batches was displaced
}

var runPool = sync.Pool{New: func() any { return new(run) }}

func newRun(batches []cluster.Batch, free func(), done func(fetcher.Result)) *run {
	r := runPool.Get().(*run)
	kept := append(r.batches[:0], batches...)
	*r = run{batches: kept, free: free, done: done}
	return r
}

func (r *run) recycle() {
	clear(r.batches)
	r.free, r.done, r.prep = nil, nil, nil
	runPool.Put(r)
}

// whole: everything of the run is in batches.
func (r *run) whole() bool { return r.prep == nil || r.prep.done() }

// at is where what is to be sent next begins.
func (r *run) at() int64 {
	if r.sent < len(r.batches) {
		return r.batches[r.sent].Base
	}
	return r.prep.next
}

// delivery is a result on its way to the caller, made outside of the lock.
type delivery struct {
	free   func()
	done   func(fetcher.Result)
	result fetcher.Result
}

func (d *delivery) hand() {
	if d.free != nil {
		d.free()
	}
	d.done(d.result)
}

// push queues a run, or says why not.
func (l *lane) push(batches []cluster.Batch, free func(), done func(fetcher.Result)) error {
	if l.id == 0 || l.err != nil || l.refusing {
		return fmt.Errorf("%w: the log end has to be read again first", cluster.ErrOutOfOrder)
	}
	next, special := l.tail, false
	for i := range batches {
		b := &batches[i]
		as, err := l.admit(b, next)
		if err != nil {
			l.refusing = true
			return err
		}
		special = special || as == prepared
		next = b.Next
	}
	r := newRun(batches, free, done)
	if special {
		r.prepare(l.tail, l.stamp)
	}
	for i := len(batches) - 1; i >= 0; i-- {
		if !batches[i].Hole() {
			l.stamp = batches[i].MaxTimestamp
			break
		}
	}
	l.tail = next
	l.runs = append(l.runs, r)
	return nil
}

// next is the batch to send now and the acks it needs; nil when there is none, or
// when it has to wait for what is under way. A run without a batch has to be prepared
// further; a hole is for markers, and the lane is idle then.
func (l *lane) next(now time.Time) (r *run, b *cluster.Batch, acks int16) {
	if l.err != nil || l.unsent == len(l.runs) || l.inflight >= laneFlight || l.looking {
		return nil, nil, 0
	}
	r = l.runs[l.unsent]
	if r.sent == len(r.batches) {
		return r, nil, 0
	}
	b = &r.batches[r.sent]
	acks = acksLeader
	if !l.proven || now.Sub(time.UnixMilli(b.MaxTimestamp)) > l.expiry {
		acks = acksAll
	}
	idle := l.inflight == 0 && l.delivering == 0
	if !idle && (!l.proven || acks != l.acks || b.Hole()) {
		return nil, nil, 0
	}
	return r, b, acks
}

// take marks a batch as sent and makes it fit for the destination. With the last
// of its run it hands out what to call once that batch has been written.
func (l *lane) take(r *run, b *cluster.Batch, acks int16) (free func()) {
	batch.Header(b.Bytes).Patch(batch.Patch{
		Base: 0, LeaderEpoch: cluster.NoEpoch, ProducerID: l.id, ProducerEpoch: 0,
		BaseSequence: sequence(b.Base - l.shift), ClearAttributes: batch.AttrTransactional,
	})
	l.acks, l.sequenced = acks, true
	l.inflight++
	r.flying++
	r.sent++
	return l.advance(r)
}

// advance goes on to the next run when nothing of this one is left to be sent, and
// then hands out what gives its bytes back.
func (l *lane) advance(r *run) (free func()) {
	if r.sent == len(r.batches) && r.whole() {
		l.unsent++
		free, r.free = r.free, nil
	}
	return free
}

// outcome is what became of one batch.
type outcome struct {
	base      int64 // where it stands in the log
	sent      time.Time
	duplicate bool // it stood there already: another worker's, or a request of ours whose answer was lost
	err       error
	unknown   bool // with err: it may have landed, or may land yet
}

// settle notes the outcome of a batch that was taken.
func (l *lane) settle(r *run, base, next int64, o outcome) {
	l.inflight--
	r.flying--
	switch {
	case o.err != nil:
		if o.unknown {
			l.unknownTo = max(l.unknownTo, next)
		}
		l.fail(r, base, l.misfilled(r, o.err))
	case o.base != base:
		l.displace(r, base, cluster.Span{From: o.base, To: o.base + next - base})
	case o.duplicate && next > l.unknownTo:
		l.fail(r, base, &cluster.OffsetError{Partition: l.p, Span: cluster.Span{From: base, To: next}, Err: cluster.ErrFenced,
			Detail: "another worker appended the same batch before"})
	case l.err != nil:
		l.unknownTo = max(l.unknownTo, next)
	default:
		r.landed++
		l.end = next
		if r.fills(base) {
			l.filled.add(base, next, o.sent, time.Now())
		}
		if o.sent.After(l.looked) {
			l.looked = o.sent
		}
		l.proven = l.proven || l.acks == acksAll
	}
}

func (l *lane) fail(r *run, base int64, err error) {
	if r.err == nil || base < r.errAt {
		r.err, r.errAt = err, base
	}
	if l.err == nil {
		l.err = err
	}
}

func (l *lane) displace(r *run, base int64, where cluster.Span) {
	if l.displaced.Len() == 0 {
		l.displaced = where
	}
	l.displaced = cluster.Span{From: min(l.displaced.From, where.From), To: max(l.displaced.To, where.To)}
	r.shifted = true
	l.fail(r, base, cluster.ErrDisplaced)
}

// deliver moves what can be answered now to out: complete runs, and after a
// failure all of them at once, as soon as nothing is under way that still uses
// their bytes or could widen a displaced span.
func (l *lane) deliver(out []delivery) []delivery {
	if l.err != nil && (l.inflight > 0 || l.looking) {
		return out
	}
	n := 0
	for ; n < len(l.runs); n++ {
		r := l.runs[n]
		if l.err == nil && !r.complete() {
			break
		}
		out = append(out, delivery{r.free, r.done, l.result(r)})
		r.recycle()
	}
	if n > 0 {
		kept := copy(l.runs, l.runs[n:])
		clear(l.runs[kept:])
		l.runs = l.runs[:kept]
		l.unsent = max(0, l.unsent-n)
		l.delivering++
	}
	return out
}

// complete: all of it has landed.
func (r *run) complete() bool { return r.landed == len(r.batches) && r.whole() }

func (l *lane) result(r *run) fetcher.Result {
	res := fetcher.Result{Partition: l.p, Next: l.end, Batches: r.landed}
	if r.prep != nil {
		res.Batches = r.prep.below(l.end)
	}
	switch {
	case r.complete():
	case r.shifted:
		res.Err = &cluster.OffsetError{Partition: l.p, Span: l.displaced, Err: cluster.ErrDisplaced,
			Detail: fmt.Sprintf("belongs at %d", r.errAt)}
	case r.err != nil:
		res.Err = at(l.p, r.err)
	default:
		res.Err = fmt.Errorf("%w: an earlier batch failed: %w", cluster.ErrOutOfOrder, l.err)
	}
	return res
}

// idle wakes who waits for the lane to have nothing under way.
func (l *lane) idle() bool {
	if l.inflight > 0 || l.delivering > 0 || len(l.runs) > 0 || l.looking {
		return false
	}
	for _, w := range l.waiters {
		close(w)
	}
	l.waiters = nil
	return true
}
