package coordinator

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestWishesInOrder: what discovery wants does not overrule an operator, nor does
// an older wish a later one, and a wish that is refused counts as followed.
func TestWishesInOrder(t *testing.T) {
	following := func(revision int64, desired Desired) Event {
		return Event{Kind: EventWant, Desired: desired, Revision: revision}
	}
	for _, c := range []struct {
		name    string
		wishes  []Event
		state   State
		desired Desired
		intent  int64
		refused bool
	}{
		{"discovery alone", []Event{following(0, WantMirroring), following(0, WantStopped)}, StateStopping, WantStopped, 0, false},
		{"discovery after an operator", []Event{following(4, WantPaused), following(0, WantMirroring)}, StatePausing, WantPaused, 4, false},
		{"discovery against a stop", []Event{following(4, WantMirroring), following(5, WantStopped), following(0, WantMirroring)}, StateStopping, WantStopped, 5, false},
		{"an older wish", []Event{following(4, WantMirroring), following(3, WantStopped)}, StateLogAlignment, WantMirroring, 4, false},
		{"the same wish again", []Event{following(4, WantMirroring), following(4, WantMirroring)}, StateLogAlignment, WantMirroring, 4, false},
		{"a later wish", []Event{following(4, WantMirroring), following(6, WantPaused)}, StatePausing, WantPaused, 6, false},
		{"a pause that is refused", []Event{following(1, WantMirroring), following(2, WantStopped), following(3, WantPaused)}, StateStopping, WantStopped, 3, false},
		{"a pause that nobody counts", []Event{following(1, WantMirroring), following(2, WantStopped), following(0, WantPaused)}, StateStopping, WantStopped, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				co := New("m", NewMemory(), &stage{}, nil)
				defer start(t, co)()
				var last error
				for _, ev := range c.wishes {
					ev.Ack = func(err error) { last = err }
					post(co, ev)
				}
				s := wantState(t, co, c.state)
				if s.Desired != c.desired || s.Intent != c.intent {
					t.Errorf("wanted %s by intent %d, want %s by %d", s.Desired, s.Intent, c.desired, c.intent)
				}
				if errors.Is(last, ErrUnfit) != c.refused {
					t.Errorf("acknowledged with %v", last)
				}
			})
		})
	}
}
