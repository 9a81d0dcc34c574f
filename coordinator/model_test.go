package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// journal is a store that checks every write, and a performer that checks that
// what it is asked for was written before, word for word (I7).
type journal struct {
	*Memory
	t *testing.T

	mu    sync.Mutex
	saved map[cluster.Partition]Record
	calls map[cluster.Partition]call
	saves int
	// crash is called after the write with this number (0: never).
	crashAt int
	crash   func()
}

func (j *journal) Save(ctx context.Context, mirror string, records []Record) []error {
	j.mu.Lock()
	defer j.mu.Unlock()
	errs := j.Memory.Save(ctx, mirror, records)
	for i, rec := range records {
		if errs[i] != nil {
			continue
		}
		from := StateUnknown
		if old, ok := j.saved[rec.Partition]; ok {
			from = old.State
		}
		if !Legal(from, rec.State) {
			j.t.Errorf("%v: stored %s after %s", rec.Partition, rec.State, from)
		}
		if err := rec.validate(); err != nil {
			j.t.Error(err)
		}
		if rec.State == StateMirroring && (rec.Cut >= 0 || !rec.Aligned) {
			j.t.Errorf("%v: MIRRORING with cut %d, aligned %v", rec.Partition, rec.Cut, rec.Aligned)
		}
		j.saved[rec.Partition] = rec
	}
	if j.saves++; j.saves == j.crashAt {
		j.crash()
	}
	return errs
}

func (j *journal) Delete(ctx context.Context, mirror string, partitions []cluster.Partition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.Memory.Delete(ctx, mirror, partitions)
	for _, p := range partitions {
		if err == nil {
			delete(j.saved, p)
		}
	}
	return err
}

func (j *journal) Perform(ctx context.Context, rec Record, e Effect) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !rec.equal(j.saved[rec.Partition]) {
		j.t.Errorf("%v: %s is performed for a record that is not the stored one", rec.Partition, e.Kind)
	}
	if t, _ := row(rec.State); t.effect != e.Kind {
		j.t.Errorf("%v: %s in %s", rec.Partition, e.Kind, rec.State)
	}
	if before, ok := j.calls[rec.Partition]; ok && before.ctx.Err() == nil {
		j.t.Errorf("%v: %s begins while %s still runs", rec.Partition, e.Kind, before.Kind)
	}
	j.calls[rec.Partition] = call{ctx, rec, e}
}

// outcomes of each effect, the likely ones more than once.
var outcomes = map[EffectKind][]EventKind{
	EffectAlign:      {EventAligned, EventAligned, EventCutNeeded},
	EffectFetch:      {EventProgress, EventEpochSeen, EventRaiseNeeded, EventCutNeeded},
	EffectRaiseEpoch: {EventEpochRaised},
	EffectCut:        {EventCutDone},
	EffectDrain:      {EventDrained},
	EffectStop:       {EventPositionRead, EventStopped, EventStopped},
}

func randomEvent(r *rand.Rand, p cluster.Partition, running call) Event {
	ev := Event{Partition: p, Epoch: r.Int32N(20), Start: r.Int64N(50), Cut: r.Int64N(50)}
	pick := func(kinds ...EventKind) EventKind { return kinds[r.IntN(len(kinds))] }
	switch n := r.IntN(20); {
	case n < 4:
		ev.Kind = EventWant
		ev.Desired = []Desired{WantMirroring, WantMirroring, WantPaused, WantStopped}[r.IntN(4)]
	case n < 5:
		ev.Kind = pick(EventRecover, EventForget, EventAligned, EventCutDone, EventStopped, EventDrained)
	case n < 8:
		ev.Kind, ev.Seq = EventFailed, running.Seq
		ev.Err = []error{cluster.ErrUnreachable, cluster.ErrTruncated, context.Canceled}[r.IntN(3)]
	case running.ctx != nil:
		ev.Kind, ev.Seq = pick(outcomes[running.Kind]...), running.Seq
	default:
		ev.Kind, ev.Desired = EventWant, WantMirroring
	}
	if ev.Kind == EventPositionRead || ev.Kind == EventStopped {
		ev.Position = &cluster.Position{Epoch: ev.Epoch, Offset: ev.Start}
	}
	return ev
}

// TestRandomWalk drives the loop with random events, a store that fails now and
// then, and crashes; the journal checks every write and every effect.
func TestRandomWalk(t *testing.T) {
	const seeds, steps = 20, 400
	visited := map[State]int{}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walk(t, seed, steps, visited) })
		})
	}
	for _, s := range States()[1:] {
		if visited[s] < seeds {
			t.Errorf("the walks came to %s only %d times", s, visited[s])
		}
	}
}

func walk(t *testing.T, seed uint64, steps int, visited map[State]int) {
	r := rand.New(rand.NewPCG(seed, 1279))
	j := &journal{Memory: NewMemory(), t: t, saved: map[cluster.Partition]Record{}, calls: map[cluster.Partition]call{}}
	faults := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	j.SetFault(func(op string, _ Record) error {
		mu.Lock()
		defer mu.Unlock()
		if op != "delete" && faults.IntN(10) == 0 {
			return errDown
		}
		return nil
	})
	partitions := []cluster.Partition{{Topic: "a"}, {Topic: "a", Partition: 1}, {Topic: "b"}}
	c := New("m", j, j, nil)
	stop := start(t, c)
	for range steps {
		p := partitions[r.IntN(len(partitions))]
		j.mu.Lock()
		running := j.calls[p]
		j.mu.Unlock()
		ev := randomEvent(r, p, running)
		post(c, ev)
		if s, ok := c.Snapshot(p); ok {
			visited[s.State]++
		}
		switch r.IntN(40) {
		case 0:
			stop()
			c = New("m", j, j, nil)
			stop = start(t, c)
		case 1, 2, 3, 4:
			pass(time.Duration(r.IntN(400)) * time.Second)
		}
	}
	stop()
}

// TestCrashAtEverySave ends the loop between each write and what would have been
// performed for it. The next worker does it, and gets to the same end.
func TestCrashAtEverySave(t *testing.T) {
	life := []Event{
		{Kind: EventWant, Desired: WantMirroring}, {Kind: EventCutNeeded, Cut: 5}, {Kind: EventCutDone},
		{Kind: EventEpochSeen, Epoch: 2, Start: 5}, {Kind: EventRaiseNeeded}, {Kind: EventEpochRaised},
		{Kind: EventWant, Desired: WantPaused}, {Kind: EventDrained}, {Kind: EventWant, Desired: WantMirroring},
		{Kind: EventWant, Desired: WantStopped}, {Kind: EventPositionRead, Position: &cluster.Position{Epoch: 2, Offset: 9}},
		{Kind: EventStopped},
	}
	for n := 1; n <= len(life); n++ {
		t.Run(fmt.Sprint("save ", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { crashAt(t, life, n) })
		})
	}
}

func crashAt(t *testing.T, life []Event, n int) {
	ctx, cancel := context.WithCancel(t.Context())
	j := &journal{Memory: NewMemory(), t: t, saved: map[cluster.Partition]Record{}, calls: map[cluster.Partition]call{},
		crashAt: n, crash: cancel}
	first := New("m", j, j, nil)
	ended := make(chan error, 1)
	go func() { ended <- first.Run(ctx) }()
	for _, ev := range life[:n] {
		post(first, ev)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if j.saves != n {
		t.Fatalf("%d writes for %d events", j.saves, n)
	}
	want := j.saved[testPartition]
	clear(j.calls)

	second := New("m", j, j, nil)
	defer start(t, second)()
	s := wantState(t, second, want.State)
	running, begun := j.calls[testPartition]
	if row, _ := row(want.State); begun != (row.effect != "") || running.Kind != row.effect {
		t.Errorf("in %s the second worker performs %q", want.State, running.Kind)
	}
	if s.Cut != want.Cut || s.Position != want.Position || len(s.Epochs) != len(want.Epochs) {
		t.Errorf("the second worker has %+v, stored was %+v", s.Record, want)
	}
	for _, ev := range life[n:] {
		ev.Ack = func(err error) {
			if err != nil {
				t.Errorf("%s: %v", ev.Kind, err)
			}
		}
		post(second, ev)
	}
	s = wantState(t, second, StateStopped)
	if !s.HasPosition || s.Position.Offset != 9 || s.OwnerEpoch != 2 {
		t.Errorf("at the end: %+v", s.Record)
	}
}

// FuzzStep: whatever comes, step goes only legal ways, and refusing changes
// nothing.
func FuzzStep(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 2, 0, 3, 7, 4, 9, 12, 3})
	kinds := []EventKind{EventWant, EventAligned, EventProgress, EventEpochSeen, EventRaiseNeeded, EventEpochRaised,
		EventCutNeeded, EventCutDone, EventDrained, EventPositionRead, EventStopped, EventFailed, EventRecover,
		EventForget, eventRetryDue, eventTakeOver, eventReconsider, "nonsense"}
	wants := []Desired{WantMirroring, WantPaused, WantStopped, "nonsense"}
	f.Fuzz(func(t *testing.T, script []byte) {
		rec := newRecord(testPartition)
		for ; len(script) >= 2; script = script[2:] {
			n := int64(script[1])
			ev := Event{
				Partition: testPartition, Kind: kinds[int(script[0])%len(kinds)], Desired: wants[n%4],
				Epoch: int32(n / 16), Start: n % 16, Cut: n - 5, Err: []error{nil, errDown, cluster.ErrGap}[n%3],
			}
			if n%2 == 1 {
				ev.Position = &cluster.Position{Offset: n}
				ev.Epochs = []EpochStart{{Epoch: int32(n % 7), Start: 1}, {Epoch: 3, Start: n % 5}}
			}
			next, effects, err := step(rec, ev)
			if err != nil && (!next.equal(rec) || effects != nil) {
				t.Fatalf("%s in %s was refused and changed the record", ev.Kind, rec.State)
			}
			if !Legal(rec.State, next.State) {
				t.Fatalf("%s: %s to %s", ev.Kind, rec.State, next.State)
			}
			if err := next.validate(); err != nil {
				t.Fatalf("%s in %s: %v", ev.Kind, rec.State, err)
			}
			rec = next
		}
		// Stop comes first: wherever it went, a stop is taken.
		next, _, err := step(rec, Event{Partition: testPartition, Kind: EventWant, Desired: WantStopped})
		if err != nil || next.State != StateStopping && next.State != StateStopped {
			t.Fatalf("a stop in %s leads to %s: %v", rec.State, next.State, err)
		}
	})
}

func FuzzRecordJSON(f *testing.F) {
	data, err := newRecord(testPartition).MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var rec, again Record
		if rec.UnmarshalJSON(data) != nil {
			return
		}
		out, err := rec.MarshalJSON()
		if err == nil {
			err = again.UnmarshalJSON(out)
		}
		if err != nil || !rec.equal(again) {
			t.Fatalf("%s is read back as %+v: %v", out, again, errors.Join(err))
		}
	})
}
