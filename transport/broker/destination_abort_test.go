package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

// TestMarkersOf: a producer has one marker for all its partitions; where its epochs differ it has
// one for each. Nothing is marked twice, nothing is left out.
func TestMarkersOf(t *testing.T) {
	in := func(topic string, partition int32, p producer) openTransaction {
		return openTransaction{cluster.Partition{Topic: topic, Partition: partition}, p}
	}
	a, b, older := producer{id: 1, epoch: 4, coordinator: -1, open: 10}, producer{id: 2, epoch: 0, coordinator: 3, open: 20}, producer{id: 1, epoch: 3, coordinator: -1, open: 30}
	req := markersOf([]openTransaction{in("t", 0, a), in("u", 0, a), in("t", 0, b), in("t", 1, older), in("t", 2, a)})
	var got []string
	for _, m := range req.Markers {
		if m.Committed {
			t.Errorf("producer %d is committed", m.ProducerID)
		}
		for _, topic := range m.Topics {
			slices.Sort(topic.Partitions)
			got = append(got, fmt.Sprintf("%d.%d.%d %s%v", m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, topic.Topic, topic.Partitions))
		}
	}
	slices.Sort(got)
	if want := []string{"1.3.0 t[1]", "1.4.0 t[0 2]", "1.4.0 u[0]", "2.0.3 t[0]"}; len(req.Markers) != 3 || !slices.Equal(got, want) {
		t.Errorf("%d markers, %q, want 3, %q", len(req.Markers), got, want)
	}
}
