package mirror_test

import (
	"context"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// TestLikeNames is C9.9: topics whose names differ by a dot and an underscore alone are two. Each has its own
// records, settings, groups and figures, over a stop of one and a restart too.
func TestLikeNames(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		dot, line := cluster.Partition{Topic: "a.b"}, cluster.Partition{Topic: "a_b"}
		produce := func(c *memory.Cluster, p cluster.Partition, values ...string) {
			t.Helper()
			if _, err := c.Produce(p, memory.Values(values...)...); err != nil {
				t.Fatal(err)
			}
		}
		parts := map[string]int{"a.b": 1, "a_b": 2}
		for p, retention := range map[cluster.Partition]string{dot: "1000000", line: "2000000"} {
			of := cluster.NewTopic{Name: p.Topic, Partitions: int32(parts[p.Topic]), Configs: []cluster.TopicConfig{{Name: "retention.ms", Value: retention}}}
			if err := w.a.CreateTopic(of); err != nil {
				t.Fatal(err)
			}
		}
		produce(w.a, dot, "1", "2", "3")
		produce(w.a, line, "4")
		if err := w.a.CommitAs("app", cluster.Committed{Partition: dot, Offset: 3}, cluster.Committed{Partition: line, Offset: 1}); err != nil {
			t.Fatal(err)
		}
		begin := func() (*mirror.Mirror, func()) {
			return w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.Topics.Include = []string{"a.b", "a_b"} })
		}
		has := func(p cluster.Partition, m *mirror.Mirror, state coordinator.State, want ...string) {
			t.Helper()
			got, err := w.b.Records(p, false)
			if err != nil {
				t.Fatal(err)
			}
			var values []string
			for _, r := range got {
				values = append(values, string(r.Value))
			}
			top, _ := m.Topic(p.Topic)
			if s := m.Status(); s.Health != "ok" || top.Refused != "" {
				t.Errorf("%s: %s", show(top), show(s))
			}
			if show(values) != show(want) || len(top.Partitions) != parts[p.Topic] || top.Partitions[0].State != state {
				t.Errorf("%v: %q, want %q; %s", p, values, want, show(top))
			}
		}
		m, stop := begin()
		settle(2 * time.Minute)
		has(dot, m, coordinator.StateMirroring, "1", "2", "3")
		has(line, m, coordinator.StateMirroring, "4")
		for name, records := range map[string]int64{"a.b": 3, "a_b": 1} {
			if top, _ := m.Topic(name); top.Partitions[0].Records != records {
				t.Errorf("%s: %s", name, show(top))
			}
		}
		for p, want := range map[cluster.Partition]string{dot: "1000000", line: "2000000"} {
			answers, err := w.b.Client("test").TopicConfigs(t.Context(), []string{p.Topic})
			if err != nil || values(answers[0].Configs)["retention.ms"] != want {
				t.Errorf("%v: %v, %v", p, answers, err)
			}
		}
		committed, err := w.b.Client("test").Committed(t.Context(), []string{"app"})
		if err != nil || len(committed[0].Offsets) != 2 || committed[0].Offsets[0].Offset != 3 || committed[0].Offsets[1].Offset != 1 {
			t.Errorf("%+v, %v", committed, err)
		}

		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Stop(ctx, "a_b"); err != nil {
			t.Fatal(err)
		}
		stop()
		m, _ = begin()
		produce(w.a, dot, "5")
		produce(w.a, line, "6")
		settle(2 * time.Minute)
		has(dot, m, coordinator.StateMirroring, "1", "2", "3", "5")
		has(line, m, coordinator.StateStopped, "4")
	})
}

func values(of []cluster.TopicConfig) map[string]string {
	out := map[string]string{}
	for _, c := range of {
		out[c.Name] = c.Value
	}
	return out
}
