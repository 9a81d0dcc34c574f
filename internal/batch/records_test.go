package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/crc32c"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// bytesEqual keeps null and empty apart.
var bytesEqual = cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })

// all decodes a batch into records of their own.
func all(d *Decoder, h Header) ([]Record, error) {
	var got []Record
	err := d.Decode(h, func(r Record) error {
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		var headers []RecordHeader
		for _, h := range r.Headers {
			headers = append(headers, RecordHeader{bytes.Clone(h.Key), bytes.Clone(h.Value)})
		}
		r.Headers = headers
		got = append(got, r)
		return nil
	})
	return got, err
}

func sample() []Record {
	return []Record{
		{Offset: 100, Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: []byte("v")},
		{Offset: 101, Timestamp: 1_700_000_000_001, Key: nil, Value: nil},
		{Offset: 102, Timestamp: 1_700_000_000_002, Key: []byte{}, Value: []byte{}},
		{Offset: 105, Timestamp: 1_600_000_000_000, Key: []byte("after a gap, long before"), Value: bytes.Repeat([]byte("x"), 100_000)},
		{Offset: 106, Timestamp: 1_700_000_000_000 + 25*86_400_000 + math.MaxInt32, Value: []byte("more than 2^31 ms later")},
		{Offset: 107, Timestamp: -1, Headers: []RecordHeader{
			{[]byte("b"), []byte("1")}, {[]byte("a"), nil}, {[]byte("b"), []byte{}}, {[]byte{}, []byte("no name")},
		}},
	}
}

func TestEncodeDecode(t *testing.T) {
	var d Decoder
	for range 2 { // the second time with the decompressors of the first
		for _, codec := range codecs {
			t.Run(codec.String(), func(t *testing.T) {
				h := Header(Encode(Spec{Base: 100, LeaderEpoch: 7, Codec: codec, Records: sample(), Next: 120, Producer: &Producer{5, 6, 7}}))
				if err := h.Check(); err != nil {
					t.Fatal(err)
				}
				if h.Codec() != codec || h.Next() != 120 || h.Count() != 6 || h.ProducerID() != 5 || h.LeaderEpoch() != 7 {
					t.Errorf("header: %v next %d count %d producer %d epoch %d", h.Codec(), h.Next(), h.Count(), h.ProducerID(), h.LeaderEpoch())
				}
				if want := sample()[4].Timestamp; h.MaxTimestamp() != want {
					t.Errorf("max timestamp %d, want %d", h.MaxTimestamp(), want)
				}
				got, err := all(&d, h)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(sample(), got, bytesEqual); d != "" {
					t.Errorf("records (-want +got):\n%s", d)
				}
			})
		}
	}
}

func TestDecodeTimestamps(t *testing.T) {
	records := []Record{{Offset: 1, Timestamp: 50}, {Offset: 2, Timestamp: 70}}
	for name, c := range map[string]struct {
		attributes int16
		want       []int64
		base, most int64
	}{
		"create time":     {0, []int64{50, 70}, 50, 70},
		"log append time": {AttrLogAppendTime, []int64{900, 900}, 50, 900},
		"delete horizon":  {AttrDeleteHorizon, []int64{50, 70}, 900, 70},
		"both":            {AttrDeleteHorizon | AttrLogAppendTime, []int64{900, 900}, 900, 900},
		"other bits":      {AttrTransactional | AttrControl, []int64{50, 70}, 50, 70},
	} {
		t.Run(name, func(t *testing.T) {
			h := Header(Encode(Spec{Base: 1, Attributes: c.attributes, Records: records, Timestamp: 900}))
			var got []int64
			if err := Decode(h, func(r Record) error { got = append(got, r.Timestamp); return nil }); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" || h.BaseTimestamp() != c.base || h.MaxTimestamp() != c.most {
				t.Errorf("base %d, max %d, want %d, %d; records (-want +got):\n%s", h.BaseTimestamp(), h.MaxTimestamp(), c.base, c.most, d)
			}
		})
	}
}

func TestDecodeNumbersZeroOffsets(t *testing.T) {
	h := Header(Encode(Spec{Base: 40, Records: make([]Record, 3)}))
	got, err := all(new(Decoder), h)
	if err != nil || len(got) != 3 || got[0].Offset != 40 || got[2].Offset != 42 || h.Next() != 43 {
		t.Errorf("next %d, %v, %+v", h.Next(), err, got)
	}
}

func TestDecodeCorrupt(t *testing.T) {
	plain := func() Header {
		return Encode(Spec{Base: 9, Records: []Record{{Key: []byte("a"), Value: []byte("b")}, {}}})
	}
	count := func(n uint32) Header { h := plain(); binary.BigEndian.PutUint32(h[atCount:], n); return h }
	tail := func(codec Codec, b ...byte) Header {
		h := append(Header(Encode(Spec{Base: 9, Records: make([]Record, 2)})), b...)
		binary.BigEndian.PutUint32(h[atLength:], uint32(len(h)-lengthOffset))
		h[atAttributes+1] = byte(codec)
		return h
	}
	roomy := tail(None, 9) // the second record is a byte longer than what is in it
	roomy[HeaderSize+7] = 7 << 1
	flip := func(at int, v byte) Header { h := plain(); h[HeaderSize+at] = v; return h }
	for name, c := range map[string]struct {
		h      Header
		detail string
	}{
		"one record too few":     {count(3), "header says 3 records, 2 are there"},
		"one record too many":    {count(1), "bytes after its 1 records"},
		"bytes behind":           {tail(None, 0), "1 bytes after its 2 records"},
		"record length too long": {flip(0, 0x7e), "record 1 of 2 does not parse"},
		"record length negative": {flip(0, 1), "record 1 of 2"},
		"key longer than record": {flip(4, 0x7e), "record 1 of 2"},
		"header count too big":   {flip(8, 0x7e), "record 1 of 2"},
		"header count negative":  {flip(8, 1), "record 1 of 2"},
		"record too roomy":       {roomy, "record 2 of 2"},
		"codec 5":                {tail(5), "codec 5"},
		"not gzip":               {tail(Gzip), "gzip"},
		"not snappy":             {tail(Snappy), "snappy"},
		"not lz4":                {tail(LZ4), "lz4"},
		"not zstd":               {tail(Zstd), "zstd"},
		"header":                 {count(1 << 31), "record count"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := all(new(Decoder), c.h)
			if !errors.Is(err, cluster.ErrCorrupt) || !strings.Contains(err.Error(), c.detail) {
				t.Errorf("got %v, want one with %q", err, c.detail)
			}
		})
	}
	t.Run("cut compressed payloads", func(t *testing.T) {
		for _, codec := range codecs {
			h := Header(Encode(Spec{Base: 100, Codec: codec, Records: sample()}))
			for _, n := range []int{len(h) - 1, (len(h) + HeaderSize) / 2, HeaderSize} {
				cut := bytes.Clone(h[:n])
				binary.BigEndian.PutUint32(cut[atLength:], uint32(n-lengthOffset))
				if _, err := all(new(Decoder), cut); !errors.Is(err, cluster.ErrCorrupt) {
					t.Errorf("%v cut to %d of %d bytes: %v", codec, n, len(h), err)
				}
			}
		}
	})
	t.Run("usable afterwards", func(t *testing.T) {
		var d Decoder
		for _, codec := range codecs {
			_, _ = all(&d, tail(codec, 1, 2, 3))
			if got, err := all(&d, Encode(Spec{Base: 100, Codec: codec, Records: sample()})); err != nil || len(got) != 6 {
				t.Errorf("%v after a corrupt batch: %d records, %v", codec, len(got), err)
			}
		}
	})
}

// A header count is not believed: memory is taken for what is there.
func TestDecodeHugeHeaderCount(t *testing.T) {
	body := []byte{0, 0, 0, 1, 1}
	body = binary.AppendVarint(body, 1<<20)
	h := append(Header(Encode(Spec{Base: 9, Records: make([]Record, 1)}))[:HeaderSize], binary.AppendVarint(nil, int64(len(body)))...)
	h = append(h, body...)
	binary.BigEndian.PutUint32(h[atLength:], uint32(len(h)-lengthOffset))
	var d Decoder
	if _, err := all(&d, h); !errors.Is(err, cluster.ErrCorrupt) || cap(d.headers) > 0 {
		t.Errorf("%v, room for %d headers", err, cap(d.headers))
	}
}

func TestDecodeEmptyBatch(t *testing.T) {
	for _, codec := range codecs {
		h := Header(Encode(Spec{Base: 5, Next: 9}))
		h[atAttributes+1] = byte(codec) // compaction keeps the codec and leaves no payload
		if got, err := all(new(Decoder), h); err != nil || len(got) != 0 || h.Next() != 9 {
			t.Errorf("%v: %v, %v, next %d", codec, got, err, h.Next())
		}
	}
	if got, err := all(new(Decoder), oldMessage(3, 1, 60)); !errors.Is(err, cluster.ErrOldFormat) || got != nil {
		t.Errorf("old format: %v, %v", got, err)
	}
}

func TestDecodeLimit(t *testing.T) {
	const size = 1 << 20
	record := []Record{{Value: make([]byte, size)}}
	for _, codec := range codecs {
		h := Header(Encode(Spec{Codec: codec, Records: record}))
		d := Decoder{Limit: size}
		if _, err := all(&d, h); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "1048576") {
			t.Errorf("%v over the limit: %v", codec, err)
		}
		d.Limit = size + 20
		if got, err := all(&d, h); err != nil || len(got) != 1 {
			t.Errorf("%v under the limit: %v", codec, err)
		}
	}
}

func TestDecodeStopsWhereVisitSaysSo(t *testing.T) {
	stop := errors.New("stop")
	n := 0
	err := Decode(Encode(Spec{Records: make([]Record, 5)}), func(Record) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	if err != stop || n != 2 {
		t.Errorf("%d visits, %v", n, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, codec := range codecs {
		small := append(sample()[:3], sample()[5])
		f.Add(Encode(Spec{Base: 100, Codec: codec, Records: small}))
	}
	f.Add(AppendPhantoms(nil, 3, 4, nil))
	var d Decoder
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		d.Limit = 1 << 20
		if len(b) >= HeaderSize { // as if the broker had stored exactly this
			binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-lengthOffset))
			b[atMagic] = 2
			binary.BigEndian.PutUint32(b[atCRC:], crc32c.Checksum(b[atAttributes:]))
		}
		n := int32(0)
		err := d.Decode(b, func(r Record) error {
			n++
			inside := r.Offset >= Header(b).Base() && r.Offset < Header(b).Next()
			if inside == r.Phantom {
				t.Fatalf("offset %d phantom %v", r.Offset, r.Phantom)
			}
			return nil
		})
		if err == nil && n != Header(b).Count() {
			t.Fatalf("%d records of %d without an error", n, Header(b).Count())
		}
		if err != nil && !errors.Is(err, cluster.ErrCorrupt) && !errors.Is(err, cluster.ErrOldFormat) && !errors.Is(err, ErrLimit) {
			t.Fatalf("error of no kind: %v", err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	records := make([]Record, 1000)
	for i := range records {
		records[i].Value = bytes.Repeat([]byte{byte(i), byte(i >> 3), 'x', 'y'}, 256)
	}
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			h := Header(Encode(Spec{Codec: codec, Records: records}))
			var d Decoder
			b.SetBytes(1000 * 1024)
			b.ReportAllocs()
			for b.Loop() {
				for d.Reset(h); d.Next(); {
				}
				if d.Err() != nil {
					b.Fatal(d.Err())
				}
			}
		})
	}
}
