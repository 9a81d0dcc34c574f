package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

var codecs = []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

// small reads one batch a chunk.
var small = &Options{ChunkBytes: 1}

func kinds(r Report) (ks []string) {
	for _, d := range r.Differences {
		ks = append(ks, strings.Fields(d.String())[1]+" "+string(d.Kind))
	}
	return ks
}

func TestEqual(t *testing.T) {
	rs := records(100)
	for name, destination := range map[string]*log{
		"the same":          cut(rs, 10, batch.LZ4),
		"other boundaries":  cut(rs, 7, batch.LZ4),
		"one record each":   cut(rs, 1, batch.None),
		"one batch":         cut(rs, 100, batch.Zstd),
		"none":              cut(rs, 10, batch.None),
		"gzip":              cut(rs, 10, batch.Gzip),
		"snappy":            cut(rs, 33, batch.Snappy),
		"zstd, same bounds": cut(rs, 10, batch.Zstd),
	} {
		for _, o := range []*Options{nil, small, {ChunkBytes: 1500}} {
			t.Run(name, func(t *testing.T) {
				source := cut(rs, 10, batch.LZ4)
				got, err := Partition(t.Context(), source, destination, foo, o)
				if err != nil {
					t.Fatal(err)
				}
				want := Report{
					Partition: foo, Source: source.offsets, Destination: source.offsets, Compared: cluster.Span{From: base, To: base + 100},
					Records: 100, Equal: true, EndsEqual: true,
				}
				for _, b := range source.batches {
					want.Bytes += int64(len(b))
				}
				if got.SourceLog.Bytes != want.Bytes || got.SourceLog.Batches != int64(len(source.batches)) ||
					got.DestinationLog.Batches != int64(len(destination.batches)) || got.DestinationLog.Codecs[batch.Header(destination.batches[0]).Codec().String()] != got.DestinationLog.Batches {
					t.Errorf("contents: %+v, %+v", got.SourceLog, got.DestinationLog)
				}
				got.Noted, got.Notes, got.SourceLog, got.DestinationLog = 0, nil, Contents{}, Contents{}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("report (-want +got):\n%s", d)
				}
			})
		}
	}
}

// Each corruption is planted in a copy and must be found, with every codec, in
// batches cut the same way and another.
func TestFinds(t *testing.T) {
	at := func(i int, change func(r *batch.Record)) func([]batch.Record) []batch.Record {
		return func(rs []batch.Record) []batch.Record { change(&rs[i]); return rs }
	}
	for name, c := range map[string]struct {
		change  func(rs []batch.Record) []batch.Record
		want    []string
		records int64
	}{
		"timestamp":          {at(6, func(r *batch.Record) { r.Timestamp++ }), []string{"1006: timestamp"}, 19},
		"first timestamp":    {at(0, func(r *batch.Record) { r.Timestamp -= 5 }), []string{"1000: timestamp"}, 19},
		"key":                {at(6, func(r *batch.Record) { r.Key[0] ^= 1 }), []string{"1006: key"}, 19},
		"key null for empty": {at(3, func(r *batch.Record) { r.Key = []byte{} }), []string{"1003: key"}, 19},
		"key empty":          {at(2, func(r *batch.Record) { r.Key = []byte{} }), []string{"1002: key"}, 19},
		"value":              {at(19, func(r *batch.Record) { r.Value = []byte("x") }), []string{"1019: value"}, 19},
		"value bit":          {at(8, func(r *batch.Record) { r.Value[2] ^= 128 }), []string{"1008: value"}, 19},
		"value not null":     {at(4, func(r *batch.Record) { r.Value = []byte{} }), []string{"1004: value"}, 19},
		"value null":         {at(7, func(r *batch.Record) { r.Value = nil }), []string{"1007: value"}, 19},
		"header value":       {at(1, func(r *batch.Record) { r.Headers[0].Value = []byte("x") }), []string{"1001: headers"}, 19},
		"header null":        {at(1, func(r *batch.Record) { r.Headers[2].Value = nil }), []string{"1001: headers"}, 19},
		"header empty":       {at(1, func(r *batch.Record) { r.Headers[1].Value = []byte{} }), []string{"1001: headers"}, 19},
		"header key":         {at(1, func(r *batch.Record) { r.Headers[1].Key = []byte("c") }), []string{"1001: headers"}, 19},
		"header order":       {at(1, func(r *batch.Record) { slices.Reverse(r.Headers) }), []string{"1001: headers"}, 19},
		"header gone":        {at(1, func(r *batch.Record) { r.Headers = r.Headers[:2] }), []string{"1001: headers"}, 19},
		"header more":        {at(3, func(r *batch.Record) { r.Headers = []batch.RecordHeader{{Key: []byte("z")}} }), []string{"1003: headers"}, 19},
		"all of a record": {at(1, func(r *batch.Record) { *r = batch.Record{Offset: r.Offset} }),
			[]string{"1001: timestamp", "1001: key", "1001: value", "1001: headers"}, 19},
		"missing": {func(rs []batch.Record) []batch.Record { return slices.Delete(rs, 5, 6) }, []string{"1005: missing"}, 19},
		"missing run": {func(rs []batch.Record) []batch.Record { return slices.Delete(rs, 9, 12) },
			[]string{"1009: missing", "1010: missing", "1011: missing"}, 17},
		"twice": {func(rs []batch.Record) []batch.Record { return slices.Insert(rs, 6, rs[5]) }, []string{"1005: extra"}, 20},
		"reordered": {func(rs []batch.Record) []batch.Record { rs[7], rs[8] = rs[8], rs[7]; return rs },
			[]string{"1007: missing", "1007: extra"}, 19},
		"swapped contents": {func(rs []batch.Record) []batch.Record {
			rs[6].Value, rs[7].Value = rs[7].Value, rs[6].Value
			return rs
		}, []string{"1006: value", "1007: value"}, 18},
		"shifted by one from 17 on": {func(rs []batch.Record) []batch.Record {
			for i := 17; i < len(rs); i++ {
				rs[i].Offset++
			}
			return rs
		}, []string{
			"1017: missing", "1018: timestamp", "1018: key", "1018: value", "1018: headers", "1019: timestamp", "1019: key", "1019: value", "1019: headers",
		}, 17},
	} {
		for _, codec := range codecs {
			for _, size := range []int{20, 6} {
				t.Run(name+" "+codec.String(), func(t *testing.T) {
					got, err := Partition(t.Context(), cut(records(20), 20, codec), cut(with(20, c.change), size, codec), foo, nil)
					if err != nil {
						t.Fatal(err)
					}
					if d := cmp.Diff(c.want, kinds(got)); d != "" {
						t.Errorf("batches of %d: differences (-want +got):\n%s", size, d)
					}
					if got.Equal || got.Different != int64(len(c.want)) || got.Records != c.records {
						t.Errorf("equal %v, %d different, %d records equal, want %d", got.Equal, got.Different, got.Records, c.records)
					}
				})
			}
		}
	}
}

// What is extra on one side is missing on the other.
func TestExtra(t *testing.T) {
	less := with(20, func(rs []batch.Record) []batch.Record { return slices.Delete(rs, 4, 6) })
	got, err := Partition(t.Context(), cut(less, 5, batch.Zstd), cut(records(20), 20, batch.None), foo, small)
	if d := cmp.Diff([]string{"1004: extra", "1005: extra"}, kinds(got)); d != "" || err != nil || got.Records != 18 {
		t.Errorf("%v, %d records equal, differences (-want +got):\n%s", err, got.Records, d)
	}
}

func TestCommonRange(t *testing.T) {
	rs := records(100)
	whole := func() *log { return cut(rs, 10, batch.Snappy) }
	offsets := func(l *log, start, end int64) *log {
		l.offsets = cluster.Offsets{LogStart: start, HighWatermark: end}
		return l
	}
	for name, c := range map[string]struct {
		source, destination *log
		span                cluster.Span
		equal, ends         bool
		records             int64
	}{
		"destination lags":        {whole(), cut(rs[:55], 10, batch.None), cluster.Span{From: 1000, To: 1055}, true, false, 55},
		"destination truncated":   {whole(), offsets(whole(), 1000, 1037), cluster.Span{From: 1000, To: 1037}, true, false, 37},
		"source trimmed":          {offsets(whole(), 1044, 1100), whole(), cluster.Span{From: 1044, To: 1100}, true, false, 56},
		"both, inside of batches": {offsets(whole(), 1013, 1100), offsets(whole(), 1005, 1087), cluster.Span{From: 1013, To: 1087}, true, false, 74},
		"nothing in common":       {offsets(whole(), 1090, 1100), offsets(whole(), 1000, 1020), cluster.Span{From: 1090, To: 1090}, true, false, 0},
		"both empty":              {&log{}, &log{}, cluster.Span{}, true, true, 0},
		"end promised, not there": {whole(), offsets(cut(rs[:90], 10, batch.None), 1000, 1100), cluster.Span{From: 1000, To: 1100}, false, true, 90},
	} {
		bubble(t, name, func(t *testing.T) {
			got, err := Partition(t.Context(), c.source, c.destination, foo, small)
			if err != nil {
				t.Fatal(err)
			}
			if got.Compared != c.span || got.Equal != c.equal || got.EndsEqual != c.ends || got.Records != c.records {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Control batches, phantoms and gaps are the same hole.
func TestHoles(t *testing.T) {
	rs := records(30)
	b := func(s batch.Spec) []byte { return batch.Encode(s) }
	first := func(codec batch.Codec) []byte { return b(batch.Spec{Base: base, Codec: codec, Records: rs[:10]}) }
	rest := func(codec batch.Codec) []byte { return b(batch.Spec{Base: base + 15, Codec: codec, Records: rs[15:]}) }
	phantoms := func(at int64, n int) []byte {
		h := batch.Header(batch.AppendPhantoms(nil, n, 7, nil))
		h.Patch(batch.Patch{Base: at, ProducerID: 1 << 62})
		return h
	}
	marker := func(at int64) []byte {
		return b(batch.Spec{Base: at, Attributes: batch.AttrControl | batch.AttrTransactional, Producer: &batch.Producer{ID: 4, Sequence: -1},
			Records: []batch.Record{{Offset: at, Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6)}}})
	}
	logs := map[string]*log{
		"gap":          newLog(first(batch.Zstd), rest(batch.Zstd)),
		"phantoms":     newLog(first(batch.None), phantoms(base+10, 5), rest(batch.LZ4)),
		"markers":      newLog(first(batch.Zstd), marker(base+10), marker(base+11), phantoms(base+12, 2), marker(base+14), rest(batch.Zstd)),
		"emptied":      newLog(b(batch.Spec{Base: base, Codec: batch.Gzip, Records: rs[:10], Next: base + 13}), b(batch.Spec{Base: base + 13, Next: base + 15}), rest(batch.Zstd)),
		"long batches": newLog(b(batch.Spec{Base: base, Records: slices.Concat(rs[:10], rs[15:])})),
	}
	for a, source := range logs {
		for b, destination := range logs {
			t.Run(a+" and "+b, func(t *testing.T) {
				got, err := Partition(t.Context(), source, destination, foo, small)
				if err != nil || !got.Equal || !got.EndsEqual || got.Records != 25 {
					t.Errorf("%v: %v", err, got)
				}
			})
		}
	}
	t.Run("fence at the end", func(t *testing.T) {
		got, err := Partition(t.Context(), cut(rs, 5, batch.Zstd), newLog(b(batch.Spec{Base: base, Records: rs}), phantoms(base+30, 1)), foo, small)
		if err != nil || !got.Equal || got.EndsEqual || got.Records != 30 {
			t.Errorf("%v: %v", err, got)
		}
	})
}

// Above 2^31 the offsets of phantoms are such as the log has, too.
func TestPhantomsAboveTwoGigaOffsets(t *testing.T) {
	const far = 1 << 33
	one := func(at int64) []byte {
		return batch.Encode(batch.Spec{Base: at, Records: []batch.Record{{Offset: at}}})
	}
	h := batch.Header(batch.AppendPhantoms(nil, 5, 7, nil))
	h.Patch(batch.Patch{Base: far, ProducerID: 1 << 62})
	got, err := Partition(t.Context(), newLog(one(1), one(far+5)), newLog(one(1), h, one(far+5)), foo, small)
	if err != nil || !got.Equal || got.Records != 2 {
		t.Errorf("%v: %v", err, got)
	}
}

// Batches that share a compressed payload are the same only if their headers make
// the same records of it.
func TestSharedPayload(t *testing.T) {
	spec := batch.Spec{Base: base, Codec: batch.Zstd, Records: []batch.Record{{Timestamp: 10}, {Timestamp: 20}}}
	const appendTime = batch.AttrLogAppendTime
	for name, c := range map[string]struct {
		source, destination func(s *batch.Spec)
		want                []string
	}{
		"producer and epoch": {nil, func(s *batch.Spec) { s.LeaderEpoch, s.Producer = 9, &batch.Producer{ID: 1} }, nil},
		"base":               {nil, func(s *batch.Spec) { s.Base = base + 2 }, []string{"1000: missing", "1001: missing", "1002: extra", "1003: extra"}},
		"base timestamp": {nil, func(s *batch.Spec) { s.Records = []batch.Record{{Timestamp: 11}, {Timestamp: 21}} },
			[]string{"1000: timestamp", "1001: timestamp"}},
		"log append time": {nil, func(s *batch.Spec) { s.Attributes, s.Timestamp = appendTime, 20 }, []string{"1000: timestamp"}},
		"other append time": {func(s *batch.Spec) { s.Attributes, s.Timestamp = appendTime, 20 },
			func(s *batch.Spec) { s.Attributes, s.Timestamp = appendTime, 21 }, []string{"1000: timestamp", "1001: timestamp"}},
	} {
		bubble(t, name, func(t *testing.T) {
			var logs [2]*log
			for i, change := range []func(s *batch.Spec){c.source, c.destination} {
				s := spec
				if change != nil {
					change(&s)
				}
				logs[i] = newLog(batch.Encode(s))
				logs[i].offsets = cluster.Offsets{LogStart: base, HighWatermark: base + 10}
			}
			if !bytes.Equal(logs[0].batches[0][batch.HeaderSize:], logs[1].batches[0][batch.HeaderSize:]) {
				t.Fatal("payloads are not shared")
			}
			got, err := Partition(t.Context(), logs[0], logs[1], foo, nil)
			if d := cmp.Diff(c.want, kinds(got)); d != "" || err != nil {
				t.Errorf("%v, differences (-want +got):\n%s", err, d)
			}
		})
	}
}

func TestCorrupt(t *testing.T) {
	spoil := func(at int) *log {
		l := cut(records(30), 10, batch.Zstd)
		l.batches[1][at] ^= 4
		return l
	}
	good := func() *log { return cut(records(30), 10, batch.LZ4) }
	old := good()
	old.batches[1][16] = 3
	miscounted := batch.Header(batch.Encode(batch.Spec{Base: base, Records: records(10)}))
	binary.BigEndian.PutUint32(miscounted[57:], 9)
	miscounted = recomputed(miscounted)
	for name, c := range map[string]struct {
		source, destination *log
		err                 error
		says                []string
	}{
		"payload, destination": {good(), spoil(70), cluster.ErrCorrupt, []string{"destination", "foo-3 offset 1010", "checksum"}},
		"payload, source":      {spoil(90), good(), cluster.ErrCorrupt, []string{"source", "foo-3 offset 1010", "checksum"}},
		"header":               {good(), spoil(30), cluster.ErrCorrupt, []string{"destination", "foo-3 offset 1010"}},
		"unknown format":       {good(), old, cluster.ErrCorrupt, []string{"destination", "magic 3"}},
		"count":                {good(), newLog(miscounted), cluster.ErrCorrupt, []string{"destination", "foo-3 offset 1000", "bytes after its 9 records"}},
	} {
		for _, o := range []*Options{nil, small} {
			t.Run(name, func(t *testing.T) {
				got, err := Partition(t.Context(), c.source, c.destination, foo, o)
				if !errors.Is(err, c.err) || got.Equal || got.Error != err.Error() {
					t.Fatalf("error %v, report %v", err, got)
				}
				for _, s := range c.says {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("%q does not say %q", err, s)
					}
				}
			})
		}
	}
}

// A header may be wrong about its largest timestamp; the records' are from the base.
func TestSharedPayloadOtherBaseTimestamp(t *testing.T) {
	one := func(timestamp uint64) *log {
		h := batch.Header(batch.Encode(batch.Spec{Base: base, Codec: batch.Zstd, Records: []batch.Record{{Timestamp: 10}}}))
		binary.BigEndian.PutUint64(h[27:], timestamp)
		return newLog(recomputed(h))
	}
	got, err := Partition(t.Context(), one(10), one(9), foo, nil)
	if d := cmp.Diff([]string{"1000: timestamp"}, kinds(got)); d != "" || err != nil {
		t.Errorf("%v, differences (-want +got):\n%s", err, d)
	}
}

// recomputed gives the batch a right checksum, whatever is in it.
func recomputed(h batch.Header) batch.Header {
	binary.BigEndian.PutUint32(h[17:], crc32.Checksum(h[21:], crc32.MakeTable(crc32.Castagnoli)))
	return h
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	source := cut(records(100), 1, batch.None)
	source.onRead = func(_ *log, n int) error {
		if n == 10 {
			cancel()
		}
		return nil
	}
	got, err := Partition(ctx, source, cut(records(100), 1, batch.None), foo, small)
	if !errors.Is(err, context.Canceled) || got.Equal {
		t.Errorf("%v: %v", err, got)
	}
}

func TestReadError(t *testing.T) {
	boom := errors.New("boom")
	source := cut(records(100), 1, batch.None)
	source.onRead = func(_ *log, n int) error {
		if n == 10 {
			return boom
		}
		return nil
	}
	got, err := Partition(t.Context(), source, cut(records(100), 1, batch.None), foo, small)
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "source: foo-3 offset 1009") || got.Records != 9 || got.Equal {
		t.Errorf("%v: %v", err, got)
	}
}

// Records that retention deletes during the comparison are not missing.
func TestRetentionMeanwhile(t *testing.T) {
	rs := records(100)
	source, destination := cut(rs, 10, batch.None), cut(rs, 7, batch.LZ4)
	destination.onRead = func(l *log, n int) error {
		if n == 2 {
			l.offsets.LogStart = base + 50
		}
		return nil
	}
	got, err := Partition(t.Context(), source, destination, foo, small)
	if err != nil || !got.Equal || got.EndsEqual || got.Compared != (cluster.Span{From: base + 50, To: base + 100}) || got.Records != 50 {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestDifferencesAreCountedAndBounded(t *testing.T) {
	other := with(100, func(rs []batch.Record) []batch.Record {
		for i := range rs {
			rs[i].Value = []byte("other")
		}
		return rs
	})
	for limit, want := range map[int]int{0: 10, 3: 3, 1000: 100} {
		got, err := Partition(t.Context(), cut(records(100), 10, batch.Zstd), cut(other, 10, batch.Zstd), foo, &Options{Differences: limit})
		if err != nil || got.Different != 100 || len(got.Differences) != want || got.Records != 0 {
			t.Errorf("%v: %d of %d described, want %d", err, len(got.Differences), got.Different, want)
		}
	}
}

func TestProgress(t *testing.T) {
	var seen []Progress
	o := &Options{ChunkBytes: 1, Progress: func(p Progress) { seen = append(seen, p) }}
	for _, codec := range codecs {
		seen = nil
		if _, err := Partition(t.Context(), cut(records(30), 10, codec), cut(records(30), 10, codec), foo, o); err != nil {
			t.Fatal(err)
		}
		var offsets, counts []int64
		for _, p := range seen {
			offsets, counts = append(offsets, p.Offset), append(counts, p.Records)
			if p.Bytes < 0 || p.Bytes == 0 && p.Offset > 1000 || p.Rate() > 0 != (p.Bytes > 0) {
				t.Errorf("%d bytes, %v bytes a second at %d", p.Bytes, p.Rate(), p.Offset)
			}
			if p.Partition != foo || p.Span != (cluster.Span{From: 1000, To: 1030}) {
				t.Errorf("%+v", p)
			}
		}
		if d := cmp.Diff([][]int64{{1000, 1010, 1020, 1030}, {0, 10, 20, 30}}, [][]int64{offsets, counts}); d != "" {
			t.Errorf("%v: offsets and counts (-want +got):\n%s", codec, d)
		}
	}
}

func TestJSON(t *testing.T) {
	got, err := Partition(t.Context(), cut(records(2), 2, batch.None), cut(records(1), 1, batch.None), foo, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, back); d != "" || !strings.Contains(string(b), `"compared":{"from":1000,"to":1001}`) {
		t.Errorf("%s\n%s", b, d)
	}
}
