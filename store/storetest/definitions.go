package storetest

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

func partitionsOf(records ...coordinator.Record) (out []cluster.Partition) {
	for _, r := range records {
		out = append(out, r.Partition)
	}
	return out
}

// defined checks that these definitions are stored and no others.
func defined(t *check, s Store, want ...coordinator.Definition) {
	t.Helper()
	got, err := s.Definitions(t.Context())
	if err != nil {
		t.Fatalf("definitions: %v", err)
	}
	byName := func(a, b coordinator.Definition) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(got, byName)
	slices.SortFunc(want, byName)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

// fullDefinition has no field left out.
func fullDefinition(t *check, name string) coordinator.Definition {
	t.Helper()
	var d coordinator.Definition
	n := 0
	if err := fill(reflect.ValueOf(&d).Elem(), &n); err != nil {
		t.Fatalf("Definition: %v", err)
	}
	d.Name, d.Revision = name, 1
	return d
}

func define(t *check, s Store, d coordinator.Definition) {
	t.Helper()
	if err := s.Define(t.Context(), d); err != nil {
		t.Fatalf("define %q, revision %d: %v", d.Name, d.Revision, err)
	}
}

func definitions(t *check, s Store) {
	a, upper, dotted := fullDefinition(t, "a"), fullDefinition(t, "A"), fullDefinition(t, "a.b")
	refuses := func(d coordinator.Definition, revision int64) {
		t.Helper()
		d.Revision, d.SourceID = revision, "refused"
		if err := s.Define(t.Context(), d); !errors.Is(err, coordinator.ErrConflict) {
			t.Errorf("define %q with revision %d: %v, want a conflict", d.Name, revision, err)
		}
	}
	refuses(a, 0)
	refuses(a, 2)
	for _, d := range []coordinator.Definition{a, upper, dotted} {
		define(t, s, d)
	}
	refuses(a, 1)
	refuses(a, 3)
	defined(t, s, a, upper, dotted)
	// A later one replaces all of it.
	bare := coordinator.Definition{Name: "a", Revision: 2, Source: map[string]string{"bootstrap": "b:9092"}}
	define(t, s, bare)
	defined(t, s, bare, upper, dotted)
	// Records do not make a definition, nor the other way round.
	save(t, s, "undefined", record("t", 0))
	defined(t, s, bare, upper, dotted)
	holds(t, s, "a")
}

func definitionsAreValues(t *check, s Store) {
	kept, given := fullDefinition(t, "a"), fullDefinition(t, "a")
	define(t, s, given)
	spoil := func(d coordinator.Definition) {
		for _, m := range []map[string]string{d.Source, d.Destination, d.Config} {
			for key := range m {
				m[key] = "spoilt"
			}
		}
		d.Include[0], d.Exclude[0] = "spoilt", "spoilt"
	}
	spoil(given)
	defined(t, s, kept)
	got, err := s.Definitions(t.Context())
	if err != nil || len(got) != 1 {
		t.Fatalf("definitions: %v, %v", got, err)
	}
	spoil(got[0])
	defined(t, s, kept)
}

func undefine(t *check, s Store) {
	a, b := fullDefinition(t, "a"), fullDefinition(t, "b")
	for _, d := range []coordinator.Definition{a, b} {
		define(t, s, d)
		save(t, s, d.Name, record("t", 0), record("u", 3))
		saveIntents(t, s, d.Name, want("t", coordinator.WantStopped), want("new", coordinator.WantPaused))
	}
	for range 2 { // the second time nothing is there
		if err := s.Undefine(t.Context(), "a"); err != nil {
			t.Fatalf("undefine: %v", err)
		}
		defined(t, s, b)
		holds(t, s, "a")
		holdsIntents(t, s, "a")
		holds(t, s, "b", record("t", 0), record("u", 3))
		holdsIntents(t, s, "b", want("t", coordinator.WantStopped), want("new", coordinator.WantPaused))
	}
	// Created anew it begins as any other.
	define(t, s, a)
	save(t, s, "a", record("t", 0))
	holds(t, s, "a", record("t", 0))
	// A mirror that was never defined has records too.
	save(t, s, "c", record("t", 0))
	if err := s.Undefine(t.Context(), "c"); err != nil {
		t.Fatalf("undefine: %v", err)
	}
	holds(t, s, "c")
	defined(t, s, a, b)
}
