package broker

import (
	"slices"
	"testing"

	"github.com/clustermirror/mirror/internal/metalog"
)

func TestPeersAreLetIn(t *testing.T) {
	ints := func(n ...int32) []int32 { return n }
	for _, tt := range []struct {
		name       string
		p          metalog.Partition
		add, admit act
	}{
		{"not a replica yet", metalog.Partition{Replicas: ints(102, 1, 2), ISR: ints(102), Leader: 102},
			act{verb: assigns, to: ints(101, 102, 1, 2)}, act{verb: ends}},
		{"a replica", metalog.Partition{Replicas: ints(101, 102, 1, 2), ISR: ints(102), Leader: 102}, act{verb: ends}, act{verb: syncs, to: ints(102, 101)}},
		{"still being added, as 3.9 leaves it", metalog.Partition{Replicas: ints(101, 102, 1), Adding: ints(101), ISR: ints(102), Leader: 102},
			act{verb: ends}, act{verb: syncs, to: ints(102, 101)}},
		{"in sync", metalog.Partition{Replicas: ints(101, 102, 1, 2), ISR: ints(101, 102), Leader: 102}, act{verb: ends}, act{verb: ends}},
		{"one that is away stays", metalog.Partition{Replicas: ints(100, 101, 102, 1), ISR: ints(102), Leader: 102}, act{verb: ends}, act{verb: syncs, to: ints(102, 101)}},
		{"one that is away goes when another comes", metalog.Partition{Replicas: ints(100, 102, 1), ISR: ints(102), Leader: 102}, act{verb: assigns, to: ints(101, 102, 1)}, act{verb: ends}},
		{"real ones are in sync yet", metalog.Partition{Replicas: ints(102, 1, 2), ISR: ints(102, 1), Leader: 102}, act{verb: ends}, act{verb: ends}},
		{"being moved", metalog.Partition{Replicas: ints(102, 1, 2), Adding: ints(2), ISR: ints(102), Leader: 102}, act{verb: ends}, act{verb: ends}},
		{"led by another", metalog.Partition{Replicas: ints(101, 102, 1), ISR: ints(101), Leader: 101}, act{verb: ends}, act{verb: ends}},
	} {
		m := model{Partition: tt.p}
		us := m.us()
		us.Broker = 102
		for name, got := range map[string][2]act{
			"add": {decideAdd(us, m.image(t), strayID, ints(101)), tt.add}, "admit": {decideAdmit(us, m.image(t), strayID, ints(101)), tt.admit},
		} {
			if diff := acts(got[1], got[0]); diff != "" {
				t.Errorf("%s: %s: %s", tt.name, name, diff)
			}
		}
	}
}

// TestNotBetweenSteps: with another worker in sync, what steps down for a moment, or for
// good, does not end up with that one.
func TestNotBetweenSteps(t *testing.T) {
	for _, old := range []bool{false, true} {
		for _, replicas := range [][]int32{{100, 101, 1, 2}, {101, 100, 1, 2}, {100, 101, 1, 5}} {
			begin := func() *model {
				m := &model{old: old, Partition: metalog.Partition{Replicas: replicas, ISR: []int32{100, 101}, Leader: 100}}
				for _, r := range replicas {
					m.Directories = append(m.Directories, metalog.UUID{byte(r)})
				}
				if old && !slices.Contains(replicas, 5) {
					m.Adding = []int32{101}
				}
				return m
			}
			m := begin()
			a := m.run(t, func(metalog.Image) act { return decideRaise(m.us(), strict(t, m), strayID, 7) }, func() {
				if m.Leader >= 0 && m.Leader != 100 {
					t.Errorf("raise: %v", m)
				}
			})
			if a.verb != ends || a.err != nil || m.Leader != 100 || m.LeaderEpoch < 7 {
				t.Errorf("raise: %v with %+v", m, a)
			}
			m = begin()
			a = m.run(t, func(i metalog.Image) act {
				a, _ := decideHandBack(m.us(), i, strayID, []int32{1, 2}, true)
				return a
			}, func() {
				if m.Leader == 101 || m.Leader < 0 {
					t.Errorf("hand back: %v", m)
				}
			})
			if a.verb != ends || a.err != nil || m.Leader >= 100 || slices.ContainsFunc(m.ISR, m.us().own) {
				t.Errorf("hand back: %v with %+v", m, a)
			}
		}
	}
}

// strict is the model's image with unclean elections off.
func strict(t *testing.T, m *model) metalog.Image {
	t.Helper()
	value := "false"
	i, err := m.image(t).Apply(metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "t"}, Key: "unclean.leader.election.enable", Value: &value}, &metalog.Delta{})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestClaims: who has a partition has it alone.
func TestClaims(t *testing.T) {
	c := newClaims()
	a, b := metalog.PartitionID{Partition: 1}, metalog.PartitionID{Partition: 2}
	release := c.take([]metalog.PartitionID{a})
	got, over := c.some([]metalog.PartitionID{a, b})
	if !slices.Equal(got, []metalog.PartitionID{b}) {
		t.Errorf("%v is free", got)
	}
	taken := make(chan func())
	go func() { taken <- c.take([]metalog.PartitionID{b, a}) }()
	release()
	select {
	case <-taken:
		t.Fatal("taken twice")
	default:
	}
	over()
	(<-taken)()
	for range 2 {
		got, over := c.some([]metalog.PartitionID{a, b})
		if len(got) != 2 {
			t.Errorf("%v is free", got)
		}
		clear(got) // it is the caller's
		over()
	}
}
