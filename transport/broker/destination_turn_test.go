package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/internal/metalog"
)

func TestTurnOf(t *testing.T) {
	turn := map[int32]word{101: {turn: true}, 102: {turn: true}}
	for _, tt := range []struct {
		name              string
		us                int32
		has               bool
		leading, standing []int32
		words             map[int32]word
		want              int32
	}{
		{"alone", 100, false, nil, nil, nil, 100},
		{"nobody leads: the first", 101, false, nil, []int32{100}, nil, 100},
		{"nobody leads: we are the first", 100, false, nil, []int32{101, 102}, nil, 100},
		{"nobody leads, and another has it", 100, false, nil, []int32{101}, turn, 101},
		{"nobody leads, and we have it", 101, true, nil, []int32{100}, nil, 101},
		{"nobody leads, and two have it", 102, true, nil, []int32{100, 101}, turn, 101},
		{"who had it is gone", 100, false, nil, []int32{103}, turn, 100},
		{"another leads", 100, true, []int32{101}, []int32{101}, nil, 101},
		{"we lead, and a lower one has come", 101, true, []int32{101}, []int32{100}, nil, 101},
		{"two lead", 101, true, []int32{100, 101}, []int32{100}, nil, 100},
	} {
		if got := turnOf(tt.us, tt.has, leads{brokers: tt.leading}, tt.standing, tt.words); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	down := leads{down: []int32{102}} // and nobody else can lead
	if got := turnOf(102, true, down, []int32{100}, nil); got != 102 {
		t.Errorf("fenced for a moment: %d has the turn", got)
	}
	if got := turnOf(100, false, down, nil, nil); got != 102 {
		t.Errorf("another alone could lead, and is down: %d has the turn", got)
	}
	if down.brokers = []int32{101}; turnOf(100, false, down, nil, nil) != 101 {
		t.Error("who leads some has the turn, whoever else is down")
	}
}

func TestLeadsOf(t *testing.T) {
	us := (&model{}).us()
	for _, tt := range []struct {
		name string
		p    metalog.Partition
		want leads
	}{
		{"another leads, we are in sync", metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{100, 101}, Leader: 101}, leads{brokers: []int32{101}, after: map[int32]int{101: 1}}},
		{"another leads, we are not", metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{101}, Leader: 101}, leads{brokers: []int32{101}, after: map[int32]int{}}},
		{"we lead", metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{100, 101}, Leader: 100}, leads{brokers: []int32{100}, after: map[int32]int{}}},
		{"a real one leads", metalog.Partition{Replicas: []int32{100, 1}, ISR: []int32{100, 1}, Leader: 1}, leads{after: map[int32]int{}}},
		{"its epoch is being raised", metalog.Partition{Replicas: []int32{100, 101, 1}, ELR: []int32{101}, Leader: -1}, leads{brokers: []int32{101}, after: map[int32]int{}}},
		{"who could lead is down", metalog.Partition{Replicas: []int32{102, 101, 1}, ISR: []int32{102}, ELR: []int32{102}, Leader: -1}, leads{down: []int32{102}, after: map[int32]int{}}},
	} {
		i := (&model{Partition: tt.p}).image(t)
		for _, topics := range [][]string{{"t"}, {"t", "gone"}} {
			if diff := cmp.Diff(tt.want, leadsOf(us, i, topics), cmp.AllowUnexported(leads{})); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
		}
		if l := leadsOf(us, i, nil); len(l.brokers) > 0 {
			t.Errorf("%s: a topic of others counts: %v", tt.name, l)
		}
	}
}

// TestSilence: who counts as dead, and who as standing by.
func TestSilence(t *testing.T) {
	now := time.Now()
	const silence = 600 * time.Millisecond
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name              string
		w                 word
		overdue, standing bool
	}{
		{"it answers", word{heard: ago(100 * time.Millisecond), worker: true}, false, true},
		{"it is silent", word{heard: ago(time.Second), worker: true}, true, false},
		{"nobody listens there any more", word{heard: ago(100 * time.Millisecond), worker: true, gone: true}, true, false},
		{"it never answered, or was fenced since", word{worker: true, gone: true}, false, false},
		{"of another group", word{heard: ago(time.Second)}, false, false},
		{"of another group, and answers", word{heard: now}, false, false},
	} {
		if got := tt.w.overdue(now, silence); got != tt.overdue {
			t.Errorf("%s: overdue %v", tt.name, got)
		}
		if got := standing(around(t, nil), map[int32]word{101: tt.w}, now, silence); slices.Equal(got, []int32{101}) != tt.standing {
			t.Errorf("%s: standing by are %v", tt.name, got)
		}
	}
	if got := standing(around(t, nil), map[int32]word{5: {heard: now, worker: true}}, now, silence); len(got) > 0 {
		t.Errorf("fenced, and stands by: %v", got)
	}
}
