package batch_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/verify"
)

// apart keeps null and empty apart.
var apart = cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })

var all = []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

// seen are the records of a batch that consumers see, and how many phantoms it has.
func seen(t testing.TB, h batch.Header) (rs []batch.Record, phantoms int) {
	t.Helper()
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	err := batch.Decode(h, func(r batch.Record) error {
		if r.Phantom {
			phantoms++
			return nil
		}
		r.Key, r.Value, r.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
		for i, h := range r.Headers {
			r.Headers[i] = batch.RecordHeader{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)}
		}
		rs = append(rs, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rs, phantoms
}

// same compares many records: cmp.Diff is slow, so it is asked only when they differ.
func same(t testing.TB, want, got []batch.Record, format string, args ...any) {
	t.Helper()
	bytesEqual := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	equal := slices.EqualFunc(want, got, func(a, b batch.Record) bool {
		return a.Offset == b.Offset && a.Timestamp == b.Timestamp && a.Phantom == b.Phantom && bytesEqual(a.Key, b.Key) &&
			bytesEqual(a.Value, b.Value) && slices.EqualFunc(a.Headers, b.Headers, func(a, b batch.RecordHeader) bool {
			return bytesEqual(a.Key, b.Key) && bytesEqual(a.Value, b.Value)
		})
	})
	if !equal {
		t.Fatalf("%s: records (-want +got):\n%s", fmt.Sprintf(format, args...), cmp.Diff(want, got, apart))
	}
}

// wrap is a compressed message of an old format, whose value is given as it stands.
func wrap(format int8, attributes byte, offset int64, value []byte) []byte {
	b := zoo.OldMessage(format, batch.Record{Offset: offset, Timestamp: 1234, Value: value}, false)
	b[17] = attributes
	return mend(b)
}

// mend makes the checksum of an old message right.
func mend(b []byte) []byte {
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

// seal makes of any bytes what a broker might have stored: length, magic and checksum are
// right.
func seal(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) >= batch.HeaderSize {
		binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
		b[16] = 2
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return b
}

// stored is a log as verify reads it.
type stored struct {
	offsets cluster.Offsets
	batches []zoo.Batch
}

func (s *stored) LogOffsets(context.Context, cluster.Partition) (cluster.Offsets, error) {
	return s.offsets, nil
}

func (s *stored) Read(_ context.Context, _ cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	var out []byte
	for _, b := range s.batches {
		if b.Next <= offset || len(out) > 0 && len(out)+len(b.Bytes) > int(maxBytes) {
			continue
		}
		out = append(out, b.Bytes...)
	}
	return out, nil
}

// judge has verify, which reads old formats in its own way, compare a log of the zoo with
// what was made of it.
func judge(t *testing.T, l *zoo.Log, made []zoo.Batch) {
	t.Helper()
	offsets := cluster.Offsets{LogStart: l.Start, HighWatermark: l.End}
	report, err := verify.Partition(t.Context(), &stored{offsets, l.Batches}, &stored{offsets, made}, cluster.Partition{Topic: "zoo"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Equal {
		t.Fatalf("seed %d: %v", l.Seed, report)
	}
}

// many is how many seeds a property is tried with.
func many(n int) uint64 {
	if testing.Short() {
		n /= 20
	}
	return uint64(n)
}
