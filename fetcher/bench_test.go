package fetcher

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// sinkhole is a Log that takes everything, on one goroutine.
type sinkhole struct {
	Log
	work chan landing
}

type landing struct {
	res  Result
	free func()
	done func(Result)
}

func newSinkhole(ctx context.Context) *sinkhole {
	s := &sinkhole{work: make(chan landing, 1024)}
	go func() {
		for {
			select {
			case l := <-s.work:
				l.free()
				l.done(l.res)
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

func (s *sinkhole) Traits() Traits { return Traits{} }

func (s *sinkhole) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(Result)) {
	s.work <- landing{Result{Partition: p, Next: batches[len(batches)-1].Next, Batches: len(batches)}, free, done}
}

// bench is a session whose loop the benchmark plays.
type bench struct {
	s    *session
	t    *tracker
	part []byte // 64 batches of 16 KiB
	span int64
}

func newBench(ctx context.Context, idle int) *bench {
	f := New(nil, newSinkhole(ctx), newNotes(), Options{})
	b := &bench{s: newSession(f, 1)}
	add := func(i int) *tracker {
		t := newTracker(Assignment{Stretch: Stretch{Partition: part(i)}, LastEpoch: 0}, 1<<20)
		b.s.adopt(t)
		return t
	}
	for i := range idle {
		add(i)
	}
	b.t = add(idle)
	for range 64 {
		b.part = append(b.part, plain(b.span, 16, 990, 0)...)
		b.span += 16
	}
	b.round(ctx)
	b.renumber()
	return b
}

// renumber moves the batches of the answer behind what was taken.
func (b *bench) renumber() {
	for w := batch.Walk(b.part); w.Next(); {
		h := w.Header()
		h.Patch(batch.Patch{Base: h.Base() + b.span, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1})
	}
}

// round is one request, one answer and the destination's result.
func (b *bench) round(ctx context.Context) (changed int) {
	b.s.ask(time.Now())
	req := <-b.s.asks
	parts := []Fetched{{
		Partition: b.t.partition, HighWatermark: b.t.next, Diverging: cluster.EpochEnd{EndOffset: -1}, Records: b.part,
	}}
	before := b.t.next
	b.s.onAnswer(ctx, &answer{resp: &FetchResponse{Partitions: parts, Size: len(b.part), Release: func() {}}})
	if b.t.next != before+b.span {
		panic(fmt.Sprintf("took up to %d, want %d", b.t.next, before+b.span))
	}
	for b.t.runs > 0 {
		<-b.s.box.wake
		for _, m := range b.s.box.take() {
			b.s.handle(ctx, m)
		}
	}
	return len(req.Changed)
}

// BenchmarkAnswerToAppend is the way of a batch through the fetcher: from an
// answer of 64 batches of 16 KiB to the destination's result.
func BenchmarkAnswerToAppend(b *testing.B) {
	for _, idle := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("idle=%d", idle), func(b *testing.B) {
			x := newBench(b.Context(), idle)
			b.SetBytes(int64(len(x.part)))
			b.ReportAllocs()
			for b.Loop() {
				x.round(b.Context())
				x.renumber()
			}
		})
	}
}

func TestHotPathDoesNotAllocatePerBatch(t *testing.T) {
	most := 8.0 // of 64 batches
	if raceEnabled {
		most = 64 // sync.Pool forgets at random under the race detector
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	x := newBench(ctx, 1000)
	got := testing.AllocsPerRun(50, func() {
		if n := x.round(ctx); n != 1 {
			t.Errorf("the request names %d partitions, want 1", n)
		}
		x.renumber()
	})
	if got > most {
		t.Errorf("%v allocations per answer", got)
	}
}

// FuzzTake gives take bytes of all kinds: what it hands on is checked, follows
// the position without a hole, and lies within the bytes.
func FuzzTake(f *testing.F) {
	good := slices.Concat(plain(0, 3, 5, 0), plain(3, 2, 5, 0), plain(5, 2, 5, 1))
	f.Add(good, int64(0), int32(0))
	f.Add(good[:len(good)-3], int64(3), int32(0))
	f.Add(old(0), int64(0), int32(-1))
	f.Add(control(0), int64(0), int32(-1))
	f.Fuzz(func(t *testing.T, b []byte, next int64, epoch int32) {
		tr := newTracker(Assignment{Stretch: Stretch{Partition: part(0)}, Next: next, LastEpoch: epoch}, 1)
		tr.leader.Epoch = 5
		w := batch.Walk(b)
		got, how, err := tr.take(&w, nil, Traits{}, &visibility{})
		if (how == bad) != (err != nil) {
			t.Fatalf("outcome %d with error %v", how, err)
		}
		at := next
		for _, x := range got {
			h := batch.Header(x.Bytes)
			if err := h.Check(); err != nil {
				t.Fatalf("took a batch that is wrong: %v", err)
			}
			if x.Base != at || x.Next <= at || h.Base() != x.Base || h.Next() != x.Next || x.Epoch > 5 {
				t.Fatalf("took [%d,%d) of epoch %d at %d", x.Base, x.Next, x.Epoch, at)
			}
			at = x.Next
		}
		if tr.next != at {
			t.Fatalf("position is %d, want %d", tr.next, at)
		}
	})
}
