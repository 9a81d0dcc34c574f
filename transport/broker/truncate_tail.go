package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/metalog"
)

// tail reads the end of a log from a replica that has it, and takes down what it was.
type tail struct {
	m       *Membership
	name    cluster.Partition
	id      metalog.PartitionID
	replica int32
	span    cluster.Span // left to be read
	found   tailFound
}

// tailFound is what stands in a tail.
type tailFound struct {
	batches, bytes int64
	began, ended   map[int64]bool // transactions that have their first record there, and their marker
	without        map[int64]bool // a marker, and no record before it
}

// add takes in whole batches.
func (f *tailFound) add(b []byte) {
	for w := batch.Walk(b); w.Next(); {
		h := w.Header()
		f.batches, f.bytes = f.batches+1, f.bytes+int64(len(h))
		if h.Magic() != 2 || !h.Transactional() {
			continue
		}
		if f.began == nil {
			f.began, f.ended, f.without = make(map[int64]bool), make(map[int64]bool), make(map[int64]bool)
		}
		id := h.ProducerID()
		first := !f.began[id] && !f.ended[id]
		switch {
		case h.Control():
			f.without[id] = f.without[id] || first
			f.ended[id] = true
		case first:
			f.began[id] = true
		}
	}
}

// surely are transactions that begin before the tail.
func (f *tailFound) surely() map[int64]bool {
	out := make(map[int64]bool)
	for id, is := range f.without {
		if is {
			out[id] = true
		}
	}
	return out
}

// doubtful are transactions of which only the log before the tail tells where they begin.
func (f *tailFound) doubtful() map[int64]bool {
	out := make(map[int64]bool)
	for id := range f.began {
		if f.ended[id] && !f.without[id] {
			out[id] = true
		}
	}
	return out
}

// running keeps of producers that are in the middle of a transaction behind batches where
// it begins.
func running(now map[int64]int64, b []byte, before int64) {
	for w := batch.Walk(b); w.Next(); {
		h := w.Header()
		if h.Magic() != 2 || !h.Transactional() || h.Base() >= before {
			continue
		}
		if id := h.ProducerID(); h.Control() {
			delete(now, id)
		} else if _, ok := now[id]; !ok {
			now[id] = h.Base()
		}
	}
}

const (
	// tailPiece is read of a tail at a time.
	tailPiece = 1 << 20
	// lookBack is how many offsets before a tail are looked into for transactions.
	lookBack = 5000
)

// next reads a piece, nil at the end of the span. What is not below the replica's high
// watermark yet is waited for, for patience.
func (t *tail) next(ctx context.Context) ([]byte, error) {
	for deadline := time.Now().Add(patience); t.span.Len() > 0; {
		b, mark, err := t.m.readReplica(ctx, t.replica, lackingPiece{topic: t.id.Topic, name: t.name, offset: t.span.From, max: tailPiece})
		if err != nil {
			return nil, fmt.Errorf("%v: reading offset %d from broker %d: %w", t.name, t.span.From, t.replica, err)
		}
		if some := whole(b, t.span.From, t.span.To); some != nil {
			t.span.From = endOf(some)
			t.found.add(some)
			return some, nil
		}
		switch {
		case mark >= t.span.To: // the rest are holes
			t.span.From = t.span.To
		case !time.Now().Before(deadline):
			return nil, fmt.Errorf("%v: %w: broker %d gives offset %d to nobody yet: its high watermark is %d", t.name, cluster.ErrUnavailable, t.replica, t.span.From, mark)
		default:
			pause(ctx, stepLook)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

// endOf is the offset behind the last of whole batches.
func endOf(b []byte) (next int64) {
	for w := batch.Walk(b); w.Next(); {
		h := w.Header()
		if next = h.Base() + 1; h.Magic() == 2 {
			next = h.Next()
		}
	}
	return next
}

// errUnread: whoever saves a tail has to have read it.
var errUnread = errors.New("the tail was not read to its end")

// save hands the tail to whoever keeps it, or reads it for what it is.
func (t *tail) save(ctx context.Context, salvage func(context.Context, cluster.Partition, cluster.Span, iter.Seq2[[]byte, error]) error) error {
	if t.span.Len() == 0 {
		return nil
	}
	if salvage == nil {
		for {
			if b, err := t.next(ctx); b == nil || err != nil {
				return err
			}
		}
	}
	span := t.span
	var wrong error
	err := salvage(ctx, t.name, span, func(yield func([]byte, error) bool) {
		for {
			b, err := t.next(ctx)
			if wrong = err; err != nil {
				yield(nil, err)
				return
			}
			if b == nil || !yield(slices.Clip(b), nil) {
				return
			}
		}
	})
	if err == nil && wrong == nil && t.span.Len() > 0 {
		err = errUnread
	}
	if err = errors.Join(err, wrong); err != nil {
		return fmt.Errorf("%v: saving offsets %v: %w", t.name, span, err)
	}
	return nil
}

// opened are the producers of transactions that the tail ends and the log before it
// begins, and where the first of them begins. Missed: not all were found there.
type opened struct {
	producers []int64
	first     int64
	missed    bool
}

// opened looks for transactions from an offset on.
func (t *tail) opened(ctx context.Context, from, at int64) (o opened, err error) {
	doubtful, surely := t.found.doubtful(), t.found.surely()
	if len(doubtful)+len(surely) == 0 {
		return o, nil
	}
	now := make(map[int64]int64)
	before := &tail{m: t.m, name: t.name, id: t.id, replica: t.replica, span: cluster.Span{From: from, To: at}}
	for {
		b, err := before.next(ctx)
		if err != nil {
			return o, err
		}
		if b == nil {
			break
		}
		running(now, b, at)
	}
	return openedBy(surely, doubtful, now, at), nil
}

// openedBy is pure. now is where transactions begin that are under way at the tail.
func openedBy(surely, doubtful map[int64]bool, now map[int64]int64, at int64) opened {
	o := opened{first: at}
	for id := range surely {
		first, ok := now[id]
		o.producers = append(o.producers, id)
		if o.missed = o.missed || !ok; ok {
			o.first = min(o.first, first)
		}
	}
	for id := range doubtful {
		if first, ok := now[id]; ok {
			o.producers, o.first = append(o.producers, id), min(o.first, first)
		}
	}
	slices.Sort(o.producers)
	return o
}
