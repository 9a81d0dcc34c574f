package offsets

import (
	"fmt"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

// BenchmarkDiff compares groups with ten partitions each, all of which have moved.
func BenchmarkDiff(b *testing.B) {
	for _, groups := range []int{500, 5000} {
		b.Run(fmt.Sprintf("%d groups", groups), func(b *testing.B) {
			logs := map[cluster.Partition]Log{}
			source, destination, marks := make([][]cluster.Committed, groups), make([][]cluster.Committed, groups), make([]Marks, groups)
			for g := range groups {
				marks[g] = Marks{}
				for i := range int32(10) {
					p := cluster.Partition{Topic: fmt.Sprint("topic-", g%100), Partition: i}
					logs[p] = log(0, 1000)
					source[g] = append(source[g], cluster.Committed{Partition: p, Offset: 600})
					destination[g] = append(destination[g], cluster.Committed{Partition: p, Offset: 500})
					marks[g][p] = Mark{1, []int64{500}}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				for g := range groups {
					if ch := Diff("g", source[g], destination[g], marks[g], logs); len(ch.Offsets) != 10 {
						b.Fatal(ch)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*groups*10), "ns/offset")
		})
	}
}
