package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/mirror/coordinator"
)

// within waits for a value, not longer than the patience of the test.
func within[T any](t *check, ch <-chan T) (v T, ok bool) {
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case v = <-ch:
		return v, true
	case <-timer.C:
		return v, false
	}
}

// atOnce runs f for each store at the same time.
func atOnce(stores []Store, f func(i int, s Store)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i, s := range stores {
		group.Go(func() {
			<-start
			f(i, s)
		})
	}
	close(start)
	group.Wait()
}

// oneWins lets all write the same state epoch of one record: one does it, and its
// record is the one that stays.
func oneWins(t *check, stores []Store) {
	const rounds = 25
	for round := range rounds {
		errs := make([]error, len(stores))
		atOnce(stores, func(i int, s Store) {
			r := at(record("t", 0), 1, int32(round+1))
			r.Reason = fmt.Sprint("writer ", i)
			errs[i] = s.Save(t.Context(), mirror, []coordinator.Record{r})[0]
		})
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Errorf("round %d: writers %d and %d both wrote state epoch %d", round, winner, i, round+1)
			case !errors.Is(err, coordinator.ErrConflict):
				t.Fatalf("round %d: writer %d: %v", round, i, err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		kept := at(record("t", 0), 1, int32(round+1))
		kept.Reason = fmt.Sprint("writer ", winner)
		holds(t, stores[round%len(stores)], mirror, kept)
	}
}

// addUp lets all count in one record, each on its own: no addition is lost.
func addUp(t *check, stores []Store) {
	const additions = 8
	atOnce(stores, func(i int, s Store) {
		for done := 0; done < additions; {
			records, err := s.Load(t.Context(), mirror)
			if err != nil {
				t.Errorf("writer %d: %v", i, err)
				return
			}
			next := at(record("t", 0), 1, 0)
			if len(records) == 1 {
				next = records[0]
			}
			next.StateEpoch++
			next.Intent++
			switch err := s.Save(t.Context(), mirror, []coordinator.Record{next})[0]; {
			case err == nil:
				done++
			case !errors.Is(err, coordinator.ErrConflict):
				t.Errorf("writer %d: %v", i, err)
				return
			}
		}
	})
	sum := at(record("t", 0), 1, int32(additions*len(stores)))
	sum.Intent = int64(sum.StateEpoch)
	holds(t, stores[0], mirror, sum)
}

// intentsArrive writes intents from all sides: each arrives at each watcher, and no
// revision is given twice.
func intentsArrive(t *check, stores []Store) {
	const each = 25
	var all []*watcher
	for _, s := range stores {
		all = append(all, watch(t, s, mirror))
	}
	atOnce(stores, func(i int, s Store) {
		for n := range each {
			_, err := s.SaveIntents(t.Context(), mirror, []coordinator.Intent{want(fmt.Sprintf("t%d-%d", i, n), coordinator.WantStopped)})
			if err != nil {
				t.Errorf("writer %d: %v", i, err)
				return
			}
		}
	})
	for _, w := range all {
		w.until(t, func(seen map[string]coordinator.Intent) bool { return len(seen) == each*len(stores) })
		given := map[int64]string{}
		for topic, in := range w.seen {
			if other, twice := given[in.Revision]; twice {
				t.Errorf("revision %d was given to %s and %s", in.Revision, topic, other)
			}
			given[in.Revision] = topic
		}
		w.end(t)
	}
}
