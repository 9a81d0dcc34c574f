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

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// made is a cluster.Batch of a batch.
func made(b []byte) cluster.Batch {
	h := batch.Header(b)
	return cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: h.LeaderEpoch(), MaxTimestamp: h.MaxTimestamp(), Bytes: b}
}

// shape says of batches what they take up: holes in round brackets, and behind the others
// codec and phantoms.
func shape(t testing.TB, bs []cluster.Batch) string {
	t.Helper()
	var out []string
	for _, b := range bs {
		if b.Hole() {
			out = append(out, fmt.Sprintf("(%d,%d)@%d", b.Base, b.Next, b.MaxTimestamp))
			continue
		}
		h := batch.Header(b.Bytes)
		s := fmt.Sprintf("[%d,%d)", h.Base(), h.Next())
		if h.Codec() != batch.None {
			s += h.Codec().String()
		}
		if _, n := seen(t, h); n > 0 {
			s += fmt.Sprintf("+%d@%d", n, phantomTime(t, h))
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func phantomTime(t testing.TB, h batch.Header) (ms int64) {
	t.Helper()
	if err := batch.Decode(h, func(r batch.Record) error {
		if r.Phantom {
			ms = r.Timestamp
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ms
}

// at are records at offsets, whose timestamps are their offsets.
func at(offsets ...int64) (rs []batch.Record) {
	for _, o := range offsets {
		rs = append(rs, batch.Record{Offset: o, Timestamp: o, Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", o)})
	}
	return rs
}

func TestPiecesAndPhantoms(t *testing.T) {
	for name, c := range map[string]struct {
		spec             batch.Spec
		c                batch.Converter
		pieces, phantoms string
	}{
		"whole":          {batch.Spec{Base: 10, Records: at(10, 11)}, batch.Converter{}, "[10,12)", "[10,12)"},
		"head":           {batch.Spec{Base: 10, Records: at(12, 13)}, batch.Converter{}, "(10,12)@12 [12,14)", "[10,14)+2@12"},
		"tail":           {batch.Spec{Base: 10, Records: at(10, 11), Next: 14, Codec: batch.Gzip}, batch.Converter{}, "[10,12)gzip (12,14)@11", "[10,14)+2@10"},
		"middle":         {batch.Spec{Base: 10, Records: at(10, 12), Codec: batch.LZ4}, batch.Converter{}, "[10,11)lz4 (11,12)@10 [12,13)lz4", "[10,13)+1@10"},
		"everywhere":     {batch.Spec{Base: 10, Records: at(11, 13, 14), Next: 16, Codec: batch.Zstd}, batch.Converter{}, "(10,11)@11 [11,12)zstd (12,13)@11 [13,15)zstd (15,16)@14", "[10,16)+3@11"},
		"empty":          {batch.Spec{Base: 10, Next: 15, Codec: batch.Snappy}, batch.Converter{}, "(10,15)@-1", "[10,15)+5@-1"},
		"offset 0":       {batch.Spec{Records: at(1)}, batch.Converter{}, "(0,1)@1 [1,2)", "[0,2)+1@1"},
		"beyond 2^31":    {batch.Spec{Base: 1 << 31, Records: at(1<<31 + 1)}, batch.Converter{}, "(2147483648,2147483649)@2147483649 [2147483649,2147483650)", "[2147483648,2147483650)+1@2147483649"},
		"a phantom at 0": {batch.Spec{Base: 1 << 31, Next: 1<<31 + 1}, batch.Converter{}, "(2147483648,2147483649)@-1", "[2147483648,2147483649)+1@-1"},
		"the longest": {batch.Spec{Base: 10, Records: at(10, 10+math.MaxInt32)}, batch.Converter{MaxOffsets: math.MaxInt32, MaxBytes: 100},
			"[10,11) (11,2147483657)@10 [2147483657,2147483658)", ""},
		"few offsets": {batch.Spec{Base: 10, Records: at(10, 13, 14, 15), Next: 20}, batch.Converter{MaxOffsets: 2},
			"[10,11) (11,13)@10 [13,16) (16,20)@15", "[10,11) [11,13)+2@10 [13,16) [16,18)+2@15 [18,20)+2@15"},
		"few offsets, head": {batch.Spec{Base: 10, Records: at(14, 15)}, batch.Converter{MaxOffsets: 2},
			"(10,14)@14 [14,16)", "[10,12)+2@14 [12,14)+2@14 [14,16)"},
		"few offsets, whole part is compressed": {batch.Spec{Base: 10, Records: at(10, 11, 12, 16), Codec: batch.Gzip}, batch.Converter{MaxOffsets: 3},
			"[10,13)gzip (13,16)@12 [16,17)gzip", "[10,13)gzip [13,16)+3@12 [16,17)gzip"},
		"few bytes": {batch.Spec{Base: 10, Records: at(10, 11, 12, 14), Next: 17}, batch.Converter{MaxBytes: 112},
			"[10,13) (13,14)@12 [14,15) (15,17)@14", "[10,12) [12,13) [13,15)+1@14 [15,16)+1@14 [16,17)+1@14"},
		"bytes for nothing": {batch.Spec{Base: 10, Records: at(10, 11, 13)}, batch.Converter{MaxBytes: 1},
			"[10,11) [11,12) (12,13)@11 [13,14)", "[10,11) [11,12) [12,13)+1@11 [13,14)"},
		"append time": {batch.Spec{Base: 10, Records: at(10, 11), Attributes: batch.AttrLogAppendTime, Timestamp: 99, Codec: batch.Zstd}, batch.Converter{},
			"[10,12)zstd", "[10,12)zstd"},
		"append time and holes": {batch.Spec{Base: 10, Records: at(10, 12), Attributes: batch.AttrLogAppendTime, Timestamp: 99}, batch.Converter{},
			"[10,11) (11,12)@99 [12,13)", "[10,13)+1@99"},
	} {
		t.Run(name, func(t *testing.T) {
			b := made(batch.Encode(c.spec))
			out, err := c.c.Pieces(nil, b)
			if got := shape(t, out); err != nil || got != c.pieces {
				t.Errorf("pieces:\n     %s\nwant %s, %v", got, c.pieces, err)
			}
			if c.phantoms == "" {
				return
			}
			out, err = c.c.WithPhantoms(nil, b)
			if got := shape(t, out); err != nil || got != c.phantoms {
				t.Errorf("phantoms:\n     %s\nwant %s, %v", got, c.phantoms, err)
			}
		})
	}
}

// A hole stays one, or becomes phantoms.
func TestHole(t *testing.T) {
	b := cluster.Batch{Base: 100, Next: 105, Epoch: 3, MaxTimestamp: 50, Gone: true}
	c := batch.Converter{MaxOffsets: 2, PhantomKey: []byte("reserved")}
	into := []cluster.Batch{made(batch.Encode(batch.Spec{Base: 98, Records: at(98, 99)}))}
	out, err := c.Pieces(into, b)
	if got := shape(t, out); err != nil || got != "[98,100) (100,105)@50" || !out[1].Gone || out[1].Epoch != 3 {
		t.Errorf("%s, %v, %+v", got, err, out)
	}
	out, err = c.WithPhantoms(into, b)
	if got := shape(t, out); err != nil || got != "[98,100) [100,102)+2@50 [102,104)+2@50 [104,105)+1@50" {
		t.Fatalf("%s, %v", got, err)
	}
	for _, b := range out[1:] {
		if h := batch.Header(b.Bytes); b.Epoch != 3 || h.LeaderEpoch() != 3 || !b.Gone || h.MaxTimestamp() != 50 || b.MaxTimestamp != 50 || !h.Producible() || h.ProducerID() != -1 {
			t.Errorf("%+v", b)
		}
		at := b.Base + math.MinInt32
		err := batch.Decode(b.Bytes, func(r batch.Record) error {
			if string(r.Key) != "reserved" || r.Value != nil || r.Offset != at {
				t.Errorf("phantom at %d, not %d, with key %q, value %q", r.Offset, at, r.Key, r.Value)
			}
			at++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What needs nothing is the very bytes, unless attributes are to go.
func TestPasses(t *testing.T) {
	b := batch.Encode(batch.Spec{
		Base: 5, LeaderEpoch: 2, Records: at(5, 6), Attributes: batch.AttrTransactional | batch.AttrDeleteHorizon, Timestamp: 7,
		Producer: &batch.Producer{ID: 4, Epoch: 5, Sequence: 6},
	})
	before := bytes.Clone(b)
	for name, convert := range converts {
		var c batch.Converter
		out, err := convert(&c, nil, made(b))
		if err != nil || len(out) != 1 || &out[0].Bytes[0] != &b[0] {
			t.Fatalf("%s: not handed back: %v, %v", name, out, err)
		}
		c.Clear = batch.AttrTransactional
		out, err = convert(&c, nil, made(b))
		if err != nil || len(out) != 1 || !bytes.Equal(b, before) {
			t.Fatal(name, err)
		}
		h := batch.Header(out[0].Bytes)
		rs, _ := seen(t, h)
		same(t, at(5, 6), rs, "%s", name)
		if h.Transactional() || !h.DeleteHorizon() || h.ProducerID() != 4 || h.ProducerEpoch() != 5 || h.BaseSequence() != 6 || h.LeaderEpoch() != 2 || h.BaseTimestamp() != 7 {
			t.Errorf("%s: attributes %#x producer %d %d %d epoch %d", name, h.Attributes(), h.ProducerID(), h.ProducerEpoch(), h.BaseSequence(), h.LeaderEpoch())
		}
	}
}

var converts = map[string]func(*batch.Converter, []cluster.Batch, cluster.Batch) ([]cluster.Batch, error){
	"pieces": (*batch.Converter).Pieces, "phantoms": (*batch.Converter).WithPhantoms,
}

// The horizon is kept through all, and the timestamps with it; they stay when it is
// taken away.
func TestDeleteHorizon(t *testing.T) {
	const horizon = 1 << 42
	b := made(batch.Encode(batch.Spec{Base: 5, Records: at(5, 8), Attributes: batch.AttrDeleteHorizon | batch.AttrTransactional, Timestamp: horizon}))
	for name, convert := range converts {
		for _, clear := range []int16{0, batch.AttrTransactional, batch.AttrDeleteHorizon | batch.AttrTransactional} {
			c := batch.Converter{Clear: clear}
			out, err := convert(&c, nil, b)
			if err != nil {
				t.Fatal(err)
			}
			var got []batch.Record
			for _, b := range out {
				if b.Hole() {
					continue
				}
				h := batch.Header(b.Bytes)
				rs, phantoms := seen(t, h)
				got = append(got, rs...)
				if kept := clear&batch.AttrDeleteHorizon == 0; h.DeleteHorizon() != kept || kept && h.BaseTimestamp() != horizon ||
					h.MaxTimestamp() > 8 || h.Transactional() != (clear == 0) {
					t.Errorf("%s %#x: horizon %v base %d max %d transactional %v", name, clear, h.DeleteHorizon(), h.BaseTimestamp(), h.MaxTimestamp(), h.Transactional())
				}
				if ms := phantomTime(t, h); phantoms > 0 && ms > 8 {
					t.Errorf("phantoms at %d", ms)
				}
			}
			same(t, at(5, 8), got, "%s", name)
		}
	}
	h := batch.Header(bytes.Clone(b.Bytes))
	h.Patch(batch.Patch{Base: h.Base(), ClearAttributes: batch.AttrDeleteHorizon})
	rs, _ := seen(t, h)
	same(t, at(5, 8), rs, "patched")
}

func TestCreateTime(t *testing.T) {
	for _, codec := range all {
		spec := batch.Spec{
			Base: 5, LeaderEpoch: 4, Codec: codec, Records: at(6, 8), Next: 20, Attributes: batch.AttrLogAppendTime | batch.AttrTransactional, Timestamp: 99,
			Producer: &batch.Producer{ID: 7},
		}
		in := batch.Encode(spec)
		before := bytes.Clone(in)
		var c batch.Converter
		h, err := c.CreateTime(in)
		if err != nil || !bytes.Equal(in, before) {
			t.Fatal(err)
		}
		want := at(6, 8)
		want[0].Timestamp, want[1].Timestamp = 99, 99
		got, _ := seen(t, h)
		same(t, want, got, "%v", codec)
		if h.LogAppendTime() || h.Base() != 5 || h.Next() != 20 || h.Codec() != codec || h.MaxTimestamp() != 99 || h.LeaderEpoch() != 4 || !h.Transactional() || h.ProducerID() != -1 {
			t.Errorf("%v [%d,%d) %v", h.LogAppendTime(), h.Base(), h.Next(), h.Codec())
		}
		again, err := c.CreateTime(h)
		if err != nil || &again[0] != &h[0] {
			t.Errorf("made again: %v", err)
		}
		spec.Records = nil
		// As the cleaner leaves them: without a payload, and with the timestamp they had.
		if h, err = c.CreateTime(batch.Encode(spec)); err != nil || h.Next() != 20 || h.Count() != 0 || h.LogAppendTime() ||
			len(h) != batch.HeaderSize || h.BaseTimestamp() != -1 || h.MaxTimestamp() != 99 {
			t.Errorf("empty: %d bytes, base %d, max %d, %v", len(h), h.BaseTimestamp(), h.MaxTimestamp(), err)
		}
	}
}

// An append time stays what it was, also one that no clock says.
func TestKeepAppendTime(t *testing.T) {
	for _, time := range []int64{-5, -1, 0, 99, math.MaxInt64} {
		b := made(batch.Encode(batch.Spec{Base: 5, Records: at(5, 8, 9), Next: 12, Attributes: batch.AttrLogAppendTime, Timestamp: time}))
		want := at(5, 8, 9)
		for i := range want {
			want[i].Timestamp = time
		}
		for name, convert := range converts {
			for _, keep := range []bool{false, true} {
				c := batch.Converter{KeepAppendTime: keep, MaxBytes: 1}
				out, err := convert(&c, nil, b)
				if err != nil {
					t.Fatal(err)
				}
				var got []batch.Record
				for _, b := range out {
					if !b.Hole() {
						rs, _ := seen(t, b.Bytes)
						got = append(got, rs...)
						if h := batch.Header(b.Bytes); h.LogAppendTime() != keep {
							t.Errorf("%s: append time %v", name, h.LogAppendTime())
						}
					}
				}
				same(t, want, got, "%s, %d", name, time)
			}
		}
	}
}

// Phantoms of a source that is itself a copy: they are offsets without records.
func TestPhantomsAtTheSource(t *testing.T) {
	const base = 1 << 33
	filled := func(attributes int16) cluster.Batch {
		rs := append([]batch.Record{{Offset: base + math.MinInt32}, {Offset: base + math.MinInt32 + 1}}, at(base+1, base+2)...)
		return made(batch.Encode(batch.Spec{Base: base, Records: rs, Next: base + 4, Attributes: attributes, Timestamp: 9}))
	}
	const after = " (8589934592,8589934593)@9 [8589934593,8589934595) (8589934595,8589934596)@9"
	for name, want := range map[string]string{"pieces": after, "phantoms": " [8589934592,8589934596)+2@9"} {
		var c batch.Converter
		out, err := converts[name](&c, nil, filled(batch.AttrLogAppendTime))
		if got := " " + shape(t, out); err != nil || got != want {
			t.Errorf("%s: %s, want %s, %v", name, got, want, err)
		}
		in := filled(0)
		if out, err = converts[name](&c, nil, in); err != nil || len(out) != 1 || &out[0].Bytes[0] != &in.Bytes[0] {
			t.Errorf("%s: not handed back: %v", name, err)
		}
	}
	if err := new(batch.Decoder).Numbered(filled(0).Bytes); err != nil {
		t.Error(err)
	}
}

// Every batch of the zoo in pieces and with phantoms, large and small: what a produce
// request takes, at the offsets where it was, and readers see the same.
func TestPiecesZoo(t *testing.T) {
	for name, convert := range converts {
		t.Run(name, func(t *testing.T) {
			var c batch.Converter // one for all: nothing is left from one to the next
			rebuilt := 0
			for seed := range many(600) {
				r := rand.New(rand.NewPCG(seed, 2))
				l := zoo.Generate(seed, zoo.Options{Batches: 15, MaxValue: 2 << 10, Trim: seed%3 == 0, Start: r.Int64N(2) << 33})
				c.MaxBytes, c.MaxOffsets = []int{0, 1, 150, 400, 3000}[r.IntN(5)], []int64{0, 1, 2, 7, 100}[r.IntN(5)]
				c.KeepAppendTime, c.PhantomKey = r.IntN(4) == 0, [][]byte{nil, []byte("reserved")}[r.IntN(2)]
				var log []zoo.Batch
				for _, b := range l.Batches {
					if b.Marker {
						log = append(log, b)
						continue
					}
					out, err := convert(&c, nil, made(b.Bytes))
					if err != nil {
						t.Fatalf("seed %d, %s: %v", seed, b.Says, err)
					}
					log = append(log, checkMade(t, &c, b, out, name == "phantoms")...)
					if len(out) > 1 || len(out) == 0 || out[0].Hole() || &out[0].Bytes[0] != &b.Bytes[0] {
						rebuilt++
					}
				}
				if seed%4 == 0 {
					judge(t, l, log)
				}
			}
			if rebuilt < int(many(600)) {
				t.Errorf("only %d batches were made anew", rebuilt)
			}
		})
	}
}

// checkMade verifies what was made of one batch, and gives it with the producer it had, so
// that transactions can be followed.
func checkMade(t *testing.T, c *batch.Converter, b zoo.Batch, out []cluster.Batch, phantoms bool) (log []zoo.Batch) {
	t.Helper()
	var got []batch.Record
	was := batch.Header(b.Bytes)
	at := b.Base
	for _, o := range out {
		if o.Base != at || o.Next <= at {
			t.Fatalf("%s: [%d,%d) at %d", b.Says, o.Base, o.Next, at)
		}
		at = o.Next
		if o.Hole() {
			if slices.ContainsFunc(b.Records, func(r batch.Record) bool { return r.Offset >= o.Base && r.Offset < o.Next }) || phantoms {
				t.Fatalf("%s: hole [%d,%d)", b.Says, o.Base, o.Next)
			}
			continue
		}
		h := batch.Header(o.Bytes)
		rs, n := seen(t, h)
		got = append(got, rs...)
		most := int64(-1)
		for _, r := range rs {
			most = max(most, r.Timestamp)
		}
		codec := was.Codec()
		if n > 0 {
			codec = batch.None
		}
		switch {
		case h.Base() != o.Base || h.Next() != o.Next || h.MaxTimestamp() != o.MaxTimestamp || h.LeaderEpoch() != was.LeaderEpoch():
			t.Fatalf("%s: %+v with header [%d,%d)", b.Says, o, h.Base(), h.Next())
		case int64(h.Count()) != h.Next()-h.Base() || int(h.Count()) != len(rs)+n || !phantoms && n > 0:
			t.Fatalf("%s: count %d at %d offsets, %d records, %d phantoms", b.Says, h.Count(), h.Next()-h.Base(), len(rs), n)
		case h.Codec() != codec || h.LogAppendTime() != (was.LogAppendTime() && c.KeepAppendTime) || h.Transactional() != was.Transactional() || h.DeleteHorizon() != was.DeleteHorizon():
			t.Fatalf("%s: %v, attributes %#x", b.Says, h.Codec(), h.Attributes())
		case len(rs) > 0 && h.MaxTimestamp() != most || !h.Producible() && !c.KeepAppendTime:
			t.Fatalf("%s: max timestamp %d, want %d; producible %v", b.Says, h.MaxTimestamp(), most, h.Producible())
		case c.MaxBytes > 0 && len(h) > c.MaxBytes && h.Count() > 1 && &h[0] != &b.Bytes[0]:
			t.Fatalf("%s: %d bytes of %d", b.Says, len(h), c.MaxBytes)
		case c.MaxOffsets > 0 && n > 0 && h.Next()-h.Base() > c.MaxOffsets:
			t.Fatalf("%s: %d offsets", b.Says, h.Next()-h.Base())
		}
		h = bytes.Clone(h)
		h.SetProducer(was.ProducerID(), was.ProducerEpoch(), was.BaseSequence())
		log = append(log, zoo.Batch{Bytes: h, Base: o.Base, Next: o.Next})
	}
	if at != b.Next {
		t.Fatalf("%s: ends at %d of %d", b.Says, at, b.Next)
	}
	same(t, b.Records, got, "%s", b.Says)
	return log
}

func TestConvertersRefuse(t *testing.T) {
	good := batch.Spec{Base: 9, Records: at(9, 10)}
	control := batch.Spec{Base: 9, Records: at(9), Attributes: batch.AttrControl}
	cut := batch.Encode(batch.Spec{Base: 9, Records: at(9, 12)})
	for name, c := range map[string]struct {
		in   []byte
		kind error
	}{
		"control":          {batch.Encode(control), cluster.ErrControlBatch},
		"control, holes":   {batch.Encode(batch.Spec{Base: 8, Records: at(9), Attributes: batch.AttrControl}), cluster.ErrControlBatch},
		"misnumbered":      {zoo.Misnumbered(9, "a", "b"), batch.ErrNumbering},
		"cut off":          {cut[:len(cut)-1], cluster.ErrCorrupt},
		"old":              {zoo.OldMessage(1, batch.Record{}, false), cluster.ErrOldFormat},
		"bomb":             {batch.Encode(batch.Spec{Base: 9, Next: 99, Codec: batch.Zstd, Records: []batch.Record{{Offset: 9, Value: make([]byte, 2<<20)}}}), batch.ErrLimit},
		"one offset twice": {batch.Encode(batch.Spec{Base: 9, Next: 99, Records: at(9, 9)}), batch.ErrNumbering},
		"descending":       {batch.Encode(batch.Spec{Base: 9, Next: 99, Records: at(10, 9)}), batch.ErrNumbering},
		"behind the end":   {batch.Encode(batch.Spec{Base: 9, Next: 13, Records: at(9, 14)}), batch.ErrNumbering},
	} {
		t.Run(name, func(t *testing.T) {
			for name, convert := range converts {
				into := []cluster.Batch{made(batch.Encode(good))}
				out, err := convert(&batch.Converter{Limit: 1 << 20}, into, cluster.Batch{Base: 9, Next: 10, Bytes: c.in})
				if !errors.Is(err, c.kind) || len(out) != 1 {
					t.Errorf("%s: %d batches, %v, want %v", name, len(out), err, c.kind)
				}
			}
		})
	}
	late := batch.Encode(batch.Spec{Base: 9, Next: 99, Records: at(9, 14, 13), Attributes: batch.AttrLogAppendTime})
	if _, err := new(batch.Converter).CreateTime(late); !errors.Is(err, batch.ErrNumbering) {
		t.Errorf("create time of descending offsets: %v", err)
	}
}

func FuzzPieces(f *testing.F) {
	for _, codec := range all {
		f.Add(batch.Encode(batch.Spec{Base: 9, Codec: codec, Records: at(10, 12, 13), Next: 16}), uint8(200), uint8(3))
	}
	f.Add(batch.Encode(batch.Spec{Base: 9, Records: at(9), Next: 16, Attributes: batch.AttrLogAppendTime | batch.AttrDeleteHorizon}), uint8(1), uint8(1))
	f.Add(batch.AppendPhantoms(nil, 3, 4, nil), uint8(0), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, size, offsets uint8) {
		h := batch.Header(seal(b))
		c := batch.Converter{Limit: 1 << 20, MaxBytes: int(size), MaxOffsets: int64(offsets)}
		if len(h) < batch.HeaderSize || h.LastOffsetDelta() > 1<<12 || h.LastOffsetDelta() < 0 {
			return
		}
		want := map[int64]int{}
		if err := new(batch.Decoder).Numbered(h); err == nil {
			_ = batch.Decode(h, func(r batch.Record) error {
				if !r.Phantom {
					want[r.Offset]++
				}
				return nil
			})
		}
		for name, convert := range converts {
			out, err := convert(&c, nil, made(h))
			if err != nil {
				if !errors.Is(err, cluster.ErrCorrupt) && !errors.Is(err, batch.ErrLimit) && !errors.Is(err, cluster.ErrControlBatch) {
					t.Fatalf("%s: error of no kind: %v", name, err)
				}
				continue
			}
			at, n := h.Base(), 0
			for _, o := range out {
				if o.Base != at || o.Next <= at {
					t.Fatalf("%s: [%d,%d) at %d", name, o.Base, o.Next, at)
				}
				at = o.Next
				if o.Hole() {
					continue
				}
				if &o.Bytes[0] == &h[0] { // handed back, and not looked into
					n = len(want)
					continue
				}
				if !batch.Header(o.Bytes).Producible() {
					t.Fatalf("%s: no produce request takes it", name)
				}
				rs, _ := seen(t, o.Bytes)
				n += len(rs)
				for _, r := range rs {
					if want[r.Offset] != 1 {
						t.Fatalf("%s: a record at %d", name, r.Offset)
					}
				}
			}
			if at != h.Next() || n != len(want) {
				t.Fatalf("%s: ends at %d of %d with %d of %d records", name, at, h.Next(), n, len(want))
			}
		}
	})
}
