package fetcher

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// inFilledWorld is inWorld with a destination that fills gaps.
func inFilledWorld(t *testing.T, opts Options, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { liveWith(t, Traits{Gaps: true, Fills: true}, opts, test) })
}

// filled waits until the destination ends where committed records do, and compares what
// readers see on both sides.
func (w *world) filled(p cluster.Partition) {
	w.t.Helper()
	w.within(2*time.Minute, fmt.Sprintf("%v at the source's last stable offset", p), func() bool {
		return w.dst.end(p) == w.src.stable(p) || w.notes.failure(p) != nil
	})
	if err := w.notes.failure(p); err != nil {
		w.t.Fatal(err)
	}
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	w.dst.with(p, func(l *destinationLog) {
		if diff := cmp.Diff(w.src.logs[p].visible(), l.held()); diff != "" {
			w.t.Errorf("%v: readers see another log (-source +destination):\n%s", p, diff)
		}
		at := int64(0)
		for _, b := range l.batches {
			if b.base != at {
				w.t.Errorf("%v: batch at %d where %d is the end", p, b.base, at)
			}
			at = b.next
			if b.bytes != nil && batch.Header(b.bytes).Control() {
				w.t.Errorf("%v: a control batch was handed over at %d", p, b.base)
			}
		}
	})
}

func (s *sourceCluster) stable(p cluster.Partition) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, stable := s.logs[p].transactions()
	return stable
}

// script appends to a source's log: "p" plain, "a"/"b" a record of a transaction of that
// producer, "A" abort, "C" commit of the producer named next.
func (s *sourceCluster) script(p cluster.Partition, script string) {
	s.update(func() {
		l := s.logs[p]
		for i := 0; i < len(script); i++ {
			switch c := script[i]; c {
			case 'p':
				l.append(plain(l.end(), 2, 5, l.leader.Epoch))
			case 'A', 'C':
				kind := batch.MarkerCommit
				if c == 'A' {
					kind = batch.MarkerAbort
				}
				i++
				l.append(l.marker(int64(script[i]), kind))
			case 'e':
				l.leader.Epoch++
			default:
				l.append(l.transactional(int64(c), 1))
			}
		}
	})
}

func spans(pairs ...int64) (out []cluster.Span) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, cluster.Span{From: pairs[i], To: pairs[i+1]})
	}
	return out
}

func TestFillsWhatCommittedReadersDoNotSee(t *testing.T) {
	for _, c := range []struct {
		name, script string
		holes        []cluster.Span
	}{
		{"only plain records", "pp", nil},
		{"a committed transaction", "paaCap", spans(4, 5)},
		{"an aborted one", "paaAap", spans(2, 5)},
		{"nothing but a marker at the end", "pCx", spans(2, 3)},
		{"two that are interleaved, one of them aborted", "abaAaCbp", spans(0, 1, 2, 5)},
		{"aborted and then committed by the same producer", "aAaaCa", spans(0, 2, 3, 4)},
		{"committed and then aborted by the same producer", "aCaaAap", spans(1, 4)},
		{"plain records of others inside an aborted one", "apaAa", spans(0, 1, 3, 5)},
		{"an open one holds what is behind it", "pbpp", nil},
		{"epochs that begin with a marker, or with aborted records", "aaeAapeaAa", spans(0, 3, 5, 7)},
	} {
		t.Run(c.name, func(t *testing.T) {
			inFilledWorld(t, Options{}, func(w *world) {
				w.assign(1, part(0))
				w.src.script(part(0), c.script)
				w.filled(part(0))
				w.dst.with(part(0), func(l *destinationLog) {
					if diff := cmp.Diff(c.holes, merged(l.holes())); diff != "" {
						t.Errorf("holes (-want +got):\n%s", diff)
					}
				})
			})
		})
	}
}

func merged(in []cluster.Span) (out []cluster.Span) {
	for _, s := range in {
		if n := len(out); n > 0 && out[n-1].To == s.From {
			out[n-1].To = s.To
			continue
		}
		out = append(out, s)
	}
	return out
}

// An epoch whose first batch is dropped is stored before anything behind it, and at the
// offset where it begins (I7).
func TestEpochThatBeginsWithAMarker(t *testing.T) {
	inFilledWorld(t, Options{}, func(w *world) {
		w.assign(1, part(0))
		w.src.script(part(0), "aa")
		w.notes.hold = true
		w.src.update(func() { w.src.logs[part(0)].leader.Epoch = 4 })
		w.src.script(part(0), "Aap")
		w.within(time.Minute, "first epoch", func() bool { return len(w.notes.told()) == 1 })
		first := w.notes.told()[0]
		if first.epoch != 0 || first.start != 0 || w.dst.end(part(0)) != 0 {
			t.Errorf("told epoch %d from %d on, destination ends at %d", first.epoch, first.start, w.dst.end(part(0)))
		}
		first.ack(nil)
		w.within(time.Minute, "second epoch", func() bool { return len(w.notes.told()) == 2 })
		second := w.notes.told()[1]
		if second.epoch != 4 || second.start != 2 {
			t.Errorf("told epoch %d from %d on, want 4 from 2 on", second.epoch, second.start)
		}
		if end := w.dst.end(part(0)); end != 2 {
			t.Errorf("destination ends at %d before the epoch is stored, want 2", end)
		}
		second.ack(nil)
		w.notes.hold = false
		w.filled(part(0))
	})
}

// The position may be in the middle of a transaction that is aborted later: what the
// answers say of it is all there is after a restart (C3.1).
func TestRestartInsideAnAbortedTransaction(t *testing.T) {
	inFilledWorld(t, Options{}, func(w *world) {
		w.assign(1, part(0))
		w.src.script(part(0), "paaaAap")
		w.dst.with(part(0), func(l *destinationLog) {
			l.faults = []fault{{err: cluster.ErrTimeout, lands: true, torn: true}, {err: cluster.ErrTimeout, lands: true, torn: true}}
		})
		w.filled(part(0))
		w.remove(part(0))
		w.dst.with(part(0), func(l *destinationLog) { // stands at 3, inside of the aborted records
			l.batches, l.end = l.batches[:1], 2
			l.batches = append(l.batches, sourceBatch{2, 3, 0, nil})
			l.end = 3
		})
		w.reassign(part(0))
		w.filled(part(0))
	})
}

// A log that ends inside of a source's batch, for the destination was stopped between
// two pieces of it, goes on there.
func TestGoesOnInsideABatch(t *testing.T) {
	inFilledWorld(t, Options{}, func(w *world) {
		w.assign(1, part(0))
		w.dst.with(part(0), func(l *destinationLog) {
			l.faults = []fault{{err: cluster.ErrTimeout, lands: true, torn: true}}
		})
		w.src.produce(part(0), 1, 10, 7)
		w.filled(part(0))
		w.dst.with(part(0), func(l *destinationLog) {
			if len(l.batches) != 2 || l.batches[1].base != 5 {
				t.Errorf("landed as %d batches, the last from %d on, want two, from 5 on", len(l.batches), l.batches[len(l.batches)-1].base)
			}
		})
	})
}

func TestTrailingHole(t *testing.T) {
	inFilledWorld(t, Options{}, func(w *world) {
		w.assign(1, part(0))
		w.src.script(part(0), "ppp")
		w.filled(part(0))
		w.src.script(part(0), "pp")
		w.src.update(func() { // the cleaner takes the tail before it is fetched
			l := w.src.logs[part(0)]
			l.all = slices.Clone(l.batches)
			l.batches = l.batches[:3]
		})
		w.filled(part(0))
		w.dst.with(part(0), func(l *destinationLog) {
			if diff := cmp.Diff(spans(6, 10), l.holes()); diff != "" {
				t.Errorf("holes (-want +got):\n%s", diff)
			}
		})
	})
}

// The hole may end where an open transaction begins. Brokers leave a partition out of their
// answers when there is nothing new to be said of it, so that no empty answer shows it.
func TestTrailingHoleBeforeAnOpenTransaction(t *testing.T) {
	inFilledWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.script(p, "ppaa")
		w.src.update(func() {
			l := w.src.logs[p]
			l.all = slices.Clone(l.batches)
			l.batches = slices.Delete(l.batches, 1, 2)
		})
		w.assign(1, p)
		w.filled(p)
	})
}

// A trailing hole is not filled on the word of another leader than the one that told
// where committed records end.
func TestTrailingHoleAfterAnElection(t *testing.T) {
	inFilledWorld(t, Options{}, func(w *world) {
		w.assign(1, part(0))
		w.src.script(part(0), "ppp")
		w.filled(part(0))
		w.src.update(func() {
			l := w.src.logs[part(0)]
			l.all = append(slices.Clone(l.batches), sourceBatch{6, 10, 0, plain(6, 4, 5, 0)})
			l.epochErrs = slices.Repeat([]error{cluster.ErrLeaderEpoch}, 3)
		})
		pass(time.Second)
		w.src.update(func() { // it was lost: something else comes
			l := w.src.logs[part(0)]
			l.all = nil
			l.append(plain(6, 1, 5, 0))
		})
		w.filled(part(0))
	})
}

func TestGoneHole(t *testing.T) {
	for _, rest := range []string{"p", ""} {
		t.Run("left: "+rest, func(t *testing.T) {
			inFilledWorld(t, Options{}, func(w *world) {
				w.assign(1, part(0))
				w.src.script(part(0), "p")
				w.filled(part(0))
				w.remove(part(0))
				w.src.script(part(0), "ppaaCa")
				w.src.update(func() {
					l := w.src.logs[part(0)]
					l.batches, l.start = nil, l.end()
				})
				w.src.script(part(0), rest)
				w.reassign(part(0))
				w.within(time.Minute, "destination at the source's end", func() bool { return w.dst.end(part(0)) == w.src.end(part(0)) })
				w.within(time.Minute, "trimmed", func() bool { var at int64; w.notes.note(func() { at = w.notes.trimmed[part(0)] }); return at == 9 })
				w.notes.note(func() {
					if diff := cmp.Diff([]skipTold{{part(0), cluster.Span{From: 2, To: 9}}}, w.notes.skipped, cmp.AllowUnexported(skipTold{})); diff != "" {
						t.Errorf("skipped (-want +got):\n%s", diff)
					}
				})
				w.dst.with(part(0), func(l *destinationLog) {
					if diff := cmp.Diff(spans(2, 9), l.holes()); diff != "" {
						t.Errorf("holes (-want +got):\n%s", diff)
					}
					if !l.gone[2] {
						t.Error("the hole is not marked as gone")
					}
				})
				if got := w.boards[part(0)].Skipped.Load(); got != 7 {
					t.Errorf("%d offsets counted as skipped, want 7", got)
				}
			})
		})
	}
}

func TestHeldByAnOpenTransaction(t *testing.T) {
	inFilledWorld(t, Options{}, func(w *world) {
		w.assign(1, part(0))
		w.src.script(part(0), "pbpp")
		w.filled(part(0))
		pass(time.Second)
		if h := w.boards[part(0)].Held(); h != nil {
			t.Errorf("held by %+v after a second: transactions take that long", h)
		}
		pass(40 * time.Second)
		want := Held{Offset: 2, Producer: 'b', Since: time.UnixMilli(1_700_000_000_002)}
		if h := w.boards[part(0)].Held(); h == nil || *h != want {
			t.Errorf("held is %+v, want %+v", h, want)
		}
		pass(time.Hour)
		w.notes.note(func() {
			if diff := cmp.Diff([]Held{want}, w.notes.held); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if n := w.notes.stalled[part(0)]; n != 0 {
				t.Errorf("reported as stalled %d times", n)
			}
		})
		if err := w.boards[part(0)].Trouble(); err != nil {
			t.Errorf("trouble: %v", err)
		}
		w.src.update(func() {
			if n := w.src.logs[part(0)].reads; n != 1 {
				t.Errorf("the source was asked %d times", n)
			}
		})
		w.src.script(part(0), "Cb")
		w.filled(part(0))
		if h := w.boards[part(0)].Held(); h != nil {
			t.Errorf("still held: %+v", h)
		}
	})
}

// Random logs, torn appends, small answers, leaders that move: readers always see the
// same on both sides, and the destination reaches as far as committed records do.
func TestRandomTransactions(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 5))
			inFilledWorld(t, Options{PartitionBytes: int32(100 + rnd.IntN(600))}, func(w *world) {
				w.assign(1, part(0))
				open := map[byte]bool{}
				for range 25 {
					w.src.script(part(0), randomScript(rnd, open))
					w.disturb(rnd, part(0))
					if rnd.IntN(3) == 0 {
						pass(time.Duration(rnd.IntN(400)) * time.Millisecond)
					}
				}
				for c := range open {
					w.src.script(part(0), "C"+string(c))
				}
				w.filled(part(0))
			})
		})
	}
}

func randomScript(rnd *rand.Rand, open map[byte]bool) (out string) {
	for range 1 + rnd.IntN(4) {
		c := "abc"[rnd.IntN(3)]
		switch k := rnd.IntN(6); {
		case k == 0:
			out += "p"
		case k < 3 && open[c]:
			out += string("AC"[rnd.IntN(2)]) + string(c)
			delete(open, c)
		default:
			out += string(c)
			open[c] = true
		}
	}
	return out
}

// disturb lets the cleaner or the leader or the destination do something.
func (w *world) disturb(rnd *rand.Rand, p cluster.Partition) {
	switch rnd.IntN(5) {
	case 0:
		w.src.elect(p, int32(1+rnd.IntN(3)))
	case 1:
		w.dst.with(p, func(l *destinationLog) {
			l.faults = append(l.faults, fault{err: cluster.ErrTimeout, lands: true, torn: rnd.IntN(2) == 0})
		})
	case 2:
		w.src.update(func() { w.src.logs[p].clean(w, rnd, w.dst.end(p)) })
	}
}

// clean removes batches that were not copied yet, sometimes up to the end.
func (l *sourceLog) clean(w *world, rnd *rand.Rand, copied int64) {
	if l.all == nil {
		l.all = slices.Clone(l.batches)
	}
	l.batches = slices.DeleteFunc(slices.Clone(l.batches), func(b sourceBatch) bool {
		return b.base >= copied+2 && !batch.Header(b.bytes).Control() && rnd.IntN(3) == 0
	})
}
