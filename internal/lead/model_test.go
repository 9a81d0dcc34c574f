package lead

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
)

// stored is a batch in a log of the model.
type stored struct {
	base, next int64
	epoch      int32
	bytes      []byte
}

// diskLog is a log as a broker keeps it.
type diskLog struct {
	start, end int64
	batches    []stored
	epochs     epoch.History
}

func (l *diskLog) append(s stored) {
	l.batches = append(l.batches, s)
	l.epochs = l.epochs.Assign(s.epoch, max(s.base, l.start))
	l.end = s.next
}

// truncate is UnifiedLog.truncateTo: a batch that holds the offset goes as a whole, and the
// log ends at the offset all the same.
func (l *diskLog) truncate(to int64) {
	if to < l.start {
		l.restart(to)
		return
	}
	l.epochs = l.epochs.TruncateFrom(min(to, l.end))
	if to >= l.end {
		return
	}
	for n := len(l.batches); n > 0 && l.batches[n-1].next > to; n = len(l.batches) {
		l.batches = l.batches[:n-1]
	}
	l.end = to
}

func (l *diskLog) restart(at int64) { *l = diskLog{start: at, end: at} }

func (l *diskLog) trim(to int64) {
	if to <= l.start {
		return
	}
	l.start = to
	l.batches = slices.DeleteFunc(l.batches, func(s stored) bool { return s.next <= to })
	l.epochs = l.epochs.TrimTo(to)
}

// prefixOf says where l is no prefix of o, above the later of their starts.
func (l *diskLog) prefixOf(o *diskLog) error {
	start := max(l.start, o.start)
	if l.end > o.end {
		return fmt.Errorf("ends at %d, behind %d", l.end, o.end)
	}
	mine, theirs := l.between(start, l.end), o.between(start, l.end)
	for i := range max(len(mine), len(theirs)) {
		switch {
		case i >= len(mine):
			return fmt.Errorf("lacks batch [%d,%d)", theirs[i].base, theirs[i].next)
		case i >= len(theirs):
			return fmt.Errorf("has batch [%d,%d) that is not there", mine[i].base, mine[i].next)
		case !bytes.Equal(mine[i].bytes, theirs[i].bytes):
			return fmt.Errorf("batch [%d,%d) is not batch [%d,%d), or has other bytes", mine[i].base, mine[i].next, theirs[i].base, theirs[i].next)
		}
	}
	return nil
}

func (l *diskLog) between(from, to int64) []stored {
	var out []stored
	for _, s := range l.batches {
		if s.next > from && s.base < to && from < to {
			out = append(out, s)
		}
	}
	return out
}

// broker is a real replica that follows us, as ReplicaFetcherThread does.
type broker struct {
	diskLog
	id    int32
	epoch int32 // the leader epoch it knows
	high  int64
	down  bool
	// answer is on its way to the broker, which asks for nothing else before it is there.
	answer *Answer
	from   *Partition
	asked  int64
	// read are records for the answer, from elsewhere.
	read []stored
}

// strange reports whether somebody else has written into the broker's log: with an odd epoch.
func (b *broker) strange() bool {
	return slices.ContainsFunc(b.batches, func(s stored) bool { return s.epoch%2 == 1 })
}

func (b *broker) question(now time.Time, limit int32) Fetch {
	latest, _ := b.epochs.Latest()
	return Fetch{
		Replica: b.id, CurrentEpoch: b.epoch, Offset: b.end, LastEpoch: latest.Epoch, LogStart: b.start, MaxBytes: limit, Now: now,
	}
}

// take is what a broker does with an answer.
func (b *broker) take(w *world, p *Partition, a *Answer) {
	defer a.Release()
	if b.asked != b.end {
		w.fail("broker %d asked for %d and is at %d", b.id, b.asked, b.end)
	}
	switch {
	case a.Code == OffsetOutOfRange:
		b.outOfRange(p)
		return
	case a.Code != 0:
		return
	case a.Diverging.Epoch >= 0:
		b.diverge(a.Diverging)
		return
	}
	if a.Elsewhere >= 0 {
		if a.Elsewhere != b.end {
			w.fail("broker %d asked for %d, records are elsewhere from %d on", b.id, b.end, a.Elsewhere)
		}
		for _, s := range b.read {
			b.write(w, s.bytes)
		}
	}
	for _, r := range a.Records {
		b.write(w, r)
	}
	b.high = max(b.start, min(a.HighWatermark, b.end))
	if a.LogStart > b.start && a.LogStart <= b.end {
		if a.LogStart > b.high {
			w.fail("log start %d above the high watermark %d of broker %d", a.LogStart, b.high, b.id)
		}
		b.trim(a.LogStart)
	}
}

// write appends a batch as a follower does, into an empty log also one that begins before
// the log end (Partition.appendRecordsToFollowerOrFutureReplica).
func (b *broker) write(w *world, raw []byte) {
	h := batch.Header(raw)
	if err := h.Check(); err != nil {
		w.fail("broker %d got a batch for %d: %v", b.id, b.end, err)
	}
	if h.LeaderEpoch() > b.epoch {
		return // dropped without a word
	}
	if h.Base() < b.end {
		if b.start != b.end || h.Next() <= b.start {
			w.fail("broker %d ends at %d and got batch [%d,%d)", b.id, b.end, h.Base(), h.Next())
		}
		b.restart(h.Base())
	}
	b.append(stored{base: h.Base(), next: h.Next(), epoch: h.LeaderEpoch(), bytes: bytes.Clone(raw)})
}

// outOfRange is AbstractFetcherThread.fetchOffsetAndTruncate.
func (b *broker) outOfRange(p *Partition) {
	s := p.State()
	if s.Next < b.end {
		b.truncate(s.Next)
	} else if s.LogStart > b.end {
		b.restart(s.LogStart)
	}
}

// diverge is AbstractFetcherThread.getOffsetTruncationState.
func (b *broker) diverge(d cluster.EpochEnd) {
	ours := b.epochs.EndFor(d.Epoch, b.end)
	switch {
	case ours.EndOffset < 0:
		b.truncate(min(d.EndOffset, b.end))
	case ours.Epoch != d.Epoch:
		b.truncate(min(ours.EndOffset, b.end))
	default:
		b.truncate(min(ours.EndOffset, d.EndOffset, b.end))
	}
}

// serial makes each batch of the tests another one.
var serial int

// newBatch is a batch with records for some of its offsets.
func newBatch(base int64, records int, epoch int32, size int) cluster.Batch {
	serial++
	value := bytes.Repeat([]byte{byte(serial)}, size)
	s := batch.Spec{Base: base, LeaderEpoch: epoch}
	for i := range records {
		s.Records = append(s.Records, batch.Record{Offset: base + int64(i), Timestamp: 1, Key: fmt.Appendf(nil, "%08d", serial), Value: value})
	}
	raw := batch.Encode(s)
	return cluster.Batch{Base: base, Next: base + int64(records), Epoch: epoch, MaxTimestamp: 1, Bytes: raw}
}
