package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// kept is an identity of broker id, incarnation {id}, directory {id}.
func kept(id int32, name, holder string) Kept {
	return Kept{Identity{id, metalog.UUID{byte(id)}, metalog.UUID{byte(id)}}, name, holder}
}

func TestChoose(t *testing.T) {
	ours := func(id int32, fenced bool) metalog.Record {
		return metalog.RegisterBroker{Broker: metalog.Broker{ID: id, Incarnation: metalog.UUID{byte(id)}, Fenced: fenced}}
	}
	topic := []metalog.Record{metalog.NewTopic{Name: "t", ID: cluster.TopicID{1}},
		metalog.NewPartition{ID: metalog.PartitionID{Topic: cluster.TopicID{1}}, Partition: metalog.Partition{Replicas: []int32{1, 100}}}}
	const fresh, waits = true, -2
	me, mine := "me", kept(100, "me", "before")
	type records = []metalog.Record
	tests := []struct {
		name    string
		records records
		all     []Kept
		silent  time.Duration // of all
		taken   []int32
		want    int32 // -1: ErrNoID
		fresh   bool
	}{
		{"nobody", nil, nil, 0, nil, 100, fresh},
		{"ours, not registered", nil, []Kept{mine}, 0, nil, 100, false},
		{"ours, still alive to the cluster", records{ours(100, false)}, []Kept{mine}, 0, nil, 100, false},
		{"ours, by the directory", records{registered(100, 9, 100)}, []Kept{mine}, 0, nil, 100, false},
		{"ours, named by a partition", topic, []Kept{mine}, 0, nil, 100, false},
		{"what this life has comes first", nil, []Kept{mine, kept(101, "old name", "life")}, 0, nil, 101, false},
		{"our name comes before what is free", nil, []Kept{kept(100, "a", ""), kept(101, me, "x")}, 0, nil, 101, false},
		{"somebody has our id", records{registered(100, 9, 9)}, []Kept{mine}, 0, nil, 101, fresh},
		{"refused", nil, []Kept{mine}, 0, []int32{100}, 101, fresh},
		{"out of the range", nil, []Kept{kept(5, me, "")}, 0, nil, 100, fresh},

		{"one that has ended in order", records{ours(101, false)}, []Kept{kept(101, "a", "")}, 0, nil, 101, false},
		{"another one is alive", records{ours(100, false)}, []Kept{kept(100, "a", "x")}, time.Hour, nil, 101, fresh},
		{"another one starts just now", nil, []Kept{kept(100, "a", "x")}, time.Hour, nil, 101, fresh},
		{"another one is fenced", records{ours(100, true)}, []Kept{kept(100, "a", "x")}, 2 * time.Second, nil, waits, false},
		{"another one is dead", records{ours(100, true)}, []Kept{kept(100, "a", "x")}, 3 * time.Second, nil, 100, false},
		{"the id of a dead one is a real broker's", records{registered(100, 9, 9)}, []Kept{kept(100, "a", "x")}, time.Hour, nil, 101, fresh},
		{"never came to be, no other is free", records{registered(101, 9, 9)}, []Kept{kept(100, "a", "x")}, 8 * time.Second, []int32{102}, waits, false},
		{"never came to be", records{registered(101, 9, 9)}, []Kept{kept(100, "a", "x")}, 9 * time.Second, []int32{102}, 100, false},

		{"a broker that is down", records{ours(100, true)}, nil, 0, nil, 101, fresh},
		{"named by a partition", topic, nil, 0, nil, 101, fresh},
		{"a controller's", nil, nil, 0, []int32{100, 101}, 102, fresh},
		{"all taken", records{registered(100, 9, 9), registered(102, 9, 9)}, nil, 0, []int32{101}, -1, false},
		{"all alive", records{ours(100, false), ours(101, false), ours(102, false)},
			[]Kept{kept(100, "a", "x"), kept(101, "b", "y"), kept(102, "c", "z")}, time.Hour, nil, -1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := claimant{name: me, holder: "life", ids: IDs{First: 100, Last: 102}, taken: make(map[int32]bool), fenced: 3 * time.Second, gone: 9 * time.Second}
			for _, n := range tt.taken {
				c.taken[n] = true
			}
			got, err := c.choose(image(t, tt.records...), tt.all, func(Kept) time.Duration { return tt.silent })
			switch {
			case tt.want == waits:
				if !errors.Is(err, errWaiting) {
					t.Errorf("%+v %v", got, err)
				}
			case tt.want < 0:
				if !errors.Is(err, ErrNoID) {
					t.Errorf("%+v %v", got, err)
				}
			case err != nil || got.now.Broker != tt.want || (got.was == nil) != tt.fresh:
				t.Errorf("%+v, was %+v, %v", got.now, got.was, err)
			case got.now.Name != me || got.now.Holder != "life":
				t.Errorf("not ours: %+v", got.now)
			case !tt.fresh && got.was.Identity != got.now.Identity:
				t.Errorf("%+v became %+v", got.was, got.now)
			}
		})
	}
}

// TestSilences: a sign of life, or another holder, has one wait anew.
func TestSilences(t *testing.T) {
	began := time.Now()
	s, a := make(silences), kept(100, "a", "x")
	again := kept(100, "a", "y")
	fenced := image(t, metalog.RegisterBroker{Broker: metalog.Broker{ID: 100, Incarnation: metalog.UUID{100}, Fenced: true}})
	alive := image(t, metalog.RegisterBroker{Broker: metalog.Broker{ID: 100, Incarnation: metalog.UUID{100}}})
	for n, step := range []struct {
		image metalog.Image
		all   []Kept
		since int // the step, -1 for none
	}{{fenced, []Kept{a}, 0}, {fenced, []Kept{a}, 0}, {alive, []Kept{a}, -1}, {fenced, []Kept{a}, 3}, {fenced, []Kept{again}, 4}, {fenced, []Kept{again}, 4}} {
		s.look(step.image, step.all, began.Add(time.Duration(n)*time.Second))
		since, ok := s[step.all[0]]
		if ok != (step.since >= 0) || ok && since != began.Add(time.Duration(step.since)*time.Second) || len(s) > 1 {
			t.Errorf("step %d: %v", n, s)
		}
	}
}
