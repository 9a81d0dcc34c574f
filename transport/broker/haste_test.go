package broker

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestEnd: until when a fetch waits.
func TestEnd(t *testing.T) {
	now := time.Unix(1000, 0)
	tests := []struct {
		name  string
		wait  time.Duration
		g     gathering
		hasty bool
		want  time.Duration
	}{
		{"as it says", 500 * time.Millisecond, gathering{}, false, 500 * time.Millisecond},
		{"in haste", 500 * time.Millisecond, gathering{}, true, hastyWait},
		{"no longer than it says", time.Millisecond, gathering{}, true, time.Millisecond},
		{"held", 500 * time.Millisecond, gathering{held: true}, false, heldFor},
		{"held, in haste", 500 * time.Millisecond, gathering{held: true}, true, heldFor},
		{"held, and it says more", 10 * time.Second, gathering{held: true}, false, 10 * time.Second},
		{"held, with records of others", 500 * time.Millisecond, gathering{held: true, size: 1}, true, 500 * time.Millisecond},
	}
	for _, tt := range tests {
		terms := fetchTerms{began: now, deadline: now.Add(tt.wait)}
		if got := terms.end(&tt.g, tt.hasty).Sub(now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestHaste begins, lasts, is over, and begins again.
func TestHaste(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHaste()
		for range 2 {
			hasty, begins := h.look(time.Now())
			if hasty {
				t.Fatal("nobody has begun it")
			}
			h.begin(time.Now())
			select {
			case <-begins:
			default:
				t.Error("who is waiting does not hear of it")
			}
			time.Sleep(hasteFor - 1) // of the bubble's clock
			if hasty, begins = h.look(time.Now()); !hasty {
				t.Error("it is over too early")
			}
			h.begin(time.Now())
			select {
			case <-begins:
				t.Error("it begins while there is some")
			default:
			}
			time.Sleep(hasteFor) // of the bubble's clock
		}
	})
}
