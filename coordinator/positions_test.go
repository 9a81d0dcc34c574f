package coordinator

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// TestAnswerPositions: who is at work, where others stopped, and where the topic
// comes from.
func TestAnswerPositions(t *testing.T) {
	rec := func(state State, offset int64, change func(*Record)) Record {
		r := newRecord(testPartition)
		r.State, r.Sources, r.Appended, r.Aligned = state, []string{"west", "north"}, true, true
		if offset >= 0 {
			r.HasPosition, r.Position = true, cluster.Position{Epoch: 3, Offset: offset}
		}
		if change != nil {
			change(&r)
		}
		return r
	}
	at := func(offset int64) PositionAnswer {
		return PositionAnswer{Found: true, Position: cluster.Position{Epoch: 3, Offset: offset}}
	}
	unaligned := func(r *Record) { r.Aligned = false }
	for _, c := range []struct {
		name    string
		records map[string]Record
		want    PositionAnswer
	}{
		{name: "nobody"},
		{name: "stopped", records: map[string]Record{"a": rec(StateStopped, 70, nil)}, want: at(70)},
		{name: "of two the farther", records: map[string]Record{"a": rec(StateStopped, 70, nil), "b": rec(StateStopped, 90, nil)}, want: at(90)},
		{name: "at work", records: map[string]Record{"a": rec(StateMirroring, -1, nil)}, want: PositionAnswer{Active: "a", Sources: []string{"west", "north"}}},
		{name: "stopping", records: map[string]Record{"a": rec(StateStopping, 70, nil)}, want: PositionAnswer{Active: "a", Sources: []string{"west", "north"}}},
		{name: "failed while copying", records: map[string]Record{"a": rec(StateFailed, -1, nil)}, want: PositionAnswer{Active: "a", Sources: []string{"west", "north"}}},
		{name: "failed before it was aligned", records: map[string]Record{"a": rec(StateFailed, 70, unaligned)}, want: at(70)},
		{name: "aligning", records: map[string]Record{"a": rec(StateLogAlignment, 70, unaligned)}, want: PositionAnswer{Active: "a", Sources: []string{"west", "north"}}},
		{name: "never began", records: map[string]Record{"a": rec(StateUnknown, -1, func(r *Record) { r.Appended = false })}},
		{name: "from elsewhere, at work", records: map[string]Record{"a": rec(StateMirroring, -1, func(r *Record) { r.Sources = []string{"east"} })},
			want: PositionAnswer{Sources: []string{"east"}}},
		{name: "from elsewhere, stopped", records: map[string]Record{"a": rec(StateStopped, 70, func(r *Record) { r.Sources = []string{"east"} })}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := map[string][]Record{}
			for name, r := range c.records {
				all[name] = []Record{r}
			}
			got := AnswerPositions(all, "west", []cluster.Partition{testPartition, {Topic: "other"}})
			if diff := cmp.Diff([]PositionAnswer{c.want, {}}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
