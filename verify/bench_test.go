package verify

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime/metrics"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// BenchmarkPartition compares records of a kilobyte, in the same batches and in
// others.
func BenchmarkPartition(b *testing.B) {
	rs := make([]batch.Record, 10_000)
	for i := range rs {
		rs[i].Offset, rs[i].Value = base+int64(i), bytes.Repeat([]byte{byte(i), byte(i >> 4), 'a', 'b'}, 256)
	}
	for _, codec := range codecs {
		source := cut(rs, 16, codec)
		for name, destination := range map[string]*log{"same batches": cut(rs, 16, codec), "other batches": cut(rs, 20, codec)} {
			for sums, o := range map[string]*Options{"": nil, " checksums": {Checksums: true}} {
				b.Run(codec.String()+" "+name+sums, func(b *testing.B) {
					b.SetBytes(int64(len(rs)) << 10)
					b.ReportAllocs()
					for b.Loop() {
						if r, err := Partition(b.Context(), source, destination, foo, o); err != nil || !r.Equal {
							b.Fatal(r, err)
						}
					}
				})
			}
		}
	}
}

// endless is a log as long as is wanted: one batch, again and again.
type endless struct {
	one batch.Header
	end int64
}

// endlessLog has records of a kilobyte that compress to about a half.
func endlessLog(perBatch int, codec batch.Codec, bytes int64) endless {
	r := rand.New(rand.NewPCG(1, 1))
	rs := make([]batch.Record, perBatch)
	for i := range rs {
		v := make([]byte, 1024)
		for k := range v[:512] {
			v[k] = byte(r.Uint32())
		}
		rs[i] = batch.Record{Timestamp: 1_700_000_000_000, Value: v}
	}
	return endless{batch.Encode(batch.Spec{Codec: codec, Records: rs}), bytes >> 10}
}

func (l endless) LogOffsets(context.Context, cluster.Partition) (cluster.Offsets, error) {
	return cluster.Offsets{HighWatermark: l.end}, nil
}

func (l endless) Read(_ context.Context, _ cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	n := int64(l.one.Count())
	out := make([]byte, 0, int(maxBytes)+len(l.one))
	for at := offset / n * n; at < l.end && len(out) < int(maxBytes); at += n {
		out = append(out, l.one...)
		batch.Header(out[len(out)-len(l.one):]).Patch(batch.Patch{Base: at, ProducerID: -1, BaseSequence: -1})
	}
	return out, nil
}

// heapNow is how much memory the heap has taken from the system.
func heapNow() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64()
}

// BenchmarkGigabyte compares a gigabyte with a gigabyte, and tells how much memory that took at most.
func BenchmarkGigabyte(b *testing.B) {
	for name, c := range map[string]struct{ source, destination endless }{
		"none, none": {endlessLog(900, batch.None, 1<<30), endlessLog(900, batch.None, 1<<30)},
		"zstd, lz4":  {endlessLog(900, batch.Zstd, 1<<30), endlessLog(900, batch.LZ4, 1<<30)},
		"zstd, zstd": {endlessLog(900, batch.Zstd, 1<<30), endlessLog(900, batch.Zstd, 1<<30)},
	} {
		for sums, o := range map[string]Options{"": {}, " checksums": {Checksums: true}} {
			b.Run(name+sums, func(b *testing.B) {
				b.SetBytes(1 << 30)
				most := uint64(0)
				o.Progress = func(Progress) { most = max(most, heapNow()) }
				for b.Loop() {
					if r, err := Partition(b.Context(), c.source, c.destination, foo, &o); err != nil || !r.Equal {
						b.Fatal(r, err)
					}
				}
				b.ReportMetric(float64(most)/1e6, "MB-heap")
			})
		}
	}
}

// However long the logs are, the memory is that of some chunks.
func TestConstantMemory(t *testing.T) {
	peak := func(size int64) (most uint64) {
		a, b := endlessLog(64, batch.LZ4, size), endlessLog(64, batch.Zstd, size)
		o := &Options{ChunkBytes: 1 << 20, Progress: func(Progress) { most = max(most, heapNow()) }}
		r, err := Partition(t.Context(), a, b, foo, o)
		if err != nil || !r.Equal || r.Records != size>>10 {
			t.Fatal(r, err)
		}
		return most
	}
	// The heap is looked at now and then, garbage included: on a busy machine it doubles.
	if short, long := peak(8<<20), peak(96<<20); long > 2*short+32<<20 {
		t.Errorf("%d bytes of heap for 8 MiB, %d for 96 MiB", short, long)
	}
}
