package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/internal/metalog"
)

// model is what a controller makes of requests for one partition, in short
// (PartitionChangeBuilder, PartitionReassignmentReplicas). Brokers are those of
// around.
type model struct {
	metalog.Partition
	old bool // as 3.9, without eligible leaders (KIP-966)
}

func (m *model) us() party {
	return party{Self: Self{Broker: 100, Epoch: 7, Registered: true}, ids: IDs{100, 102}, dir: metalog.UUID{100}}
}

func (m *model) image(t *testing.T) metalog.Image {
	p := m.Partition
	return around(t, &p)
}

func (m *model) String() string {
	return fmt.Sprintf("replicas %v removing %v adding %v isr %v elr %v leader %d epoch %d", m.Replicas, m.Removing, m.Adding, m.ISR, m.ELR, m.Leader, m.LeaderEpoch)
}

func without(list []int32, not ...int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(r int32) bool { return slices.Contains(not, r) })
}

func (m *model) electable(r int32) bool {
	at := slices.Index(m.Replicas, r)
	return r != 5 && m.Directories[at] != lost && (slices.Contains(m.ISR, r) || len(m.ISR) == 0 && slices.Contains(m.ELR, r))
}

func (m *model) has(leader int32) {
	m.Leader = leader
	m.LeaderEpoch++
	if slices.Contains(m.ELR, leader) {
		m.ISR, m.ELR = []int32{leader}, without(m.ELR, leader)
	}
}

// settle completes a reassignment, keeps the partition online, and counts.
func (m *model) settle(before []int32) {
	if isr, replicas := without(m.ISR, m.Removing...), without(m.Replicas, m.Removing...); m.completes(isr, replicas) {
		m.assign(replicas)
		m.ISR, m.Adding, m.Removing = isr, nil, nil
	}
	epoch := m.LeaderEpoch
	if m.Leader < 0 || !slices.Contains(m.Replicas, m.Leader) || !m.electable(m.Leader) {
		at := slices.IndexFunc(m.Replicas, m.electable)
		switch {
		case at >= 0:
			m.has(m.Replicas[at])
		case m.Leader >= 0:
			m.has(-1)
		}
	}
	if len(without(before, m.Replicas...)) > 0 && m.LeaderEpoch == epoch {
		m.LeaderEpoch++
	}
	m.PartitionEpoch++
}

// completes: 4.4 waits for those that are added, and when more go than come for
// all that stay; 3.9 always for all that stay.
func (m *model) completes(isr, replicas []int32) bool {
	whole := len(without(replicas, isr...)) == 0
	if !m.old {
		whole = len(without(m.Adding, isr...)) == 0 && (whole || len(m.Adding) >= len(m.Removing))
	}
	return len(m.Adding)+len(m.Removing) > 0 && len(isr) > 0 && whole
}

// assign changes the replicas; a new one lies where it should.
func (m *model) assign(to []int32) {
	dirs := make([]metalog.UUID, len(to))
	for n, r := range to {
		dirs[n] = metalog.UUID{byte(r)}
		if at := slices.Index(m.Replicas, r); at >= 0 {
			dirs[n] = m.Directories[at]
		}
	}
	m.Replicas, m.Directories = slices.Clone(to), dirs
}

func (m *model) do(t *testing.T, a act) {
	t.Helper()
	before := m.Replicas
	at := slices.Index(m.Replicas, 100)
	switch a.verb {
	case assigns:
		if a.to == nil { // PartitionReassignmentRevert
			isr := without(m.ISR, m.Adding...)
			if len(isr) == 0 || len(m.Adding)+len(m.Removing) == 0 {
				t.Fatalf("called off: %v", m)
			}
			m.assign(without(m.Replicas, m.Adding...))
			m.ISR, m.Adding, m.Removing = isr, nil, nil
			break
		}
		removing, adding := without(m.Replicas, a.to...), without(a.to, m.Replicas...)
		m.assign(append(slices.Clone(a.to), removing...))
		if len(removing) > 0 { // what was under way stays where nothing new is
			m.Removing = removing
		}
		if len(adding) > 0 {
			m.Adding = adding
		}
	case syncs:
		if m.Leader != 100 || !slices.Contains(a.to, 100) || len(without(a.to, m.Replicas...)) > 0 || slices.Contains(a.to, 5) {
			t.Fatalf("in-sync set %v: %v", a.to, m)
		}
		m.ISR, m.ELR = slices.Clone(a.to), nil
	case drops:
		m.Directories = slices.Clone(m.Directories)
		m.Directories[at] = lost
		switch isr := without(m.ISR, 100); {
		case !m.old && len(isr) == 0 && slices.Contains(m.ISR, 100):
			m.ISR, m.ELR = nil, append(m.ELR, 100)
		case len(isr) > 0:
			m.ISR = isr
		}
	case settles:
		m.Directories = slices.Clone(m.Directories)
		m.Directories[at] = metalog.UUID{100}
		m.PartitionEpoch++
		return
	case elects:
		if m.Leader == m.Replicas[0] || !m.electable(m.Replicas[0]) && m.Leader >= 0 {
			return
		}
		leader := m.Replicas[0]
		if !m.electable(leader) {
			online := slices.IndexFunc(m.Replicas, m.electable)
			if online < 0 {
				return
			}
			leader = m.Replicas[online]
		}
		for range a.times {
			m.has(leader)
			m.PartitionEpoch++
		}
		return
	}
	m.settle(before)
}

// run does what decide wants until it ends or wants nothing.
func (m *model) run(t *testing.T, decide func(metalog.Image) act, look func()) act {
	t.Helper()
	for range 12 {
		a := decide(m.image(t))
		if a.verb == ends || a.verb == rest {
			return a
		}
		m.do(t, a)
		look()
	}
	t.Errorf("no end: %v", m)
	return act{}
}

// states are the states in which a partition of ours can be found: every crash
// between two steps leaves one of them.
func states() []*model {
	var out []*model
	for _, replicas := range [][]int32{{100, 1, 2}, {100, 1, 5}, {1, 2, 100}, {1, 5, 100}} {
		for n := range 4 {
			adding, removing := [][]int32{nil, {100}}[n%2], [][]int32{nil, {100}}[n/2]
			for _, isr := range [][]int32{nil, {100}, {100, 1}, {1, 100}, {1, 2}, {1}, {100, 1, 2}} {
				for _, leader := range []int32{100, 1, -1} {
					for _, dir := range []metalog.UUID{{100}, lost} {
						for _, old := range []bool{false, true} {
							m := &model{old: old, Partition: metalog.Partition{Replicas: replicas, Adding: adding, Removing: removing, ISR: isr, Leader: leader}}
							for _, r := range replicas {
								m.Directories = append(m.Directories, metalog.UUID{byte(r)})
							}
							m.Directories[slices.Index(replicas, 100)] = dir
							if len(isr) == 0 {
								m.ELR = []int32{100}
							}
							if m.possible() {
								out = append(out, m)
							}
						}
					}
				}
			}
		}
	}
	return out
}

// possible: a controller could have left the partition so.
func (m *model) possible() bool {
	if len(without(m.ISR, m.Replicas...)) > 0 || m.old && len(m.ISR) == 0 {
		return false
	}
	if isr, replicas := without(m.ISR, m.Removing...), without(m.Replicas, m.Removing...); m.completes(isr, replicas) {
		return false
	}
	if m.Leader >= 0 {
		return slices.Contains(m.ISR, m.Leader) && m.electable(m.Leader) && (len(m.ISR) == 1 || m.Directories[slices.Index(m.Replicas, 100)] != lost || !slices.Contains(m.ISR, 100))
	}
	return len(m.ISR) <= 1 && (len(m.ISR) == 0 || m.ISR[0] == 100)
}

func TestHandBackFromEveryState(t *testing.T) {
	all := states()
	if len(all) < 40 {
		t.Fatalf("%d states", len(all))
	}
	for _, m := range all {
		began := m.String()
		a := m.run(t, func(i metalog.Image) act {
			a, _ := decideHandBack(m.us(), i, strayID, []int32{1, 2}, false)
			return a
		}, func() {})
		if a.verb != ends || a.err != nil || m.Leader < 0 || m.Leader >= 100 || slices.Contains(m.ISR, 100) {
			t.Errorf("%s: ended as %v with %+v", began, m, a)
		}
		for _, r := range without(m.Replicas, 100, 5) { // the real leader lets in who lags
			if !slices.Contains(m.ISR, r) {
				m.ISR = append(m.ISR, r)
			}
		}
		m.settle(m.Replicas)
		if slices.Contains(m.Replicas, 100) && (!slices.Contains(m.Replicas, 5) || !slices.Contains(m.Removing, 100)) {
			t.Errorf("%s: we are left in %v", began, m)
		}
	}
}

// TestRaiseFromEveryState: nobody but us ever leads, and where a real broker might,
// nothing is done.
func TestRaiseFromEveryState(t *testing.T) {
	for _, far := range []int32{1, 2, 30} {
		for _, m := range states() {
			began, safe := m.String(), !slices.ContainsFunc(slices.Concat(m.ISR, m.ELR), m.us().real)
			const unclean = "unclean.leader.election.enable"
			a := m.run(t, func(i metalog.Image) act {
				value := "false"
				i, err := i.Apply(metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "t"}, Key: unclean, Value: &value}, &metalog.Delta{})
				if err != nil {
					t.Fatal(err)
				}
				return decideRaise(m.us(), i, strayID, far)
			}, func() {
				if m.Leader >= 0 && m.Leader != 100 {
					t.Errorf("%s: a real broker leads: %v", began, m)
				}
			})
			if safe != (a.err == nil) || a.verb != ends {
				t.Errorf("%s: %+v", began, a)
			}
			if safe && (m.Leader != 100 || m.LeaderEpoch < far || m.LeaderEpoch > far+2 || m.Directories[slices.Index(m.Replicas, 100)] == lost) {
				t.Errorf("%s: to %d: %v", began, far, m)
			}
		}
	}
}

func TestReclaimFromEveryState(t *testing.T) {
	for _, m := range states() {
		began, leader := m.String(), m.Leader
		a := m.run(t, func(i metalog.Image) act { return decideReclaim(m.us(), i, strayID) }, func() {})
		switch {
		case a.verb != ends || (a.err == nil) != (m.Leader == 100):
			t.Errorf("%s: %v with %+v", began, m, a)
		case leader >= 0 && m.Leader != leader || leader < 0 && m.Leader != 100:
			t.Errorf("%s: %v", began, m)
		}
	}
}

func TestNarrowFromEveryState(t *testing.T) {
	for _, m := range states() {
		began, leader := m.String(), m.Leader
		a := m.run(t, func(i metalog.Image) act { return decideNarrow(m.us(), i, strayID) }, func() {})
		if a.verb != ends || (a.err == nil) != (leader == 100) || m.Leader != leader {
			t.Errorf("%s: %v with %+v", began, m, a)
		}
		if a.err == nil && !slices.Equal(m.ISR, []int32{100}) {
			t.Errorf("%s: %v", began, m)
		}
	}
}

// TestAdoptInVain: what did not come to us is as it was, and may come again.
func TestAdoptInVain(t *testing.T) {
	for _, old := range []bool{true, false} {
		for _, away := range []int32{3, 5} { // alive, or not
			m := &model{old: old, Partition: metalog.Partition{Replicas: []int32{1, 2, away}, ISR: []int32{1, 2}, Leader: 1, Directories: []metalog.UUID{{1}, {2}, {byte(away)}}}}
			for n := range 3 {
				if a := m.run(t, func(i metalog.Image) act { return decideJoin(m.us(), i, strayID) }, func() {}); a.err != nil || m.Replicas[0] != 100 {
					t.Fatalf("joining: %v %+v", m, a)
				}
				if n == 1 { // it was in sync
					m.ISR = append(m.ISR, 100)
					m.settle(m.Replicas)
				}
				a := m.run(t, func(i metalog.Image) act {
					a, _ := decideHandBack(m.us(), i, strayID, []int32{1, 2}, true)
					return a
				}, func() {})
				gone := !slices.Contains(m.Replicas, 100) && len(m.Adding)+len(m.Removing) == 0
				if n > 0 && !old { // we were added for good, and go when the third is back
					gone = slices.Equal(m.Removing, []int32{100}) && len(m.Adding) == 0
				}
				if a.verb != ends || a.err != nil || m.Leader != 1 || slices.Contains(m.ISR, 100) || len(without(m.Replicas, 100)) != 3 || !gone {
					t.Errorf("old %v, %d away: given back: %v %+v", old, away, m, a)
				}
			}
		}
	}
}

// TestAdopt: the partition of others comes to us, one real replica being away or
// not.
func TestAdopt(t *testing.T) {
	for _, away := range []bool{false, true} {
		m := &model{Partition: metalog.Partition{Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}, Leader: 1, Directories: []metalog.UUID{{1}, {2}, {3}}}}
		if away {
			m.assign([]int32{1, 2, 5})
			m.ISR = []int32{1, 2}
		}
		if a := m.run(t, func(i metalog.Image) act { return decideJoin(m.us(), i, strayID) }, func() {}); a.verb != ends || a.err != nil {
			t.Fatalf("joining: %v %+v", m, a)
		}
		if a := decideLead(m.us(), m.image(t), strayID); a.verb != rest {
			t.Errorf("not in sync yet: %+v", a)
		}
		m.ISR = append(m.ISR, 100) // the leader lets us in
		m.settle(m.Replicas)
		a := m.run(t, func(i metalog.Image) act { return decideLead(m.us(), i, strayID) }, func() {})
		if a.verb != ends || a.err != nil || m.Leader != 100 || m.Replicas[0] != 100 || len(m.Replicas) != 4 {
			t.Errorf("away %v: %v %+v", away, m, a)
		}
	}
}
