package kafka

import (
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

// TestSharePlace: what is acknowledged beyond the start that is written down counts when it is
// all there is, and stays known when more records come.
func TestSharePlace(t *testing.T) {
	type look struct {
		start, end, lag int64
		want            int64
		scattered       bool
	}
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"nothing acknowledged", []look{{60, 100, 40, 60, false}}},
		{"set behind the end", []look{{120, 100, 0, 120, false}}},
		{"the log has grown since its end was asked for", []look{{60, 100, 45, 60, false}}},
		{"some", []look{{60, 100, 30, 60, true}}},
		{"all", []look{{60, 100, 0, 100, false}}},
		{"all, and then records come", []look{{60, 100, 0, 100, false}, {60, 110, 10, 100, false}, {60, 120, 20, 100, false}}},
		{"all, and some of those that come then", []look{{60, 100, 0, 100, false}, {60, 110, 7, 100, true}, {60, 110, 0, 110, false}}},
		{"all, and the start is written down", []look{{60, 100, 0, 100, false}, {100, 130, 30, 100, false}, {100, 130, 0, 130, false}}},
		{"set back to another place", []look{{60, 100, 0, 100, false}, {20, 100, 80, 20, false}}},
		{"set back to where it was written down", []look{{60, 100, 0, 100, false}, {60, 100, 40, 60, false}, {60, 100, 10, 60, true}}},
		{"the same, and some have been acknowledged since", []look{{60, 100, 0, 100, false}, {60, 110, 20, 60, true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var m shareMemory
			p := cluster.Partition{Topic: "t"}
			for i, l := range tc.looks {
				got := m.place(shareKey{"g", p}, cluster.Committed{Partition: p, Offset: l.start}, l.end, l.lag)
				if want := (cluster.Committed{Partition: p, Offset: l.want, Scattered: l.scattered}); got != want {
					t.Errorf("look %d: %+v, want %+v", i, got, want)
				}
			}
		})
	}
}
