package storetest

import (
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// came is a record of a topic that comes from sources.
func came(topic string, state coordinator.State, offset int64, sources ...string) coordinator.Record {
	r := record(topic, 0)
	r.State, r.Sources, r.Appended = state, sources, true
	if offset > 0 {
		r.HasPosition, r.Position = true, cluster.Position{Epoch: 4, Offset: offset}
		r.TopicID = cluster.TopicID{1, byte(offset)}
	}
	return r
}

func positions(t *check, s Store) {
	stopped := coordinator.StateStopped
	save(t, s, "one", came("stopped", stopped, 50, "src"), came("twice", stopped, 10, "src"),
		came("moving", coordinator.StateMirroring, 0, "src", "far"), came("other", stopped, 7, "foreign"),
		came("unstopped", stopped, 0, "src"), came("chain", coordinator.StatePaused, 0, "foreign", "src"))
	save(t, s, "two", came("twice", stopped, 90, "src"), came("moving", stopped, 33, "src"))
	save(t, s, "three", came("twice", stopped, 20, "src"), came("stopped", stopped, 99, "foreign"))
	found := func(offset int64) coordinator.PositionAnswer {
		r := came("", stopped, offset)
		return coordinator.PositionAnswer{Found: true, Position: r.Position, TopicID: r.TopicID}
	}
	moving := found(33)
	moving.Active, moving.Sources = "one", []string{"src", "far"}
	ask := []struct {
		topic string
		want  coordinator.PositionAnswer
	}{
		{"unstopped", coordinator.PositionAnswer{}},
		{"twice", found(90)},
		{"absent", coordinator.PositionAnswer{}},
		{"moving", moving},
		{"stopped", found(50)},
		{"other", coordinator.PositionAnswer{}},
		{"chain", coordinator.PositionAnswer{Sources: []string{"foreign", "src"}}},
	}
	var partitions []cluster.Partition
	var expect []coordinator.PositionAnswer
	for _, a := range ask {
		partitions = append(partitions, cluster.Partition{Topic: a.topic}, cluster.Partition{Topic: a.topic, Partition: 1})
		expect = append(expect, a.want, coordinator.PositionAnswer{})
	}
	answers(t, s, "src", partitions, expect)
	answers(t, s, "src", nil, nil)
	answers(t, s, "nobody", partitions[8:9], []coordinator.PositionAnswer{{}})
	answers(t, s, "foreign", partitions[8:9], []coordinator.PositionAnswer{found(99)})
}

func answers(t *check, s Store, source string, partitions []cluster.Partition, want []coordinator.PositionAnswer) {
	t.Helper()
	got, err := s.Positions(t.Context(), source, partitions)
	if err != nil {
		t.Fatalf("positions: %v", err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("positions of %v from %q (-want +got):\n%s", partitions, source, diff)
	}
}
