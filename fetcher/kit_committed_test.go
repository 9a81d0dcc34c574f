package fetcher

import (
	"context"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// txn is a transaction as a leader knows it.
type txn struct {
	producer    int64
	first, last int64 // of its records; last is the marker
	aborted     bool
}

// transactions reads a log: those that have ended, and where the first open one begins.
func (l *sourceLog) transactions() (ended []txn, stable int64) {
	open := map[int64]int64{}
	stable = l.end()
	for _, b := range l.everything() {
		h := batch.Header(b.bytes)
		switch first, ok := open[h.ProducerID()]; {
		case h.Control() && ok:
			kind, _ := h.Marker()
			ended = append(ended, txn{h.ProducerID(), first, h.Base(), kind == batch.MarkerAbort})
			delete(open, h.ProducerID())
		case !h.Control() && h.Transactional() && !ok:
			open[h.ProducerID()] = h.Base()
		}
	}
	for _, first := range open {
		stable = min(stable, first)
	}
	return ended, stable
}

// everything is the log with what compaction has removed, which leaders have not forgotten
// in their index of aborted transactions.
func (l *sourceLog) everything() []sourceBatch {
	if l.all != nil {
		return l.all
	}
	return l.batches
}

// committed makes an answer one for readers of committed records, as Kafka does: batches
// up to the last stable offset, and the aborted transactions that overlap with what was
// read (UnifiedLog.addAbortedTransactions).
func (l *sourceLog) committed(f *Fetched, offset int64) {
	ended, stable := l.transactions()
	f.LastStable = stable
	end := 0
	upper := offset
	for w := batch.Walk(f.Records); w.Next() && w.Header().Base() < stable; {
		end += w.Header().Length()
		upper = w.Header().Next()
	}
	f.Records = f.Records[:end]
	for _, t := range ended {
		if t.aborted && t.last >= offset && t.first < upper {
			f.Aborted = append(f.Aborted, AbortedTransaction{t.producer, t.first})
		}
	}
	slices.Reverse(f.Aborted) // they have no order
}

// visible are the records that a reader of committed records sees, by a reading of its own.
func (l *sourceLog) visible() map[int64][]byte {
	ended, stable := l.transactions()
	out := map[int64][]byte{}
	for _, b := range l.batches {
		h := batch.Header(b.bytes)
		if h.Control() || h.Base() >= stable {
			continue
		}
		if h.Transactional() && slices.ContainsFunc(ended, func(t txn) bool {
			return t.aborted && t.producer == h.ProducerID() && t.first <= h.Base() && h.Base() < t.last
		}) {
			continue
		}
		addRecords(out, h)
	}
	return out
}

func addRecords(to map[int64][]byte, h batch.Header) {
	err := batch.Decode(h, func(r batch.Record) error {
		to[r.Offset] = render(nil, r)
		return nil
	})
	if err != nil {
		panic(err)
	}
}

// held are the records that the destination holds.
func (l *destinationLog) held() map[int64][]byte {
	out := map[int64][]byte{}
	for _, b := range l.batches {
		if b.bytes != nil {
			addRecords(out, b.bytes)
		}
	}
	return out
}

// holes are the spans that were filled.
func (l *destinationLog) holes() (out []cluster.Span) {
	for _, b := range l.batches {
		if b.bytes == nil {
			out = append(out, cluster.Span{From: b.base, To: b.next})
		}
	}
	return out
}

// transactional is a batch of a producer's transaction at the end of the log.
func (l *sourceLog) transactional(producer int64, n int) []byte {
	base := l.end()
	rs := make([]batch.Record, n)
	for i := range rs {
		o := base + int64(i)
		rs[i] = batch.Record{Offset: o, Timestamp: 1_700_000_000_000 + o, Value: []byte{byte(producer), byte(o), byte(o >> 8)}}
	}
	return batch.Encode(batch.Spec{
		Base: base, LeaderEpoch: l.leader.Epoch, Attributes: batch.AttrTransactional, Records: rs, Next: base + int64(n),
		Producer: &batch.Producer{ID: producer, Sequence: int32(base)},
	})
}

// marker ends a producer's transaction.
func (l *sourceLog) marker(producer int64, kind int16) []byte {
	base := l.end()
	return batch.Encode(batch.Spec{
		Base: base, LeaderEpoch: l.leader.Epoch, Attributes: batch.AttrTransactional | batch.AttrControl, Next: base + 1,
		Producer: &batch.Producer{ID: producer, Sequence: -1},
		Records:  []batch.Record{{Offset: base, Timestamp: 1_700_000_000_000 + base, Key: []byte{0, 0, 0, byte(kind)}, Value: make([]byte, 6)}},
	})
}

// ReadCommitted makes a source a CommittedReader.
func (s *sourceCluster) ReadCommitted(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, []AbortedTransaction, error) {
	b, err := s.Read(ctx, p, offset, maxBytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := Fetched{Records: b}
	s.logs[p].committed(&f, offset)
	return f.Records, f.Aborted, err
}

// ordinary is a batch as a destination holds it that takes the transactional bit away.
func ordinary(b []byte) []byte {
	h := batch.Header(slices.Clone(b))
	h.Patch(batch.Patch{Base: h.Base(), LeaderEpoch: h.LeaderEpoch(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, ClearAttributes: batch.AttrTransactional})
	return h
}

// ReadCommitted of a destination: the transactions of its own log, which one that fills
// gaps does not have.
func (d *destination) ReadCommitted(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, []AbortedTransaction, error) {
	b, err := d.Read(ctx, p, offset, maxBytes)
	if d.traits.Fills {
		return b, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := Fetched{Records: b}
	(&sourceLog{batches: d.log(p).batches}).committed(&f, offset)
	return f.Records, f.Aborted, err
}

// filler is what a destination puts into a hole: markers of its own.
func filler(base, next int64) []byte {
	return batch.Encode(batch.Spec{
		Base: base, Next: next, Attributes: batch.AttrControl | batch.AttrTransactional, Producer: &batch.Producer{ID: batch.OwnProducers, Sequence: -1},
		Records: []batch.Record{{Offset: base, Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6)}},
	})
}
