package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Produce is sent in exactly one version, the first with compact framing. Kafka
// 2.8 and later know it, and it names topics.
const (
	produceKey     = int16(kmsg.Produce)
	produceVersion = int16(9)
)

var errOldBroker = fmt.Errorf("%w: the broker does not know produce version %d", errors.ErrUnsupported, produceVersion)

// item is one batch in a request.
type item struct {
	lane       *lane
	run        *run
	base, next int64
	stamp      int64 // largest timestamp
	sent       time.Time
	bytes      []byte // good until the request is written
	size       int
	crc        uint32 // of the batch as it was sent
}

// request is one produce request under way. Its framing is laid out by hand around
// the batches, which are written from where they were fetched.
type request struct {
	pipe   *pipe
	items  []item // by partition, as their answers are looked up
	began  time.Time
	size   int    // bytes of the batches
	frame  []byte // all framing
	cuts   []int  // where in frame the batches go
	bufs   net.Buffers
	call   wire.Call
	answer kmsg.ProduceResponse
}

var requestPool = sync.Pool{New: func() any { return new(request) }}

func newRequest(p *pipe) *request {
	r := requestPool.Get().(*request)
	if r.call.Done == nil {
		r.call = wire.Call{Key: produceKey, Version: produceVersion, Flexible: true, Done: r.done}
	}
	r.pipe, r.began = p, time.Now()
	return r
}

func (r *request) free() {
	clear(r.items)
	clear(r.bufs[:cap(r.bufs)])
	r.pipe, r.items, r.size, r.frame, r.cuts = nil, r.items[:0], 0, r.frame[:0], r.cuts[:0]
	r.call.Body = nil
	requestPool.Put(r)
}

// add takes a batch from the lane if its next one is to be sent here, and reports
// whether the lane has more for this pipe. A lane whose leader or acks changed
// while it stood in the list goes to the other pipe.
func (r *request) add(l *lane) (more bool) {
	p := r.pipe
	l.mu.Lock()
	l.queued = nil
	run, b, acks := l.next(r.began)
	if b != nil && !b.Hole() && (pipeKey{l.broker, acks}) == p.key && !l.resting(r.began) {
		if free := l.take(run, b, acks); free != nil {
			p.written = append(p.written, free)
		}
		r.items = append(r.items, item{l, run, b.Base, b.Next, b.MaxTimestamp, r.began, b.Bytes, len(b.Bytes), batch.Header(b.Bytes).CRC()})
		r.size += len(b.Bytes)
		if run, b, acks = l.next(r.began); b != nil && !b.Hole() && acks == p.key.acks {
			l.queued = p
			l.mu.Unlock()
			return true
		}
	}
	l.mu.Unlock()
	if run != nil {
		p.c.wake(l)
	}
	return false
}

// lay writes the framing: ProduceRequest version 9.
func (r *request) lay() {
	slices.SortFunc(r.items, func(a, b item) int { return a.lane.p.Compare(b.lane.p) })
	timeout := r.pipe.c.cfg.RequestTimeout
	f := append(r.frame[:0], 0) // transactional id: null
	f = binary.BigEndian.AppendUint16(f, uint16(r.pipe.key.acks))
	f = binary.BigEndian.AppendUint32(f, uint32((timeout - timeout/4).Milliseconds()))
	f = binary.AppendUvarint(f, uint64(r.countTopics(0, len(r.items)))+1)
	for i := 0; i < len(r.items); {
		topic := r.items[i].lane.p.Topic
		n := r.countPartitions(i)
		f = binary.AppendUvarint(f, uint64(len(topic))+1)
		f = append(f, topic...)
		f = binary.AppendUvarint(f, uint64(n)+1)
		for ; n > 0; n-- {
			it := &r.items[i]
			f = binary.BigEndian.AppendUint32(f, uint32(it.lane.p.Partition))
			f = binary.AppendUvarint(f, uint64(len(it.bytes))+1)
			r.cuts = append(r.cuts, len(f))
			f = append(f, 0) // no tags
			i++
		}
		f = append(f, 0)
	}
	r.frame = append(f, 0)

	bufs, from := r.bufs[:0], 0
	for i, cut := range r.cuts {
		bufs = append(bufs, r.frame[from:cut], r.items[i].bytes)
		from = cut
	}
	r.bufs = append(bufs, r.frame[from:])
	r.call.Body, r.call.Timeout = r.bufs, timeout
}

func (r *request) countTopics(from, to int) (n int) {
	for i := from; i < to; i++ {
		if i == 0 || r.items[i].lane.p.Topic != r.items[i-1].lane.p.Topic {
			n++
		}
	}
	return n
}

func (r *request) countPartitions(from int) int {
	to := from + 1
	for to < len(r.items) && r.items[to].lane.p.Topic == r.items[from].lane.p.Topic {
		to++
	}
	return to - from
}

// done takes the answer, or the end of the connection.
func (r *request) done(frame *wire.Frame, err error) {
	p, size := r.pipe, r.size
	if err == nil {
		r.answer.Version = produceVersion
		if err = r.answer.UnsafeReadFrom(frame.Bytes()); err != nil {
			err = malformed("produce", err)
		}
	}
	if err != nil {
		lost := outcome{err: err, unknown: !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrUnknownOutcome)}
		for _, it := range r.items {
			p.c.stale(it.lane.p)
			p.c.complete(it.lane, it.run, it.base, it.next, lost)
		}
	} else {
		r.settle()
	}
	if frame != nil {
		frame.Release()
	}
	r.free()
	p.answered(size)
}

// settle gives every item its part of the answer.
func (r *request) settle() {
	c := r.pipe.c
	for i := range r.answer.Topics {
		t := &r.answer.Topics[i]
		for k := range t.Partitions {
			got := &t.Partitions[k]
			name := cluster.Partition{Topic: t.Topic, Partition: got.Partition}
			at, ok := slices.BinarySearchFunc(r.items, name, func(it item, p cluster.Partition) int { return it.lane.p.Compare(p) })
			if !ok || r.items[at].run == nil {
				continue
			}
			it := r.items[at]
			r.items[at].run = nil // answered
			c.landed(it, got)
		}
	}
	for _, it := range r.items {
		if it.run != nil {
			c.complete(it.lane, it.run, it.base, it.next, outcome{err: errMissing, unknown: true})
		}
	}
}
