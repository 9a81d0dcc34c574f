package metalog_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/google/go-cmp/cmp"
)

func part(n int32) metalog.PartitionID { return metalog.PartitionID{Topic: topicID(1), Partition: n} }

// base is a cluster of two brokers and a topic of two partitions.
func base() []metalog.Record {
	p := metalog.Partition{Replicas: []int32{1, 2}, ISR: []int32{1, 2}, Leader: 1, LeaderEpoch: 3, PartitionEpoch: 10}
	withELR := p
	withELR.ELR, withELR.LastKnownELR = []int32{2}, []int32{1}
	return []metalog.Record{
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 1, Epoch: 5, Fenced: true}},
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 2, Epoch: 6, Cordoned: []metalog.UUID{uuid(1)}}},
		metalog.NewTopic{Name: "t", ID: topicID(1)},
		metalog.NewPartition{ID: part(0), Partition: p},
		metalog.NewPartition{ID: part(1), Partition: withELR},
		metalog.SetConfig{Resource: topicT, Key: "retention.ms", Value: ptr("1")},
	}
}

var topicT = metalog.Resource{Kind: metalog.TopicResource, Name: "t"}

func build(t *testing.T, records ...metalog.Record) (metalog.Image, metalog.Delta) {
	t.Helper()
	var image metalog.Image
	var d metalog.Delta
	for _, r := range records {
		var err error
		if image, err = image.Apply(r, &d); err != nil {
			t.Fatalf("%#v: %v", r, err)
		}
	}
	return image, d
}

func TestApplyPartition(t *testing.T) {
	tests := []struct {
		name   string
		change metalog.ChangePartition
		want   func(p *metalog.Partition) // on partition 1 of base, epochs apart
		leader int32                      // what the leader epoch grows by
	}{
		{"nothing", metalog.ChangePartition{}, func(*metalog.Partition) {}, 0},
		{"the same leader again", metalog.ChangePartition{Leader: ptr(int32(1))}, func(*metalog.Partition) {}, 1},
		{"no leader", metalog.ChangePartition{Leader: ptr(int32(-1)), ISR: []int32{}},
			func(p *metalog.Partition) { p.Leader, p.ISR = -1, []int32{} }, 1},
		{"replicas and directories", metalog.ChangePartition{Replicas: []int32{3}, Directories: []metalog.UUID{uuid(8)}},
			func(p *metalog.Partition) { p.Replicas, p.Directories = []int32{3}, []metalog.UUID{uuid(8)} }, 0},
		{"reassignment", metalog.ChangePartition{Adding: []int32{3}, Removing: []int32{1}},
			func(p *metalog.Partition) { p.Adding, p.Removing = []int32{3}, []int32{1} }, 0},
		{"eligible", metalog.ChangePartition{ELR: []int32{}, LastKnownELR: []int32{9}},
			func(p *metalog.Partition) { p.ELR, p.LastKnownELR = []int32{}, []int32{9} }, 0},
		{"recovering", metalog.ChangePartition{Recovering: ptr(true)}, func(p *metalog.Partition) { p.Recovering = true }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, _ := build(t, base()...)
			old, _ := before.Partition(part(1))
			want := *old
			tt.want(&want)
			want.PartitionEpoch, want.LeaderEpoch = 11, 3+tt.leader
			tt.change.ID = part(1)
			var d metalog.Delta
			after, err := before.Apply(tt.change, &d)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := after.Partition(part(1))
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(metalog.Delta{Partitions: map[metalog.PartitionID]struct{}{part(1): {}}}, d); diff != "" {
				t.Error(diff)
			}
			if still, _ := before.Partition(part(1)); still.PartitionEpoch != 10 {
				t.Error("an image has changed")
			}
		})
	}
}

func TestApplyBrokers(t *testing.T) {
	image, d := build(t, append(base(),
		metalog.ChangeBroker{ID: 1, Epoch: 5, Fenced: ptr(false)},
		metalog.ChangeBroker{ID: 1, Epoch: 5, InControlledShutdown: ptr(true), Directories: []metalog.UUID{uuid(2)}},
		metalog.ChangeBroker{ID: 2, Epoch: 6, Cordoned: []metalog.UUID{}},
	)...)
	one, _ := image.Broker(1)
	if diff := cmp.Diff(&metalog.Broker{ID: 1, Epoch: 5, InControlledShutdown: true, Directories: []metalog.UUID{uuid(2)}}, one); diff != "" {
		t.Error(diff)
	}
	if two, _ := image.Broker(2); len(two.Cordoned) != 0 {
		t.Errorf("cordoned %v", two.Cordoned)
	}
	if got := slices.Sorted(maps.Keys(d.Brokers)); !slices.Equal(got, []int32{1, 2}) {
		t.Errorf("delta has brokers %v", got)
	}
	image, err := image.Apply(metalog.UnregisterBroker{ID: 1, Epoch: 5}, &d)
	if _, ok := image.Broker(1); ok || err != nil {
		t.Error("still registered", err)
	}
	if n := len(slices.Collect(image.Brokers())); n != 1 {
		t.Errorf("%d brokers", n)
	}
}

func TestApplyTopics(t *testing.T) {
	again := topicID(2)
	image, d := build(t, append(base(),
		metalog.RemoveTopic{ID: topicID(1)},
		metalog.NewTopic{Name: "t", ID: again},
		metalog.NewPartition{ID: metalog.PartitionID{Topic: again}},
		metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "other"}, Key: "a", Value: ptr("b")},
		metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "other"}, Key: "a"},
		metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.BrokerResource}, Key: "ssl.keystore.password", Value: ptr("p")},
		metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.BrokerResource}, Key: "min.insync.replicas", Value: ptr("2")},
		metalog.SetConfig{Resource: metalog.Resource{Kind: 16, Name: "c"}, Key: "x", Value: ptr("y")},
		metalog.SetFeature{Name: "f", Level: 3}, metalog.ProducerIDs{Next: 77},
	)...)
	if got, ok := image.TopicNamed("t"); !ok || *got != (metalog.Topic{Name: "t", ID: again, Partitions: 1}) {
		t.Errorf("topic %+v", got)
	}
	if gone, err := image.Apply(metalog.RemoveTopic{ID: again}, new(metalog.Delta)); err != nil || len(slices.Collect(gone.Topics())) != 0 {
		t.Errorf("removed: %v", err)
	} else if renamed, err := gone.Apply(metalog.NewTopic{Name: "u", ID: again}, new(metalog.Delta)); err != nil || hasTopic("t")(renamed) {
		t.Errorf("the name of a topic that is gone is still known: %v", err)
	}
	for id := range image.Partitions() {
		if id.Topic != again {
			t.Errorf("partition %v is left", id)
		}
	}
	if set := image.Config(topicT); set != nil {
		t.Errorf("the configuration of a topic that is gone: %v", set)
	}
	if set := image.Config(metalog.Resource{Kind: metalog.BrokerResource}); !maps.Equal(set, map[string]string{"min.insync.replicas": "2"}) {
		t.Errorf("of brokers: %v", set)
	}
	if image.Feature("f") != 3 || image.NextProducerID != 77 {
		t.Errorf("feature %d, producer id %d", image.Feature("f"), image.NextProducerID)
	}
	for _, id := range []metalog.PartitionID{part(0), part(1), {Topic: again}} {
		if _, ok := d.Partitions[id]; !ok {
			t.Errorf("delta misses %v", id)
		}
	}
	if len(d.Topics) != 2 || len(d.Configs) != 3 {
		t.Errorf("delta %+v", d)
	}
}

func TestClearELR(t *testing.T) {
	for _, name := range []string{"t", ""} {
		image, _ := build(t, append(base(), metalog.ClearELR{Topic: name}, metalog.ClearELR{Topic: "nobody"})...)
		zero, _ := image.Partition(part(0))
		one, _ := image.Partition(part(1))
		if zero.PartitionEpoch != 10 || one.PartitionEpoch != 11 || len(one.ELR)+len(one.LastKnownELR) != 0 {
			t.Errorf("topic %q: %+v and %+v", name, zero, one)
		}
	}
}

func TestContradictions(t *testing.T) {
	before, _ := build(t, base()...)
	for _, r := range []metalog.Record{
		metalog.ChangeBroker{ID: 9, Epoch: 1}, metalog.ChangeBroker{ID: 1, Epoch: 1},
		metalog.ChangePartition{ID: part(5)}, metalog.RemoveTopic{ID: cluster.TopicID{7}},
		metalog.NewPartition{ID: metalog.PartitionID{Topic: cluster.TopicID{7}}},
	} {
		var d metalog.Delta
		if _, err := before.Apply(r, &d); err == nil || !d.Empty() {
			t.Errorf("%#v: %v, delta %+v", r, err, d)
		}
	}
}
