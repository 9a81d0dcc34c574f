package fetcher

import (
	"testing"
	"time"
)

// A hole that takes the destination long is no stall while it grows, and is one when
// it does not, or when nobody says that it does.
func TestLongHoleIsNoStall(t *testing.T) {
	for name, c := range map[string]struct {
		at   func(took time.Duration) int64
		want int
	}{
		"it grows":          {func(took time.Duration) int64 { return 2 + int64(took/time.Second) }, 0},
		"it stands still":   {func(time.Duration) int64 { return 50 }, 1},
		"it has not begun":  {func(time.Duration) int64 { return 2 }, 1},
		"nobody says so":    {nil, 1},
		"it stops half way": {func(took time.Duration) int64 { return 2 + int64(min(took, time.Minute)/time.Second) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inFilledWorld(t, Options{}, func(w *world) {
				w.assign(1, part(0))
				w.src.script(part(0), "p")
				w.filled(part(0))
				w.dst.with(part(0), func(l *destinationLog) {
					began := time.Now()
					if c.at != nil {
						w.dst.fills = func() int64 { return c.at(time.Since(began)) }
					}
					l.delay = 5 * time.Minute
				})
				w.src.script(part(0), "aaaaaaaaAap")
				pass(4 * time.Minute)
				w.notes.note(func() {
					if n := w.notes.stalled[part(0)]; n != c.want {
						t.Errorf("told %d times as stalled, want %d", n, c.want)
					}
				})
				w.dst.with(part(0), func(l *destinationLog) { l.delay = 0 })
				pass(5 * time.Minute)
				w.filled(part(0))
			})
		})
	}
}

func TestFillingForPeople(t *testing.T) {
	for _, c := range []struct {
		f    Filling
		want string
	}{
		{Filling{To: 5_000_000_000, Rate: 8_000_000}, "filled from 0 to 5000000000, 8000000 offsets a second, about 10m25s left"},
		{Filling{From: 1000, To: 2000, At: 1250, Rate: 50}, "filled from 1000 to 2000, at 1250 (25 %), 50 offsets a second, about 15s left"},
		{Filling{From: 1000, To: 2000, At: 2000}, "filled from 1000 to 2000, at 2000 (100 %)"},
		{Filling{To: 10_000_000_000, At: 9_999_999_999, Rate: 1}, "filled from 0 to 10000000000, at 9999999999 (99 %), 1 offsets a second, about 1s left"},
	} {
		if got := c.f.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
