package fetcher

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

func rec(offset int64, value string) batch.Record {
	return batch.Record{Offset: offset, Timestamp: 1000 + offset, Value: []byte(value)}
}

// old is one message of magic 1, as far as the fetcher looks.
func old(offset int64) []byte {
	b := make([]byte, 40)
	b[7] = byte(offset)
	b[11] = 28 // length behind base and length
	b[16] = 1
	return b
}

// An oddity is a batch at offset 20 and what becomes of it.
type oddity struct {
	name   string
	spec   batch.Spec
	raw    []byte
	traits Traits
	want   error
	span   cluster.Span
	lands  bool
}

func unmirrorable() []oddity {
	three := []batch.Record{rec(20, "a"), rec(21, "b"), rec(22, "c")}
	return []oddity{

		{name: "gap before the batch", spec: batch.Spec{Base: 25, Records: []batch.Record{rec(25, "a")}},
			want: cluster.ErrGap, span: cluster.Span{From: 20, To: 25}},
		{name: "gap allowed", spec: batch.Spec{Base: 25, Records: []batch.Record{rec(25, "a")}}, traits: Traits{Gaps: true}, lands: true},
		{name: "records compacted away", spec: batch.Spec{Base: 20, Records: three, Next: 30},
			want: cluster.ErrGap, span: cluster.Span{From: 20, To: 30}},
		{name: "records compacted away, allowed (C4.1)", spec: batch.Spec{Base: 20, Records: three, Next: 30}, traits: Traits{Gaps: true}, lands: true},
		{name: "control batch", spec: batch.Spec{Base: 20, Records: three, Attributes: batch.AttrControl | batch.AttrTransactional},
			want: cluster.ErrControlBatch, span: cluster.Span{From: 20, To: 23}},
		{name: "control batch allowed", spec: batch.Spec{Base: 20, Records: three, Attributes: batch.AttrControl | batch.AttrTransactional},
			traits: Traits{ControlBatches: true}, lands: true},
		{name: "transactional", spec: batch.Spec{Base: 20, Records: three, Attributes: batch.AttrTransactional},
			want: cluster.ErrTransactional, span: cluster.Span{From: 20, To: 23}},
		{name: "log append time", spec: batch.Spec{Base: 20, Records: three, Attributes: batch.AttrLogAppendTime, Timestamp: 5},
			want: cluster.ErrLogAppendTime, span: cluster.Span{From: 20, To: 23}},
		{name: "log append time allowed", spec: batch.Spec{Base: 20, Records: three, Attributes: batch.AttrLogAppendTime, Timestamp: 5},
			traits: Traits{LogAppendTime: true}, lands: true},
		{name: "old magic with a wrong checksum (C5.5)", raw: old(20), want: cluster.ErrCorrupt, span: cluster.Span{From: 20, To: 21}},
		{name: "more records than offsets (C5.13)", spec: batch.Spec{Base: 20, Records: three, Next: 21},
			want: cluster.ErrCorrupt, span: cluster.Span{From: 20, To: 21}},
		{name: "batch over the position", spec: batch.Spec{Base: 18, Records: []batch.Record{rec(18, "x"), rec(19, "y"), rec(20, "z")}},
			want: cluster.ErrDiverged, span: cluster.Span{From: 20, To: 21}},
		{name: "epoch that goes back", spec: batch.Spec{Base: 20, LeaderEpoch: 3, Records: three},
			want: cluster.ErrDiverged, span: cluster.Span{From: 20, To: 23}},
	}
}

func TestWhatCannotBeMirroredFails_I1_I9_I10(t *testing.T) {
	for _, c := range unmirrorable() {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.f.traits = c.traits
				p, other := part(0), part(1)
				w.src.create(p, 1)
				w.src.create(other, 1)
				w.src.update(func() {
					l := w.src.logs[p]
					l.leader.Epoch = 4
					l.append(plain(0, 10, 5, 4))
					l.append(plain(10, 10, 5, 4))
					if c.raw != nil {
						l.batches = append(l.batches, sourceBatch{20, 21, 4, c.raw})
						return
					}
					if c.spec.LeaderEpoch == 0 {
						c.spec.LeaderEpoch = 4
					}
					l.append(batch.Encode(c.spec))
				})
				w.src.produce(other, 5, 5, 5)
				w.dst.with(p, func(l *destinationLog) { l.delay = time.Millisecond })
				w.assign(1, p, other)
				if c.lands {
					w.within(time.Second, "landed", func() bool { return w.boards[p].LogEnd.Load() >= 20 })
					return
				}
				if diff := cmp.Diff(c.span, w.fails(p, c.want)); diff != "" {
					t.Errorf("span (-want +got):\n%s", diff)
				}
				w.within(time.Second, "the batches before it landed", func() bool { return w.dst.end(p) == 20 })
				w.prefix(p)
				w.src.produce(other, 5, 5, 5)
				w.same(time.Second, other)
				if err := w.notes.failure(other); err != nil {
					t.Errorf("the other partition failed: %v", err)
				}
			})
		})
	}
}

func TestFlippedBitIsFetchedAgain_C5_15(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.produce(p, 1, 5, 5)
		w.assign(1, p)
		w.same(time.Second, p)
		w.src.update(func() { w.src.logs[p].spoil, w.src.logs[p].spoilAt = 4, 10 })
		w.src.produce(p, 5, 5, 5)
		w.within(time.Second, "the trouble is shown", func() bool { return errors.Is(w.boards[p].Trouble(), cluster.ErrCorrupt) })
		w.same(time.Minute, p)
		if got := w.boards[p].Corrupt.Load(); got != 4 {
			t.Errorf("Corrupt is %d, want 4", got)
		}
		w.within(time.Second, "no trouble is left", func() bool { return w.boards[p].Trouble() == nil })
		if err := w.notes.failure(p); err != nil {
			t.Errorf("failed: %v", err)
		}
	})
}

func TestFlippedBitThatStaysFailsAfterFiveTries_C5_15(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.produce(p, 5, 5, 5)
		w.src.update(func() { w.src.logs[p].spoil, w.src.logs[p].spoilAt = 1000, 10 })
		w.assign(1, p)
		if got, want := w.fails(p, cluster.ErrCorrupt), (cluster.Span{From: 10, To: 15}); got != want {
			t.Errorf("span %v, want %v", got, want)
		}
		if got := w.boards[p].Corrupt.Load(); got != 5 {
			t.Errorf("Corrupt is %d, want 5", got)
		}
		if got := w.dst.end(p); got != 10 {
			t.Errorf("destination ends at %d, want 10", got)
		}
	})
}

func TestBitThatFlippedWithUsIsFetchedAgain(t *testing.T) {
	for _, tries := range []int{3, 5} {
		t.Run(fmt.Sprint(tries), func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p := part(0)
				w.src.create(p, 1)
				w.src.produce(p, 5, 5, 5)
				w.dst.with(p, func(l *destinationLog) {
					for range tries {
						l.faults = append(l.faults, fault{err: cluster.ErrCorrupt})
					}
				})
				w.assign(1, p)
				if tries < 5 {
					w.same(time.Minute, p)
					return
				}
				w.fails(p, cluster.ErrCorrupt)
			})
		})
	}
}

func TestOutOfRange_C1_9(t *testing.T) {
	for _, c := range []struct {
		name       string
		start, end int64 // of the source, whose log was longer once
		want       error
		span       cluster.Span
	}{
		{"beyond the end", 0, 20, cluster.ErrTruncated, cluster.Span{From: 20, To: 100}},
		{"before the start", 150, 200, cluster.ErrRetention, cluster.Span{From: 100, To: 150}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p := part(0)
				w.assign(1, p)
				w.src.produce(p, 10, 10, 5)
				w.same(time.Second, p)
				w.remove(p)
				w.src.produce(p, 10, 10, 5)
				w.src.cut(p, c.end)
				w.src.update(func() { w.src.logs[p].start = c.start })
				w.reassign(p)
				if got := w.fails(p, c.want); got != c.span {
					t.Errorf("span %v, want %v", got, c.span)
				}
			})
		})
	}
}

func TestRangeThatMovedMeanwhileIsTriedAgain(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.produce(p, 1, 10, 5)
		out := Fetched{Err: cluster.ErrOutOfRange, Diverging: cluster.EpochEnd{EndOffset: -1}}
		w.src.update(func() { w.src.logs[p].faults = []Fetched{out, out} })
		w.assign(1, p)
		w.same(10*time.Second, p)
	})
}

func TestOffsetsThatCannotBeAskedAreTriedAgain(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 1, 10, 5)
		w.same(time.Second, p)
		w.src.update(func() { w.src.logs[p].offsetsErr = cluster.ErrUnavailable })
		w.src.cut(p, 0)
		pass(time.Minute)
		if err := w.notes.failure(p); err != nil {
			t.Fatalf("failed on a range nobody knows: %v", err)
		}
		w.src.update(func() { w.src.logs[p].offsetsErr = nil })
		w.fails(p, cluster.ErrTruncated)
	})
}

func TestDivergingEpochIsTruncation(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.assign(1, p)
		w.src.produce(p, 10, 1, 5)
		w.same(time.Second, p)
		w.remove(p)
		w.src.cut(p, 6)
		w.src.elect(p, 2)
		w.src.produce(p, 20, 1, 5)
		w.src.update(func() { w.src.logs[p].divergingEpoch = true })
		w.reassign(p)
		if got, want := w.fails(p, cluster.ErrTruncated), (cluster.Span{From: 6, To: 10}); got != want {
			t.Errorf("span %v, want %v", got, want)
		}
		if got := w.dst.end(p); got != 10 {
			t.Errorf("destination ends at %d, want 10", got)
		}
	})
}

func TestErrorsOfOnePartition(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		fails bool
	}{
		{"unavailable", cluster.ErrUnavailable, false},
		{"unknown topic", cluster.ErrUnknownTopic, false},
		{"leader epoch", cluster.ErrLeaderEpoch, false},
		{"not the leader", cluster.ErrNotLeader, false},
		{"a code nobody knows", errSilly, false},
		{"forbidden", cluster.ErrAuthorization, true},
		{"topic replaced (C2.1)", cluster.ErrTopicReplaced, true},
		{"codec", cluster.ErrCompression, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p, other := part(0), part(1)
				w.src.create(p, 1)
				w.src.update(func() {
					f := Fetched{Err: c.err, Diverging: cluster.EpochEnd{EndOffset: -1}, Leader: cluster.Leader{Broker: -1}}
					w.src.logs[p].faults = []Fetched{f, f}
				})
				w.src.produce(p, 1, 10, 5)
				w.assign(1, p, other)
				w.src.produce(other, 1, 10, 5)
				w.same(600*time.Millisecond, other)
				if c.fails {
					w.fails(p, c.err)
					if w.dst.end(p) != 0 {
						t.Error("something was appended")
					}
					return
				}
				w.same(5*time.Second, p)
				w.within(time.Second, "no trouble is left", func() bool { return w.boards[p].Trouble() == nil })
			})
		})
	}
}
