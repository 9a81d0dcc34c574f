package broker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestStandbyKnowsMissedCuts that the one that mirrors has stored, before it takes over. Who has the
// turn stores them himself.
func TestStandbyKnowsMissedCuts(t *testing.T) {
	for _, turn := range []bool{false, true} {
		store := &MemoryOverrides{all: map[string]Own{"t": {}}}
		d := &Destination{cfg: DestinationConfig{Workers: "g"}, own: newOwnTopics(store), missed: newMissed(store), turned: make(chan struct{})}
		if turn {
			close(d.turned)
		}
		p := named{"t", metalog.PartitionID{Topic: cluster.TopicID{1}}}
		if err := newMissed(store).put(t.Context(), map[named]map[int32]int64{p: {3: 50}}); err != nil {
			t.Fatal(err)
		}
		d.keepKnowing(t.Context())
		want := map[named]map[int32]int64{p: {3: 50}}
		if turn {
			want = map[named]map[int32]int64{}
		}
		if diff := cmp.Diff(want, d.missed.known(), cmp.AllowUnexported(named{})); diff != "" {
			t.Errorf("our turn: %v (-want +got):\n%s", turn, diff)
		}
	}
}
