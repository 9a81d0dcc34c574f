package batch

import "testing"

func TestLift(t *testing.T) {
	for _, tt := range []struct {
		id, lifted int64
		ok         bool
		counted    bool
		grounded   int64
	}{
		{-1, -1, false, false, -1},
		{0, 1 << 40, true, true, 0},
		{1_000_000, 1<<40 + 1_000_000, true, true, 1_000_000},
		{1<<40 - 1, 1<<41 - 1, true, true, 1<<40 - 1},
		{1<<40 + 7, 1<<41 + 7, true, false, 7}, // once more, on the way to a third cluster
		{OwnProducers - 1, OwnProducers - 1, false, false, 1<<40 - 1},
		{OwnProducers + 5, OwnProducers + 5, false, false, OwnProducers + 5},
	} {
		lifted, ok := Lifted(tt.id)
		if lifted != tt.lifted || ok != tt.ok || Counted(tt.id) != tt.counted || Grounded(tt.id) != tt.grounded {
			t.Errorf("%d: lifted %d, %v, counted %v, grounded %d", tt.id, lifted, ok, Counted(tt.id), Grounded(tt.id))
		}
		if ok && Grounded(lifted) != Grounded(tt.id) {
			t.Errorf("%d: %d is another producer", tt.id, lifted)
		}
	}
}
