package kafka

import (
	"testing"
	"time"
)

// TestAwaited: as long as a leader may be missing it is looked for often, a cluster that is away for
// long seldom.
func TestAwaited(t *testing.T) {
	total := time.Duration(0)
	for try := range awaitedTries {
		d := awaited(try)
		if total += d; d > awaitedMost || d <= 0 {
			t.Errorf("try %d: %v", try, d)
		}
	}
	if total < 9*time.Second {
		t.Errorf("all of it is over after %v, and a session takes nine seconds", total)
	}
	if d := awaited(awaitedTries + 1); d != time.Second {
		t.Errorf("later: %v", d)
	}
}
