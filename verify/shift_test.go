package verify_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/verify"
)

// produced is what a consumer leaves that produces what it reads, as MirrorMaker 2
// does: the same records, offsets from a start on without holes.
func produced(r *rand.Rand, rs []batch.Record, start int64) (out [][]byte) {
	for len(rs) > 0 {
		n := min(len(rs), 1+r.IntN(50))
		part := make([]batch.Record, n)
		for i := range part {
			part[i] = rs[i]
			part[i].Offset = start + int64(i)
		}
		out = append(out, batch.Encode(batch.Spec{Base: start, Codec: batch.Codec(r.IntN(5)), Records: part, Next: start + int64(n)}))
		rs, start = rs[n:], start+int64(n)
	}
	return out
}

func numbered(offsets ...int64) (rs []batch.Record) {
	for _, o := range offsets {
		rs = append(rs, batch.Record{Offset: o, Timestamp: 1_700_000_000_000 + o, Value: fmt.Appendf(nil, "value %d", o)})
	}
	return rs
}

func run(from, to int64) (offsets []int64) {
	for o := from; o < to; o++ {
		offsets = append(offsets, o)
	}
	return offsets
}

func TestShift(t *testing.T) {
	whole := run(0, 50)
	backwards := run(0, 50)
	slices.Reverse(backwards)
	anew := func(offsets ...int64) [][]byte { return produced(rand.New(rand.NewPCG(1, 1)), numbered(offsets...), 0) }
	for name, c := range map[string]struct {
		source      []batch.Record
		destination [][]byte // nil: what a consumer left that produced again
		at          int64    // where the destination begins
		want        *verify.Shift
	}{
		"one hole":                          {source: numbered(append(run(0, 12), run(15, 60)...)...), want: &verify.Shift{From: 15, By: -3, Later: -3, Matched: 45, Looked: 45}},
		"two holes":                         {source: numbered(append(append(run(0, 12), run(15, 30)...), run(34, 60)...)...), want: &verify.Shift{From: 15, By: -3, Later: -7, Matched: 41, Looked: 41}},
		"start":                             {source: numbered(run(1_000_000, 1_000_060)...), want: &verify.Shift{From: 1_000_000, By: -1_000_000, Later: -1_000_000, Matched: 60, Looked: 60}},
		"into a topic in use":               {source: numbered(whole...), at: 7, want: &verify.Shift{From: 7, By: 7, Later: 7, Matched: 43, Looked: 43}},
		"no hole":                           {source: numbered(whole...)},
		"others":                            {source: numbered(whole...), destination: anew(run(100, 150)...)},
		"two swapped":                       {source: numbered(whole...), destination: anew(append(append(run(0, 20), 21, 20), run(22, 50)...)...)},
		"backwards":                         {source: numbered(whole...), destination: anew(backwards...)},
		"three elsewhere":                   {source: numbered(whole...), destination: anew(append(append(run(100, 120), 21, 22, 23), run(123, 150)...)...)},
		"four moved, the rest in its place": {source: numbered(whole...), destination: anew(append(append(run(0, 20), 21, 22, 23, 24, 124), run(25, 50)...)...)},
	} {
		t.Run(name, func(t *testing.T) {
			destination := c.destination
			if destination == nil {
				destination = produced(rand.New(rand.NewPCG(1, 1)), c.source, c.at)
			}
			var source [][]byte
			for _, r := range c.source { // one record a batch: holes are between batches
				source = append(source, batch.Encode(batch.Spec{Base: r.Offset, Records: []batch.Record{r}, Next: r.Offset + 1}))
			}
			r := compare(t, loaded(t, c.source[0].Offset, source), loaded(t, c.at, destination), verify.Options{})
			if fmt.Sprint(r.Shift) != fmt.Sprint(c.want) || (r.Shift == nil) != (c.want == nil) || r.Shift != nil && *r.Shift != *c.want {
				t.Errorf("got %v, want %v", r.Shift, c.want)
			}
			if c.want != nil && (!strings.Contains(r.String(), "MirrorMaker") || !strings.Contains(r.String(), fmt.Sprintf("%+d from source offset %d", c.want.By, c.want.From))) {
				t.Error(r)
			}
		})
	}
}

// Whatever the log, a copy that numbers records anew is told by name.
func TestZooShifted(t *testing.T) {
	for seed := range uint64(3) {
		for _, committed := range []bool{false, true} {
			l := animals(seed, zoo.Options{Trim: seed%2 == 1, Batches: 60})
			rs := l.Visible(committed)
			source := loaded(t, l.Start, l.Bytes())
			destination := loaded(t, 0, produced(rand.New(rand.NewPCG(seed, 4)), rs, 0))
			r := compare(t, source, destination, verify.Options{})
			if r.Shift == nil || r.Shift.By == 0 {
				t.Errorf("seed %d: %v", seed, r)
				continue
			}
			// It says the truth of the record that it names.
			for i, one := range rs {
				if one.Offset == r.Shift.From && int64(i)-one.Offset != r.Shift.By {
					t.Errorf("seed %d: %v, but the record is at %d", seed, r.Shift, i)
				}
			}
		}
	}
}
