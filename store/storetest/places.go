package storetest

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

func reopenCases() []placeCase {
	return []placeCase{
		{"what was stored is there", storedIsThere},
		{"an empty place stays empty", emptyStaysEmpty},
		{"compare and save goes on", compareGoesOn},
		{"what was deleted stays away", deletedStaysAway},
		{"revisions rise", revisionsRise},
		{"many times", manyTimes},
		{"a closed store says so", closedSaysSo},
	}
}

func shut(t *check, h Handle) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func storedIsThere(t *check, open func() Handle) {
	h := open()
	one, two := record("t", 0), full(t)
	stopped := came("back", coordinator.StateStopped, 44, "src")
	d := fullDefinition(t, mirror)
	define(t, h, d)
	save(t, h, mirror, one, two, stopped, extreme())
	save(t, h, "another", record("t", 0), record("t", 1))
	saveIntents(t, h, mirror, want("t", coordinator.WantStopped),
		coordinator.Intent{Topic: "u", Desired: coordinator.WantMirroring, Recover: true})
	before := storedIntents(t, h, mirror)
	shut(t, h)

	h = open()
	defined(t, h, d)
	holds(t, h, mirror, one, two, stopped, extreme())
	holds(t, h, "another", record("t", 0), record("t", 1))
	after := storedIntents(t, h, mirror)
	for topic, in := range before {
		if after[topic] != in || len(after) != len(before) {
			t.Errorf("intent was %+v, is %+v (of %d) after reopening", in, after[topic], len(after))
		}
	}
	answers(t, h, "src", []cluster.Partition{stopped.Partition}, []coordinator.PositionAnswer{
		{Found: true, Position: stopped.Position, TopicID: stopped.TopicID}})
	shut(t, h)
}

func emptyStaysEmpty(t *check, open func() Handle) {
	for range 2 {
		h := open()
		nothingStored(t, h)
		shut(t, h)
	}
}

func compareGoesOn(t *check, open func() Handle) {
	h := open()
	one := record("one", 0)
	save(t, h, mirror, one)
	save(t, h, mirror, at(one, 5, 2))
	d := fullDefinition(t, mirror)
	define(t, h, d)
	shut(t, h)

	h = open()
	steps(t, h, []saveStep{
		{"what is stored", []coordinator.Record{at(one, 5, 2)}, []error{coordinator.ErrConflict}},
		{"a first record", []coordinator.Record{one}, []error{coordinator.ErrConflict}},
		{"an earlier owner", []coordinator.Record{at(one, 4, 3)}, []error{coordinator.ErrConflict}},
		{"the next", []coordinator.Record{at(one, 5, 3)}, []error{nil}},
	})
	d.Revision = 2
	define(t, h, d)
	shut(t, h)

	h = open()
	holds(t, h, mirror, at(one, 5, 3))
	defined(t, h, d)
	shut(t, h)
}

func deletedStaysAway(t *check, open func() Handle) {
	h := open()
	define(t, h, fullDefinition(t, "gone"))
	save(t, h, "gone", record("t", 0))
	save(t, h, mirror, record("t", 0), record("u", 0), record("u", 1))
	saveIntents(t, h, "gone", want("t", coordinator.WantStopped))
	saveIntents(t, h, mirror, want("t", coordinator.WantStopped), want("u", coordinator.WantStopped))
	shut(t, h)

	h = open()
	if err := h.Delete(t.Context(), mirror, partitionsOf(record("t", 0), record("u", 0))); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if err := h.Undefine(t.Context(), "gone"); err != nil {
		t.Fatalf("undefine: %v", err)
	}
	shut(t, h)

	h = open()
	defined(t, h)
	holds(t, h, "gone")
	holdsIntents(t, h, "gone")
	holds(t, h, mirror, record("u", 1))
	holdsIntents(t, h, mirror, want("u", coordinator.WantStopped))
	save(t, h, mirror, record("t", 0))
	save(t, h, "gone", record("t", 0))
	shut(t, h)
}

// revisionsRise: also over what was deleted and undefined before the store was closed.
func revisionsRise(t *check, open func() Handle) {
	var last int64
	rises := func(h Handle, when string) {
		t.Helper()
		saveIntents(t, h, mirror, want("t", coordinator.WantStopped))
		revision := storedIntents(t, h, mirror)["t"].Revision
		if revision <= last {
			t.Errorf("%s: revision %d after %d", when, revision, last)
		}
		last = max(last, revision)
	}
	h := open()
	for range 10 {
		rises(h, "at first")
	}
	shut(t, h)
	h = open()
	rises(h, "after reopening")
	if err := h.Delete(t.Context(), mirror, []cluster.Partition{{Topic: "t"}}); err != nil {
		t.Fatalf("delete: %v", err)
	}
	shut(t, h)
	h = open()
	rises(h, "after a deletion and reopening")
	if err := h.Undefine(t.Context(), mirror); err != nil {
		t.Fatalf("undefine: %v", err)
	}
	shut(t, h)
	h = open()
	rises(h, "after the mirror was undefined and reopening")
	shut(t, h)
}

func manyTimes(t *check, open func() Handle) {
	for i := range 10 {
		h := open()
		if i > 0 {
			holds(t, h, mirror, at(record("t", 0), 1, int32(i)))
			holdsIntents(t, h, mirror, want("t", coordinator.WantPaused))
		}
		save(t, h, mirror, at(record("t", 0), 1, int32(i+1)))
		saveIntents(t, h, mirror, want("t", coordinator.WantPaused))
		shut(t, h)
	}
}

func closedSaysSo(t *check, open func() Handle) {
	h := open()
	save(t, h, mirror, record("t", 0))
	w := watch(t, h, mirror)
	defer w.cancel()
	shut(t, h)
	closes(t, w.ch)
	if got, err := h.Load(t.Context(), mirror); err == nil {
		t.Errorf("a closed store gave %v", got)
	}
	if _, err := h.SaveIntents(t.Context(), mirror, []coordinator.Intent{want("t", coordinator.WantPaused)}); err == nil {
		t.Errorf("a closed store took an intent")
	}
	if err := h.Save(t.Context(), mirror, []coordinator.Record{at(record("t", 0), 1, 2)})[0]; err == nil {
		t.Errorf("a closed store took a record")
	}
	h = open()
	holds(t, h, mirror, record("t", 0))
	holdsIntents(t, h, mirror)
	shut(t, h)
}

func secondCases() []placeCase {
	return []placeCase{
		{"one handle sees what another wrote", seesOthers},
		{"compare and save", compareAcross},
		{"watch", watchAcross},
		{"one of many wins", func(t *check, open func() Handle) { across(t, open, 4, oneWins) }},
		{"concurrent additions add up", func(t *check, open func() Handle) { across(t, open, 4, addUp) }},
		{"concurrent intents all arrive", func(t *check, open func() Handle) { across(t, open, 3, intentsArrive) }},
		{"closing one leaves the other", closingOne},
	}
}

// across runs a case of one store over several handles.
func across(t *check, open func() Handle, n int, run func(t *check, stores []Store)) {
	var handles []Handle
	var stores []Store
	for range n {
		h := open()
		handles, stores = append(handles, h), append(stores, h)
	}
	run(t, stores)
	for _, h := range handles {
		shut(t, h)
	}
}

func seesOthers(t *check, open func() Handle) {
	a, b := open(), open()
	d := fullDefinition(t, mirror)
	stopped := came("back", coordinator.StateStopped, 44, "src")
	define(t, a, d)
	save(t, a, mirror, full(t), stopped)
	saveIntents(t, a, mirror, want("back", coordinator.WantStopped))
	for _, h := range []Handle{b, open()} {
		defined(t, h, d)
		holds(t, h, mirror, full(t), stopped)
		holdsIntents(t, h, mirror, want("back", coordinator.WantStopped))
		answers(t, h, "src", partitionsOf(stopped), []coordinator.PositionAnswer{
			{Found: true, Position: stopped.Position, TopicID: stopped.TopicID}})
		if h != b {
			shut(t, h)
		}
	}
	if err := b.Delete(t.Context(), mirror, partitionsOf(stopped)); err != nil {
		t.Fatalf("delete: %v", err)
	}
	holds(t, a, mirror, full(t))
	holdsIntents(t, a, mirror)
	save(t, a, mirror, stopped) // a fresh one, since it is gone
	if err := b.Undefine(t.Context(), mirror); err != nil {
		t.Fatalf("undefine: %v", err)
	}
	defined(t, a)
	holds(t, a, mirror)
	shut(t, a)
	shut(t, b)
}

// compareAcross: two workers of one partition, of which the first was frozen.
func compareAcross(t *check, open func() Handle) {
	frozen, next := open(), open()
	one, two := record("one", 0), record("two", 0)
	save(t, frozen, mirror, one, two)
	save(t, next, mirror, at(one, 2, 2))
	steps(t, frozen, []saveStep{
		{"what the other wrote", []coordinator.Record{at(one, 1, 2), at(two, 1, 2)}, []error{coordinator.ErrConflict, nil}},
		{"an earlier owner", []coordinator.Record{at(one, 1, 3)}, []error{coordinator.ErrConflict}},
	})
	holds(t, frozen, mirror, at(one, 2, 2), at(two, 1, 2))
	holds(t, next, mirror, at(one, 2, 2), at(two, 1, 2))
	d := fullDefinition(t, mirror)
	define(t, frozen, d)
	d.Revision = 2
	define(t, next, d)
	if err := frozen.Define(t.Context(), d); err == nil {
		t.Errorf("revision 2 of a definition was written twice")
	}
	shut(t, frozen)
	shut(t, next)
}

func watchAcross(t *check, open func() Handle) {
	a, b := open(), open()
	saveIntents(t, a, mirror, want("t", coordinator.WantPaused))
	w := watch(t, b, mirror)
	sameIntents(t, mirror, w.seen, []coordinator.Intent{want("t", coordinator.WantPaused)})
	for i := range 10 {
		saveIntents(t, []Store{a, b}[i%2], mirror, want(fmt.Sprint("t", i), coordinator.WantStopped))
	}
	w.until(t, func(seen map[string]coordinator.Intent) bool { return len(seen) == 11 })
	for i := 1; i < 10; i++ {
		if x, y := w.seen[fmt.Sprint("t", i-1)], w.seen[fmt.Sprint("t", i)]; x.Revision >= y.Revision {
			t.Errorf("revision %d of one handle, then %d of the other", x.Revision, y.Revision)
		}
	}
	w.end(t)
	shut(t, a)
	shut(t, b)
}

func closingOne(t *check, open func() Handle) {
	a, b := open(), open()
	w := watch(t, b, mirror)
	save(t, a, mirror, record("t", 0))
	shut(t, a)
	save(t, b, mirror, at(record("t", 0), 1, 2))
	saveIntents(t, b, mirror, want("t", coordinator.WantStopped))
	w.until(t, func(seen map[string]coordinator.Intent) bool { return len(seen) == 1 })
	holds(t, b, mirror, at(record("t", 0), 1, 2))
	w.end(t)
	shut(t, b)
}
