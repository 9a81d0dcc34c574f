package broker

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
	"github.com/clustermirror/mirror/internal/metalog"
)

// randomLog is a log of batches with rising epochs, with holes between them.
func randomLog(r *rand.Rand) (log []glimpse) {
	at, e := r.Int64N(50), r.Int32N(3)-1
	for range 1 + r.IntN(60) {
		if r.IntN(4) == 0 {
			at += r.Int64N(40)
		}
		if r.IntN(5) == 0 {
			e += r.Int32N(4)
		}
		next := at + 1 + r.Int64N(10)
		log = append(log, glimpse{some: true, base: at, next: next, epoch: e})
		at = next
	}
	return log
}

// TestHistoryOf: halving finds what looking at every batch finds, with few looks.
func TestHistoryOf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		log := randomLog(r)
		first, last := log[0], log[len(log)-1]
		start := first.base + r.Int64N(first.next-first.base) // it may begin inside a batch
		var want epoch.History
		for _, b := range log {
			want = want.Assign(b.epoch, max(b.base, start))
		}
		looks := 0
		read := func(offset int64) (glimpse, error) {
			looks++
			i := slices.IndexFunc(log, func(b glimpse) bool { return b.next > offset })
			if i < 0 {
				return glimpse{}, nil
			}
			return log[i], nil
		}
		got, err := historyOf(start, last, read)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v from %d on: %v, %v, want %v", log, start, got, err, want)
		}
		if most := 1 + 11*(len(want)+1); looks > most {
			t.Fatalf("%d looks for %d epochs, at most %d", looks, len(want), most)
		}
	}
}

func TestHistoryOfFails(t *testing.T) {
	last := glimpse{some: true, base: 90, next: 100, epoch: 5}
	lost := errors.New("lost")
	for name, read := range map[string]func(int64) (glimpse, error){
		"at the start": func(int64) (glimpse, error) { return glimpse{}, lost },
		"in between": func(o int64) (glimpse, error) {
			if o == 0 {
				return glimpse{some: true, next: 1}, nil
			}
			return glimpse{}, lost
		},
		"nothing there": func(int64) (glimpse, error) { return glimpse{}, nil },
	} {
		if got, err := historyOf(0, last, read); err == nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestGlimpseOf(t *testing.T) {
	b := append(batchAt(10, 5, 3), batchAt(20, 2, 4)...)
	for offset, want := range map[int64]glimpse{
		10: {some: true, base: 10, next: 15, epoch: 3, high: 50, start: 7},
		14: {some: true, base: 10, next: 15, epoch: 3, high: 50, start: 7},
		15: {some: true, base: 20, next: 22, epoch: 4, high: 50, start: 7}, // what stands before was asked for by no one
		22: {high: 50, start: 7},
	} {
		if got := glimpseOf(b, offset, 50, 7); got != want {
			t.Errorf("at %d: %+v, want %+v", offset, got, want)
		}
	}
	if got := glimpseOf(b[:batch.HeaderSize], 10, 50, 7); got.some {
		t.Errorf("of half a batch: %+v", got)
	}
}

// TestHighest: ids that mirrors gave themselves are none that a cluster could come to.
func TestHighest(t *testing.T) {
	if got := highest([]producer{{id: 7}, {id: batch.OwnProducers + 3}, {id: 4711}, {id: 5}}); got != 4711 {
		t.Errorf("%d", got)
	}
	if got := highest([]producer{{id: batch.OwnProducers}}); got != -1 {
		t.Errorf("of mirrors alone: %d", got)
	}
}

// TestElsewhereThan: replicas are told when one of our addresses is another one.
func TestElsewhereThan(t *testing.T) {
	before := []metalog.Listener{{Name: "A", Host: "h", Port: 1}, {Name: "B", Host: "h", Port: 2}}
	for name, c := range map[string]struct {
		now  []Listener
		want bool
	}{
		"the same":     {[]Listener{{Name: "B", Host: "h", Port: 2}, {Name: "A", Host: "h", Port: 1}}, false},
		"one is gone":  {[]Listener{{Name: "A", Host: "h", Port: 1}}, false},
		"another port": {[]Listener{{Name: "A", Host: "h", Port: 3}, {Name: "B", Host: "h", Port: 2}}, true},
		"another host": {[]Listener{{Name: "A", Host: "i", Port: 1}}, true},
		"a new name":   {[]Listener{{Name: "C", Host: "h", Port: 1}}, true},
	} {
		if got := elsewhereThan(before, c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSettledHistory: a log whose replicas end in different epochs has those that can be read, and
// behind the high watermark the latest that a replica tells.
func TestSettledHistory(t *testing.T) {
	log := func(offset int64) (glimpse, error) { // epoch 3 from 10 on, 4 from 20 on, to 30
		if offset < 20 {
			return glimpse{some: true, base: 10, next: 20, epoch: 3, start: 10}, nil
		}
		return glimpse{some: true, base: 20, next: 30, epoch: 4, start: 10}, nil
	}
	refused := func(int64) (glimpse, error) { return glimpse{}, errNothing }
	whole := epoch.History{{Epoch: 3, Start: 10}, {Epoch: 4, Start: 20}}
	for _, tt := range []struct {
		name  string
		found scanned
		read  func(int64) (glimpse, error)
		want  epoch.History
		err   error
	}{
		{"all is read already", scanned{start: 10, high: 30, end: 30, history: whole}, refused, whole, nil},
		{"the end cannot be read yet", scanned{start: 10, high: 30, end: 35}, log, append(slices.Clone(whole), epoch.Start{Epoch: 7, Start: 30}), nil},
		{"nor what is before", scanned{start: 10, high: 30, end: 35}, refused, nil, errNothing},
		{"nothing can be read yet", scanned{start: 10, high: 10, end: 35}, refused, epoch.History{{Epoch: 7, Start: 10}}, nil},
		{"the logs are empty", scanned{}, refused, nil, nil},
	} {
		got, err := settled(tt.found, 7, tt.read)
		if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}
