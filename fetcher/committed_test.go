package fetcher

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// taken is what of a log a tracker takes at a position, from one answer.
func taken(t *testing.T, script string, next, stable int64) (got []cluster.Batch) {
	t.Helper()
	s := newSource(t)
	s.create(part(0), 1)
	s.script(part(0), script)
	l := s.logs[part(0)]
	f := Fetched{}
	for _, b := range l.batches {
		f.Records = append(f.Records, b.bytes...)
	}
	l.committed(&f, 0)
	for _, b := range l.batches[len(l.batches)-1:] { // the broker is generous
		f.Records = append(f.Records, b.bytes...)
	}
	f.LastStable = stable
	tr := newTracker(Assignment{Stretch: Stretch{Partition: part(0)}, Next: next, LastEpoch: 0}, 1)
	seen := visibility{}
	seen.read(&f)
	w := batch.Walk(f.Records)
	got, _, err := tr.take(&w, nil, Traits{Gaps: true, Fills: true}, &seen)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].Bytes, got[i].MaxTimestamp = nil, int64(len(got[i].Bytes))
	}
	return got
}

// shape is a batch as the tests below write it.
type shape struct {
	base, next int64
	hole       bool
}

func shapes(bs []cluster.Batch) (out []shape) {
	for _, b := range bs {
		out = append(out, shape{b.Base, b.Next, b.MaxTimestamp == 0})
	}
	return out
}

func TestTakesOnlyWhatIsDecided(t *testing.T) {
	for _, c := range []struct {
		name, script string
		next, stable int64
		want         []shape
	}{
		{"all of it", "paCa", 0, 4, []shape{{0, 2, false}, {2, 3, false}, {3, 4, true}}},
		{"not what is open", "pa", 0, 2, []shape{{0, 2, false}}},
		{"a broker that does not say where that begins", "pp", 0, -1, []shape{{0, 2, false}, {2, 4, false}}},
		// The marker ends the transaction, though it stands before the position.
		{"an abort marker before the position", "aAaaCap", 2, 6, []shape{{2, 3, false}, {3, 4, true}, {4, 6, false}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, shapes(taken(t, c.script, c.next, c.stable)), cmp.AllowUnexported(shape{})); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
		})
	}
}

// Committed fetches cost no allocation for each batch, transactions or not.
func TestTakingCommittedDoesNotAllocate(t *testing.T) {
	s := newSource(t)
	s.create(part(0), 1)
	for range 30 {
		s.script(part(0), "pabAaCbp")
	}
	l := s.logs[part(0)]
	f := Fetched{LastStable: l.end()}
	for _, b := range l.batches {
		f.Records = append(f.Records, b.bytes...)
	}
	l.committed(&f, 0)
	aborted, seen := slices.Clone(f.Aborted), visibility{}
	into := make([]cluster.Batch, 0, 300)
	tr := newTracker(Assignment{Stretch: Stretch{Partition: part(0)}, LastEpoch: 0}, 1)
	got := testing.AllocsPerRun(20, func() {
		copy(f.Aborted[:cap(aborted)][:len(aborted)], aborted)
		seen.read(&f)
		tr.next = 0
		w := batch.Walk(f.Records)
		bs, _, err := tr.take(&w, into[:0], Traits{Gaps: true, Fills: true}, &seen)
		if err != nil || len(bs) < 120 || tr.next != l.end() {
			t.Fatalf("took %d batches up to %d: %v", len(bs), tr.next, err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations for an answer", got)
	}
}

// FuzzTakeFilled: whatever the bytes and whatever the broker says was aborted, what is
// handed on continues the log without a gap, and what has bytes is checked.
func FuzzTakeFilled(f *testing.F) {
	s := newSource(f)
	s.create(part(0), 1)
	s.script(part(0), "paaAapeaCa")
	var log []byte
	for _, b := range s.logs[part(0)].batches {
		log = append(log, b.bytes...)
	}
	f.Add(log, int64(0), int64(9), int64('a'), int64(2))
	f.Add(log, int64(1), int64(-1), int64('a'), int64(2))
	f.Add(plain(4, 3, 5, 0), int64(5), int64(-1), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, next, stable, producer, first int64) {
		tr := newTracker(Assignment{Stretch: Stretch{Partition: part(0)}, Next: next, LastEpoch: 0}, 1)
		tr.leap = true
		tr.board.LogStart.Store(first)
		seen := visibility{}
		seen.read(&Fetched{LastStable: stable, Aborted: []AbortedTransaction{{producer, first}}})
		w := batch.Walk(b)
		got, how, err := tr.take(&w, nil, Traits{Gaps: true, Fills: true}, &seen)
		if (how == bad) != (err != nil) {
			t.Fatalf("outcome %d with error %v", how, err)
		}
		at := next
		for _, x := range got {
			if x.Base != at || x.Next <= at {
				t.Fatalf("took [%d,%d) at %d", x.Base, x.Next, at)
			}
			at = x.Next
			if x.Hole() {
				continue
			}
			h := batch.Header(x.Bytes)
			if err := h.Check(); err != nil || h.Base() != x.Base || h.Next() != x.Next || h.Control() || h.Count() == 0 {
				t.Fatalf("took a batch [%d,%d) that is wrong: %v", h.Base(), h.Next(), err)
			}
		}
		if tr.next != at {
			t.Fatalf("position is %d, want %d", tr.next, at)
		}
	})
}
