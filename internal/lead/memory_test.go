package lead

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/clustermirror/mirror/cluster"
)

// What the window keeps for a follower that is behind is bounded; what the quorum lacks is
// kept in any case.
func TestWindowIsBounded(t *testing.T) {
	p := led(t, 0, func(c *Config) { c.Window = 1000 })
	size := int64(len(few(0, 1, 2)[0].Bytes))
	var got []outcome
	freed := 0
	for at := range int64(100) {
		p.Append(few(at, 1, 2), func() { freed++ }, func(next int64, landed int, err error) { got = append(got, outcome{next, landed, err}) })
	}
	ask(p, 1, 100, 2)
	if w := p.State().Window; w != 100*size || freed != 0 {
		t.Fatalf("%d bytes, %d freed, before the quorum has any", w, freed)
	}
	ask(p, 2, 60, 2)
	if w, most := p.State().Window, 40*size+1000; w > most || w <= most-size || len(got) != 60 {
		t.Errorf("%d bytes with 40 batches that the quorum lacks, at most %d; %d answered", w, most, len(got))
	}
	if low := p.window.low; freed != int(low) {
		t.Errorf("%d are freed, the window begins at %d", freed, low)
	}
	a := ask(p, 3, 0, -1)
	if a.Elsewhere != 0 || a.End != 100 || len(a.Records) != 0 || len(a.Holders) != 2 || a.Holders[1] != (Holder{Replica: 2, End: 60}) {
		t.Errorf("%+v", a)
	}
	a = ask(p, 3, p.window.low, 2)
	if a.Elsewhere >= 0 || len(a.Records) == 0 {
		t.Errorf("%+v", a)
	}
	a.Release()
	p.Tick(start.Add(time.Minute)) // nobody is waited for: the rest goes
	if w := p.State().Window; w != 40*size {
		t.Errorf("%d bytes for followers that are gone", w)
	}
}

// The window's own memory does not grow with what has passed through.
func TestWindowReusesItsMemory(t *testing.T) {
	p := led(t, 0, nil)
	b := few(0, 1, 2)
	for at := range int64(5000) {
		b[0].Base, b[0].Next = at, at+1
		p.Append(b, nil, func(int64, int, error) {})
		for id := range int32(3) {
			ask(p, id+1, at+1, -1)
		}
	}
	if n := cap(p.window.entries); n > 64 {
		t.Errorf("room for %d batches, of which there was one at a time", n)
	}
}

// There are many partitions that have nothing to do.
func TestAnIdlePartitionIsSmall(t *testing.T) {
	const n = 1000
	var before, after runtime.MemStats
	keep := make([]*Partition, 0, n)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		keep = append(keep, led(t, 0, nil))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - before.HeapAlloc) / n; each > 1500 {
		t.Errorf("%d bytes for a partition with three followers", each)
	} else {
		t.Logf("%d bytes", each)
	}
	runtime.KeepAlive(keep)
}

// Payloads are not copied: what is answered is what was handed over.
func TestPayloadIsNotCopied(t *testing.T) {
	p := led(t, 0, func(c *Config) { c.Stamp = true })
	b := few(0, 3, 2)
	p.Append(b, nil, func(int64, int, error) {})
	a := ask(p, 1, 1, -1)
	if len(a.Records) != 2 || unsafe.SliceData(a.Records[0]) != unsafe.SliceData(b[1].Bytes) || unsafe.SliceData(a.Records[1]) != unsafe.SliceData(b[2].Bytes) {
		t.Error("not the bytes that were appended")
	}
	a.Release()
}

func TestAllocations(t *testing.T) {
	p := led(t, 0, nil)
	w := NewWatcher()
	p.Observe(w)
	q := Fetch{Replica: 1, CurrentEpoch: 7, LastEpoch: -1, MaxBytes: 1 << 20, Now: start}
	if n := testing.AllocsPerRun(100, func() { p.Fetch(q) }); n != 0 {
		t.Errorf("%v allocations of a fetch without data", n)
	}
	p.Append(few(0, 1000, 2), nil, func(int64, int, error) {})
	few := testing.AllocsPerRun(100, func() {
		a := p.Fetch(q)
		a.Release()
	})
	if few > 4 {
		t.Errorf("%v allocations of a fetch of 1000 batches", few)
	}
	// A run costs the same, whatever it holds: batches come and go in the same memory.
	big, bare := newRunner(t, 200), newRunner(t, 1)
	if b, o := testing.AllocsPerRun(50, big), testing.AllocsPerRun(50, bare); b > o+1 {
		t.Errorf("%v allocations of a run of 200 batches, %v of one", b, o)
	}
	into := make([]*Partition, 0, 4)
	if n := testing.AllocsPerRun(100, func() { w.tell(p); into = w.Take(into[:0]) }); n != 0 {
		t.Errorf("%v allocations to be told of a partition", n)
	}
}

// newRunner appends a run of so many batches and has all followers take it, each time.
func newRunner(t testing.TB, batches int) func() {
	p := led(t, 0, nil)
	b := few(0, batches, 2)
	at := int64(0)
	done, free := func(int64, int, error) {}, func() {}
	return func() {
		for i := range b {
			b[i].Base, b[i].Next = at, at+1
			at++
		}
		p.Append(b, free, done)
		for id := range int32(3) {
			p.Fetch(Fetch{Replica: id + 1, CurrentEpoch: 7, Offset: at, LastEpoch: -1, Now: start})
		}
	}
}

// BenchmarkRun is the cost of a run of 100 batches on its way through a partition with
// three followers.
func BenchmarkRun(b *testing.B) {
	p := led(b, 0, func(c *Config) { c.Stamp = true })
	batches := few(0, 100, 2)
	at := int64(0)
	b.ReportAllocs()
	b.SetBytes(int64(100 * len(batches[0].Bytes)))
	for b.Loop() {
		from := at
		for i := range batches {
			batches[i].Base, batches[i].Next = at, at+1
			at++
		}
		p.Append(batches, nil, func(int64, int, error) {})
		for id := range int32(3) {
			q := Fetch{Replica: id + 1, CurrentEpoch: 7, Offset: from, LastEpoch: -1, MaxBytes: 1 << 20, Now: start}
			a := p.Fetch(q)
			a.Release()
			q.Offset = at
			p.Fetch(q)
		}
	}
}

// TestAtOnce has followers, an owner and readers of the state call without waiting for each
// other; the race detector looks on.
func TestAtOnce(t *testing.T) {
	const runs = 300
	p := led(t, 0, nil)
	var landed, freed, failed atomic.Int64
	var stop atomic.Bool
	var followers, owner sync.WaitGroup
	for id := range int32(3) {
		followers.Go(func() {
			w := NewWatcher()
			p.Observe(w)
			defer p.Ignore(w)
			at, logStart := int64(0), int64(0)
			for !stop.Load() {
				a := p.Fetch(Fetch{Replica: id + 1, CurrentEpoch: 7, Offset: at, LastEpoch: -1, LogStart: logStart, MaxBytes: 1 << 10, Now: start})
				logStart = max(logStart, a.LogStart)
				switch {
				case a.Diverging.Epoch >= 0:
					at = a.Diverging.EndOffset
				case a.Code == OffsetOutOfRange:
					at = p.State().Next
				case a.Elsewhere >= 0:
					at = a.Holders[0].End
				case len(a.Records) > 0:
					for _, r := range a.Records {
						if r[0] == 0xdd {
							failed.Add(1)
						}
					}
					at += int64(len(a.Records))
				default:
					select {
					case <-w.Wake():
					case <-time.After(time.Millisecond):
					}
				}
				a.Release()
			}
		})
	}
	next, limit := make(chan outcome, runs), time.Now().Add(20*time.Second)
	owner.Go(func() {
		for n := range runs {
			at := p.State().Next
			b := few(at, 5, 2)
			p.Append(b, func() {
				freed.Add(1)
				for i := range b {
					b[i].Bytes[0] = 0xdd
				}
			}, func(n int64, l int, err error) { next <- outcome{n, l, err} })
			for n%10 == 4 && p.State().HighWatermark < at+5 && time.Now().Before(limit) { // half of them land
				p.Tick(start)
				runtime.Gosched()
			}
			if n%10 == 9 {
				p.Truncate(max(at-3, p.State().LogStart), func(error) {})
				p.Trim(at-20, func(error) {})
				p.Forget(errors.New("forgotten"))
			}
			p.Tick(start)
		}
	})
	for range runs {
		if o := <-next; o.err == nil {
			landed.Add(1)
		}
	}
	owner.Wait()
	for p.State().Window > 0 && time.Now().Before(limit) {
		p.Tick(start)
	}
	if s := p.State(); s.Window > 0 {
		t.Errorf("%+v", s)
	}
	stop.Store(true)
	followers.Wait()
	p.Close(cluster.ErrNotLeader)
	if freed.Load() != runs || landed.Load() < runs/2 || failed.Load() > 0 {
		t.Errorf("%d of %d freed, %d landed, %d read after they were freed", freed.Load(), runs, landed.Load(), failed.Load())
	}
}
