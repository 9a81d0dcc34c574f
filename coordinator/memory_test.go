package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

func TestMemoryIsAStore(t *testing.T) { testStore(t, func() Store { return NewMemory() }) }

// testStore is what any Store has to hold.
func testStore(t *testing.T, open func() Store) {
	const mirror = "a-to-b"
	one := newRecord(cluster.Partition{Topic: "one"})
	two := newRecord(cluster.Partition{Topic: "two"})
	one.StateEpoch, two.StateEpoch = 1, 1
	at := func(r Record, owner, state int32) Record {
		r.OwnerEpoch, r.StateEpoch = owner, state
		return r
	}
	t.Run("compare and save", func(t *testing.T) {
		s := open()
		steps := []struct {
			name string
			save []Record
			want []error
		}{
			{"a first record has state epoch 1", []Record{at(one, 1, 2)}, []error{ErrConflict}},
			{"two new ones", []Record{one, two}, []error{nil, nil}},
			{"the same again", []Record{one}, []error{ErrConflict}},
			{"one conflict does not fail the other", []Record{at(one, 1, 1), at(two, 2, 2)}, []error{ErrConflict, nil}},
			{"an earlier owner", []Record{at(two, 1, 3)}, []error{ErrConflict}},
			{"the same owner", []Record{at(two, 2, 3)}, []error{nil}},
			{"a state epoch left out", []Record{at(two, 2, 5)}, []error{ErrConflict}},
		}
		for _, st := range steps {
			got := s.Save(t.Context(), mirror, st.save)
			if !slices.EqualFunc(got, st.want, errors.Is) {
				t.Errorf("%s: %v, want %v", st.name, got, st.want)
			}
		}
		if diff := cmp.Diff([]Record{one, at(two, 2, 3)}, load(t, s, mirror)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
		if got := load(t, s, "other"); len(got) != 0 {
			t.Errorf("another mirror has %v", got)
		}
	})
	t.Run("delete", func(t *testing.T) {
		s := open()
		s.Save(t.Context(), mirror, []Record{one, two})
		if err := s.SaveIntents(t.Context(), mirror, []Intent{{Topic: "one", Desired: WantStopped}}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time nothing is there
			if err := s.Delete(t.Context(), mirror, []cluster.Partition{one.Partition}); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]Record{two}, load(t, s, mirror)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
		ch, err := s.Watch(t.Context(), mirror)
		if err != nil {
			t.Fatal(err)
		}
		if got := <-ch; len(got) != 0 {
			t.Errorf("intents %v are left of a topic without records", got)
		}
		if errs := s.Save(t.Context(), mirror, []Record{one}); errs[0] != nil {
			t.Errorf("created again: %v", errs[0])
		}
	})
	t.Run("intents", func(t *testing.T) { testIntents(t, open(), mirror) })
}

func testIntents(t *testing.T, s Store, mirror string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	save := func(in Intent) {
		t.Helper()
		if err := s.SaveIntents(ctx, mirror, []Intent{in}); err != nil {
			t.Fatal(err)
		}
	}
	save(Intent{Topic: "one", Desired: WantPaused})
	ch, err := s.Watch(ctx, mirror)
	if err != nil {
		t.Fatal(err)
	}
	first := <-ch
	if len(first) != 1 || first[0].Topic != "one" || first[0].Desired != WantPaused || first[0].Revision <= 0 {
		t.Fatalf("first piece %v", first)
	}
	save(Intent{Topic: "two", Desired: WantMirroring, Revision: -5})
	save(Intent{Topic: "one", Desired: WantStopped})
	got, last := map[string]Intent{}, first[0].Revision
	for len(got) < 2 {
		for _, in := range <-ch {
			if in.Revision <= last {
				t.Errorf("revision %d comes after %d", in.Revision, last)
			}
			got[in.Topic], last = in, in.Revision
		}
	}
	if got["one"].Desired != WantStopped || got["two"].Desired != WantMirroring {
		t.Errorf("intents %v", got)
	}
	cancel()
	for range ch { // ends: the channel is closed with ctx
	}
}

func load(t *testing.T, s Store, mirror string) []Record {
	t.Helper()
	records, err := s.Load(t.Context(), mirror)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(records, func(a, b Record) int { return a.Partition.Compare(b.Partition) })
	return records
}

func TestRecordJSON(t *testing.T) {
	full := Record{
		Partition: testPartition, TopicID: cluster.TopicID{1, 2, 3}, State: StateFailed, Previous: StateULERecovery,
		Desired: WantMirroring, OwnerEpoch: 3, StateEpoch: 14, Reason: "broker unreachable", Retriable: true, Attempts: 2,
		Cut: 0, Position: cluster.Position{Epoch: 4, Offset: 99}, HasPosition: true, Appended: true, Stretch: 2,
		Aligned: true, Alignment: "history", Epochs: epoch.History{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 50}}, Unproven: true, Intent: 8,
	}
	for name, rec := range map[string]Record{"full": full, "new": newRecord(testPartition)} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(rec)
			if err != nil {
				t.Fatal(err)
			}
			var back Record
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if diff := cmp.Diff(rec, back); diff != "" {
				t.Errorf("%s (-wrote +read):\n%s", data, diff)
			}
		})
	}
}

func TestRecordJSONRefuses(t *testing.T) {
	head := `{"v":1,"partition":{"topic":"t","partition":0},"previous":"UNKNOWN","desired":"MIRRORING"`
	tests := []struct{ name, data string }{
		{"another version", `{"v":2,"partition":{"topic":"t","partition":0},"state":"PAUSED","previous":"UNKNOWN","desired":"MIRRORING"}`},
		{"no partition", `{"v":1,"state":"PAUSED","previous":"UNKNOWN","desired":"MIRRORING"}`},
		{"unknown state", head + `,"state":"SLEEPING"}`},
		{"a cut without offset", head + `,"state":"ULE_RECOVERY"}`},
		{"a short topic id", head + `,"state":"PAUSED","topicId":"AAAA"}`},
		{"a history that goes back", head + `,"state":"PAUSED","epochs":[{"epoch":2,"start":5},{"epoch":1,"start":9}]}`},
	}
	if err := json.Unmarshal([]byte(head+`,"state":"PAUSED"}`), new(Record)); err != nil {
		t.Fatalf("the cases differ by more than one thing: %v", err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var rec Record
			if err := json.Unmarshal([]byte(tt.data), &rec); err == nil {
				t.Errorf("read as %+v", rec)
			}
		})
	}
}
