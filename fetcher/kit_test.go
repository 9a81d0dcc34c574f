package fetcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/clustermirror/mirror/cluster"
)

// TestMain runs the tests on one processor. On several, one in some hundred runs
// stood still: a goroutine of a bubble that its timer had made runnable was never
// run, with everything else asleep (go1.26.8, seen in the dump of a timed-out run).
// The race detector does not need the second processor: it judges by the order
// that locks and channels make.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}

// notes is a Report that remembers, and stores epochs at once unless told not to.
type notes struct {
	mu      sync.Mutex
	failed  map[cluster.Partition]error
	landed  map[cluster.Partition]int
	stalled map[cluster.Partition]int
	trimmed map[cluster.Partition]int64
	epochs  []epochTold
	hold    bool
	skipped []skipTold
	raises  map[cluster.Partition]int32
	held    []Held
}

type skipTold struct {
	p    cluster.Partition
	span cluster.Span
}

type epochTold struct {
	p     cluster.Partition
	epoch int32
	start int64
	ack   func(error)
}

func newNotes() *notes {
	return &notes{
		failed: map[cluster.Partition]error{}, landed: map[cluster.Partition]int{},
		stalled: map[cluster.Partition]int{}, trimmed: map[cluster.Partition]int64{},
		raises: map[cluster.Partition]int32{},
	}
}

func (n *notes) Epoch(p cluster.Partition, epoch int32, start int64, ack func(error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.epochs = append(n.epochs, epochTold{p, epoch, start, ack})
	if !n.hold {
		ack(nil)
	}
}

func (n *notes) Landed(p cluster.Partition) { n.note(func() { n.landed[p]++ }) }
func (n *notes) Failed(p cluster.Partition, err error) {
	n.note(func() { n.failed[p] = err })
}
func (n *notes) Stalled(p cluster.Partition, _ time.Duration) { n.note(func() { n.stalled[p]++ }) }
func (n *notes) Held(p cluster.Partition, h Held)             { n.note(func() { n.held = append(n.held, h) }) }
func (n *notes) Trimmed(p cluster.Partition, to int64)        { n.note(func() { n.trimmed[p] = to }) }

func (n *notes) Skipped(p cluster.Partition, span cluster.Span) {
	n.note(func() { n.skipped = append(n.skipped, skipTold{p, span}) })
}
func (n *notes) RaiseNeeded(p cluster.Partition, epoch int32) { n.note(func() { n.raises[p] = epoch }) }

func (n *notes) note(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *notes) failure(p cluster.Partition) (err error) {
	n.note(func() { err = n.failed[p] })
	return err
}

func (n *notes) told() (out []epochTold) {
	n.note(func() { out = slices.Clone(n.epochs) })
	return out
}

// world is a fetcher between two clusters in memory, in a bubble of its own time.
type world struct {
	t      testing.TB
	src    *sourceCluster
	dst    *destination
	notes  *notes
	f      *Fetcher
	boards map[cluster.Partition]*Progress
	stop   func()
}

func part(i int) cluster.Partition { return cluster.Partition{Topic: "t", Partition: int32(i)} }

// inWorld runs a test with the fetcher running, and looks afterwards whether it
// ends and gives all memory back.
func inWorld(t *testing.T, opts Options, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { live(t, opts, test) })
}

func live(t testing.TB, opts Options, test func(w *world)) { liveWith(t, Traits{}, opts, test) }

func liveWith(t testing.TB, traits Traits, opts Options, test func(w *world)) {
	w := &world{
		t: t, src: newSource(t, 1, 2, 3), dst: newDestination(t), notes: newNotes(), boards: map[cluster.Partition]*Progress{},
	}
	w.dst.traits = traits
	w.f = New(w.src, w.dst, w.notes, opts)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.f.Run(ctx) }()
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
			case <-time.After(time.Second):
				t.Error("Run has not returned within a second")
			}
		})
	}
	defer func() {
		w.stop()
		w.dst.close()
		w.src.mu.Lock()
		defer w.src.mu.Unlock()
		if w.src.held != 0 {
			t.Errorf("%d bytes of answers were never released", w.src.held)
		}
		if used := w.f.budget.used.Load(); used != 0 {
			t.Errorf("%d bytes of the budget were never given back", used)
		}
		if !w.f.budget.free.TryAcquire(w.f.budget.total) {
			t.Error("the budget is not whole at the end")
		}
		for id, b := range w.src.brokers {
			if n := len(b.sessions); n != 0 {
				t.Errorf("broker %d: %d sessions left open", id, n)
			}
		}
	}()
	test(w)
}

// assign creates partitions led by broker and has them copied from the
// destination's end.
func (w *world) assign(broker int32, ps ...cluster.Partition) {
	for _, p := range ps {
		if w.src.logs[p] == nil {
			w.src.create(p, broker)
		}
		w.boards[p] = &Progress{}
		w.reassign(p)
	}
}

func (w *world) reassign(p cluster.Partition) {
	ends, err := w.dst.Ends(w.t.Context(), []Stretch{{Partition: p}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.f.Assign(Assignment{
		Stretch: Stretch{Partition: p}, TopicID: w.src.logs[p].id, Next: ends[0].LogEnd, LastEpoch: w.dst.lastEpoch(p),
		Trimmed: ends[0].LogStart, Progress: w.boards[p],
	})
}

func (d *destination) lastEpoch(p cluster.Partition) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.log(p).batches; len(b) > 0 {
		return b[len(b)-1].epoch
	}
	return cluster.NoEpoch
}

func (w *world) remove(ps ...cluster.Partition) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	if err := w.f.Remove(ctx, ps...); err != nil {
		w.t.Errorf("Remove: %v", err)
	}
}

// within waits for cond on the bubble's clock.
func (w *world) within(d time.Duration, what string, cond func() bool) {
	w.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); ; <-tick.C {
		synctest.Wait() // whatever is going on at this instant is over
		if cond() {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("not within %v: %s", d, what)
		}
	}
}

// pass lets time go by.
func pass(d time.Duration) { <-time.After(d) }

// same waits until the destination holds what the source holds, and compares.
func (w *world) same(d time.Duration, ps ...cluster.Partition) {
	w.t.Helper()
	for _, p := range ps {
		w.within(d, fmt.Sprintf("%v at the source's end", p), func() bool { return w.dst.end(p) == w.src.end(p) })
		w.prefix(p)
	}
}

// prefix compares what the destination holds with the source (I1, I2, I4).
func (w *world) prefix(p cluster.Partition) {
	w.t.Helper()
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	w.dst.mu.Lock()
	defer w.dst.mu.Unlock()
	l := w.dst.log(p)
	at := map[int64]sourceBatch{}
	for _, b := range slices.Concat(w.src.logs[p].batches, w.src.retained[p]) {
		at[b.base] = b
	}
	for _, b := range l.batches {
		if s, ok := at[b.base]; !ok || !bytes.Equal(s.bytes, b.bytes) {
			w.t.Errorf("%v: batch [%d,%d) is not the source's", p, b.base, b.next)
		}
	}
	for base, n := range l.landed {
		if n != 1 {
			w.t.Errorf("%v: batch at %d was appended %d times", p, base, n)
		}
	}
}

// fails waits for a failure of the given kind and gives its span.
func (w *world) fails(p cluster.Partition, want error) cluster.Span {
	w.t.Helper()
	w.within(10*time.Minute, fmt.Sprintf("%v failed", p), func() bool { return w.notes.failure(p) != nil })
	err := w.notes.failure(p)
	if !errors.Is(err, want) {
		w.t.Fatalf("failed with %v, want %v", err, want)
	}
	if trouble := w.boards[p].Trouble(); !errors.Is(trouble, want) {
		w.t.Errorf("trouble is %v, want %v", trouble, want)
	}
	var at *cluster.OffsetError
	if errors.As(err, &at) {
		return at.Span
	}
	return cluster.Span{From: -1, To: -1}
}
