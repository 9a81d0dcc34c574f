package metalogtest

import (
	"slices"
	"sync"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Log is the log of a quorum, and who leads it. Safe for concurrent use.
type Log struct {
	mu       sync.Mutex
	batches  [][]byte
	start    int64 // below it there is only the snapshot
	mark     int64
	snapshot []byte
	snapAt   batchEnd
	leader   int // index of the active controller; -1 for none
	epoch    int32
	moved    chan struct{} // closed with every change
	fetches  int
}

type batchEnd struct {
	offset int64
	epoch  int32
}

func newLog() *Log { return &Log{epoch: 1, moved: make(chan struct{})} }

// change runs f under the lock and wakes whoever waits.
func (l *Log) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.moved)
	l.moved = make(chan struct{})
}

func (l *Log) end() int64 {
	if len(l.batches) == 0 {
		return l.start
	}
	return batch.Header(l.batches[len(l.batches)-1]).Next()
}

// Append adds one batch of records and commits it.
func (l *Log) Append(records ...metalog.Record) {
	l.change(func() { l.append(records); l.mark = l.end() })
}

// AppendUncommitted adds one batch above the high watermark.
func (l *Log) AppendUncommitted(records ...metalog.Record) { l.change(func() { l.append(records) }) }

func (l *Log) append(records []metalog.Record) {
	var values [][]byte
	for _, r := range records {
		values = append(values, Value(r))
	}
	l.batches = append(l.batches, Batch(l.end(), l.epoch, false, values...))
}

// AppendRaw adds a batch as it is, and commits it.
func (l *Log) AppendRaw(b []byte) {
	l.change(func() { l.batches = append(l.batches, b); l.mark = l.end() })
}

// Commit moves the high watermark to the end of the log.
func (l *Log) Commit() { l.change(func() { l.mark = l.end() }) }

// End is the offset after the last batch.
func (l *Log) End() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end()
}

// Fetches counts the fetches answered.
func (l *Log) Fetches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetches
}

// Snapshot replaces the log up to its end by a snapshot of the records given.
func (l *Log) Snapshot(records ...metalog.Record) {
	l.change(func() {
		l.snapAt = batchEnd{l.end(), l.epoch}
		l.snapshot = Batch(0, l.epoch, true, NoOp()) // as the header record, which is control
		for i, r := range records {
			l.snapshot = append(l.snapshot, Batch(int64(i+1), l.epoch, false, Value(r))...)
		}
		l.start, l.batches, l.mark = l.end(), nil, l.end()
	})
}

// Elect makes a controller active in a new epoch, -1 for none. What is not
// committed is lost.
func (l *Log) Elect(controller int) {
	l.change(func() {
		l.truncate(l.mark)
		l.leader, l.epoch = controller, l.epoch+1
		if controller >= 0 { // a leader begins with a control batch of its own
			l.batches = append(l.batches, Batch(l.end(), l.epoch, true, NoOp()))
			l.mark = l.end()
		}
	})
}

// Lose throws away committed batches from an offset on, as no quorum may.
func (l *Log) Lose(from int64) { l.change(func() { l.truncate(from); l.mark = l.end(); l.epoch++ }) }

func (l *Log) truncate(to int64) {
	l.batches = slices.DeleteFunc(l.batches, func(b []byte) bool { return batch.Header(b).Base() >= to })
}

// endOf is the last epoch not above the one given and where it ends.
func (l *Log) endOf(epoch int32) batchEnd {
	out := batchEnd{l.start, l.snapAt.epoch}
	for _, b := range l.batches {
		if h := batch.Header(b); h.LeaderEpoch() <= epoch {
			out = batchEnd{h.Next(), h.LeaderEpoch()}
		}
	}
	return out
}
