package offsets

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

func part(n int32) cluster.Partition { return cluster.Partition{Topic: "t", Partition: n} }

func at(n int32, offset int64, metadata ...string) cluster.Committed {
	return cluster.Committed{Partition: part(n), Offset: offset, Metadata: strings.Join(metadata, "")}
}

func scattered(n int32, offset int64) []cluster.Committed {
	return []cluster.Committed{{Partition: part(n), Offset: offset, Scattered: true}}
}

func log(start, hw int64) Log {
	return Log{Offsets: cluster.Offsets{LogStart: start, HighWatermark: hw}, Stretch: 1}
}

func marked(n int32, offsets ...int64) Marks { return Marks{part(n): {1, offsets}} }

func TestDiff(t *testing.T) {
	logs := map[cluster.Partition]Log{part(0): log(100, 900), part(1): log(0, 50)}
	type places = []Place
	for _, tc := range []struct {
		name                string
		source, destination []cluster.Committed
		ours                Marks
		owed                []string
		want                Change
	}{
		{
			name: "new", source: []cluster.Committed{at(0, 500)},
			want: Change{Offsets: []cluster.Committed{at(0, 500)}, Moves: places{{part(0), 500, -1, -1}}, Marks: marked(0, 500)},
		},
		{
			name: "C7.1 above the high watermark", source: []cluster.Committed{at(0, 1000)}, destination: []cluster.Committed{at(0, 880)},
			want: Change{
				Offsets: []cluster.Committed{at(0, 900)}, Moves: places{{part(0), 1000, 880, -1}}, Marks: marked(0, 900, 880),
				Clamped: places{{part(0), 1000, 880, -1}},
			},
		},
		{
			name: "C7.1 clamped to what is there", source: []cluster.Committed{at(0, 1000)}, destination: []cluster.Committed{at(0, 900)}, ours: marked(0, 900),
			want: Change{Clamped: places{{part(0), 1000, 900, 900}}},
		},
		{
			name: "C7.1 caught up later", source: []cluster.Committed{at(0, 890)}, destination: []cluster.Committed{at(0, 880)}, ours: marked(0, 880),
			want: Change{Offsets: []cluster.Committed{at(0, 890)}, Moves: places{{part(0), 890, 880, 880}}, Marks: marked(0, 890, 880)},
		},
		{
			name: "C7.3 null offsets", source: []cluster.Committed{at(0, -1), at(1, 7)},
			want: Change{Offsets: []cluster.Committed{at(1, 7)}, Moves: places{{part(1), 7, -1, -1}}, Marks: marked(1, 7)},
		},
		{
			name: "C7.15 below the log start", source: []cluster.Committed{at(0, 50)},
			want: Change{Offsets: []cluster.Committed{at(0, 100)}, Moves: places{{part(0), 50, -1, -1}}, Marks: marked(0, 100)},
		},
		{
			name: "C7.17 beyond a log that was cut, moved by itself or not", source: []cluster.Committed{at(1, 100)},
			destination: []cluster.Committed{at(1, 60)}, ours: marked(1, 40),
			want: Change{
				Offsets: []cluster.Committed{at(1, 50)}, Moves: places{{part(1), 100, 60, 40}}, Marks: marked(1, 50, 60, 40),
				Clamped: places{{part(1), 100, 60, 40}},
			},
		},
		{
			name: "unchanged", source: []cluster.Committed{at(0, 500)}, destination: []cluster.Committed{at(0, 500)}, ours: marked(0, 500, 400),
		},
		{
			name: "equal by chance: taken for ours", source: []cluster.Committed{at(0, 500)}, destination: []cluster.Committed{at(0, 500)},
			ours: marked(0, 300), want: Change{Marks: marked(0, 500)},
		},
		{
			name: "metadata alone", source: []cluster.Committed{at(0, 500, "a"), at(1, 5, "b")},
			destination: []cluster.Committed{at(0, 500), at(1, 5, "b")}, ours: Marks{part(0): {1, []int64{500}}, part(1): {1, []int64{5}}},
			want: Change{Offsets: []cluster.Committed{at(0, 500, "a")}, Moves: places{{part(0), 500, 500, 500}}},
		},
		{
			name: "C7.7 backwards on purpose", source: []cluster.Committed{at(0, 300)}, destination: []cluster.Committed{at(0, 500)}, ours: marked(0, 500),
			want: Change{Offsets: []cluster.Committed{at(0, 300)}, Moves: places{{part(0), 300, 500, 500}}, Marks: marked(0, 300, 500)},
		},
		{
			name: "backwards, and nothing is known", source: []cluster.Committed{at(0, 300)}, destination: []cluster.Committed{at(0, 500)},
			want: Change{Held: places{{part(0), 300, 500, -1}}},
		},
		{
			name: "forwards, and nothing is known", source: []cluster.Committed{at(0, 600)}, destination: []cluster.Committed{at(0, 500)},
			want: Change{Offsets: []cluster.Committed{at(0, 600)}, Moves: places{{part(0), 600, 500, -1}}, Marks: marked(0, 600, 500)},
		},
		{
			name: "ahead by itself", source: []cluster.Committed{at(0, 600)}, destination: []cluster.Committed{at(0, 700)}, ours: marked(0, 500),
			want: Change{Held: places{{part(0), 600, 700, 500}}},
		},
		{
			name: "back by itself", source: []cluster.Committed{at(0, 600)}, destination: []cluster.Committed{at(0, 200)}, ours: marked(0, 500, 400),
			want: Change{Held: places{{part(0), 600, 200, 500}}},
		},
		{
			name: "a share group has acknowledged records since", source: []cluster.Committed{at(0, 600)}, destination: scattered(0, 500), ours: marked(0, 500),
			want: Change{Held: places{{part(0), 600, 500, 500}}},
		},
		{
			name: "a share group has, and both start at the same", source: []cluster.Committed{at(0, 500)}, destination: scattered(0, 500), ours: marked(0, 500),
		},
		{
			name: "a share group had, before anything was known", source: []cluster.Committed{at(0, 500)}, destination: scattered(0, 500),
		},
		{
			name: "a share group had, and goes forwards", source: []cluster.Committed{at(0, 600)}, destination: scattered(0, 500),
			want: Change{Offsets: []cluster.Committed{at(0, 600)}, Moves: places{{part(0), 600, 500, -1}}, Marks: marked(0, 600, 500)},
		},
		{
			name: "a share group had, and what we set did not arrive", source: []cluster.Committed{at(0, 600)}, destination: scattered(0, 500), ours: marked(0, 600, 500),
			want: Change{Offsets: []cluster.Committed{at(0, 600)}, Moves: places{{part(0), 600, 500, 600}}},
		},
		{
			name: "a commit of which nothing was heard is ours", source: []cluster.Committed{at(0, 700)}, destination: []cluster.Committed{at(0, 500)},
			ours: marked(0, 600, 500),
			want: Change{Offsets: []cluster.Committed{at(0, 700)}, Moves: places{{part(0), 700, 500, 600}}, Marks: marked(0, 700, 500, 600)},
		},
		{
			name: "what was ours in another stretch is not", source: []cluster.Committed{at(0, 300)}, destination: []cluster.Committed{at(0, 500)},
			ours: Marks{part(0): {0, []int64{500}}}, want: Change{Held: places{{part(0), 300, 500, -1}}},
		},
		{
			name: "deleted there", source: []cluster.Committed{at(0, 500)}, ours: marked(0, 500),
			want: Change{Offsets: []cluster.Committed{at(0, 500)}, Moves: places{{part(0), 500, -1, 500}}},
		},
		{name: "other partitions are left alone", source: []cluster.Committed{at(2, 5)}, destination: []cluster.Committed{at(2, 9)}},
		{name: "not at the source any more", destination: []cluster.Committed{at(0, 500)}, ours: marked(0, 500)},
		{name: "owed its own offset", source: []cluster.Committed{at(0, 500)}, owed: []string{"g"}},
		{
			name: "another is owed its own", source: []cluster.Committed{at(0, 500)}, owed: []string{"other"},
			want: Change{Offsets: []cluster.Committed{at(0, 500)}, Moves: places{{part(0), 500, -1, -1}}, Marks: marked(0, 500)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := logs[part(0)]
			l.Owed = tc.owed
			logs := map[cluster.Partition]Log{part(0): l, part(1): logs[part(1)]}
			asked := slices.Clone(tc.source)
			got := Diff("g", tc.source, tc.destination, tc.ours, logs)
			tc.want.Group = "g"
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if !slices.Equal(asked, tc.source) {
				t.Error("the question was changed")
			}
		})
	}
}

// world is a group on both sides and its ledger, as things happen to it.
type world struct {
	source, destination int64
	log                 Log
	marks               Marks
	own                 bool // what stands at the destination was put there by the group itself
}

// FuzzDiff plays with one partition of a group: commits, resets, lost answers, restarts. What
// is written lies within the log (I11), a group that moved by itself stays, one that did
// not follows at once, and a second look has nothing left to do.
func FuzzDiff(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := world{source: -1, destination: -1, log: log(0, 10), marks: Marks{}}
		for range 200 {
			w.happens(r)
			ch := Diff("g", committed(w.source), committed(w.destination), w.marks, map[cluster.Partition]Log{part(0): w.log})
			if w.check(t, ch); len(ch.Held) == 0 {
				w.own = false // they have met
			}
			for p, m := range ch.Marks {
				w.marks[p] = m
			}
			if len(ch.Offsets) == 0 {
				continue
			}
			switch r.IntN(4) {
			case 0: // refused, or lost on the way
			case 1: // done, and nothing was heard of it
				w.destination, w.own = ch.Offsets[0].Offset, false
			default:
				w.destination, w.own = ch.Offsets[0].Offset, false
				w.marks[part(0)] = Mark{1, []int64{w.destination}}
				again := Diff("g", committed(w.source), committed(w.destination), w.marks, map[cluster.Partition]Log{part(0): w.log})
				if len(again.Offsets) > 0 || len(again.Marks) > 0 || len(again.Held) > 0 {
					t.Fatalf("a second look: %+v", again)
				}
			}
		}
	})
}

func committed(offset int64) []cluster.Committed {
	if offset < 0 {
		return nil
	}
	return []cluster.Committed{at(0, offset)}
}

func (w *world) happens(r *rand.Rand) {
	switch r.IntN(8) {
	case 0:
		w.log.HighWatermark += r.Int64N(20)
	case 1:
		w.log.LogStart = min(w.log.HighWatermark, w.log.LogStart+r.Int64N(5))
	case 2:
		w.source = r.Int64N(w.log.HighWatermark + 20)
	case 3:
		// Far from all that was ever ours, so that it is told from it.
		if len(w.marks) > 0 {
			w.log.HighWatermark += 100
			w.destination, w.own = w.log.HighWatermark, true
		}
	case 4:
		if r.IntN(4) == 0 {
			w.destination, w.own = -1, false
		}
	}
}

func (w *world) check(t *testing.T, ch Change) {
	want := max(w.log.LogStart, min(w.source, w.log.HighWatermark))
	for _, o := range ch.Offsets {
		if o.Offset < w.log.LogStart || o.Offset > w.log.HighWatermark {
			t.Fatalf("%d is written in the log %+v", o.Offset, w.log)
		}
	}
	switch held := w.own && w.destination != want; {
	case w.source < 0 && (len(ch.Offsets) > 0 || len(ch.Held) > 0):
		t.Fatalf("%+v, and the source has nothing", ch)
	case w.source < 0:
	case held != (len(ch.Held) > 0):
		t.Fatalf("by itself %v: %+v, from %+v", w.own, ch, w)
	case !held && w.destination != want && (len(ch.Offsets) != 1 || ch.Offsets[0].Offset != want):
		t.Fatalf("%+v is not moved to %d: %+v", w, want, ch)
	case held && len(ch.Offsets) > 0:
		t.Fatalf("held and written: %+v", ch)
	}
}
