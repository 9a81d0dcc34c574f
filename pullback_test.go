package mirror_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
)

// TestGroupsBehindACut: groups of any kind that have read what a failback cuts begin at the cut again; what
// a share group has acknowledged out of order may lie behind it, so it begins anew where it starts.
func TestGroupsBehindACut(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "0", "1", "2", "3", "4")
		m, stop := w.mirror("there", w.a, w.b, nil)
		settle(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Pause(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "never seen", "nor this")
		if err := m.Stop(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
		stop()
		for group, at := range map[string]cluster.Committed{
			"reader": {Offset: 7}, "before": {Offset: 3}, "shares": {Offset: 7}, "shares-before": {Offset: 3}, "scattered": {Offset: 2, Scattered: true}, "busy": {Offset: 7},
		} {
			at.Partition = orders
			if err := w.a.CommitAs(group, at); err != nil {
				t.Fatal(err)
			}
		}
		for _, group := range []string{"shares", "shares-before", "scattered", "busy"} {
			w.a.SetGroupType(group, "share")
		}
		w.a.SetMembers("busy", 1)
		_, _ = w.mirror("home", w.b, w.a, func(o *mirror.Options) { o.Groups.Include = []string{"nobody"} })
		settle(time.Minute)
		w.equal()
		if len(w.truncated) != 1 || w.truncated[0] != (cluster.Span{From: 5, To: 7}) {
			t.Errorf("cut %v", w.truncated)
		}
		names := []string{"reader", "before", "shares", "shares-before", "scattered", "busy"}
		answers, err := w.a.Client("test").Committed(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]cluster.Committed{}
		for i, a := range answers {
			got[names[i]] = a.Offsets[0]
		}
		at := func(offset int64) cluster.Committed { return cluster.Committed{Partition: orders, Offset: offset} }
		want := map[string]cluster.Committed{
			"reader": at(5), "before": at(3), "shares": at(5), "shares-before": at(3), "scattered": at(2), "busy": at(7),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
