package broker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

func TestAvailabilityAsText(t *testing.T) {
	for _, a := range []Availability{Strict, Open} {
		if got, err := ParseAvailability(a.String()); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	if _, err := ParseAvailability("shut"); err == nil {
		t.Error("shut is taken")
	}
	if s := Availability(7).String(); s != "Availability(7)" {
		t.Error(s)
	}
	if err := (DestinationConfig{Availability: 7}).Validate(); err == nil || !strings.Contains(err.Error(), "Availability: 7") {
		t.Error(err)
	}
}

// TestStaying: who is gone is out at once, who lacks what a quorum had for long when that is
// looked at, and of whom nothing is known yet is not judged.
func TestStaying(t *testing.T) {
	s := lead.State{Followers: []lead.Follower{
		{Replica: 1, Live: true, Known: true, Holds: 100}, {Replica: 2, Live: true, Known: true, Holds: 79},
		{Replica: 3, Known: true, Holds: 100}, {Replica: 4, Live: true, Holds: -1}, {Replica: 5, Live: true, Known: true, Holds: 100},
	}}
	in, m := []int32{1, 2, 3, 4}, mark{quorum: 80, at: time.Unix(1e9, 0)}
	if got := staying(s, in, m, false); !slices.Equal(got, []int32{1, 2, 4}) {
		t.Errorf("before it is late: %v", got)
	}
	if got := staying(s, in, m, true); !slices.Equal(got, []int32{1, 4}) {
		t.Errorf("late: %v", got)
	}
}

// open is a party that lets real brokers in.
func (m *model) open() party {
	us := m.us()
	us.open = true
	return us
}

// TestWidenFromEveryState: the real brokers that are named and alive are in sync beside us,
// nobody else, and nobody but us leads.
func TestWidenFromEveryState(t *testing.T) {
	for _, m := range states() {
		began, leader, before := m.String(), m.Leader, slices.Clone(m.ISR)
		a := m.run(t, func(i metalog.Image) act { return decideWiden(m.open(), i, strayID, []int32{2, 5, 3}) }, func() {})
		want := before
		if leader == 100 {
			want = []int32{100}
			if slices.Contains(m.Replicas, 2) {
				want = []int32{100, 2}
			}
		}
		if a.verb != ends || a.err != nil || m.Leader != leader || !sameSet(m.ISR, want) {
			t.Errorf("%s: %v with %+v, want in sync %v", began, m, a, want)
		}
	}
}

// TestRaiseOpenFromEveryState: real brokers in sync are put out before, so that none leads.
func TestRaiseOpenFromEveryState(t *testing.T) {
	for _, m := range states() {
		began, leads := m.String(), m.Leader == 100
		a := m.run(t, func(i metalog.Image) act {
			value := "false"
			i, err := i.Apply(metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "t"}, Key: "unclean.leader.election.enable", Value: &value}, &metalog.Delta{})
			if err != nil {
				t.Fatal(err)
			}
			return decideRaise(m.open(), i, strayID, 30)
		}, func() {
			if leads && m.Leader >= 0 && m.Leader != 100 {
				t.Errorf("%s: a real broker leads: %v", began, m)
			}
		})
		if leads && (a.verb != ends || a.err != nil || m.Leader != 100 || m.LeaderEpoch < 30) {
			t.Errorf("%s: %v with %+v", began, m, a)
		}
	}
}

// TestAdoptWithoutTheOther: the second of our workers takes a partition back from a real
// broker while the first is away.
func TestAdoptWithoutTheOther(t *testing.T) {
	for _, away := range []bool{true, false} {
		first := int32(101)
		if away {
			first = 102 // not registered
		}
		m := &model{Partition: metalog.Partition{Replicas: []int32{first, 100, 1, 2}, ISR: []int32{1, 2}, Leader: 1, Directories: []metalog.UUID{{byte(first)}, {100}, {1}, {2}}}}
		a := decideJoin(m.us(), m.image(t), strayID)
		want := act{verb: assigns, to: []int32{100, 1, 2}}
		if !away {
			want.to = []int32{100, 101, 1, 2}
		}
		if diff := acts(want, a); diff != "" {
			t.Errorf("away %v: %s", away, diff)
		}
	}
}
