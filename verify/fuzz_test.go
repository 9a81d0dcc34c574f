package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// mend gives every batch and message of b a right checksum, so that what is behind
// the checksums is reached.
func mend(b []byte) []byte {
	b = bytes.Clone(b)
	for w := batch.Walk(b); w.Next(); {
		if h := w.Header(); old(h) {
			binary.BigEndian.PutUint32(h[oldCRC:], crc32.ChecksumIEEE(h[oldMagic:]))
		} else {
			recomputed(h)
		}
	}
	return b
}

// answer gives the same bytes to every read below an end.
type answer struct {
	bytes []byte
	end   int64
}

func (a answer) Read(_ context.Context, _ cluster.Partition, offset int64, _ int32) ([]byte, error) {
	if offset >= a.end {
		return nil, nil
	}
	return a.bytes, nil
}

func (a answer) LogOffsets(context.Context, cluster.Partition) (cluster.Offsets, error) {
	return cluster.Offsets{HighWatermark: a.end}, nil
}

func seeds(f *testing.F, add func(b []byte)) {
	l := zoo.Generate(1, zoo.Options{OldFormats: true, Batches: 60, MaxValue: 300})
	var all []byte
	for _, b := range l.Batches {
		if len(b.Bytes) < 2000 {
			add(b.Bytes)
		}
		all = append(all, b.Bytes...)
	}
	add(all)
	add(zoo.Misnumbered(3, "a", "b"))
}

// Whatever a cluster answers, a comparison comes to an end, and a log is never
// different from itself.
func FuzzPartition(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		b = mend(b)
		a := answer{b, 1 << 20}
		r, err := Partition(t.Context(), a, a, foo, &Options{Limit: 1 << 20, Checksums: true, Strict: true})
		if err == nil && !r.Equal {
			for _, d := range r.Differences {
				if d.Kind != Malformed && d.Kind != Missing && d.Kind != Extra { // offsets that go back find no partner
					t.Fatalf("%v", d)
				}
			}
		}
		if err == nil && r.SourceSum.Sum != r.DestinationSum.Sum {
			t.Fatalf("sums %v and %v", r.SourceSum, r.DestinationSum)
		}
	})
}

// The decoder of the old formats gives records that lie in the message's own range,
// or an error.
func FuzzOld(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) })
	d := oldDecoder{limit: 1 << 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		for w := batch.Walk(mend(b)); w.Next(); {
			h := w.Header()
			if !old(h) {
				continue
			}
			rs, err := d.decode(h)
			size := 0
			for _, r := range rs {
				size += len(r.Key) + len(r.Value)
				if err == nil && h.Magic() == 1 && r.Offset > h.Base() {
					t.Fatalf("offset %d in the message at %d", r.Offset, h.Base())
				}
			}
			if size > len(h)+1<<20 {
				t.Fatalf("%d bytes of records", size)
			}
		}
	})
}
