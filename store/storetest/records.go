package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

type saveStep struct {
	name string
	save []coordinator.Record
	want []error
}

// steps saves in turn and compares the answers, one for each record, in order.
func steps(t *check, s Store, all []saveStep) {
	t.Helper()
	for _, st := range all {
		if got := s.Save(t.Context(), mirror, st.save); !slices.EqualFunc(got, st.want, errors.Is) {
			t.Errorf("%s: answers are %v, want %v", st.name, got, st.want)
		}
	}
}

func compareAndSave(t *check, s Store) {
	one := record("one", 0)
	ok, refused := []error{nil}, []error{coordinator.ErrConflict}
	steps(t, s, []saveStep{
		{"a first record with state epoch 0", []coordinator.Record{at(one, 1, 0)}, refused},
		{"a first record with state epoch 2", []coordinator.Record{at(one, 1, 2)}, refused},
		{"a first record with an owner epoch below zero", []coordinator.Record{at(one, -1, 1)}, refused},
		{"a first record", []coordinator.Record{at(one, 0, 1)}, ok},
		{"the same again", []coordinator.Record{at(one, 0, 1)}, refused},
		{"a later owner", []coordinator.Record{at(one, 3, 2)}, ok},
		{"the same state epoch of a still later owner", []coordinator.Record{at(one, 4, 2)}, refused},
		{"an earlier owner", []coordinator.Record{at(one, 2, 3)}, refused},
		{"a state epoch left out", []coordinator.Record{at(one, 3, 4)}, refused},
		{"a state epoch of the past", []coordinator.Record{at(one, 9, 1)}, refused},
		{"the same owner", []coordinator.Record{at(one, 3, 3)}, ok},
	})
	holds(t, s, mirror, at(one, 3, 3))
}

func conflictInBatch(t *check, s Store) {
	a, b, c, d := record("t", 0), record("t", 1), record("u", 0), record("v", 7)
	steps(t, s, []saveStep{
		{"nothing", nil, nil},
		{"new ones and one that is not", []coordinator.Record{a, at(b, 1, 2), c}, []error{nil, coordinator.ErrConflict, nil}},
		{"all kinds", []coordinator.Record{at(c, 0, 2), at(a, 2, 2), b, at(d, 1, 0), at(c, 1, 2)},
			[]error{coordinator.ErrConflict, nil, nil, coordinator.ErrConflict, nil}},
		{"two writes of one record in turn", []coordinator.Record{at(b, 1, 2), at(b, 1, 2), at(b, 1, 3)},
			[]error{nil, coordinator.ErrConflict, nil}},
	})
	holds(t, s, mirror, at(a, 2, 2), at(b, 1, 3), at(c, 1, 2))
}

func valuesSurvive(t *check, s Store) {
	all, empty := full(t), record("empty", 0)
	empty.Epochs, empty.Sources, empty.Restore = []coordinator.EpochStart{}, []string{}, []cluster.GroupOffset{}
	save(t, s, mirror, all, empty, extreme())
	holds(t, s, mirror, all, empty, extreme())
	// What is left out of a later write is gone.
	bare := record(all.Partition.Topic, all.Partition.Partition)
	bare = at(bare, all.OwnerEpoch, 2)
	save(t, s, mirror, bare)
	holds(t, s, mirror, bare, empty, extreme())
}

// namesApart stores under names that a careless key would take for one.
func namesApart(t *check, s Store) {
	mirrors := []string{"a", "A", "a.b", "a-b", "a_b", "a.b.c", "a-", "a-1", ".a", "con", "a.json", "a.tmp", "%61"}
	topics := []cluster.Partition{{Topic: "x"}, {Topic: "x", Partition: 1}, {Topic: "x", Partition: 11}, {Topic: "x-1", Partition: 1},
		{Topic: "X"}, {Topic: "b.x"}, {Topic: "b-x"}, {Topic: "b"}, {Topic: "b.c"}, {Topic: "c"}, {Topic: "1"}, {Topic: "1-1"}}
	stored := func(mirror string) (records []coordinator.Record) {
		for _, p := range topics {
			r := record(p.Topic, p.Partition)
			r.Reason = mirror + " " + p.String()
			records = append(records, r)
		}
		return records
	}
	intent := func(mirror string) (out []coordinator.Intent) {
		for i, topic := range []string{"x", "X", "b.x", "b-x", "b", "b.c", "c"} {
			desired := []coordinator.Desired{coordinator.WantPaused, coordinator.WantStopped}
			out = append(out, want(topic, desired[(i+len(mirror))%2]))
		}
		return out
	}
	for _, m := range mirrors {
		save(t, s, m, stored(m)...)
		saveIntents(t, s, m, intent(m)...)
	}
	for _, m := range mirrors {
		holds(t, s, m, stored(m)...)
		holdsIntents(t, s, m, intent(m)...)
	}
	for _, m := range []string{"a.b.", "b", "a.b.c.d", "a.B"} {
		holds(t, s, m)
		holdsIntents(t, s, m)
	}
	if err := s.Delete(t.Context(), "a", []cluster.Partition{{Topic: "b.c"}, {Topic: "x", Partition: 1}}); err != nil {
		t.Fatalf("delete: %v", err)
	}
	for _, m := range mirrors[1:] {
		holds(t, s, m, stored(m)...)
		holdsIntents(t, s, m, intent(m)...)
	}
}

func deleteRecords(t *check, s Store) {
	one, two := record("one", 0), record("two", 0)
	save(t, s, mirror, one, two)
	save(t, s, mirror, at(one, 4, 2))
	for range 2 { // the second time nothing is there
		err := s.Delete(t.Context(), mirror, []cluster.Partition{one.Partition, {Topic: "two", Partition: 1}, {Topic: "three"}})
		if err != nil {
			t.Fatalf("delete: %v", err)
		}
		holds(t, s, mirror, two)
	}
	steps(t, s, []saveStep{
		{"a write to what was deleted", []coordinator.Record{at(one, 4, 3)}, []error{coordinator.ErrConflict}},
		{"a fresh record, of an earlier owner", []coordinator.Record{one}, []error{nil}},
	})
	holds(t, s, mirror, one, two)
	if err := s.Delete(t.Context(), mirror, nil); err != nil {
		t.Errorf("delete nothing: %v", err)
	}
	if err := s.Delete(t.Context(), "another", []cluster.Partition{one.Partition}); err != nil {
		t.Errorf("delete in a mirror that is not there: %v", err)
	}
	holds(t, s, mirror, one, two)
}

func deleteIntents(t *check, s Store) {
	save(t, s, mirror, record("one", 0), record("one", 1), record("two", 0))
	one, two, three := want("one", coordinator.WantStopped), want("two", coordinator.WantPaused), want("three", coordinator.WantPaused)
	saveIntents(t, s, mirror, one, two, three)
	remove := func(partitions ...cluster.Partition) {
		t.Helper()
		if err := s.Delete(t.Context(), mirror, partitions); err != nil {
			t.Fatalf("delete %v: %v", partitions, err)
		}
	}
	remove(cluster.Partition{Topic: "one"})
	holdsIntents(t, s, mirror, one, two, three)
	remove(cluster.Partition{Topic: "one", Partition: 1})
	holdsIntents(t, s, mirror, two, three)
	remove(cluster.Partition{Topic: "three"}) // never had a record: none is left
	holdsIntents(t, s, mirror, two)
	saveIntents(t, s, mirror, one)
	holdsIntents(t, s, mirror, one, two)
}

func nothingStored(t *check, s Store) {
	holds(t, s, mirror)
	holdsIntents(t, s, mirror)
	if got, err := s.Definitions(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("definitions of an empty store: %v, %v", got, err)
	}
	if err := s.Undefine(t.Context(), mirror); err != nil {
		t.Errorf("undefine in an empty store: %v", err)
	}
	saveIntents(t, s, mirror)
	holdsIntents(t, s, mirror)
}

// manyRecords is a mirror of a large cluster, in the batches of a coordinator.
func manyRecords(t *check, s Store) {
	const topics, partitions, batch, limit = 400, 50, 2000, time.Minute
	start := time.Now()
	all := make([]coordinator.Record, 0, topics*partitions)
	for i := range topics {
		for p := range partitions {
			r := record(fmt.Sprintf("topic-%03d", i), int32(p))
			r.Epochs = []coordinator.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 3, Start: int64(i*partitions + p + 1)}}
			all = append(all, r)
		}
	}
	for part := range slices.Chunk(all, batch) {
		save(t, s, mirror, part...)
	}
	stored := load(t, s, mirror)
	if len(stored) != len(all) {
		t.Fatalf("%d records are stored, want %d", len(stored), len(all))
	}
	for i, r := range stored {
		if !reflect.DeepEqual(r, all[i]) {
			t.Fatalf("stored is %+v, want %+v", r, all[i])
		}
	}
	if took := time.Since(start); took > limit {
		t.Errorf("%d records in batches of %d took %v, more than %v", len(all), batch, took, limit)
	}
}

// cancelled: no method goes on with a context that has ended, and what a write with
// one leaves is either all of it or nothing.
func cancelled(t *check, s Store) {
	before, after := record("t", 0), record("t", 0)
	after.StateEpoch, after.Reason = 2, "after"
	save(t, s, mirror, before)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	refuses := func(op string, err error) {
		if err == nil || errors.Is(err, coordinator.ErrConflict) {
			t.Errorf("%s with a context that has ended: %v, want an error that is no conflict", op, err)
		}
	}
	_, err := s.Load(ctx, mirror)
	refuses("load", err)
	_, err = s.Definitions(ctx)
	refuses("definitions", err)
	_, err = s.Positions(ctx, "source", []cluster.Partition{before.Partition})
	refuses("positions", err)
	errs := s.Save(ctx, mirror, []coordinator.Record{after, record("t", 1)})
	if len(errs) != 2 {
		t.Fatalf("save of 2 records with a context that has ended gave %d answers", len(errs))
	}
	refuses("save", errs[0])
	refuses("save", errs[1])
	_, err = s.SaveIntents(ctx, mirror, []coordinator.Intent{want("t", coordinator.WantPaused)})
	refuses("intents", err)
	refuses("define", s.Define(ctx, coordinator.Definition{Name: mirror, Revision: 1}))
	if ch, err := s.Watch(ctx, mirror); err == nil {
		closes(t, ch)
	}
	for _, r := range load(t, s, mirror) {
		if r.Partition == before.Partition && r.Reason != before.Reason && r.Reason != after.Reason {
			t.Errorf("a half written record: %+v", r)
		}
	}
	refuses("delete", s.Delete(ctx, mirror, []cluster.Partition{before.Partition}))
	refuses("undefine", s.Undefine(ctx, mirror))
}

// cancelledMeanwhile ends contexts at any moment of a write. Then the writer reads what
// is there: its own write or the one before, and goes on from there.
func cancelledMeanwhile(t *check, s Store) {
	const rounds = 60
	last := record("t", 0)
	save(t, s, mirror, last)
	for i := range rounds {
		next := last
		next.StateEpoch, next.Reason = last.StateEpoch+1, fmt.Sprint("cancelled ", i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*5*time.Microsecond)
		err := s.Save(ctx, mirror, []coordinator.Record{next})[0]
		cancel()
		switch {
		case err == nil:
			last = next
		case errors.Is(err, coordinator.ErrConflict):
			t.Fatalf("state epoch %d after %d, nobody else writes: %v", next.StateEpoch, last.StateEpoch, err)
		default:
			last = settle(t, s, last, next)
		}
	}
	holds(t, s, mirror, last)
}

// settle goes on after a write of which nobody knows whether it was made.
func settle(t *check, s Store, last, lost coordinator.Record) coordinator.Record {
	t.Helper()
	for range 2 {
		now := load(t, s, mirror)
		if len(now) != 1 || now[0].Reason != last.Reason && now[0].Reason != lost.Reason {
			t.Fatalf("stored is %+v, want %+v or %+v", now, last, lost)
		}
		next := now[0]
		next.StateEpoch, next.Reason = next.StateEpoch+1, lost.Reason+", settled"
		switch err := s.Save(t.Context(), mirror, []coordinator.Record{next})[0]; {
		case err == nil:
			return next
		case !errors.Is(err, coordinator.ErrConflict):
			t.Fatalf("settle: %v", err)
		}
	}
	t.Fatalf("two conflicts in turn, with one write under way")
	return lost
}
