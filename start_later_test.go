package mirror_test

import (
	"context"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/memory"
)

// TestStartIsForWhatIsThere: where copies begin is an option for the topics that are there
// when the mirror begins, or that an operator starts. Topics and partitions that appear
// later are copied from their first record, by the next process too (I9).
func TestStartIsForWhatIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "old")
		topic := func(name string) cluster.Partition {
			t.Helper()
			if err := w.a.CreateTopic(cluster.NewTopic{Name: name, Partitions: 1}); err != nil {
				t.Fatal(err)
			}
			return cluster.Partition{Topic: name}
		}
		produce := func(p cluster.Partition, values ...string) {
			t.Helper()
			if _, err := w.a.Produce(p, memory.Values(values...)...); err != nil {
				t.Fatal(err)
			}
		}
		latest := func(o *mirror.Options) {
			o.Topics.Include, o.Start.Latest = []string{"orders.*"}, true
		}
		m, end := w.mirror("ab", w.a, w.b, latest)
		settle(time.Second)
		w.write(w.a, "new")
		later := topic("orders-later")
		produce(later, "first")
		if err := w.a.CreatePartitions("orders", 2); err != nil {
			t.Fatal(err)
		}
		added := cluster.Partition{Topic: "orders", Partition: 1}
		produce(added, "first")
		asked := topic("asked")
		produce(asked, "old")
		settle(2 * time.Minute)
		if err := m.Start(context.Background(), "asked"); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		produce(asked, "new")
		settle(time.Minute)
		end()
		meanwhile := topic("orders-meanwhile")
		produce(meanwhile, "first")
		w.mirror("ab", w.a, w.b, latest)
		settle(time.Minute)
		for p, want := range map[cluster.Partition]string{orders: "new", later: "first", added: "first", asked: "new", meanwhile: "first"} {
			got, err := w.b.Records(p, false)
			if err != nil || len(got) != 1 || string(got[0].Value) != want {
				t.Errorf("%v: %v, %v; want %q", p, got, err, want)
			}
		}
	})
}

// TestStartOfAControllersTopic: a topic that an operator starts, in whichever process, is
// there when it is started.
func TestStartOfAControllersTopic(t *testing.T) {
	inSites(t, func(t *testing.T, s *sites) {
		d := definition("ab", "A", "B")
		d.Config = map[string]string{"start": "latest"}
		if _, err := s.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		s.write("A", "old", 5)
		pass(5 * time.Minute)
		other, err := mirror.NewController(s.store, s.world.open, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.ok("orders")(other.Start(t.Context(), "ab", "orders"))
		pass(5 * time.Minute)
		s.write("A", "new", 1)
		pass(time.Minute)
		for i := range int32(2) {
			p := cluster.Partition{Topic: "orders", Partition: i}
			got, err := s.at["B"].Records(p, false)
			if err != nil || len(got) != 1 || got[0].Offset != 5 {
				t.Errorf("%v: %v, %v", p, got, err)
			}
		}
	}, "A", "B")
}
