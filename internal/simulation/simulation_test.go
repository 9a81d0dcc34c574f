package simulation

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"
)

// TestSchedules plays random schedules (I1 to I12, C11.1, C11.3, C11.9, C11.11, C11.13).
// What it finds it makes as short as it can.
func TestSchedules(t *testing.T) {
	n := cmp.Or(*schedules, ordinary)
	begin := time.Now()
	var all []finding
	shards(t, executable(t), *seed, n, func(f finding) bool {
		t.Logf("after %v: %v", time.Since(begin).Round(time.Second), f)
		all = append(all, f)
		return len(all) < *enough
	})
	for _, f := range all {
		t.Errorf("%v\n%s", f, shortest(t, f))
	}
	if len(all) == 0 {
		t.Logf("%d schedules from seed %d on: no promise broken, %v", n, *seed, time.Since(begin).Round(time.Second))
	}
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The order of goroutines is not the seed's to say: a schedule is played so often
// before it counts as one that breaks nothing.
const plays = 12

// shortest is the shortest schedule that breaks the same promise, as text.
func shortest(t *testing.T, f finding) string {
	s := Generate(f.Seed)
	s.Steps = s.Steps[:min(len(s.Steps), f.Step+1)]
	deadline := time.Now().Add(time.Minute)
	s = Minimize(s, func(c Schedule) bool {
		return time.Now().Before(deadline) && fails(t, c, f.Rule, plays)
	})
	times := 0
	for range plays {
		if fails(t, s, f.Rule, 1) {
			times++
		}
	}
	return fmt.Sprintf("the shortest schedule found (breaks %s in %d of %d plays), to be saved and given to -replay:\n%s", f.Rule, times, plays, s)
}

// fails reports whether a promise is broken in one of so many plays.
func fails(t *testing.T, s Schedule, rule string, plays int) bool {
	for range plays {
		var b *Broken
		if err := Play(t, s, slog.New(slog.DiscardHandler), nil); errors.As(err, &b) && b.Rule() == rule {
			return true
		}
	}
	return false
}

// TestReplay plays the schedule of a file, and shows what the engine says where a
// promise is broken.
func TestReplay(t *testing.T) {
	if *replay == "" {
		return
	}
	text, err := os.ReadFile(*replay)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for play := range plays {
		var log bytes.Buffer
		err := Play(t, s, loud(&log), func(i int, shown string) { fmt.Fprintf(&log, "%s\n%s", s.Steps[i], shown) })
		if err != nil {
			t.Fatalf("play %d: %v\n%s", play+1, err, log.String())
		}
		if play == plays-1 {
			t.Logf("nothing is broken in %d plays; the last:\n%s", plays, log.String())
		}
	}
}
