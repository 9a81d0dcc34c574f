package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/google/go-cmp/cmp"
)

// piece is what a test wants to know of one.
type piece struct {
	Base, Next, Stamp int64
	What              string // "markers", "phantoms", "fillers", "records"
}

// whole prepares a run to its end, and gives the pieces of each step.
func whole(t *testing.T, c *Cluster, fill *topicFill, run []cluster.Batch, stamp int64) (steps [][]piece, seen map[int64]string) {
	t.Helper()
	r := newRun(run, nil, nil)
	r.prepare(run[0].Base, stamp)
	p, seen := *r.prep, map[int64]string{}
	for !p.done() {
		before := p.next
		got, err := c.pieces(&p, fill)
		if err != nil {
			t.Fatal(err)
		}
		var step []piece
		for _, b := range got {
			if b.Base != before || b.Next <= b.Base {
				t.Fatalf("a piece [%d,%d) where %d is next", b.Base, b.Next, before)
			}
			before = b.Next
			step = append(step, piece{b.Base, b.Next, b.MaxTimestamp, kind(t, b, seen)})
		}
		if len(got) == 0 || p.next != before {
			t.Fatalf("%d pieces up to %d, and %d is said to be next", len(got), before, p.next)
		}
		steps = append(steps, step)
	}
	if p.next != run[len(run)-1].Next {
		t.Fatalf("prepared up to %d, want %d", p.next, run[len(run)-1].Next)
	}
	return steps, seen
}

// kind says what a piece is, and notes its records; what would be refused fails.
func kind(t *testing.T, b cluster.Batch, seen map[int64]string) string {
	t.Helper()
	if b.Hole() {
		return "markers"
	}
	h := batch.Header(bytesAt(b))
	if err := h.Check(); err != nil || !h.Producible() || int64(h.Count()) != b.Next-b.Base {
		t.Fatalf("[%d,%d) with %d records cannot be produced: %v", b.Base, b.Next, h.Count(), err)
	}
	what := "phantoms"
	if err := batch.Decode(h, func(r batch.Record) error {
		switch {
		case r.Phantom:
		case string(r.Key) == fillerKey:
			what = "fillers"
		default:
			what, seen[r.Offset] = "records", fmt.Sprintf("%d %q %q", r.Timestamp, r.Key, r.Value)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return what
}

// bytesAt is a piece at its offset, as the log will hold it.
func bytesAt(b cluster.Batch) []byte {
	bytes := slices.Clone(b.Bytes)
	batch.Header(bytes).Patch(batch.Patch{Base: b.Base, LeaderEpoch: cluster.NoEpoch, ProducerID: 5, BaseSequence: 0})
	return bytes
}

// gapped is a batch of a source with records at some of its offsets.
func gapped(base, next, stamp int64, attributes int16, offsets ...int64) cluster.Batch {
	s := batch.Spec{Base: base, Next: next, Attributes: attributes, Timestamp: stamp}
	for _, o := range offsets {
		s.Records = append(s.Records, batch.Record{Offset: o, Timestamp: stamp, Value: fmt.Append(nil, "value of ", o)})
	}
	b := batch.Encode(s)
	return cluster.Batch{Base: base, Next: next, MaxTimestamp: stamp, Bytes: b}
}

func TestPreparation(t *testing.T) {
	markers := &Cluster{cfg: Config{GapFill: GapMarkers}}
	phantoms := &Cluster{cfg: Config{GapFill: GapPhantoms}}
	deletes := &topicFill{maxBytes: defaultMaxBytes, deletes: true}
	keeps := &topicFill{maxBytes: defaultMaxBytes, key: []byte(phantomKey), keeps: true}
	small := &topicFill{maxBytes: batch.HeaderSize + 110, deletes: true}
	gone := func(from, to int64) cluster.Batch { return cluster.Batch{Base: from, Next: to, Gone: true} }
	data := func(base int64, n int, stamp int64) cluster.Batch { return batchesAt(base, 1, n, stamp)[0] }
	for name, c := range map[string]struct {
		c    *Cluster
		fill *topicFill
		run  []cluster.Batch
		want [][]piece
	}{
		"a hole between batches": {markers, deletes, []cluster.Batch{data(0, 5, 70), hole(5, 9), data(9, 2, 80)},
			[][]piece{{{0, 5, 70, "records"}, {5, 9, 80, "markers"}, {9, 11, 80, "records"}}}},
		"and by phantoms": {phantoms, deletes, []cluster.Batch{data(0, 5, 70), hole(5, 9), data(9, 2, 80)},
			[][]piece{{{0, 5, 70, "records"}, {5, 9, 80, "phantoms"}, {9, 11, 80, "records"}}}},
		"nothing behind it": {phantoms, deletes, []cluster.Batch{data(0, 5, 70), hole(5, 9)},
			[][]piece{{{0, 5, 70, "records"}, {5, 9, 70, "phantoms"}}}},
		"nothing at all": {phantoms, deletes, []cluster.Batch{hole(0, 2)}, [][]piece{{{0, 2, 60, "phantoms"}}}},
		"holes that touch cost one round trip": {markers, keeps, []cluster.Batch{hole(0, 3), gone(3, 5), hole(5, 6), data(6, 1, 70)},
			[][]piece{{{0, 6, 70, "markers"}, {6, 7, 70, "records"}}}},
		"what is gone and can be deleted": {markers, deletes, []cluster.Batch{gone(0, fillerRecords+3), hole(fillerRecords+3, fillerRecords+5)},
			[][]piece{{{0, fillerRecords, 60, "fillers"}, {fillerRecords, fillerRecords + 3, 60, "fillers"}, {fillerRecords + 3, fillerRecords + 5, 60, "markers"}}}},
		"what is gone and cannot": {phantoms, keeps, []cluster.Batch{gone(0, 4)}, [][]piece{{{0, 4, 60, "phantoms"}}}},
		"batches are small": {phantoms, small, []cluster.Batch{hole(0, 25)},
			[][]piece{{{0, 10, 60, "phantoms"}, {10, 20, 60, "phantoms"}, {20, 25, 60, "phantoms"}}}},
		"a batch with gaps": {markers, deletes, []cluster.Batch{gapped(0, 8, 75, 0, 2, 3, 6), data(8, 1, 80)},
			[][]piece{{{0, 2, 75, "markers"}, {2, 4, 75, "records"}, {4, 6, 75, "markers"}, {6, 7, 75, "records"}, {7, 8, 75, "markers"}, {8, 9, 80, "records"}}}},
		"its last gap touches a hole": {markers, deletes, []cluster.Batch{gapped(0, 4, 75, 0, 0), hole(4, 9)},
			[][]piece{{{0, 1, 75, "records"}, {1, 9, 75, "markers"}}}},
		"a batch with gaps, by phantoms": {phantoms, deletes, []cluster.Batch{gapped(0, 8, 75, 0, 2, 3, 6)},
			[][]piece{{{0, 8, 75, "records"}}}},
		"the broker's time": {markers, deletes, []cluster.Batch{gapped(0, 2, 90, batch.AttrLogAppendTime, 0, 1)},
			[][]piece{{{0, 2, 90, "records"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, seen := whole(t, c.c, c.fill, c.run, 60)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(recordsOf(t, c.run), seen); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// recordsOf are the records that a run shows, with their times.
func recordsOf(t *testing.T, run []cluster.Batch) map[int64]string {
	seen := map[int64]string{}
	for _, b := range run {
		if b.Hole() {
			continue
		}
		if err := batch.Decode(b.Bytes, func(r batch.Record) error {
			seen[r.Offset] = fmt.Sprintf("%d %q %q", r.Timestamp, r.Key, r.Value)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return seen
}

// Any run, in any steps: its pieces go on from each other up to its end, can be produced,
// and show the same records; no step is without bounds.
func TestPreparationOfAnyRun(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		c := &Cluster{cfg: Config{GapFill: []GapFill{GapMarkers, GapPhantoms}[r.IntN(2)]}}
		fill := &topicFill{maxBytes: 300 + r.IntN(2000), deletes: r.IntN(2) == 0}
		var run []cluster.Batch
		at := r.Int64N(3) * 5_000_000_000
		for range 1 + r.IntN(40) {
			n := 1 + r.Int64N(12)
			switch r.IntN(4) {
			case 0:
				run = append(run, cluster.Batch{Base: at, Next: at + n*r.Int64N(20) + 1, Gone: r.IntN(2) == 0})
			case 1:
				run = append(run, batchesAt(at, 1, int(n), 1000+at%100)...)
			default:
				var offsets []int64
				for o := at; o < at+n; o++ {
					if r.IntN(3) > 0 {
						offsets = append(offsets, o)
					}
				}
				run = append(run, gapped(at, at+n, 1000+at%100, int16(r.IntN(2))*batch.AttrLogAppendTime, offsets...))
			}
			at = run[len(run)-1].Next
		}
		steps, seen := whole(t, c, fill, run, -1)
		if diff := cmp.Diff(recordsOf(t, run), seen); diff != "" {
			t.Fatalf("seed %d: records (-want +got):\n%s", seed, diff)
		}
		for _, s := range steps {
			if len(s) > preparePieces+12 {
				t.Fatalf("seed %d: %d pieces in one step", seed, len(s))
			}
			for _, b := range s {
				if c.cfg.GapFill == GapPhantoms && b.What == "markers" {
					t.Fatalf("seed %d: %+v", seed, b)
				}
			}
		}
	}
}

// A long hole is not prepared at once, and is nowhere when something cannot be.
func TestPreparationInSteps(t *testing.T) {
	c := &Cluster{cfg: Config{GapFill: GapPhantoms}}
	fill := &topicFill{maxBytes: defaultMaxBytes, deletes: true}
	steps, _ := whole(t, c, fill, []cluster.Batch{hole(0, 1_000_000)}, 60)
	for i, s := range steps {
		n := int64(0)
		for _, b := range s {
			n += b.Next - b.Base
		}
		if n > 120_000 || n < 80_000 && i < len(steps)-1 {
			t.Errorf("step %d has %d offsets", i, n)
		}
	}
	broken := gapped(5, 9, 75, 0, 5, 8)
	broken.Bytes[batch.HeaderSize] = 0x7f // the length of its first record
	p := &preparation{given: []cluster.Batch{hole(0, 5), broken}, stamp: -1}
	if got, err := c.pieces(p, fill); !errors.Is(err, cluster.ErrCorrupt) || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	if stamp := (&preparation{given: []cluster.Batch{hole(0, 1)}, stamp: -1}).neighbour(); time.Since(time.UnixMilli(stamp)) > time.Minute {
		t.Errorf("with no record near the time is %d", stamp)
	}
}
