package batch

import (
	"bytes"
	"math"
	"testing"
)

func TestPhantoms(t *testing.T) {
	for _, n := range []int{1, 2, 5000} {
		for _, key := range [][]byte{nil, []byte("reserved")} {
			before := []byte("before")
			b := AppendPhantoms(bytes.Clone(before), n, 1234, key)
			if !bytes.HasPrefix(b, before) {
				t.Fatal("does not append")
			}
			h := Header(b[len(before):])
			if err := h.Check(); err != nil {
				t.Fatal(err)
			}
			if h.Base() != 0 || h.Next() != int64(n) || h.Count() != int32(n) || h.Codec() != None || h.ProducerID() != -1 || h.MaxTimestamp() != 1234 {
				t.Errorf("header: base %d next %d count %d %v", h.Base(), h.Next(), h.Count(), h.Codec())
			}
			h.Patch(Patch{Base: 50, ProducerID: 1})
			got, err := all(new(Decoder), h)
			if err != nil || len(got) != n {
				t.Fatalf("%d records, %v", len(got), err)
			}
			for i, r := range got {
				if !r.Phantom || r.Offset != 50+math.MinInt32+int64(i) || r.Timestamp != 1234 || !bytes.Equal(r.Key, key) || (r.Key == nil) != (key == nil) || r.Value != nil {
					t.Fatalf("record %d: %+v", i, r)
				}
			}
		}
	}
}

func TestFiller(t *testing.T) {
	for _, codec := range codecs {
		f := NewFiller(1000, codec, nil)
		one := f.Append(nil, 5)
		two := f.Append(one, 6)
		if !bytes.Equal(two[:len(one)], one) || len(two) != 2*len(one) {
			t.Fatalf("%v: does not append %d bytes", codec, len(one))
		}
		h := Header(two[len(one):])
		if err := h.Check(); err != nil {
			t.Fatal(err)
		}
		got, err := all(new(Decoder), h)
		if err != nil || len(got) != 1000 || h.Count() != 1000 || h.Next() != 1000 || h.Codec() != codec {
			t.Fatalf("%v: %d records, next %d, %v", codec, len(got), h.Next(), err)
		}
		for i, r := range got {
			if r.Phantom || r.Offset != int64(i) || r.Timestamp != 6 || r.Key != nil || r.Value != nil || r.Headers != nil {
				t.Fatalf("%v: record %d: %+v", codec, i, r)
			}
		}
	}
}

// An offset of a start costs less than a byte.
func TestFillerIsSmall(t *testing.T) {
	if n := len(NewFiller(100_000, Zstd, nil).Append(nil, 0)); n > 100_000 {
		t.Errorf("%d bytes for 100000 offsets", n)
	} else {
		t.Logf("%d bytes for 100000 offsets", n)
	}
}

func BenchmarkFiller(b *testing.B) {
	f := NewFiller(100_000, Zstd, nil)
	buf := f.Append(nil, 1)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = f.Append(buf[:0], 1)
	}
}
