package coordinator

import (
	"context"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// TestOwedOffsets: what a rebuild owes to groups outlives a second rebuild, which does
// not find it at the destination any more, and a look that came from before it.
func TestOwedOffsets(t *testing.T) {
	first, second, third := cluster.TopicID{1}, cluster.TopicID{2}, cluster.TopicID{3}
	owe := func(group string, offset int64) cluster.GroupOffset {
		return cluster.GroupOffset{Group: group, Offset: offset}
	}
	rec := newRecord(testPartition)
	rec.State = StateMirroring
	for i, s := range []struct {
		ev   Event
		want []cluster.GroupOffset
	}{
		{Event{Kind: EventCutNeeded, Cut: 90, RebuildOf: first, Restore: []cluster.GroupOffset{owe("near", 10), owe("far", 80), owe("own", 70)}},
			[]cluster.GroupOffset{owe("near", 10), owe("far", 80), owe("own", 70)}},
		{Event{Kind: EventRestored, Start: 90}, []cluster.GroupOffset{owe("near", 10), owe("far", 80), owe("own", 70)}}, // of the topic that goes
		{Event{Kind: EventCutDone}, []cluster.GroupOffset{owe("near", 10), owe("far", 80), owe("own", 70)}},
		{Event{Kind: EventRestored, Start: 50}, []cluster.GroupOffset{owe("far", 80), owe("own", 70)}},
		{Event{Kind: EventCutNeeded, Cut: 40, RebuildOf: second, Restore: []cluster.GroupOffset{owe("near", 40), owe("own", 30)}},
			[]cluster.GroupOffset{owe("near", 40), owe("own", 30), owe("far", 40)}},
		{Event{Kind: EventRestored, Start: 50}, []cluster.GroupOffset{owe("near", 40), owe("own", 30), owe("far", 40)}},
		{Event{Kind: EventCutDone}, []cluster.GroupOffset{owe("near", 40), owe("own", 30), owe("far", 40)}},
		{Event{Kind: EventRestored, Start: 50}, nil},
		// Its own cut is known, it has failed, and another partition's rebuild takes it along.
		{Event{Kind: EventCutNeeded, Cut: 30, RebuildOf: third, Restore: []cluster.GroupOffset{owe("far", 30)}}, []cluster.GroupOffset{owe("far", 30)}},
		{Event{Kind: EventFailed, Err: cluster.ErrUnavailable}, []cluster.GroupOffset{owe("far", 30)}},
		{Event{Kind: EventCutNeeded, Cut: math.MaxInt64, RebuildOf: third, Restore: []cluster.GroupOffset{owe("far", 90)}}, []cluster.GroupOffset{owe("far", 30)}},
	} {
		next, _, err := step(rec, s.ev)
		if err != nil {
			t.Fatal(err)
		}
		rec = next
		if diff := cmp.Diff(append([]cluster.GroupOffset{}, s.want...), append([]cluster.GroupOffset{}, rec.Restore...)); diff != "" {
			t.Errorf("after %d, %s (-want +got):\n%s", i, s.ev.Kind, diff)
		}
	}
}

// TestAllIsThereWhenLoaded: who waits for the stored records to be known finds all of them.
func TestAllIsThereWhenLoaded(t *testing.T) {
	store, rec := NewMemory(), newRecord(testPartition)
	rec.StateEpoch, rec.State, rec.Desired = 1, StateStopped, WantStopped
	if err := store.Save(t.Context(), "m", []Record{rec})[0]; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var c *Coordinator
	told := 0
	c = New("m", store, &stage{}, &Options{OnLoad: func(records []Record) {
		if told++; len(records) != 1 || len(c.All()) != 1 || c.All()[0].State != StateStopped {
			t.Errorf("told of %v, All is %v", records, c.All())
		}
		cancel()
	}})
	if err := c.Run(ctx); err != nil || told != 1 {
		t.Errorf("told %d times, %v", told, err)
	}
}
