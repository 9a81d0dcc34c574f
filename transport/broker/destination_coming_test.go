package broker

import (
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestComing: a partition is worth waiting for that is ours, has us among its replicas, and is
// led by nobody or another of ours; once we are elected, as long as we do not lead it yet.
func TestComing(t *testing.T) {
	ints := func(n ...int32) []int32 { return n }
	for _, tt := range []struct {
		name          string
		topic         string
		p             metalog.Partition
		soon, elected bool
	}{
		{"nobody leads", "t", metalog.Partition{Replicas: ints(100, 101, 1), Leader: -1}, true, false},
		{"another of ours does", "t", metalog.Partition{Replicas: ints(100, 101, 1), Leader: 101}, true, false},
		{"we do", "t", metalog.Partition{Replicas: ints(100, 101, 1), Leader: 100}, true, true},
		{"a real one does", "t", metalog.Partition{Replicas: ints(100, 101, 1), Leader: 1}, false, false},
		{"we are no replica", "t", metalog.Partition{Replicas: ints(101, 1), Leader: 101}, false, false},
		{"somebody else's topic", "u", metalog.Partition{Replicas: ints(100, 1), Leader: -1}, false, false},
	} {
		f := startFake(t, 1, metalog.NewTopic{Name: tt.topic, ID: strayID.Topic}, metalog.NewPartition{ID: strayID, Partition: tt.p})
		d := &Destination{m: seated(t, f, nil), own: newOwnTopics(&MemoryOverrides{all: map[string]Own{"t": {}}})}
		if err := d.own.recall(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, k := range []fetchKey{{topic: strayID.Topic, partition: 1}, {name: tt.topic, partition: 1}} {
			if soon, elected := d.coming(k); soon != tt.soon || elected != tt.elected {
				t.Errorf("%s: soon %v, elected %v", tt.name, soon, elected)
			}
		}
		if soon, elected := d.coming(fetchKey{name: tt.topic}); soon || elected {
			t.Errorf("%s: a partition that is not there: soon %v, elected %v", tt.name, soon, elected)
		}
	}
}

// TestHasteBegins when a partition that has us among its replicas changes, and only then: all
// fetches of all followers are answered soon as long as it lasts.
func TestHasteBegins(t *testing.T) {
	for _, tt := range []struct {
		name     string
		replicas []int32
		want     bool
	}{{"ours", []int32{1, 100}, true}, {"of others", []int32{1, 2}, false}} {
		d := &Destination{m: &Membership{cfg: Config{IDs: IDs{100, 101}}, self: Self{Broker: 100}}, server: &Server{haste: newHaste(), led: newRegistry()},
			own: newOwnTopics(new(MemoryOverrides)), held: make(map[cluster.Partition]*holding), led: make(map[metalog.PartitionID]*holding)}
		i := image(t, metalog.NewTopic{Name: "t", ID: strayID.Topic}, metalog.NewPartition{ID: strayID, Partition: metalog.Partition{Replicas: tt.replicas, Leader: 1}})
		var opening sync.WaitGroup
		d.look(t.Context(), &opening, i, strayID)
		if hasty, _ := d.server.haste.look(time.Now()); hasty != tt.want {
			t.Errorf("%s: haste %v", tt.name, hasty)
		}
	}
}
