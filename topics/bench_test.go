package topics

import (
	"context"
	"fmt"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

// many are topics of ten partitions each.
func many(partitions int) []cluster.Topic {
	out := make([]cluster.Topic, partitions/10)
	for i := range out {
		out[i] = cluster.Topic{Name: fmt.Sprintf("orders-%06d", i), ID: cluster.TopicID{byte(i), byte(i >> 8), byte(i >> 16)}, Partitions: 10}
	}
	return out
}

// BenchmarkDiff compares the topics of two clusters that are in step; time and memory grow
// with the number of topics.
func BenchmarkDiff(b *testing.B) {
	for _, partitions := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			f, err := NewFilter([]string{"orders-.*"}, []string{".*-tmp", "orders-000007"})
			if err != nil {
				b.Fatal(err)
			}
			source, destination := many(partitions), many(partitions)
			b.ReportAllocs()
			for b.Loop() {
				if plan := Diff(source, destination, f); len(plan.Ready) != partitions/10-1 || len(plan.Create)+len(plan.Grow)+len(plan.Refused) > 0 {
					b.Fatal(len(plan.Ready))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(partitions), "ns/partition")
		})
	}
}

// told is a cluster all of whose topics have the same settings, as brokers tell them.
type told struct {
	shelf
	answer ConfigsAnswer
}

func (t *told) TopicConfigs(_ context.Context, names []string) ([]ConfigsAnswer, error) {
	out := make([]ConfigsAnswer, len(names))
	for i := range out {
		out[i] = t.answer
	}
	return out, nil
}

// BenchmarkConfigs is a round over settings that are in step: 32 by topic, three of them
// overrides that the mirror has set.
func BenchmarkConfigs(b *testing.B) {
	answer := ConfigsAnswer{Configs: configsOf("cleanup.policy=compact max.message.bytes=2000000 retention.ms=3600000")}
	for i := range 29 {
		answer.Defaults = append(answer.Defaults, cluster.TopicConfig{Name: fmt.Sprintf("setting.number.%d", i), Value: "9223372036854775807"})
	}
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("topics=%d", n), func(b *testing.B) {
			owned, names := &kept{own: map[string]Own{}}, make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf("orders-%06d", i)
				owned.own[names[i]] = Own{Set: values(answer.Configs)}
			}
			side := &told{answer: answer}
			c := NewConfigs(side, side, owned, nil)
			b.ReportAllocs()
			for b.Loop() {
				if r, err := c.Sync(b.Context(), names); err != nil || len(r.Compared) != n || len(r.Altered)+len(r.Refused) > 0 || owned.swaps > 0 {
					b.Fatal(err, len(r.Compared), len(r.Altered), r.Refused)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/topic")
		})
	}
}
