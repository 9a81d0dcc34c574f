// Package storetest tells whether a store of mirrors' state keeps what
// [coordinator.Store], [coordinator.Definitions] and [coordinator.Positions]
// promise. A store's own tests call it:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, t.TempDir()) })
//	}
//
//	func TestReopen(t *testing.T) {
//		storetest.Reopen(t, func(t *testing.T) storetest.Open {
//			dir := t.TempDir()
//			return func(t *testing.T) storetest.Handle { return open(t, dir) }
//		})
//	}
//
// Each case gets a store, or a place, of its own. Wait for what the store starts in a
// cleanup of the test, and watch for goroutines that are left (goleak) in the calling
// package: the suite leaves none.
package storetest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/clustermirror/mirror/coordinator"
)

// Store is what a store of mirrors' state has to be.
type Store interface {
	coordinator.Store
	coordinator.Definitions
	coordinator.Positions
}

// Handle is an open store. Close ends its watches; what was stored stays.
type Handle interface {
	Store
	io.Closer
}

// Open opens a place where a store keeps its data. Called again it gives another
// handle on the same data. The suite closes what it opens, a failing case may not.
type Open func(t *testing.T) Handle

// Run holds a store against everything that does not need it to be opened twice. open
// gives a new and empty store and sees to its end by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(&check{tb: t, patience: patience}, open(t)) })
	}
}

// Reopen holds a durable store against what has to be there after it was closed and
// opened again. place makes a new and empty place. No two handles are open at a time.
func Reopen(t *testing.T, place func(t *testing.T) Open) {
	t.Helper()
	runPlaces(t, reopenCases(), place)
}

// Second holds a store that several processes may have open at once against what each
// of them has to see of the others. place makes a new and empty place.
func Second(t *testing.T, place func(t *testing.T) Open) {
	t.Helper()
	runPlaces(t, secondCases(), place)
}

func runPlaces(t *testing.T, cases []placeCase, place func(t *testing.T) Open) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			open := place(t)
			c.run(&check{tb: t, patience: patience}, func() Handle { return open(t) })
		})
	}
}

// patience is how long something may take that has to happen at last.
const patience = 30 * time.Second

// tb is the part of testing.TB that cases use: the suite's own tests watch cases fail
// without failing themselves.
type tb interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

type check struct {
	tb
	patience time.Duration
}

type storeCase struct {
	name string
	run  func(t *check, s Store)
}

type placeCase struct {
	name string
	run  func(t *check, open func() Handle)
}

func cases() []storeCase {
	return []storeCase{
		{"compare and save", compareAndSave},
		{"a conflict harms no other record", conflictInBatch},
		{"values survive", valuesSurvive},
		{"names are apart", namesApart},
		{"delete", deleteRecords},
		{"intents go with the last record", deleteIntents},
		{"nothing stored", nothingStored},
		{"many records", manyRecords},
		{"cancelled", cancelled},
		{"cancelled meanwhile", cancelledMeanwhile},
		{"revisions", revisions},
		{"watch", watchIntents},
		{"watch has the stored ones first", watchFirst},
		{"watch ends with its context", watchEnds},
		{"a slow reader blocks no writer", slowReader},
		{"several watchers", severalWatchers},
		{"definitions", definitions},
		{"definitions are values", definitionsAreValues},
		{"undefine", undefine},
		{"positions", positions},
		{"one of many wins", func(t *check, s Store) { oneWins(t, []Store{s, s, s, s, s, s}) }},
		{"concurrent additions add up", func(t *check, s Store) { addUp(t, []Store{s, s, s, s, s, s}) }},
		{"concurrent intents all arrive", func(t *check, s Store) { intentsArrive(t, []Store{s, s, s, s}) }},
	}
}
