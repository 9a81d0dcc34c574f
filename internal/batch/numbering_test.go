package batch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

func TestNumbered(t *testing.T) {
	spec := func(next int64, offsets ...int64) []byte {
		return batch.Encode(batch.Spec{Base: 9, Next: next, Records: at(offsets...)})
	}
	count := func(n byte, b []byte) []byte { b[60] = n; return seal(b) }
	for name, c := range map[string]struct {
		in           []byte
		header, body string // parts of the errors
	}{
		"good":                   {spec(11, 9, 10), "", ""},
		"compacted":              {spec(20, 10, 15), "", ""},
		"empty":                  {spec(20), "", ""},
		"last delta 0":           {zoo.Misnumbered(9, "a", "b"), "2 records at 1 offsets", "2 records at 1 offsets"},
		"last delta and count 0": {count(1, zoo.Misnumbered(9, "a", "b")), "", "bytes after its 1 records"},
		"fewer than the header":  {count(3, spec(20, 9, 10)), "", "header says 3 records, 2 are there"},
		"more than the header":   {count(1, spec(20, 9, 10)), "", "bytes after its 1 records"},
		"one offset twice":       {spec(11, 9, 9), "", "batch [9,11) holds a record at 9 behind one at 9"},
		"descending":             {spec(12, 10, 9), "", "a record at 9 behind one at 10"},
		"behind the last":        {spec(10, 10), "", "batch [9,10) holds a record at 10"},
		"before the first":       {batch.AppendPhantoms(nil, 3, 4, nil), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for where, got := range map[string]struct {
				err  error
				want string
			}{
				"header": {batch.Header(c.in).Numbered(), c.header}, "body": {new(batch.Decoder).Numbered(c.in), c.body},
			} {
				wrong := got.want != ""
				if (got.err != nil) != wrong || wrong && (!errors.Is(got.err, batch.ErrNumbering) || !errors.Is(got.err, cluster.ErrCorrupt) || !strings.Contains(got.err.Error(), got.want)) {
					t.Errorf("%s: %v, want %q", where, got.err, got.want)
				}
			}
		})
	}
	h := batch.Header(spec(20, 9))
	if n := testing.AllocsPerRun(100, func() { _ = h.Numbered(); _ = h.Producible() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestProducible(t *testing.T) {
	spec := func(attributes int16, next int64, offsets ...int64) []byte {
		return batch.Encode(batch.Spec{Base: 9, Next: next, Records: at(offsets...), Attributes: attributes})
	}
	for name, c := range map[string]struct {
		in   []byte
		want bool
	}{
		"whole":          {spec(0, 11, 9, 10), true},
		"transactional":  {spec(batch.AttrTransactional, 11, 9, 10), true},
		"delete horizon": {spec(batch.AttrDeleteHorizon, 11, 9, 10), true},
		"append time":    {spec(batch.AttrLogAppendTime, 11, 9, 10), false},
		"control":        {spec(batch.AttrControl, 10, 9), false},
		"hole":           {spec(0, 12, 9, 10), false},
		"empty":          {spec(0, 12), false},
		"too many":       {zoo.Misnumbered(9, "a", "b"), false},
		"old":            {zoo.OldMessage(1, batch.Record{Value: make([]byte, 100)}, false), false},
		"phantoms":       {batch.AppendPhantoms(nil, 3, 4, nil), true},
	} {
		if got := batch.Header(c.in).Producible(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
