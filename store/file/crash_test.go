package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

func openFake(t *testing.T, d *fakeDisk) *Store {
	t.Helper()
	s, err := open("folder", d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func record(topic string, stateEpoch int32) coordinator.Record {
	return coordinator.Record{
		Partition: cluster.Partition{Topic: topic}, State: coordinator.StateMirroring, Previous: coordinator.StateLogAlignment,
		Desired: coordinator.WantMirroring, OwnerEpoch: 1, StateEpoch: stateEpoch, Cut: -1,
	}
}

// mirrors are those that the script below writes.
var mirrors = []string{"a", "b"}

type step struct {
	name string
	do   func(s *Store) error
}

func saves(mirror string, records ...coordinator.Record) step {
	return step{fmt.Sprint("save ", mirror), func(s *Store) error {
		return errors.Join(s.Save(context.Background(), mirror, records)...)
	}}
}

func intends(mirror string, topics ...string) step {
	return step{"intents " + mirror, func(s *Store) error {
		var intents []coordinator.Intent
		for _, topic := range topics {
			intents = append(intents, coordinator.Intent{Topic: topic, Desired: coordinator.WantStopped})
		}
		_, err := s.SaveIntents(context.Background(), mirror, intents)
		return err
	}}
}

// script has every kind of write, of two mirrors.
var script = []step{
	saves("a", record("t", 1), record("u", 1)),
	intends("a", "t", "u"),
	saves("b", record("t", 1)),
	saves("a", record("t", 2), record("v", 1)),
	{"define", func(s *Store) error {
		return s.Define(context.Background(), coordinator.Definition{Name: "a", Revision: 1, Source: map[string]string{"k": "v"}})
	}},
	{"delete all of b", func(s *Store) error {
		return s.Delete(context.Background(), "b", []cluster.Partition{{Topic: "t"}})
	}},
	{"delete", func(s *Store) error {
		return s.Delete(context.Background(), "a", []cluster.Partition{{Topic: "u"}})
	}},
	intends("a", "v"),
	{"undefine", func(s *Store) error { return s.Undefine(context.Background(), "a") }},
	saves("a", record("t", 1)),
	intends("a", "t"),
}

// snapshot is all that a store says, as text.
func snapshot(t *testing.T, s *Store) string {
	t.Helper()
	all := map[string]any{}
	for _, mirror := range mirrors {
		records, err := s.Load(t.Context(), mirror)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(records, func(a, b coordinator.Record) int { return a.Partition.Compare(b.Partition) })
		ctx, cancel := context.WithCancel(t.Context())
		ch, err := s.Watch(ctx, mirror)
		if err != nil {
			t.Fatal(err)
		}
		intents := map[string]coordinator.Intent{}
		for _, in := range <-ch {
			intents[in.Topic] = in
		}
		cancel()
		for range ch {
		}
		all[mirror+" records"], all[mirror+" intents"] = append([]coordinator.Record{}, records...), intents
	}
	definitions, err := s.Definitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all["definitions"] = append([]coordinator.Definition{}, definitions...)
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// states are the snapshots before and after each step of the script.
func states(t *testing.T) []string {
	s := openFake(t, newFakeDisk())
	all := []string{snapshot(t, s)}
	for _, st := range script {
		if err := st.do(s); err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
		all = append(all, snapshot(t, s))
		if all[len(all)-2] == all[len(all)-1] {
			t.Fatalf("%s changes nothing", st.name)
		}
	}
	return all
}

// afterCrash opens each folder that a crash now may leave: it holds one of the states.
func afterCrash(t *testing.T, d *fakeDisk, when string, allowed ...string) {
	t.Helper()
	for i, image := range d.images() {
		s, err := open("folder", image, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: image %d: %v", when, i, err)
			continue
		}
		if got := snapshot(t, s); !slices.Contains(allowed, got) {
			t.Errorf("%s: image %d (-last acknowledged +got):\n%s", when, i, cmp.Diff(allowed[0], got))
		}
		names, err := image.list()
		if err != nil || slices.ContainsFunc(names, func(name string) bool { _, left := ours(name); return left }) {
			t.Errorf("%s: image %d: %q is left, %v", when, i, names, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// TestCrash switches the machine off before each step that a disk is asked for (I7):
// the next start finds what was acknowledged, or that and the write under way.
func TestCrash(t *testing.T) {
	all := states(t)
	for at := 0; ; at++ {
		d := newFakeDisk()
		op := ""
		d.fault = func(step int, name string) fault {
			if step == at {
				op = name
				return crashes
			}
			return works
		}
		s := openFake(t, d)
		for i, st := range script {
			when := fmt.Sprintf("off at step %d (%s) of %s", at, op, st.name)
			if err := st.do(s); err != nil {
				if !errors.Is(err, errCrash) {
					t.Errorf("%s: %v", when, err)
				}
				afterCrash(t, d, when, all[i], all[i+1])
				break
			}
			afterCrash(t, d, "after "+st.name, all[i+1])
		}
		s.Close()
		if op == "" {
			if at < 6*len(script)-10 {
				t.Errorf("the script takes %d steps of the disk only", at)
			}
			return
		}
	}
}

// TestDiskFails lets each step of the disk fail once, in each way. The call answers the
// error, what is read stays what is stored, and the same call succeeds afterwards.
func TestDiskFails(t *testing.T) {
	all := states(t)
	for _, kind := range []fault{fails, halfway, doneFail} {
		for at := 0; ; at++ {
			d := newFakeDisk()
			op := ""
			d.fault = func(step int, name string) fault {
				if step == at {
					op = name
					return kind
				}
				return works
			}
			s := openFake(t, d)
			for i, st := range script {
				err := st.do(s)
				if err != nil {
					when := fmt.Sprintf("step %d (%s) of %s, kind %d", at, op, st.name, kind)
					if !errors.Is(err, errDisk) {
						t.Fatalf("%s: %v", when, err)
					}
					if got := snapshot(t, s); got != all[i] {
						t.Errorf("%s: after the error (-before +after):\n%s", when, cmp.Diff(all[i], got))
					}
					afterCrash(t, d, when, all[i], all[i+1])
					if err := st.do(s); err != nil {
						t.Fatalf("%s: again: %v", when, err)
					}
				}
				if got := snapshot(t, s); got != all[i+1] {
					t.Errorf("after %s (-want +got):\n%s", st.name, cmp.Diff(all[i+1], got))
				}
				afterCrash(t, d, "after "+st.name, all[i+1])
			}
			s.Close()
			if op == "" {
				break
			}
		}
	}
}

// TestDiskIsFull: nothing can be written for a while. Each record gets the error, and
// room that a write has taken is given back.
func TestDiskIsFull(t *testing.T) {
	d := newFakeDisk()
	s := openFake(t, d)
	if err := script[0].do(s); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, s)
	d.fault = func(_ int, op string) fault {
		if op == "write" {
			return halfway
		}
		return works
	}
	for range 3 {
		errs := s.Save(t.Context(), "a", []coordinator.Record{record("t", 2), record("u", 7), record("w", 1)})
		for i, err := range errs {
			if !errors.Is(err, errDisk) {
				t.Errorf("record %d: %v", i, err)
			}
		}
		if err := intends("a", "t").do(s); !errors.Is(err, errDisk) {
			t.Errorf("intents: %v", err)
		}
	}
	if got := snapshot(t, s); got != before {
		t.Errorf("while the disk is full (-before +after):\n%s", cmp.Diff(before, got))
	}
	if names, _ := d.list(); len(names) != 1 {
		t.Errorf("files %q are left", names)
	}
	d.fault = nil
	errs := s.Save(t.Context(), "a", []coordinator.Record{record("t", 2), record("u", 7), record("w", 1)})
	if errs[0] != nil || !errors.Is(errs[1], coordinator.ErrConflict) || errs[2] != nil {
		t.Errorf("with room again: %v", errs)
	}
	s.Close()
}
