package offsets

import (
	"fmt"
	"sync"
)

// A Report says what a copy found and did. The groups of Clamped, Held, Active and Failed are
// all that have something left to be done; all others are as at the source.
type Report struct {
	Matched  int      // groups that the source has and that are to be copied
	Excluded []string // groups that the source has and the filter leaves out, by name
	Groups   int      // groups written
	Offsets  int      // offsets written

	// Clamped are written lower than they are committed: the destination does not reach so
	// far. They are caught up with later.
	Clamped map[string][]Place
	// Held have moved by themselves at the destination and stay where they are.
	Held map[string][]Place
	// Active have members at the destination and were to be moved.
	Active map[string][]Place
	// Failed could not be read, or were not written though they have no members, at least on
	// one partition, with the reason.
	Failed map[string]error
	// Warnings are about parts of the clusters of which nothing is known.
	Warnings []error
}

// Count is the number of places of some groups.
func Count(of map[string][]Place) (n int) {
	for _, places := range of {
		n += len(places)
	}
	return n
}

// tally makes a report from many goroutines.
type tally struct {
	mu sync.Mutex
	Report
}

func newTally() *tally {
	return &tally{Report: Report{
		Clamped: map[string][]Place{}, Held: map[string][]Place{}, Active: map[string][]Place{}, Failed: map[string]error{},
	}}
}

func (t *tally) warn(what string, err error) {
	if err != nil {
		t.Warnings = append(t.Warnings, fmt.Errorf("%s: %w", what, err))
	}
}

func (t *tally) fail(group, what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Failed[group] = fmt.Errorf("group %s: %s: %w", group, what, err)
}

func (t *tally) active(ch Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Active[ch.Group] = ch.Moves
	delete(t.Clamped, ch.Group)
}

func (t *tally) wrote(ch Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Groups++
	t.Offsets += len(ch.Offsets)
}

// left notes what a comparison leaves as it is.
func (t *tally) left(ch Change) {
	if len(ch.Clamped) > 0 {
		t.Clamped[ch.Group] = ch.Clamped
	}
	if len(ch.Held) > 0 {
		t.Held[ch.Group] = ch.Held
	}
}
