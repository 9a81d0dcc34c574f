package storetest

import (
	"fmt"

	"github.com/clustermirror/mirror/coordinator"
)

// revisions: each is above all before, in the order of the slice, whatever the writer
// put there and whatever was deleted meanwhile.
func revisions(t *check, s Store) {
	const many = 100
	var last int64
	rises := func(round string) {
		t.Helper()
		stored := storedIntents(t, s, mirror)
		for i := range many {
			topic := fmt.Sprintf("t%03d", (i*37)%many) // not in the order of names
			in, ok := stored[topic]
			if !ok || in.Revision <= last {
				t.Errorf("%s: topic %s has revision %d, the one before had %d", round, topic, in.Revision, last)
			}
			last = max(last, in.Revision)
		}
	}
	batch := func(given int64) (out []coordinator.Intent) {
		for i := range many {
			in := want(fmt.Sprintf("t%03d", (i*37)%many), coordinator.WantStopped)
			in.Revision = given
			out = append(out, in)
		}
		return out
	}
	saveIntents(t, s, mirror, batch(0)...)
	rises("first")
	saveIntents(t, s, mirror, batch(1<<40)...)
	rises("given ones are not looked at")
	saveIntents(t, s, mirror, batch(-1)...)
	rises("given ones below zero")
	all := record("t000", 0)
	save(t, s, mirror, all)
	for i := range many {
		p := all.Partition
		p.Topic = fmt.Sprintf("t%03d", i)
		if i%10 == 0 {
			if err := s.Delete(t.Context(), mirror, append(partitionsOf(all), p)); err != nil {
				t.Fatalf("delete: %v", err)
			}
		}
	}
	saveIntents(t, s, mirror, batch(0)...)
	rises("after deletions")
	if err := s.Undefine(t.Context(), mirror); err != nil {
		t.Fatalf("undefine: %v", err)
	}
	saveIntents(t, s, mirror, batch(0)...)
	rises("after the mirror was undefined")
	// The same topic twice: the later one stays.
	saveIntents(t, s, mirror, want("twice", coordinator.WantPaused), want("twice", coordinator.WantStopped))
	if got := storedIntents(t, s, mirror)["twice"]; got.Desired != coordinator.WantStopped || got.Revision <= last+1 {
		t.Errorf("of two intents for a topic in one call %+v is left", got)
	}
}

func watchIntents(t *check, s Store) {
	w := watch(t, s, mirror)
	if len(w.seen) > 0 {
		t.Errorf("the first piece of a new mirror is %v", w.seen)
	}
	recover := coordinator.Intent{Topic: "one", Desired: coordinator.WantMirroring, Recover: true}
	saveIntents(t, s, "another", want("one", coordinator.WantStopped))
	saveIntents(t, s, mirror, want("one", coordinator.WantPaused), want("two", coordinator.WantMirroring))
	w.until(t, func(seen map[string]coordinator.Intent) bool { return len(seen) == 2 })
	sameIntents(t, mirror, w.seen, []coordinator.Intent{want("one", coordinator.WantPaused), want("two", coordinator.WantMirroring)})
	before := w.seen["one"].Revision
	saveIntents(t, s, mirror, recover)
	w.until(t, func(seen map[string]coordinator.Intent) bool { return seen["one"].Revision > before })
	sameIntents(t, mirror, w.seen, []coordinator.Intent{recover, want("two", coordinator.WantMirroring)})
	// Saved again as it was it is a new wish all the same: recover means now.
	before = w.seen["one"].Revision
	saveIntents(t, s, mirror, recover)
	w.until(t, func(seen map[string]coordinator.Intent) bool { return seen["one"].Revision > before })
	w.end(t)
}

func watchFirst(t *check, s Store) {
	const many = 500
	var all []coordinator.Intent
	for i := range many {
		all = append(all, want(fmt.Sprintf("t%03d", i), coordinator.WantStopped))
	}
	saveIntents(t, s, mirror, all[:many/2]...)
	saveIntents(t, s, mirror, all[many/2:]...)
	saveIntents(t, s, mirror, all[:10]...)
	holdsIntents(t, s, mirror, all...)
	// What comes after the first piece is above all of it, and comes once.
	w := watch(t, s, mirror)
	changed := want("t007", coordinator.WantPaused)
	saveIntents(t, s, mirror, changed)
	w.until(t, func(seen map[string]coordinator.Intent) bool { return seen["t007"].Desired == coordinator.WantPaused })
	all[7] = changed
	sameIntents(t, mirror, w.seen, all)
	w.end(t)
}

func watchEnds(t *check, s Store) {
	saveIntents(t, s, mirror, want("t", coordinator.WantPaused))
	for range 3 {
		watch(t, s, mirror).end(t)
	}
	idle, other := watch(t, s, mirror), watch(t, s, "another")
	idle.end(t)
	saveIntents(t, s, mirror, want("t", coordinator.WantStopped)) // nobody watches any more
	saveIntents(t, s, "another", want("t", coordinator.WantStopped))
	other.until(t, func(seen map[string]coordinator.Intent) bool { return len(seen) == 1 })
	other.end(t)
}

// slowReader takes nothing while much is written; then it has the newest of each topic.
func slowReader(t *check, s Store) {
	const calls, topics = 60, 20
	w := watch(t, s, mirror)
	done := make(chan error, 1)
	go func() {
		for i := range calls {
			var batch []coordinator.Intent
			for n := range topics {
				in := want(fmt.Sprintf("t%02d", n), coordinator.WantPaused)
				if i == calls-1 {
					in.Desired = coordinator.WantStopped
				}
				batch = append(batch, in)
			}
			if _, err := s.SaveIntents(t.Context(), mirror, batch); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	if err, ok := within(t, done); !ok || err != nil {
		t.Fatalf("writer beside a reader that takes nothing: done %v, err %v", ok, err)
	}
	w.until(t, func(seen map[string]coordinator.Intent) bool {
		for _, in := range seen {
			if in.Desired != coordinator.WantStopped {
				return false
			}
		}
		return len(seen) == topics
	})
	w.end(t)
}

func severalWatchers(t *check, s Store) {
	saveIntents(t, s, mirror, want("first", coordinator.WantPaused))
	var all []*watcher
	for range 5 {
		all = append(all, watch(t, s, mirror))
	}
	all[2].end(t)
	for i := range 20 {
		saveIntents(t, s, mirror, want(fmt.Sprint("t", i), coordinator.WantStopped))
	}
	var revision map[string]coordinator.Intent
	for i, w := range all {
		if i == 2 {
			continue
		}
		w.until(t, func(seen map[string]coordinator.Intent) bool { return len(seen) == 21 })
		if revision == nil {
			revision = w.seen
		}
		for topic, in := range w.seen {
			if in != revision[topic] {
				t.Errorf("watcher %d has %+v, another one %+v", i, in, revision[topic])
			}
		}
		w.end(t)
	}
}
