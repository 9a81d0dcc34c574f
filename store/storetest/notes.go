package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/clustermirror/mirror/coordinator"
)

// Notes holds a store against what [coordinator.Notes] promises. open gives one handle or
// several on a new and empty place, and sees to their end by t.Cleanup.
func Notes(t *testing.T, open func(t *testing.T) []coordinator.Notes) {
	t.Helper()
	for name, run := range notesCases() {
		t.Run(name, func(t *testing.T) { run(&check{tb: t, patience: patience}, open(t)) })
	}
}

func notesCases() map[string]func(t *check, all []coordinator.Notes) {
	return map[string]func(t *check, all []coordinator.Notes){
		"compare and swap":          swapNotes,
		"a refusal harms no other":  refusedNote,
		"names are apart":           notesApart,
		"what is no note":           noNotes,
		"the receiver's":            notesAreValues,
		"one of many takes a place": oneTakes,
		"additions add up":          notesAddUp,
		"cancelled":                 notesCancelled,
	}
}

func nth(all []coordinator.Notes, i int) coordinator.Notes { return all[i%len(all)] }

// text makes notes of texts; empty is nothing.
func text(pairs ...string) map[string][]byte {
	out := make(map[string][]byte)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = nil
		if pairs[i+1] != "" {
			out[pairs[i]] = []byte(pairs[i+1])
		}
	}
	return out
}

func swap(t *check, n coordinator.Notes, was, now map[string][]byte, refused ...string) {
	t.Helper()
	got, err := n.SwapNotes(t.Context(), mirror, was, now)
	if slices.Sort(got); err != nil || !slices.Equal(got, refused) {
		t.Fatalf("swap of %s for %s: refused %q, %v, want %q", was, now, got, err, refused)
	}
}

// noted checks that all handles see these notes and no others.
func noted(t *check, all []coordinator.Notes, name string, want map[string][]byte) {
	t.Helper()
	for _, n := range all {
		got, err := n.Notes(t.Context(), name)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("notes of %q: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func swapNotes(t *check, all []coordinator.Notes) {
	noted(t, all, mirror, nil)
	swap(t, nth(all, 0), nil, text("k", `{ "a": "<1>" }`))
	noted(t, all, mirror, text("k", `{"a":"\u003c1\u003e"}`))
	swap(t, nth(all, 1), nil, text("k", `2`), "k")
	swap(t, nth(all, 1), text("k", `2`), text("k", `3`), "k")
	swap(t, nth(all, 1), text("k", `{"a" :"<1>"}`), text("k", `2`))
	swap(t, nth(all, 0), text("k", `{"a":"<1>"}`), text("k", ""), "k")
	noted(t, all, mirror, text("k", `2`))
	swap(t, nth(all, 0), text("k", `2`), text("k", ""))
	noted(t, all, mirror, nil)
	swap(t, nth(all, 1), text("k", `2`), text("k", `4`), "k")
	swap(t, nth(all, 1), nil, text("k", ""))
	swap(t, nth(all, 1), nil, text("k", `5`))
	noted(t, all, mirror, text("k", `5`))
}

func refusedNote(t *check, all []coordinator.Notes) {
	swap(t, nth(all, 0), nil, text("a", `1`, "b", `1`, "c", `1`))
	swap(t, nth(all, 1), text("a", `1`, "b", `2`, "c", `1`, "e", `1`), text("a", `3`, "b", `3`, "c", "", "d", `3`, "e", `3`), "b", "e")
	noted(t, all, mirror, text("a", `3`, "b", `1`, "d", `3`))
}

func notesApart(t *check, all []coordinator.Notes) {
	want := text("a", `1`, "A", `2`, "a/b", `3`, "a%2Fb", `4`, "ä:/ ", `5`)
	swap(t, nth(all, 0), nil, want)
	noted(t, all, mirror, want)
	for _, other := range []string{mirror + "/a", "", "x"} {
		noted(t, all, other, nil)
	}
}

func noNotes(t *check, all []coordinator.Notes) {
	for _, bad := range []map[string][]byte{text("", `1`), text("a", `{`), text("a", `1`, "b", `no`)} {
		if _, err := nth(all, 0).SwapNotes(t.Context(), mirror, nil, bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	noted(t, all, mirror, nil)
}

func notesAreValues(t *check, all []coordinator.Notes) {
	given := text("a", `123`)
	swap(t, nth(all, 0), nil, given)
	given["a"][0] = '9'
	got, err := nth(all, 0).Notes(t.Context(), mirror)
	if err != nil {
		t.Fatalf("notes: %v", err)
	}
	got["a"][0], got["b"] = '8', nil
	noted(t, all, mirror, text("a", `123`))
}

func oneTakes(t *check, all []coordinator.Notes) {
	const many = 8
	took := make([]bool, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			refused, err := nth(all, i).SwapNotes(t.Context(), mirror, nil, text("place", fmt.Sprint(i)))
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
			took[i] = len(refused) == 0
		})
	}
	wg.Wait()
	winner := slices.Index(took, true)
	if winner < 0 || slices.Contains(took[winner+1:], true) {
		t.Fatalf("who took the place: %v", took)
	}
	noted(t, all, mirror, text("place", fmt.Sprint(winner)))
}

func notesAddUp(t *check, all []coordinator.Notes) {
	const workers, each = 4, 10
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for done := 0; done < each; {
				now, err := nth(all, i).Notes(t.Context(), mirror)
				if err != nil {
					t.Errorf("notes: %v", err)
					return
				}
				n := 0
				if v := now["sum"]; v != nil {
					if err := json.Unmarshal(v, &n); err != nil {
						t.Errorf("%s: %v", v, err)
						return
					}
				}
				refused, err := nth(all, i).SwapNotes(t.Context(), mirror, now, text("sum", fmt.Sprint(n+1)))
				if err != nil {
					t.Errorf("swap: %v", err)
					return
				}
				if len(refused) == 0 {
					done++
				}
			}
		})
	}
	wg.Wait()
	noted(t, all, mirror, text("sum", fmt.Sprint(workers*each)))
}

func notesCancelled(t *check, all []coordinator.Notes) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := nth(all, 0).Notes(over, mirror); !errors.Is(err, context.Canceled) {
		t.Errorf("notes: %v", err)
	}
	if _, err := nth(all, 0).SwapNotes(over, mirror, nil, text("a", `1`)); !errors.Is(err, context.Canceled) {
		t.Errorf("swap: %v", err)
	}
	noted(t, all, mirror, nil)
}
