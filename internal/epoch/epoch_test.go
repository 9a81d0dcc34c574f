package epoch

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		name  string
		h     History
		epoch int32
		start int64
		want  History
	}{
		{"first", nil, 3, 10, History{{3, 10}}},
		{"later", History{{3, 10}}, 5, 20, History{{3, 10}, {5, 20}}},
		{"known to begin before", History{{3, 10}}, 3, 20, History{{3, 10}}},
		{"known to begin there", History{{3, 10}}, 3, 10, History{{3, 10}}},
		{"begins before it was known to", History{{3, 10}, {5, 20}}, 5, 15, History{{3, 10}, {5, 15}}},
		{"begins where another does", History{{3, 10}, {5, 20}}, 7, 20, History{{3, 10}, {7, 20}}},
		{"takes the place of what was never appended", History{{3, 10}, {5, 20}, {6, 30}}, 7, 20, History{{3, 10}, {7, 20}}},
		{"an earlier epoch", History{{3, 10}, {5, 20}}, 4, 30, History{{3, 10}, {4, 30}}},
		{"not known", History{{3, 10}}, cluster.NoEpoch, 30, History{{3, 10}}},
		{"nowhere", History{{3, 10}}, 4, -1, History{{3, 10}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.h)
			got := c.h.Assign(c.epoch, c.start)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.h); diff != "" {
				t.Errorf("changed in place (-was +is):\n%s", diff)
			}
		})
	}
}

func TestValuesDoNotShareWhatTheyAdd(t *testing.T) {
	h := History{{1, 0}, {2, 10}, {3, 20}}
	cut := h.TruncateFrom(20)
	one, two := cut.Assign(7, 15), cut.Assign(8, 16)
	if diff := cmp.Diff(History{{1, 0}, {2, 10}, {3, 20}}, h); diff != "" {
		t.Errorf("the whole history (-want +got):\n%s", diff)
	}
	if one[2].Epoch != 7 || two[2].Epoch != 8 {
		t.Errorf("%v and %v", one, two)
	}
}

func TestEndFor(t *testing.T) {
	h := History{{2, 10}, {5, 20}, {8, 30}}
	for _, c := range []struct {
		name  string
		h     History
		asked int32
		want  cluster.EpochEnd
	}{
		{"latest ends at the log end", h, 8, cluster.EpochEnd{Epoch: 8, EndOffset: 40}},
		{"ends where the next begins", h, 5, cluster.EpochEnd{Epoch: 5, EndOffset: 30}},
		{"not there: the one before", h, 7, cluster.EpochEnd{Epoch: 5, EndOffset: 30}},
		{"below the first", h, 1, cluster.EpochEnd{Epoch: 1, EndOffset: 10}},
		{"above the latest", h, 9, cluster.EpochEnd{Epoch: -1, EndOffset: -1}},
		{"none", h, cluster.NoEpoch, cluster.EpochEnd{Epoch: -1, EndOffset: -1}},
		{"no history", nil, 3, cluster.EpochEnd{Epoch: -1, EndOffset: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.h.EndFor(c.asked, 40); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestAtLatestValid(t *testing.T) {
	h := History{{2, 10}, {5, 20}}
	for offset, want := range map[int64]int32{9: cluster.NoEpoch, 10: 2, 19: 2, 20: 5, 1000: 5} {
		if got := h.At(offset); got != want {
			t.Errorf("At(%d) = %d, want %d", offset, got, want)
		}
	}
	if s, ok := h.Latest(); !ok || s != (Start{5, 20}) {
		t.Errorf("latest %v, %v", s, ok)
	}
	if s, ok := (History{}).Latest(); ok || s.Epoch != cluster.NoEpoch {
		t.Errorf("latest of nothing %v, %v", s, ok)
	}
	for _, c := range []struct {
		h    History
		want bool
	}{
		{nil, true}, {h, true}, {History{{0, 0}}, true}, {History{{2, 10}, {2, 20}}, false}, {History{{2, 10}, {3, 10}}, false},
		{History{{3, 10}, {2, 20}}, false}, {History{{-1, 10}}, false}, {History{{1, -1}}, false},
	} {
		if got := c.h.Valid(); got != c.want {
			t.Errorf("%v valid: %v, want %v", c.h, got, c.want)
		}
	}
}

func TestTruncateAndTrim(t *testing.T) {
	h := History{{2, 10}, {5, 20}, {8, 30}}
	for _, c := range []struct {
		name string
		got  History
		want History
	}{
		{"truncate above", h.TruncateFrom(31), h},
		{"truncate at a start", h.TruncateFrom(30), h[:2]},
		{"truncate all", h.TruncateFrom(10), History{}},
		{"trim below", h.TrimTo(5), h},
		{"trim at the first", h.TrimTo(10), h},
		{"trim inside an epoch", h.TrimTo(25), History{{5, 25}, {8, 30}}},
		{"trim at a start", h.TrimTo(20), h[1:]},
		{"trim to the end", h.TrimTo(99), History{{8, 99}}},
		{"trim nothing", History(nil).TrimTo(3), nil},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if diff := cmp.Diff(History{{2, 10}, {5, 20}, {8, 30}}, h); diff != "" {
		t.Errorf("changed in place (-want +got):\n%s", diff)
	}
}

func TestStoredForm(t *testing.T) {
	b, err := json.Marshal(History{{2, 10}})
	if err != nil || string(b) != `[{"epoch":2,"start":10}]` {
		t.Errorf("%s, %v", b, err)
	}
}
