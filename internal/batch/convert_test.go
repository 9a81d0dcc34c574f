package batch_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pierrec/lz4/v4"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// olds are records as formats 0 and 1 can hold them, with a hole.
func olds(format int8) []batch.Record {
	rs := []batch.Record{
		{Offset: 100, Timestamp: 5, Key: []byte("k"), Value: []byte("v")},
		{Offset: 101, Timestamp: 0, Value: []byte{}},
		{Offset: 102, Timestamp: -1, Key: []byte{}},
		{Offset: 105, Timestamp: math.MaxInt64 / 4, Value: bytes.Repeat([]byte("far away "), 1000)},
		{Offset: 106, Timestamp: 4, Value: []byte("earlier")},
	}
	for i := range rs {
		if format == 0 {
			rs[i].Timestamp = -1
		}
	}
	return rs
}

func TestConvertWrapped(t *testing.T) {
	for _, format := range []int8{0, 1} {
		for _, codec := range all[1:4] {
			for _, stamp := range []int64{-1, 777} {
				for _, keep := range []bool{false, true} {
					if format == 0 && stamp >= 0 {
						continue
					}
					t.Run(fmt.Sprintf("%d %v %d %v", format, codec, stamp, keep), func(t *testing.T) {
						want := olds(format)
						in := zoo.OldWrapper(format, codec, 100, want, stamp)
						for i := range want {
							if stamp >= 0 {
								want[i].Timestamp = stamp
							}
						}
						c := batch.Converter{KeepAppendTime: keep}
						out, err := c.Convert(in)
						if err != nil || len(out) != 1 {
							t.Fatal(len(out), err)
						}
						h := out[0]
						got, _ := seen(t, h)
						if d := cmp.Diff(want, got, apart); d != "" {
							t.Errorf("records (-want +got):\n%s", d)
						}
						most := int64(-1)
						for _, r := range want {
							most = max(most, r.Timestamp)
						}
						if h.Base() != 100 || h.Next() != 107 || h.Codec() != codec || h.LeaderEpoch() != -1 || h.ProducerID() != -1 ||
							h.ProducerEpoch() != -1 || h.BaseSequence() != -1 || h.MaxTimestamp() != most || h.LogAppendTime() != (keep && stamp >= 0) {
							t.Errorf("header [%d,%d) %v epoch %d producer %d max %d append time %v",
								h.Base(), h.Next(), h.Codec(), h.LeaderEpoch(), h.ProducerID(), h.MaxTimestamp(), h.LogAppendTime())
						}
					})
				}
			}
		}
	}
}

// Messages that stand alone are put together, but not over holes, nor when they get too
// many, nor with others in between.
func TestConvertAlone(t *testing.T) {
	record := func(offset int64) batch.Record {
		return batch.Record{Offset: offset, Timestamp: offset, Value: []byte("0123456789")}
	}
	plain := func(offset int64) []byte { return zoo.OldMessage(1, record(offset), false) }
	stamped := func(offset, time int64) []byte {
		return zoo.OldMessage(1, batch.Record{Offset: offset, Timestamp: time}, true)
	}
	one := batch.Encode(batch.Spec{Base: 3, Records: []batch.Record{record(3)}})
	for name, c := range map[string]struct {
		in   [][]byte
		c    batch.Converter
		want string
	}{
		"nothing":              {nil, batch.Converter{}, ""},
		"one":                  {[][]byte{plain(1)}, batch.Converter{}, "[1,2)"},
		"run":                  {[][]byte{plain(1), plain(2), plain(3)}, batch.Converter{}, "[1,4)"},
		"formats":              {[][]byte{plain(1), zoo.OldMessage(0, batch.Record{Offset: 2}, false)}, batch.Converter{}, "[1,3)"},
		"hole":                 {[][]byte{plain(1), plain(3), plain(4)}, batch.Converter{}, "[1,2) [3,5)"},
		"magic 2 between":      {[][]byte{plain(1), plain(2), one, plain(4)}, batch.Converter{}, "[1,3) [3,4) [4,5)"},
		"wrapper between":      {[][]byte{plain(1), zoo.OldWrapper(1, batch.Gzip, 2, []batch.Record{record(2)}, -1), plain(3)}, batch.Converter{}, "[1,2) [2,3) [3,4)"},
		"too large":            {[][]byte{plain(1), plain(2), plain(3)}, batch.Converter{MaxBytes: 61 + 45}, "[1,3) [3,4)"},
		"append time":          {[][]byte{plain(1), stamped(2, 9), stamped(3, 8)}, batch.Converter{}, "[1,4)"},
		"append time kept":     {[][]byte{plain(1), stamped(2, 9), stamped(3, 9), stamped(4, 8)}, batch.Converter{KeepAppendTime: true}, "[1,2) [2,4)a [4,5)a"},
		"last is cut off":      {[][]byte{plain(1), plain(2)[:30]}, batch.Converter{}, "[1,2)"},
		"last has no magic":    {[][]byte{plain(1), plain(2)[:11]}, batch.Converter{}, "[1,2)"},
		"large wrapper":        {[][]byte{zoo.OldWrapper(1, batch.Snappy, 100, olds(1), -1)}, batch.Converter{MaxBytes: 100}, "[100,102) [102,103) [105,106) [106,107)"},
		"large, append time":   {[][]byte{zoo.OldWrapper(1, batch.Snappy, 100, olds(1), 9)}, batch.Converter{MaxBytes: 100, KeepAppendTime: true}, "[100,102)a [102,103)a [105,106)a [106,107)a"},
		"offset 0":             {[][]byte{plain(0), plain(1)}, batch.Converter{}, "[0,2)"},
		"last offset there is": {[][]byte{plain(math.MaxInt64 - 1)}, batch.Converter{}, "[9223372036854775806,9223372036854775807)"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := c.c.Convert(slices.Concat(c.in...))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range out {
				s := fmt.Sprintf("[%d,%d)", h.Base(), h.Next())
				if h.LogAppendTime() {
					s += "a"
				}
				rs, _ := seen(t, h)
				for _, r := range rs {
					if want := r.Offset; string(r.Value) == "0123456789" && r.Timestamp != want {
						t.Errorf("offset %d has timestamp %d", r.Offset, r.Timestamp)
					}
				}
				got = append(got, s)
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %s, want %s", s, c.want)
			}
		})
	}
}

// An append time that differs from message to message becomes the records' own.
func TestConvertAppendTimes(t *testing.T) {
	var c batch.Converter
	out, err := c.Convert(append(zoo.OldMessage(1, batch.Record{Timestamp: 9}, true), zoo.OldMessage(1, batch.Record{Offset: 1, Timestamp: 8}, true)...))
	if err != nil || len(out) != 1 {
		t.Fatal(len(out), err)
	}
	rs, _ := seen(t, out[0])
	if len(rs) != 2 || rs[0].Timestamp != 9 || rs[1].Timestamp != 8 || out[0].MaxTimestamp() != 9 {
		t.Errorf("%+v, max %d", rs, out[0].MaxTimestamp())
	}
}

// Format 0 has no timestamps, whatever the bit says that format 1 has.
func TestConvertFormat0HasNoTime(t *testing.T) {
	stray := zoo.OldWrapper(0, batch.Gzip, 5, []batch.Record{{Offset: 5}}, -1)
	stray[17] |= 1 << 3
	c := batch.Converter{KeepAppendTime: true}
	out, err := c.Convert(append(mend(stray), zoo.OldMessage(0, batch.Record{Offset: 6}, true)...))
	if err != nil || len(out) != 2 {
		t.Fatal(len(out), err)
	}
	for _, h := range out {
		if rs, _ := seen(t, h); h.LogAppendTime() || len(rs) != 1 || rs[0].Timestamp != -1 {
			t.Errorf("append time %v, %+v", h.LogAppendTime(), rs)
		}
	}
}

// Frames of format 0 have a header checksum that is wrong, or right, or that of a longer
// header; in format 1 it must be right.
func TestConvertLZ4Checksum(t *testing.T) {
	frame := func(format int8, size bool) []byte {
		inner := zoo.OldMessage(format, batch.Record{Offset: 7, Value: []byte("v")}, false)
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if size {
			if err := w.Apply(lz4.SizeOption(uint64(len(inner)))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Write(inner); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	for _, size := range []bool{false, true} {
		at := 6
		if size {
			at += 8
		}
		for _, flip := range []byte{0, 1, 0x80, 0xff} {
			b := frame(0, size)
			b[at] ^= flip
			in := wrap(0, byte(batch.LZ4), 7, b)
			before := bytes.Clone(in)
			var c batch.Converter
			out, err := c.Convert(in)
			if err != nil || len(out) != 1 {
				t.Fatal(size, flip, err)
			}
			if rs, _ := seen(t, out[0]); len(rs) != 1 || string(rs[0].Value) != "v" || rs[0].Timestamp != -1 || rs[0].Offset != 7 {
				t.Errorf("%+v", rs)
			}
			if !bytes.Equal(in, before) {
				t.Error("wrote into what was given")
			}
		}
	}
	b := frame(1, false)
	b[6] ^= 1
	if _, err := new(batch.Converter).Convert(wrap(1, byte(batch.LZ4), 7, b)); !errors.Is(err, cluster.ErrCorrupt) || !strings.Contains(err.Error(), "offset 7: lz4: ") {
		t.Errorf("format 1 with a wrong header checksum: %v", err)
	}
	for n := range 15 { // too short for a header
		if _, err := new(batch.Converter).Convert(wrap(0, byte(batch.LZ4), 7, frame(0, true)[:n])); !errors.Is(err, cluster.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestConvertErrors(t *testing.T) {
	good := func() []byte {
		return zoo.OldMessage(1, batch.Record{Offset: 3, Timestamp: 9, Value: []byte("v")}, false)
	}
	at := func(b []byte, i int, v byte) []byte { b[i] ^= v; return b }
	set := func(format int8, offsets ...int64) (b []byte) {
		for _, o := range offsets {
			b = append(b, zoo.OldMessage(format, batch.Record{Offset: o, Value: []byte("v")}, false)...)
		}
		return b
	}
	gz := func(format int8, offset int64, inner []byte) []byte {
		return zoo.OldWrapped(format, batch.Gzip, offset, inner)
	}
	for name, c := range map[string]struct {
		in     []byte
		kind   error
		detail string
	}{
		"checksum":               {at(good(), 30, 1), cluster.ErrCorrupt, "offset 3: checksum"},
		"checksum inside":        {gz(1, 9, at(set(1, 0, 1), 69, 1)), cluster.ErrCorrupt, "inside of the message at offset 9"},
		"does not parse":         {mend(at(good(), 33, 1)), cluster.ErrCorrupt, "offset 3 does not parse"},
		"key too long":           {mend(at(good(), 26, 0x80)), cluster.ErrCorrupt, "offset 3 does not parse"},
		"format 1 without time":  {mend(at(zoo.OldMessage(0, batch.Record{Offset: 3}, false), 16, 1)), cluster.ErrCorrupt, "offset 3 does not parse"},
		"bytes behind the value": {gz(1, 9, mend(append(at(set(1, 0), 11, 1), 0))), cluster.ErrCorrupt, "offset 9"},
		"negative offset":        {at(good(), 0, 0x80), cluster.ErrCorrupt, "message at offset -"},
		"magic 3":                {at(good(), 16, 2), cluster.ErrCorrupt, "magic 3"},
		"compressed twice":       {gz(1, 9, gz(1, 0, set(1, 0))), cluster.ErrCorrupt, "offset 9: compressed twice"},
		"other format inside":    {gz(1, 9, set(0, 0)), cluster.ErrCorrupt, "format 0 inside of format 1"},
		"magic 2 inside":         {gz(1, 9, batch.Encode(batch.Spec{Records: make([]batch.Record, 2)})), cluster.ErrCorrupt, "format 2 inside of format 1"},
		"nothing inside":         {gz(1, 9, nil), cluster.ErrCorrupt, "does not parse"},
		"no value":               {wrap(1, byte(batch.Gzip), 9, nil), cluster.ErrCorrupt, "offset 9: gzip"},
		"cut off inside":         {gz(1, 9, set(1, 0, 1)[:50]), cluster.ErrCorrupt, "does not parse"},
		"zstd":                   {wrap(1, byte(batch.Zstd), 9, []byte("x")), cluster.ErrCorrupt, "offset 9: zstd in format 1"},
		"codec 7":                {wrap(0, 7, 9, []byte("x")), cluster.ErrCorrupt, "offset 9: codec 7"},
		"one offset twice":       {gz(0, 9, set(0, 8, 8, 9)), batch.ErrNumbering, "one at 8 behind one at 8"},
		"all relative to 0":      {gz(1, 9, set(1, 0, 0)), batch.ErrNumbering, "one at 0 behind one at 0"},
		"offsets descend":        {gz(1, 9, set(1, 0, 2, 1)), batch.ErrNumbering, "one at 1 behind one at 2"},
		"before the log":         {gz(1, 1, set(1, 0, 1, 2)), batch.ErrNumbering, "wraps offsets 0 to 2"},
		"behind the wrapper":     {gz(0, 1, set(0, 1, 2)), batch.ErrNumbering, "wraps offsets 1 to 2"},
		"too far apart":          {gz(1, 1<<40, set(1, 0, 1<<31)), batch.ErrNumbering, "wraps offsets 0 to 2147483648"},
		"too far away":           {gz(0, 1<<40, set(0, 0)), batch.ErrNumbering, "wraps offsets 0 to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			before := zoo.OldMessage(0, batch.Record{Offset: 1}, false)
			out, err := new(batch.Converter).Convert(append(before, c.in...))
			if !errors.Is(err, c.kind) || !errors.Is(err, cluster.ErrCorrupt) || !strings.Contains(err.Error(), c.detail) {
				t.Errorf("got %v, want %v with %q", err, c.kind, c.detail)
			}
			if len(out) != 1 || out[0].Base() != 1 || out[0].Next() != 2 {
				t.Errorf("%d batches before the error", len(out))
			}
		})
	}
}

func TestConvertBomb(t *testing.T) {
	zeros := make([]byte, 8<<20)
	for _, codec := range all[1:4] {
		in := zoo.OldWrapper(1, codec, 5, []batch.Record{{Offset: 5, Value: zeros}}, -1)
		c := batch.Converter{Limit: 1 << 20}
		if _, err := c.Convert(in); !errors.Is(err, batch.ErrLimit) || !strings.Contains(err.Error(), "offset 5") {
			t.Errorf("%v: %v", codec, err)
		}
		c.Limit = 9 << 20
		out, err := c.Convert(in)
		if err != nil || len(out) != 1 {
			t.Errorf("%v: %v", codec, err)
		}
		if rs, _ := seen(t, out[0]); len(rs) != 1 || len(rs[0].Value) != len(zeros) {
			t.Errorf("%v: %d records", codec, len(rs))
		}
	}
}

// What is of magic 2 stays the very bytes.
func TestConvertPasses(t *testing.T) {
	l := zoo.Generate(1, zoo.Options{Batches: 40})
	in := slices.Concat(l.Bytes()...)
	out, err := new(batch.Converter).Convert(in)
	if err != nil || len(out) != len(l.Batches) {
		t.Fatal(len(out), err)
	}
	at := 0
	for _, h := range out {
		if &h[0] != &in[at] || cap(h) != len(h) {
			t.Fatal("other bytes")
		}
		at += len(h)
	}
}

func TestHasOld(t *testing.T) {
	two := bytes.Repeat(batch.Encode(batch.Spec{Records: make([]batch.Record, 2)}), 50)
	old := zoo.OldMessage(1, batch.Record{}, false)
	for name, c := range map[string]struct {
		in   []byte
		want bool
	}{
		"nothing":        {nil, false},
		"new":            {two, false},
		"old":            {old, true},
		"old at the end": {append(bytes.Clone(two), old...), true},
		"old is cut off": {append(bytes.Clone(two), old[:20]...), false},
		"noise":          {bytes.Repeat([]byte{9}, 200), false},
	} {
		if got := batch.HasOld(c.in); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { batch.HasOld(two) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What readers see of a log of mixed formats is what they saw before: the zoo says what
// that is, and verify says it too, which reads old formats in its own way.
func TestConvertZoo(t *testing.T) {
	var c batch.Converter // one for all: nothing is left from one to the next
	olds := 0
	for seed := range many(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := zoo.Generate(seed, zoo.Options{Batches: 20, OldFormats: true, MaxValue: 4 << 10, Trim: seed%3 == 0, Dense: seed%5 == 0})
		c.MaxBytes, c.KeepAppendTime = []int{0, 200, 3000}[r.IntN(3)], seed%2 == 0
		in := slices.Concat(l.Bytes()...)
		if batch.HasOld(in) {
			olds++
		}
		cut := bytes.Clone(l.Batches[0].Bytes)
		out, err := c.Convert(append(in, cut[:r.IntN(len(cut))]...))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var want, got []batch.Record
		var made []zoo.Batch
		for _, b := range l.Batches {
			if !b.Marker {
				want = append(want, b.Records...)
			}
		}
		for _, h := range out {
			if batch.HasOld(h) {
				t.Fatal("an old one is left")
			}
			if rs, _ := seen(t, h); !h.Control() {
				got = append(got, rs...)
			}
			made = append(made, zoo.Batch{Bytes: h, Base: h.Base(), Next: h.Next()})
		}
		same(t, want, got, "seed %d", seed)
		if seed%4 == 0 {
			judge(t, l, made)
		}
	}
	if olds < int(many(950)) {
		t.Errorf("only %d logs had old formats", olds)
	}
}

func FuzzConvert(f *testing.F) {
	for _, format := range []int8{0, 1} {
		for _, codec := range all[1:4] {
			f.Add(zoo.OldWrapper(format, codec, 100, olds(format)[:3], -1), false)
		}
		f.Add(append(zoo.OldMessage(format, olds(format)[0], false), zoo.OldMessage(format, olds(format)[1], true)...), true)
	}
	f.Add(zoo.OldWrapper(1, batch.Gzip, 100, olds(1)[:3], 50), true)
	f.Add(batch.Encode(batch.Spec{Records: make([]batch.Record, 3)}), true)
	f.Fuzz(func(t *testing.T, b []byte, keep bool) {
		b = bytes.Clone(b)
		for w := batch.Walk(b); w.Next(); { // as if a broker had stored exactly this
			if w.Header().Magic() < 2 {
				mend(w.Header())
			}
		}
		before := bytes.Clone(b)
		c := batch.Converter{Limit: 1 << 20, KeepAppendTime: keep, MaxBytes: 300}
		out, err := c.Convert(b)
		if err != nil && !errors.Is(err, cluster.ErrCorrupt) && !errors.Is(err, batch.ErrLimit) {
			t.Fatalf("error of no kind: %v", err)
		}
		if !bytes.Equal(b, before) {
			t.Fatal("wrote into what was given")
		}
		for _, h := range out {
			if h.Magic() != 2 {
				t.Fatalf("magic %d", h.Magic())
			}
			if h.LeaderEpoch() != -1 || h.Check() != nil { // it may be one that was handed through
				continue
			}
			if err := new(batch.Decoder).Numbered(h); err != nil && !errors.Is(err, cluster.ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

// TestOldBase: where a message begins that wraps others, whose offset is the last one's.
func TestOldBase(t *testing.T) {
	rs := []batch.Record{{Offset: 7, Timestamp: 5, Value: []byte("a")}, {Offset: 9, Timestamp: 6, Value: []byte("b")}}
	for format := range int8(2) {
		for _, codec := range []batch.Codec{batch.Gzip, batch.Snappy, batch.LZ4} {
			h := batch.Header(zoo.OldWrapper(format, codec, 7, rs, -1))
			base, err := h.OldBase()
			at, wraps, oldErr := h.Old()
			if base != 7 || err != nil || oldErr != nil || !wraps || format == 0 && at != -1 || format == 1 && at != 6 || h.Base() != 9 {
				t.Errorf("format %d, %v: [%d,%d], timestamp %d, wraps %v; %v, %v", format, codec, base, h.Base(), at, wraps, err, oldErr)
			}
			h[len(h)-1] ^= 1
			if _, err := h.OldBase(); !errors.Is(err, cluster.ErrCorrupt) {
				t.Errorf("format %d, %v, spoilt: %v", format, codec, err)
			}
		}
		one := batch.Header(zoo.OldMessage(format, rs[0], false))
		if base, err := one.OldBase(); base != 7 || err != nil {
			t.Errorf("format %d, alone: %d, %v", format, base, err)
		}
	}
}
