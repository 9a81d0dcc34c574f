package file

import (
	"fmt"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// many are the records of a mirror of topics with 50 partitions each.
func many(n int) []coordinator.Record {
	out := make([]coordinator.Record, n)
	for i := range out {
		out[i] = record(fmt.Sprintf("topic-%05d", i/50), 1)
		out[i].Partition.Partition = int32(i % 50)
		out[i].Sources = []string{"Ab3dEf6hQk2LmN0pRsTuVw"}
		out[i].TopicID = cluster.TopicID{1, byte(i), byte(i >> 8)}
		out[i].Epochs = []coordinator.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 5, Start: int64(1000*i + 1)}, {Epoch: 9, Start: int64(1001*i + 2)}}
	}
	return out
}

// BenchmarkSaveOne is a change of one record in a mirror of so many.
func BenchmarkSaveOne(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, err := Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			all := many(n)
			s.Save(b.Context(), "m", all)
			next := all[n/2]
			for b.Loop() {
				next.StateEpoch++
				if err := s.Save(b.Context(), "m", []coordinator.Record{next})[0]; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSaveAll is the first write of all records at once, BenchmarkOpen the start
// after it.
func BenchmarkSaveAll(b *testing.B) {
	all := many(100_000)
	for b.Loop() {
		s, err := Open(b.TempDir(), nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, err := range s.Save(b.Context(), "m", all) {
			if err != nil {
				b.Fatal(err)
			}
		}
		s.Close()
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	s.Save(b.Context(), "m", many(100_000))
	s.Close()
	for b.Loop() {
		s, err := Open(dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
