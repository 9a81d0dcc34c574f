package memory

import (
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// producers is what a leader knows of the producers that have written to its log
// (ProducerStateManager). It is read from the log as far as to; whoever changes
// what was read forgets it.
type producers struct {
	to      int64
	of      map[int64]*producerState
	aborted []Aborted
}

type producerState struct {
	epoch   int16
	lastSeq int32
	last    []sequenced // newest last; at most rememberedBatches
	open    int64       // first offset of its transaction; -1: none
}

// sequenced is a batch as duplicates are recognised by.
type sequenced struct {
	first, last int32
	base        int64
}

// Aborted is a transaction that was aborted: what its producer wrote in the range is
// not for readers of committed records.
type Aborted struct {
	ProducerID int64
	First      int64 // offset of its first record
	Marker     int64 // offset of the marker that ended it
}

// producers reads what was appended since the last time.
func (p *partition) producers() *producers {
	k := &p.known
	l := &p.lead().log
	if k.of == nil {
		k.of, k.to = map[int64]*producerState{}, l.start
	}
	for _, s := range l.batches[l.find(k.to):] {
		if s.next > k.to {
			k.read(batch.Header(s.bytes), p.guard)
		}
	}
	k.to = l.end
	return k
}

func (k *producers) read(h batch.Header, guard int64) {
	id := h.ProducerID()
	if id < 0 {
		return
	}
	s := k.of[id]
	if s == nil {
		s = &producerState{epoch: -1, lastSeq: -1, open: -1}
		k.of[id] = s
	}
	if h.Control() {
		if s.open >= 0 && markerOf(h) == markAbort {
			k.aborted = append(k.aborted, Aborted{id, s.open, h.Base()})
		}
		s.open = -1
		if h.Base() >= guard {
			s.epoch = max(s.epoch, h.ProducerEpoch())
		}
		return
	}
	if h.Transactional() && s.open < 0 {
		s.open = h.Base()
	}
	if h.Base() < guard {
		return
	}
	if h.ProducerEpoch() != s.epoch {
		s.epoch, s.last = h.ProducerEpoch(), nil
	}
	if h.BaseSequence() >= 0 {
		s.lastSeq = h.BaseSequence() + h.LastOffsetDelta()
		if len(s.last) == rememberedBatches {
			s.last = slices.Delete(s.last, 0, 1)
		}
		s.last = append(s.last, sequenced{h.BaseSequence(), s.lastSeq, h.Base()})
	}
}

// admit is Kafka's check of a producer's sequence (ProducerAppendInfo): the offset of
// the batch if it is a duplicate, -1 if it may be appended.
func (k *producers) admit(id int64, epoch int16, first int32, n int) (int64, error) {
	s := k.of[id]
	if s == nil || s.epoch < 0 {
		return -1, nil
	}
	switch {
	case epoch < s.epoch:
		return -1, fmt.Errorf("%w: INVALID_PRODUCER_EPOCH, %d is older than %d", cluster.ErrFenced, epoch, s.epoch)
	case epoch > s.epoch:
		if first != 0 {
			return -1, fmt.Errorf("%w: a new epoch begins with sequence %d", cluster.ErrOutOfOrder, first)
		}
		return -1, nil
	}
	last := first + int32(n) - 1
	for _, b := range s.last {
		if b.first == first && b.last == last {
			return b.base, nil
		}
	}
	if s.lastSeq >= 0 && first != s.lastSeq+1 {
		return -1, fmt.Errorf("%w: sequence %d after %d", cluster.ErrOutOfOrder, first, s.lastSeq)
	}
	return -1, nil
}

// stable is the last stable offset: the first offset of the oldest open transaction,
// or the high watermark.
func (p *partition) stable() int64 {
	lso := p.lead().high
	for _, s := range p.producers().of {
		if s.open >= 0 {
			lso = min(lso, s.open)
		}
	}
	return lso
}

// openIDs are the producers with an open transaction, ascending.
func (k *producers) openIDs() (ids []int64) {
	for id, s := range k.of {
		if s.open >= 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// The types of a marker.
const (
	markAbort  = 0
	markCommit = 1
)

// markerOf is the type of the marker in a control batch.
func markerOf(h batch.Header) (kind int) {
	kind = -1
	batch.Decode(h, func(r batch.Record) error {
		if len(r.Key) >= 4 {
			kind = int(r.Key[2])<<8 | int(r.Key[3])
		}
		return nil
	})
	return kind
}

// mark appends a marker of a producer's transaction.
func (c *Cluster) mark(p *partition, leader *replica, id int64, epoch int16, kind byte) {
	records := encodable([]Record{{Key: []byte{0, 0, 0, kind}, Value: make([]byte, 6)}})
	c.place(p, leader, batch.Encode(batch.Spec{
		Base: leader.log.end, LeaderEpoch: p.epoch, Attributes: batch.AttrControl | batch.AttrTransactional,
		Producer: &batch.Producer{ID: id, Epoch: epoch, Sequence: -1}, Records: records,
	}))
}
