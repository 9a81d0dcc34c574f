package file

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// TestGroup: writers that come while a file is being written share the next one.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers = 500
		d := newFakeDisk()
		d.gate = make(chan struct{})
		s := openFake(t, d)
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				r := record(fmt.Sprint("t", i), 1)
				if err := s.Save(t.Context(), "m", []coordinator.Record{r})[0]; err != nil {
					t.Errorf("save: %v", err)
				}
				in := coordinator.Intent{Topic: r.Partition.Topic, Desired: coordinator.WantPaused}
				if _, err := s.SaveIntents(t.Context(), "m", []coordinator.Intent{in}); err != nil {
					t.Errorf("intent: %v", err)
				}
			})
			if i == 0 {
				synctest.Wait() // it writes, the others come meanwhile
			}
		}
		synctest.Wait()
		if got, err := s.Load(t.Context(), "m"); err != nil || len(got) > 0 {
			t.Errorf("seen before it is stored: %v, %v", got, err)
		}
		// One file for the first record, one for the others, one or two for the intents:
		// the writer may be back before all callers are.
		finished := make(chan struct{})
		go func() {
			group.Wait()
			close(finished)
		}()
		for open := true; open; {
			select {
			case d.gate <- struct{}{}:
				synctest.Wait()
			case <-finished:
				open = false
			}
		}
		if d.creates > 4 {
			t.Errorf("%d files were written for %d calls, want 4 at most", d.creates, 2*writers)
		}
		if got, err := s.Load(t.Context(), "m"); err != nil || len(got) != writers {
			t.Errorf("%d records, %v", len(got), err)
		}
		s.Close()
	})
}

// TestGroupFails: those that share a write that fails all get its error, also those
// whose conflict rested on it; nothing of it is seen.
func TestGroupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		d.gate = make(chan struct{}, 1)
		d.gate <- struct{}{}
		s := openFake(t, d)
		save := func(r coordinator.Record) error { return s.Save(t.Context(), "m", []coordinator.Record{r})[0] }
		if err := save(record("t", 1)); err != nil {
			t.Fatal(err)
		}
		broken := true
		d.fault = func(_ int, op string) fault {
			if broken && op == "rename" {
				return fails
			}
			return works
		}
		var group sync.WaitGroup
		group.Go(func() {
			if err := save(record("u", 1)); !errors.Is(err, errDisk) {
				t.Errorf("first: %v", err)
			}
		})
		synctest.Wait()
		for range 3 { // the same state epoch: two of them are conflicts with the third
			group.Go(func() {
				if err := save(record("t", 2)); !errors.Is(err, errDisk) {
					t.Errorf("shared: %v", err)
				}
			})
		}
		synctest.Wait()
		d.gate <- struct{}{}
		synctest.Wait()
		d.gate <- struct{}{}
		group.Wait()
		broken = false
		d.gate <- struct{}{}
		if err := save(record("t", 2)); err != nil {
			t.Errorf("again: %v", err)
		}
		if err := save(record("t", 2)); !errors.Is(err, coordinator.ErrConflict) {
			t.Errorf("a conflict needs no file: %v", err)
		}
		s.Close()
	})
}

// TestGivenUp: a caller whose context ends does not wait for the disk. What was not
// begun is not done, what was begun may be.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		d.gate = make(chan struct{})
		s := openFake(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		save := func(topic string) {
			group.Go(func() {
				errs := s.Save(ctx, "m", []coordinator.Record{record(topic, 1), record(topic+"2", 1)})
				for _, err := range errs {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", topic, err)
					}
				}
			})
		}
		save("begun")
		synctest.Wait()
		save("queued")
		synctest.Wait()
		cancel()
		group.Wait()
		closing := make(chan error, 1)
		go func() { closing <- s.Close() }()
		synctest.Wait()
		select {
		case err := <-closing:
			t.Errorf("closed while a file is being written: %v", err)
		default:
		}
		close(d.gate)
		if err := <-closing; err != nil {
			t.Errorf("close: %v", err)
		}
		again := openFake(t, d)
		got, err := again.Load(t.Context(), "m")
		if err != nil || len(got) != 2 || got[0].Partition.Topic[:5] != "begun" {
			t.Errorf("stored is %v, %v", got, err)
		}
		again.Close()
	})
}

// TestRefused: what could not be read again is not written, and harms nothing else.
func TestRefused(t *testing.T) {
	s := openAt(t, t.TempDir())
	back := record("back", 1)
	back.Epochs = []coordinator.EpochStart{{Epoch: 2, Start: 9}, {Epoch: 1, Start: 10}}
	unknown := record("unknown", 1)
	unknown.State = "SLEEPING"
	errs := s.Save(t.Context(), "m", []coordinator.Record{back, record("good", 1), unknown, record("a\xff", 1), {}})
	for i, err := range errs {
		if good := i == 1; good != (err == nil) {
			t.Errorf("record %d: %v", i, err)
		}
	}
	for name, in := range map[string]coordinator.Intent{
		"no topic": {Desired: coordinator.WantPaused}, "no UTF-8": {Topic: "\xff", Desired: coordinator.WantPaused},
		"unknown": {Topic: "t", Desired: "GONE"},
	} {
		if _, err := s.SaveIntents(t.Context(), "m", []coordinator.Intent{{Topic: "good", Desired: coordinator.WantPaused}, in}); err == nil {
			t.Errorf("%s: an intent was taken", name)
		}
	}
	if err := s.Define(t.Context(), coordinator.Definition{Name: "\xff", Revision: 1}); err == nil {
		t.Errorf("a definition was taken")
	}
	if err := s.Save(t.Context(), "\xff", []coordinator.Record{record("t", 1)})[0]; err == nil {
		t.Errorf("a record of a mirror whose name is not text was taken")
	}
	dir := s.dir
	s.Close()
	s = openAt(t, dir)
	got, err := s.Load(t.Context(), "m")
	if err != nil || len(got) != 1 || got[0].Partition != (cluster.Partition{Topic: "good"}) {
		t.Errorf("stored is %v, %v", got, err)
	}
}

// TestSlowReaderCostsLittle: of each topic one intent waits for a reader that never comes.
func TestSlowReaderCostsLittle(t *testing.T) {
	said := []coordinator.Intent{{Topic: "a", Revision: 1}, {Topic: "b", Revision: 2}, {Topic: "a", Revision: 3}}
	var piece []coordinator.Intent
	for i := range int64(100) {
		for n := range said {
			said[n].Revision += 3 * i
		}
		piece = merge(piece, said)
	}
	if len(piece) != 2 || piece[0].Topic != "b" || piece[1].Topic != "a" || piece[0].Revision >= piece[1].Revision {
		t.Errorf("%v", piece)
	}
}
