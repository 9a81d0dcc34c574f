package broker

import (
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/google/go-cmp/cmp"
)

var strayID = metalog.PartitionID{Topic: cluster.TopicID{1}, Partition: 1}

// around is a cluster of brokers 1 to 3 (3 in a rack of its own), 4 cordoned, 5
// fenced, ours 100 and 101, with one partition.
func around(t *testing.T, p *metalog.Partition) metalog.Image {
	t.Helper()
	var records []metalog.Record
	for _, id := range []int32{1, 2, 3, 4, 5, 100, 101} {
		b := metalog.Broker{ID: id, Rack: "a", Fenced: id == 5, Directories: []metalog.UUID{{byte(id)}}}
		if id == 3 {
			b.Rack = "b"
		}
		if id == 4 {
			b.Cordoned = b.Directories
		}
		records = append(records, metalog.RegisterBroker{Broker: b})
	}
	if p != nil {
		records = append(records, metalog.NewTopic{Name: "t", ID: strayID.Topic}, metalog.NewPartition{ID: strayID, Partition: *p})
	}
	return image(t, records...)
}

func avoidOurs(id int32) bool { return id >= 100 }

func TestStrayStep(t *testing.T) {
	ints := func(n ...int32) []int32 { return n }
	tests := []struct {
		name string
		p    *metalog.Partition
		s    stray
		want move
		done bool
	}{
		{"gone", nil, stray{want: 3}, move{}, true},
		{"real replicas stay, we go", &metalog.Partition{Replicas: ints(100, 1, 2), ISR: ints(100, 1, 2), Leader: 100},
			stray{want: 3}, move{replicas: ints(1, 2)}, false},
		{"being removed", &metalog.Partition{Replicas: ints(1, 100), Removing: ints(100), ISR: ints(1), Leader: 1}, stray{want: 2}, move{}, false},
		{"off us, one replica short: in the rack without one", &metalog.Partition{Replicas: ints(1, 2), ISR: ints(1, 2)},
			stray{want: 3}, move{replicas: ints(1, 2, 3)}, false},
		{"being added", &metalog.Partition{Replicas: ints(1, 3), Adding: ints(3), ISR: ints(1)}, stray{want: 3}, move{}, false},
		{"whole", &metalog.Partition{Replicas: ints(1, 2, 3), ISR: ints(1)}, stray{want: 3}, move{}, true},
		{"nobody left to add", &metalog.Partition{Replicas: ints(1, 2, 3), ISR: ints(1)}, stray{want: 4}, move{}, true},
		{"on us alone", &metalog.Partition{Replicas: ints(100), ISR: ints(100), Leader: 100}, stray{want: 1, born: true}, move{replicas: ints(2)}, false},
		{"on us alone, moving", &metalog.Partition{Replicas: ints(2, 100), Adding: ints(2), Removing: ints(100), ISR: ints(100), Leader: 100},
			stray{want: 1, born: true}, move{isr: ints(100, 2)}, false},
		{"the new one is down", &metalog.Partition{Replicas: ints(5, 100), Adding: ints(5), Removing: ints(100), ISR: ints(100), Leader: 100},
			stray{want: 1, born: true}, move{callOff: true}, false},
		{"not seen being made, but nobody else ever had it", &metalog.Partition{Replicas: ints(2, 100), Adding: ints(2), Removing: ints(100), ISR: ints(100), Leader: 100},
			stray{want: 1}, move{isr: ints(100, 2)}, false},
		{"not seen being made: nobody else can have written", &metalog.Partition{Replicas: ints(2, 101, 100), Removing: ints(101, 100), ISR: ints(100), Leader: 100},
			stray{want: 3}, move{isr: ints(100, 2)}, false},
		{"and the real one is down", &metalog.Partition{Replicas: ints(5, 101, 100), Removing: ints(101, 100), ISR: ints(100), Leader: 100},
			stray{want: 3}, move{callOff: true}, false},
		{"so another one takes it", &metalog.Partition{Replicas: ints(5, 101, 100), ISR: ints(100), Leader: 100}, stray{want: 3}, move{replicas: ints(2)}, false},
		{"made on us, all of the others were down: they are let in", &metalog.Partition{Replicas: ints(2, 1, 100), Removing: ints(100), ISR: ints(100), Leader: 100},
			stray{want: 3, born: true}, move{isr: ints(100, 2, 1)}, false},
		{"another one of ours goes as well", &metalog.Partition{Replicas: ints(100, 101, 1), ISR: ints(100, 101, 1), Leader: 100}, stray{want: 3}, move{replicas: ints(1)}, false},
		{"we lead, one is down: it is not waited for", &metalog.Partition{Replicas: ints(100, 1, 5), ISR: ints(100, 1), Leader: 100},
			stray{want: 3, had: ints(1, 5), stay: true}, move{replicas: ints(1)}, false},
		{"and we leave the cluster", &metalog.Partition{Replicas: ints(100, 1, 5), ISR: ints(100, 1), Leader: 100},
			stray{want: 3, had: ints(1, 5)}, move{replicas: ints(1, 5)}, false},
		{"we lead, one went down while we were leaving", &metalog.Partition{Replicas: ints(1, 5, 100), Removing: ints(100), ISR: ints(100, 1), Leader: 100},
			stray{want: 3, had: ints(1, 5), stay: true}, move{replicas: ints(1)}, false},
		{"another leads: he lets them in", &metalog.Partition{Replicas: ints(100, 1, 5), ISR: ints(1), Leader: 1}, stray{want: 3, had: ints(1, 5)}, move{replicas: ints(1, 5)}, false},
		{"off us: who was down has it again, and one more", &metalog.Partition{Replicas: ints(1), ISR: ints(1), Leader: 1},
			stray{want: 3, had: ints(1, 5)}, move{replicas: ints(1, 5, 3)}, false},
		{"who was down is no broker any more", &metalog.Partition{Replicas: ints(1), ISR: ints(1), Leader: 1}, stray{want: 2, had: ints(1, 9)}, move{replicas: ints(1, 3)}, false},
		{"an operator moves it to us", &metalog.Partition{Replicas: ints(1, 100, 2), Adding: ints(100), Removing: ints(2), ISR: ints(1, 2), Leader: 1},
			stray{want: 2}, move{callOff: true}, false},
		{"being added and to be removed", &metalog.Partition{Replicas: ints(1, 2, 100), Adding: ints(100), Removing: ints(100), ISR: ints(1, 2), Leader: 1},
			stray{want: 2}, move{callOff: true}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, done := tt.s.step(around(t, tt.p), strayID, 100, avoidOurs)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(move{})); diff != "" || done != tt.done {
				t.Errorf("done %v %s", done, diff)
			}
		})
	}
}

// TestForgotten: what looks like a mirror topic of which nobody knows is not let go of without
// the operator.
func TestForgotten(t *testing.T) {
	p := &metalog.Partition{Replicas: []int32{2, 1, 100}, Removing: []int32{100}, ISR: []int32{100}, Leader: 100}
	i := around(t, p)
	for key, value := range mirrored {
		var err error
		if i, err = i.Apply(metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "t"}, Key: key, Value: &value}, &metalog.Delta{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, done := (stray{want: 3, stay: true}).step(i, strayID, 100, avoidOurs); done || got.isr != nil || got.replicas != nil || got.callOff {
		t.Errorf("done %v, %+v", done, got)
	}
	if got, _ := (stray{want: 3, born: true}).step(i, strayID, 100, avoidOurs); !slices.Equal(got.isr, []int32{100, 2, 1}) {
		t.Errorf("made on us: %+v", got)
	}
}

func TestFind(t *testing.T) {
	theirs := metalog.Partition{Replicas: []int32{1, 2}}
	onUs := metalog.Partition{Replicas: []int32{1, 100, 2}, Adding: []int32{100}}
	touched := metalog.Delta{Partitions: map[metalog.PartitionID]struct{}{strayID: {}}}
	nobody := func(metalog.PartitionID) bool { return false }
	everybody := func(metalog.PartitionID) bool { return true }
	tests := []struct {
		name        string
		before, now *metalog.Partition
		d           metalog.Delta
		ours        func(metalog.PartitionID) bool
		want        map[metalog.PartitionID]stray
	}{
		{"made on us", nil, &metalog.Partition{Replicas: []int32{100}}, touched, nobody, map[metalog.PartitionID]stray{strayID: {want: 1, had: []int32{}, born: true, sure: true}}},
		{"made on two of ours", nil, &metalog.Partition{Replicas: []int32{101, 100, 1}}, touched, nobody, map[metalog.PartitionID]stray{strayID: {want: 3, had: []int32{1}, born: true}}},
		{"moved to us", &theirs, &onUs, touched, nobody, map[metalog.PartitionID]stray{strayID: {want: 2, had: []int32{1, 2}}}},
		{"found at the start", nil, &onUs, metalog.Delta{All: true}, nobody, map[metalog.PartitionID]stray{strayID: {want: 2, had: []int32{1, 2}}}},
		{"ours", nil, &onUs, touched, everybody, nil},
		{"not on us", nil, &theirs, touched, nobody, nil},
		{"nothing happened", &onUs, &onUs, metalog.Delta{}, nobody, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := find(around(t, tt.before), around(t, tt.now), tt.d, 100, avoidOurs, tt.ours)
			if len(got)+len(tt.want) > 0 && !cmp.Equal(got, tt.want, cmp.AllowUnexported(stray{})) {
				t.Errorf("found %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestUrgent(t *testing.T) {
	a, b := metalog.PartitionID{Topic: cluster.TopicID{1}, Partition: 3}, metalog.PartitionID{Topic: cluster.TopicID{2}}
	i := image(t, metalog.NewTopic{Name: "a", ID: a.Topic}, metalog.NewTopic{Name: "__consumer_offsets", ID: b.Topic})
	ids := []metalog.PartitionID{a, {Topic: a.Topic}, b}
	urgent(i, ids)
	if !slices.Equal(ids, []metalog.PartitionID{b, {Topic: a.Topic}, a}) {
		t.Errorf("order %v", ids)
	}
}
