package memory

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

// stretch is what a partition remembers of being mirrored.
type stretch struct {
	mirror  string
	owner   *Client // who asked Ends last; nil: nobody
	gen     int64
	acted   bool // something was written, cut or raised for it: it is a mirror topic
	stopped bool
	foreign int64 // first record of others; -1: none
	turn    int32 // highest owner epoch that has asked Ends
	refused int64 // log end at which a worker with a lower one was refused last, plus 1

	// Where only sequences guard the log (Options.Produce):
	next int64    // the sequence that the next batch must have: a source offset
	last []landed // of this stretch, newest last; at most rememberedBatches
}

// landed is a batch of the mirror and where it stands in the log.
type landed struct {
	base, next, at int64
}

// rememberedBatches is by how many batches back a broker recognises a duplicate.
const rememberedBatches = 5

// mirrored reports whether the partition is being mirrored to.
func (p *partition) mirrored() bool { return p.stretch.acted && !p.stretch.stopped }

// act notes that the mirror has changed something.
func (p *partition) act() { p.stretch.acted = p.stretch.mirror != "" }

// lost tells a stretch that the log ends earlier than it did.
func (s *stretch) lost(end int64) {
	if s.foreign >= end {
		s.foreign = -1
	}
	for n := len(s.last); n > 0 && s.last[n-1].at+s.last[n-1].next-s.last[n-1].base > end; n = len(s.last) {
		s.next = s.last[n-1].base
		s.last = s.last[:n-1]
	}
	if len(s.last) == 0 {
		s.next = min(s.next, end)
	}
}

// land appends a run's batches. The first that cannot be appended ends it.
func (r *run) land() {
	l := r.lane
	c := l.cl.c
	p, leader, err := c.leading(l.p)
	if err == nil && p.topic.id != l.topic && r.gen > 0 {
		err = fmt.Errorf("%v: %w: the topic was made anew", l.p, cluster.ErrOutOfOrder)
	}
	if err == nil {
		err = r.mayLand(p)
	}
	end := r.from
	for i := 0; err == nil && i < len(r.batches); i++ {
		b := &r.batches[i]
		if err = c.takes(p, b); err != nil {
			break
		}
		if c.options.Produce {
			err = r.produce(p, leader, b)
		} else {
			err = r.compareAndAppend(p, leader, b, end)
		}
		if err == nil {
			end = b.Next
			r.result.Batches, r.result.Next = i+1, end
		}
	}
	if r.result.Batches > 0 && r.gen == l.gen {
		l.end = end
	}
	if leader != nil {
		c.grown(p)
	}
	r.result.Err = err
}

// mayLand refuses who does not own the stretch.
func (r *run) mayLand(p *partition) error {
	s := &p.stretch
	switch {
	case r.gen == 0:
		return fmt.Errorf("%v: %w: no stretch was begun", p.id, cluster.ErrOutOfOrder)
	case s.stopped:
		return fmt.Errorf("%v: %w: the mirror was stopped", p.id, cluster.ErrFenced)
	case r.lane.cl.c.options.Produce:
		return nil // only sequences are compared
	case s.owner != r.lane.cl:
		return fmt.Errorf("%v: %w", p.id, cluster.ErrFenced)
	case s.gen != r.gen:
		return fmt.Errorf("%v: %w: handed over before the log end was read", p.id, cluster.ErrOutOfOrder)
	}
	return nil
}

// takes refuses what this destination cannot hold as it is.
func (c *Cluster) takes(p *partition, b *cluster.Batch) error {
	at := func(err error, detail string) error {
		return &cluster.OffsetError{Partition: p.id, Span: cluster.Span{From: b.Base, To: b.Next}, Err: err, Detail: detail}
	}
	if b.Hole() {
		if !c.traits.Fills || b.Next <= b.Base {
			return at(cluster.ErrGap, "a hole is handed over")
		}
		return nil
	}
	h := batch.Header(b.Bytes)
	if err := h.Check(); err != nil {
		return at(cluster.ErrCorrupt, err.Error())
	}
	t := c.traits
	switch {
	case h.Base() != b.Base || h.Next() != b.Next:
		return at(cluster.ErrRefused, fmt.Sprintf("the batch's bytes say [%d,%d)", h.Base(), h.Next()))
	case h.Control() && !t.ControlBatches:
		return at(cluster.ErrControlBatch, "")
	case h.Transactional() && !t.ControlBatches && !t.Fills:
		return at(cluster.ErrTransactional, "")
	case h.LogAppendTime() && !t.LogAppendTime:
		return at(cluster.ErrLogAppendTime, "")
	case int64(h.Count()) < b.Next-b.Base && !t.Gaps:
		return at(cluster.ErrGap, fmt.Sprintf("%d records at %d offsets", h.Count(), b.Next-b.Base))
	case c.options.StrictEpochs && t.KeepsEpochs && b.Epoch > p.epoch:
		return at(cluster.ErrLeaderEpoch, fmt.Sprintf("epoch %d is above the partition's, %d", b.Epoch, p.epoch))
	}
	return nil
}

// compareAndAppend appends a batch if the log still ends where the client believes.
func (r *run) compareAndAppend(p *partition, leader *replica, b *cluster.Batch, end int64) error {
	gap := b.Base > end && r.lane.cl.c.traits.Gaps && !r.lane.cl.c.traits.Fills
	if leader.log.end != end || b.Base != end && !gap {
		return r.outOfOrder(p, b, leader.log.end)
	}
	r.put(p, leader, b, b.Base)
	return nil
}

// produce is what a broker does that compares sequences only.
func (r *run) produce(p *partition, leader *replica, b *cluster.Batch) error {
	s := &p.stretch
	if slices.ContainsFunc(s.last, func(l landed) bool { return l.base == b.Base && l.next == b.Next }) {
		if r.done != nil && b.Next <= r.lane.unknown { // our own, from before the log end was read
			return twin(p, leader, b)
		}
		return &cluster.OffsetError{
			Partition: p.id, Span: cluster.Span{From: b.Base, To: b.Next}, Err: cluster.ErrFenced,
			Detail: "another worker appended the same batch before",
		}
	}
	if b.Base != s.next {
		return r.outOfOrder(p, b, leader.log.end)
	}
	at := leader.log.end
	r.put(p, leader, b, at)
	s.next = b.Next
	if len(s.last) == rememberedBatches {
		s.last = slices.Delete(s.last, 0, 1)
	}
	s.last = append(s.last, landed{b.Base, b.Next, at})
	if at != b.Base {
		if s.foreign < 0 {
			s.foreign = min(at, b.Base)
		}
		return &cluster.OffsetError{
			Partition: p.id, Span: cluster.Span{From: at, To: at + b.Next - b.Base}, Err: cluster.ErrDisplaced,
			Detail: fmt.Sprintf("belongs at %d", b.Base),
		}
	}
	return nil
}

// twin compares a duplicate with what stands there: the source may have lost its tail
// since that was sent.
func twin(p *partition, leader *replica, b *cluster.Batch) error {
	i := leader.log.find(b.Base)
	if b.Hole() || i < len(leader.log.batches) && bytes.Equal(leader.log.batches[i].bytes[batch.HeaderSize:], b.Bytes[batch.HeaderSize:]) {
		return nil
	}
	return &cluster.OffsetError{Partition: p.id, Span: cluster.Span{From: b.Base, To: b.Next}, Err: cluster.ErrDiverged,
		Detail: "an earlier batch of this mirror stands there, and is another one"}
}

func (r *run) outOfOrder(p *partition, b *cluster.Batch, end int64) error {
	return &cluster.OffsetError{
		Partition: p.id, Span: cluster.Span{From: b.Base, To: b.Next}, Err: cluster.ErrOutOfOrder,
		Detail: fmt.Sprintf("the log ends at %d", end),
	}
}

// put writes a copy of a batch into the leader's log. One that does not keep epochs
// gives it its own, and forgets who produced it.
func (r *run) put(p *partition, leader *replica, b *cluster.Batch, at int64) {
	if b.Hole() {
		r.fill(p, leader, b, at)
		return
	}
	h := batch.Header(slices.Clone(b.Bytes))
	clear := int16(0)
	if r.lane.cl.c.traits.Fills {
		clear = batch.AttrTransactional
	}
	switch {
	case r.lane.cl.c.options.Produce:
		h.Patch(batch.Patch{Base: at, LeaderEpoch: p.epoch, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, ClearAttributes: clear})
	case !r.lane.cl.c.traits.KeepsEpochs:
		h.Patch(batch.Patch{Base: at, LeaderEpoch: p.epoch, ProducerID: h.ProducerID(), ProducerEpoch: h.ProducerEpoch(), BaseSequence: h.BaseSequence(), ClearAttributes: clear})
	}
	leader.log.append(storedOf(h))
	p.act()
	p.wrote(p.stretch.mirror, at)
}

var _ fetcher.Log = (*Client)(nil)

// superseded refuses a worker after whom another has taken the partition over (its owner
// epoch is higher). One that asks again, and finds that nothing has happened since, is
// believed: epochs begin anew where the state was lost.
func (s *stretch) superseded(by fetcher.Stretch, end int64) bool {
	if by.Owner == 0 || by.Owner >= s.turn || s.refused == end+1 {
		return false
	}
	s.refused = end + 1
	return true
}
