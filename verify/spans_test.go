package verify

import (
	"math"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

func TestSampleBlocks(t *testing.T) {
	whole := cluster.Span{From: 500, To: 500 + 1000*sampleBlock}
	for _, fraction := range []float64{1e-9, 0.01, 0.1, 0.5} {
		s := &Sample{Fraction: fraction}
		got := s.of(foo, whole)
		if got[0].From != whole.From || got[len(got)-1].To != whole.To {
			t.Errorf("%v: first and last block are not both in %v", fraction, got)
		}
		last := int64(-1)
		for _, one := range got {
			if one.Len() <= 0 || one.From <= last {
				t.Fatalf("%v: %v", fraction, got)
			}
			last = one.To
		}
		if share := float64(got.len()) / float64(whole.Len()); math.Abs(share-fraction) > 0.05 {
			t.Errorf("%v: %v of the offsets", fraction, share)
		}
		// What is taken of a longer log is taken of this one, but for the ends.
		longer := s.of(foo, cluster.Span{From: 0, To: 3 * whole.To})
		for _, one := range got[1 : len(got)-1] {
			if !longer.holds(one.From, one.To) {
				t.Errorf("%v: %v is not in the sample of a longer log", fraction, one)
			}
		}
	}
	for _, s := range []*Sample{nil, {}, {Fraction: 1}} {
		if got := s.of(foo, whole); len(got) != 1 || got[0] != whole {
			t.Errorf("%+v: %v", s, got)
		}
	}
	if got := (&Sample{Fraction: 0.5}).of(foo, cluster.Span{From: 7, To: 7}); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestSpans(t *testing.T) {
	s := spans{{From: 10, To: 20}, {From: 30, To: 40}}
	for offset, in := range map[int64]bool{9: false, 10: true, 19: true, 20: false, 29: false, 30: true, 39: true, 40: false} {
		if s.has(offset) != in {
			t.Errorf("has %d is not %v", offset, in)
		}
	}
	for _, c := range []struct {
		from, to       int64
		holds, touches bool
	}{{0, 10, false, false}, {0, 11, false, true}, {10, 20, true, true}, {19, 21, false, true}, {20, 30, false, false}, {20, 31, false, true}, {35, 50, false, true}, {40, 50, false, false}} {
		if s.holds(c.from, c.to) != c.holds || s.touches(c.from, c.to) != c.touches {
			t.Errorf("[%d,%d): holds %v, touches %v", c.from, c.to, s.holds(c.from, c.to), s.touches(c.from, c.to))
		}
	}
}
