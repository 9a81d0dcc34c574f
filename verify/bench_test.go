package verify

import (
	"bytes"
	"testing"

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
			b.Run(codec.String()+" "+name, func(b *testing.B) {
				b.SetBytes(int64(len(rs)) << 10)
				b.ReportAllocs()
				for b.Loop() {
					if r, err := Partition(b.Context(), source, destination, foo, nil); err != nil || !r.Equal {
						b.Fatal(r, err)
					}
				}
			})
		}
	}
}
