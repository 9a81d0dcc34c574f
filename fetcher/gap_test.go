package fetcher

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

func inGaps(t *testing.T, opts Options, test func(w *world, p cluster.Partition)) {
	t.Helper()
	inWorld(t, opts, func(w *world) {
		w.dst.traits.Gaps, w.f.traits.Gaps = true, true
		test(w, part(0))
	})
}

// behind mirrors up to 100 and lets the source go on to end and delete up to start.
func (w *world) behind(p cluster.Partition, start, end int64) {
	w.assign(1, p)
	w.src.produce(p, 10, 10, 5)
	w.same(time.Second, p)
	w.remove(p)
	w.src.produce(p, int(end-100)/10, 10, 5)
	w.src.update(func() { w.src.logs[p].start = start })
	w.reassign(p)
}

func (w *world) skips() (out []skipTold) {
	w.notes.note(func() { out = append(out, w.notes.skipped...) })
	return out
}

// wantSkipped compares what was told with spans of p, and with the counter.
func (w *world) wantSkipped(p cluster.Partition, spans ...cluster.Span) {
	w.t.Helper()
	var want []skipTold
	n := int64(0)
	for _, s := range spans {
		want, n = append(want, skipTold{p, s}), n+s.Len()
	}
	if diff := cmp.Diff(want, w.skips(), cmp.AllowUnexported(skipTold{})); diff != "" {
		w.t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if got := w.boards[p].Skipped.Load(); got != n {
		w.t.Errorf("counted %d offsets, want %d", got, n)
	}
}

func TestRetentionThatRanAhead_C1_1_I9(t *testing.T) {
	t.Run("goes on behind the gap", func(t *testing.T) {
		inGaps(t, Options{}, func(w *world, p cluster.Partition) {
			w.behind(p, 500, 1000)
			w.same(time.Second, p)
			w.within(time.Second, "trimmed to the source's start", func() bool { return w.trimmedTo(p) == 500 })
			w.wantSkipped(p, cluster.Span{From: 100, To: 500})
			w.dst.with(p, func(l *destinationLog) {
				if got := l.batches[10].base; got != 500 {
					t.Errorf("first batch behind the gap is at %d, want 500", got)
				}
			})
			pass(time.Minute)
			w.wantSkipped(p, cluster.Span{From: 100, To: 500})
			if err := w.notes.failure(p); err != nil || w.boards[p].LogEnd.Load() != 1000 {
				t.Errorf("LogEnd %d, %v", w.boards[p].LogEnd.Load(), err)
			}
		})
	})
	t.Run("fails by option", func(t *testing.T) {
		inGaps(t, Options{RetentionGap: RetentionFail}, func(w *world, p cluster.Partition) {
			w.behind(p, 500, 1000)
			if got, want := w.fails(p, cluster.ErrRetention), (cluster.Span{From: 100, To: 500}); got != want {
				t.Errorf("span %v, want %v", got, want)
			}
			w.wantSkipped(p)
			if w.dst.end(p) != 100 {
				t.Errorf("destination ends at %d", w.dst.end(p))
			}
		})
	})
	t.Run("log start inside a batch", func(t *testing.T) {
		inGaps(t, Options{}, func(w *world, p cluster.Partition) {
			w.behind(p, 505, 1000)
			w.same(time.Second, p)
			w.within(time.Second, "trimmed to the source's start", func() bool { return w.trimmedTo(p) == 505 })
			w.wantSkipped(p, cluster.Span{From: 100, To: 500})
		})
	})
	t.Run("log start inside the next batch: nothing is skipped (C1.7)", func(t *testing.T) {
		inGaps(t, Options{}, func(w *world, p cluster.Partition) {
			w.behind(p, 105, 1000)
			w.same(time.Second, p)
			w.wantSkipped(p)
		})
	})
	t.Run("fails by option only when something is lost", func(t *testing.T) {
		inGaps(t, Options{RetentionGap: RetentionFail}, func(w *world, p cluster.Partition) {
			w.assign(1, p)
			w.src.produce(p, 10, 10, 5)
			w.same(time.Second, p)
			w.src.update(func() { w.src.logs[p].start = 95 })
			w.src.produce(p, 10, 10, 5)
			w.same(time.Second, p)
		})
	})
}

func TestHolesInsideAreNotSkipped(t *testing.T) {
	inGaps(t, Options{}, func(w *world, p cluster.Partition) {
		w.assign(1, p)
		w.src.update(func() {
			l := w.src.logs[p]
			l.append(plain(0, 10, 5, 0))
			l.append(plain(40, 10, 5, 0)) // compacted between
		})
		w.same(time.Second, p)
		w.wantSkipped(p)
		w.remove(p)
		w.src.update(func() { // deleted up to 60, where a hole begins that ends at 80
			l := w.src.logs[p]
			l.append(plain(50, 10, 5, 0))
			l.append(plain(80, 10, 5, 0))
			l.start = 60
		})
		w.reassign(p)
		w.same(time.Second, p)
		w.wantSkipped(p, cluster.Span{From: 50, To: 60})
	})
}

func TestSkippedIsToldOnce_I9(t *testing.T) {
	inGaps(t, Options{}, func(w *world, p cluster.Partition) {
		w.assign(1, p)
		w.src.produce(p, 10, 10, 5)
		w.same(time.Second, p)
		w.remove(p)
		w.src.produce(p, 10, 10, 5)
		w.src.update(func() { w.src.logs[p].start = 150 })
		w.dst.with(p, func(l *destinationLog) {
			l.faults = []fault{{err: cluster.ErrUnavailable}, {err: cluster.ErrUnavailable}, {err: cluster.ErrUnavailable}}
		})
		w.reassign(p)
		w.within(time.Second, "told", func() bool { return len(w.skips()) > 0 })
		w.src.elect(p, 2)
		w.same(10*time.Second, p)
		w.wantSkipped(p, cluster.Span{From: 100, To: 150})
	})
	t.Run("what the source deletes meanwhile is told too", func(t *testing.T) {
		inGaps(t, Options{}, func(w *world, p cluster.Partition) {
			w.assign(1, p)
			w.src.produce(p, 10, 10, 5)
			w.same(time.Second, p)
			w.dst.with(p, func(l *destinationLog) { l.endErr, l.endsLeft = cluster.ErrUnavailable, 6 })
			w.dst.with(p, func(l *destinationLog) {
				l.faults = []fault{{err: cluster.ErrUnavailable}, {err: cluster.ErrUnavailable}}
			})
			w.src.update(func() {
				l := w.src.logs[p]
				for base := int64(100); base < 300; base += 10 {
					l.append(plain(base, 10, 5, 0))
				}
				l.start = 150
			})
			w.within(time.Second, "told", func() bool { return len(w.skips()) > 0 })
			w.src.update(func() { w.src.logs[p].start = 200 })
			w.same(30*time.Second, p)
			w.wantSkipped(p, cluster.Span{From: 100, To: 150}, cluster.Span{From: 150, To: 200})
		})
	})
}

func TestNothingIsLeftAtTheSource(t *testing.T) {
	for name, opts := range map[string]Options{"goes on": {}, "fails by option": {RetentionGap: RetentionFail}} {
		t.Run(name, func(t *testing.T) {
			inGaps(t, opts, func(w *world, p cluster.Partition) {
				w.behind(p, 500, 500)
				if opts.RetentionGap == RetentionFail {
					if got, want := w.fails(p, cluster.ErrRetention), (cluster.Span{From: 100, To: 500}); got != want {
						t.Errorf("span %v, want %v", got, want)
					}
					return
				}
				w.within(time.Second, "told", func() bool { return len(w.skips()) == 1 })
				w.within(time.Second, "emptied like the source", func() bool { return w.trimmedTo(p) == 100 })
				pass(10 * time.Minute)
				w.wantSkipped(p, cluster.Span{From: 100, To: 500})
				if w.notes.stalled[p] != 0 || w.notes.failure(p) != nil || w.boards[p].Trouble() != nil {
					t.Errorf("stalled %d, %v, %v", w.notes.stalled[p], w.notes.failure(p), w.boards[p].Trouble())
				}
				if got := w.boards[p].LogEnd.Load(); got != 500 || w.dst.end(p) != 100 {
					t.Errorf("shown end %d, end %d", got, w.dst.end(p))
				}
				w.src.produce(p, 2, 10, 5)
				w.same(time.Second, p)
				w.within(time.Second, "trimmed to the source's start", func() bool { return w.trimmedTo(p) == 500 })
				w.wantSkipped(p, cluster.Span{From: 100, To: 500})
				w.dst.mu.Lock()
				defer w.dst.mu.Unlock()
				for _, c := range w.dst.trims {
					if c.Offset > 500 {
						t.Errorf("trimmed to %d", c.Offset)
					}
				}
			})
		})
	}
	t.Run("emptied while idle", func(t *testing.T) {
		inGaps(t, Options{}, func(w *world, p cluster.Partition) {
			w.assign(1, p)
			w.src.produce(p, 10, 10, 5)
			w.same(time.Second, p)
			w.src.update(func() { w.src.logs[p].start = 100 })
			w.within(time.Second, "trimmed", func() bool { return w.trimmedTo(p) == 100 })
			w.src.produce(p, 1, 10, 5)
			w.same(time.Second, p)
			w.wantSkipped(p)
		})
	})
}

// An answer that is out of range where the source itself says the log starts is no
// reason to ask all the time.
func TestOutOfRangeAtTheLogStart(t *testing.T) {
	inGaps(t, Options{}, func(w *world, p cluster.Partition) {
		w.assign(1, p)
		w.src.produce(p, 10, 10, 5)
		w.same(time.Second, p)
		w.remove(p)
		w.src.produce(p, 50, 10, 5)
		out := Fetched{Err: cluster.ErrOutOfRange, Diverging: cluster.EpochEnd{EndOffset: -1}}
		w.src.update(func() {
			l := w.src.logs[p]
			l.start = 500
			for range 20 {
				l.faults = append(l.faults, out)
			}
		})
		fetches := func() int {
			w.src.mu.Lock()
			defer w.src.mu.Unlock()
			return w.src.brokers[1].fetches
		}
		before := fetches()
		w.reassign(p)
		pass(time.Second)
		if n := fetches() - before; n > 10 {
			t.Errorf("%d fetches within a second", n)
		}
		w.src.update(func() { w.src.logs[p].faults = nil })
		w.same(10*time.Second, p)
		w.wantSkipped(p, cluster.Span{From: 100, To: 500})
	})
}

// A log start that went back, as an unclean election may make it, is believed.
func TestLogStartThatWentBack(t *testing.T) {
	inGaps(t, Options{}, func(w *world, p cluster.Partition) {
		w.behind(p, 500, 500)
		w.within(time.Second, "told", func() bool { return len(w.skips()) == 1 })
		w.src.cut(p, 200)
		w.src.update(func() { w.src.logs[p].start = 0 })
		w.within(10*time.Second, "copied or refused", func() bool { return w.dst.end(p) == 200 || w.notes.failure(p) != nil })
		w.prefix(p)
	})
}
