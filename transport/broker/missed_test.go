package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

func keepsMissed(t *testing.T, o Overrides) {
	t.Helper()
	id := cluster.TopicID{1}
	a := Missed{id, map[int32]map[int32]int64{0: {3: 50}, 7: {1: 5, 2: 6}}}
	err := errors.Join(
		o.SaveMissed(t.Context(), map[string]Missed{"a": {Topic: id, Cuts: map[int32]map[int32]int64{1: {1: 1}}}, "b": a, "c": a}),
		o.SaveMissed(t.Context(), map[string]Missed{"a": a, "b": {Topic: id}}), o.Delete(t.Context(), []string{"c"}))
	got, loadErr := o.Missed(t.Context())
	if diff := cmp.Diff(map[string]Missed{"a": a}, got); diff != "" || err != nil || loadErr != nil {
		t.Errorf("%v, %v (-want +got):\n%s", err, loadErr, diff)
	}
}

// countingOverrides counts how often they are asked, and refuse to store.
type countingOverrides struct {
	MemoryOverrides
	asked  int
	refuse error
}

func (c *countingOverrides) Missed(ctx context.Context) (map[string]Missed, error) {
	c.asked++
	return c.MemoryOverrides.Missed(ctx)
}

func (c *countingOverrides) SaveMissed(ctx context.Context, all map[string]Missed) error {
	if c.refuse != nil {
		return c.refuse
	}
	return c.MemoryOverrides.SaveMissed(ctx, all)
}

func TestMissed(t *testing.T) {
	ctx, store := t.Context(), new(countingOverrides)
	p, q := named{"t", metalog.PartitionID{Topic: cluster.TopicID{1}}}, named{"t", metalog.PartitionID{Topic: cluster.TopicID{1}, Partition: 1}}
	anew := named{"t", metalog.PartitionID{Topic: cluster.TopicID{2}}}
	before := newMissed(store)
	if err := before.put(ctx, map[named]map[int32]int64{p: {3: 50}, q: {2: 9}}); err != nil {
		t.Fatal(err)
	}
	at := func(m *missed, of named, since time.Time) map[int32]int64 {
		t.Helper()
		got, err := m.of(ctx, of.topic, of.id, since)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	next := newMissed(store) // another process, or a later one
	store.asked = 0
	now := time.Now()
	if got := at(next, p, now); got[3] != 50 || len(got) != 1 {
		t.Errorf("%v", got)
	}
	if got := at(next, q, now); got[2] != 9 || store.asked != 1 {
		t.Errorf("%v, asked %d times", got, store.asked)
	}
	if got := at(next, anew, now); len(got) > 0 {
		t.Errorf("of a topic made anew: %v", got)
	}
	if err := next.put(ctx, map[named]map[int32]int64{p: nil}); err != nil {
		t.Fatal(err)
	}
	if got := at(before, p, time.Now()); len(got) > 0 || len(at(before, q, now)) != 1 {
		t.Errorf("forgotten by another: %v", got)
	}

	store.refuse = errors.New("the store is full")
	if err := next.put(ctx, map[named]map[int32]int64{p: {1: 4}}); !errors.Is(err, store.refuse) {
		t.Error(err)
	}
	if known := next.known(); len(known) != 1 || known[q][2] != 9 {
		t.Errorf("refused, and known are %v", known)
	}
	if again, err := next.sure(ctx); !again || err != nil {
		t.Errorf("after a failure: %v, %v", again, err)
	}
	if again, err := next.sure(ctx); again || err != nil {
		t.Errorf("it is known by now: %v, %v", again, err)
	}
	store.refuse = nil
	if err := next.put(ctx, map[named]map[int32]int64{anew: {1: 4}}); err != nil {
		t.Fatal(err)
	}
	if known := next.known(); len(known) != 1 || known[anew][1] != 4 {
		t.Errorf("made anew: %v", known)
	}
	if err := next.put(ctx, map[named]map[int32]int64{anew: {}}); err != nil || len(next.known()) > 0 {
		t.Errorf("%v, %v", next.known(), err)
	}
	if all, err := store.MemoryOverrides.Missed(ctx); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}
