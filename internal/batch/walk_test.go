package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/crc32c"
)

// oldMessage is one entry of a message set of format 0 or 1.
func oldMessage(base int64, magic byte, size int) []byte {
	b := make([]byte, lengthOffset+size)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[atLength:], uint32(size))
	b[atMagic] = magic
	return b
}

func TestWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	a, c := random(r, 61), random(r, 500)
	with := func(h Header, at int, v int32) []byte {
		h = bytes.Clone(h)
		binary.BigEndian.PutUint32(h[at:], uint32(v))
		return h
	}
	magic3 := bytes.Clone(a)
	magic3[atMagic] = 3
	for name, c := range map[string]struct {
		in    [][]byte
		whole int    // so many are walked
		rest  int    // bytes left
		err   string // part of the error
	}{
		"nothing":            {nil, 0, 0, ""},
		"one":                {[][]byte{a}, 1, 0, ""},
		"two":                {[][]byte{a, c}, 2, 0, ""},
		"cut in the header":  {[][]byte{c, a[:30]}, 1, 30, ""},
		"cut before magic":   {[][]byte{c, a[:5]}, 1, 5, ""},
		"cut in the records": {[][]byte{a, c[:499]}, 1, 499, ""},
		"old formats":        {[][]byte{oldMessage(4, 0, 14), oldMessage(5, 1, 22), a}, 3, 0, ""},
		"old, too small":     {[][]byte{a, oldMessage(4, 1, 13)}, 1, 25, "byte 61 of 86: batch length 25"},
		"length negative":    {[][]byte{a, with(c, atLength, -5)}, 1, 500, "byte 61 of 561: batch length 7"},
		"length least":       {[][]byte{with(a, atLength, -1<<31)}, 0, 61, "byte 0 of 61: batch length -2147483636"},
		"length too small":   {[][]byte{with(a, atLength, 48)}, 0, 61, "batch length 60, least 61"},
		"magic 3":            {[][]byte{a, magic3}, 1, 61, "byte 61 of 122: magic 3"},
	} {
		t.Run(name, func(t *testing.T) {
			buf := bytes.Join(c.in, nil)
			n, at := 0, 0
			w := Walk(buf)
			for w.Next() {
				if !bytes.Equal(w.Header(), c.in[n]) || w.Offset() != at {
					t.Fatalf("batch %d at %d: other bytes", n, w.Offset())
				}
				if cap(w.Header()) != len(w.Header()) {
					t.Errorf("batch %d: appending to it would write into the next one", n)
				}
				at += len(c.in[n])
				n++
			}
			if n != c.whole || len(w.Rest()) != c.rest {
				t.Errorf("walked %d, rest %d bytes; want %d, %d", n, len(w.Rest()), c.whole, c.rest)
			}
			if err := w.Err(); (err != nil) != (c.err != "") || err != nil && (!strings.Contains(err.Error(), c.err) || !errors.Is(err, cluster.ErrCorrupt)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if w.Next() {
				t.Error("walks on after its end")
			}
		})
	}
}

func FuzzWalk(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 2))
	f.Add([]byte(random(r, 100)))
	f.Add(append([]byte(random(r, 61)), random(r, 90)[:70]...))
	f.Add(append(oldMessage(1, 0, 14), oldMessage(2, 1, 30)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		w := Walk(b)
		for w.Next() {
			h := w.Header()
			if len(h) != h.Length() || len(h) == 0 {
				t.Fatalf("header of %d bytes, length %d", len(h), h.Length())
			}
			total += len(h)
			_ = h.Base()
			if h.Magic() == 2 {
				_ = h.Next() + int64(h.Count())
			}
			_ = h.Check()
		}
		if total+len(w.Rest()) != len(b) {
			t.Fatalf("%d walked and %d left of %d", total, len(w.Rest()), len(b))
		}
	})
}

func BenchmarkWalk(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 3))
	buf := bytes.Repeat(random(r, 1024), 1024)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for w := Walk(buf); w.Next(); {
			n += int(w.Header().Base() & 1)
		}
		_ = n
	}
}

// sumsOf speaks of bytes in front of which there are others.
type sumsOf struct {
	buf   []byte
	asked int
}

func (s *sumsOf) Checksum(from, to int) uint32 {
	s.asked++
	return crc32c.Checksum(s.buf[from:to])
}

// TestWalkSummed: Check takes the checksum that was taken before, of the batch's own bytes.
func TestWalkSummed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	good, bad := random(r, 700), random(r, 300)
	bad[HeaderSize+3] ^= 4
	const before = 13
	buf := slices.Concat(make([]byte, before), good, bad)
	sums := &sumsOf{buf: buf}
	w := Walk(buf[before:]).Summed(sums, before)
	if !w.Next() || w.Check() != nil {
		t.Error(w.Check())
	}
	if sums.asked == 0 {
		t.Error("nobody asked for a checksum")
	}
	if !w.Next() || !errors.Is(w.Check(), cluster.ErrCorrupt) {
		t.Errorf("a bit is wrong: %v", w.Check())
	}
	sums.asked = 0
	w = Walk(buf[before:])
	if !w.Next() || w.Check() != nil || sums.asked > 0 {
		t.Errorf("without sums: %v", w.Check())
	}
}
