package offsets

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// notes are those of one mirror.
type notes struct {
	all   map[string][]byte
	err   error
	swaps int
}

func (n *notes) Notes(context.Context, string) (map[string][]byte, error) {
	return maps.Clone(n.all), n.err
}

func (n *notes) SwapNotes(_ context.Context, _ string, was, now map[string][]byte) (refused []string, err error) {
	if n.err != nil {
		return nil, n.err
	}
	n.swaps++
	for k, v := range now {
		if !bytes.Equal(n.all[k], was[k]) {
			refused = append(refused, k)
			continue
		}
		if n.all == nil {
			n.all = map[string][]byte{}
		}
		n.all[k] = v
	}
	return refused, nil
}

// TestLedger: what is recorded is read by the next process, and two that write at once see
// each other.
func TestLedger(t *testing.T) {
	ctx, store := t.Context(), &notes{all: map[string][]byte{"identity:1": []byte(`{}`)}}
	a, b := NewLedger(store, "m"), NewLedger(store, "m")
	for _, l := range []*Ledger{a, b} {
		if err := l.load(ctx); err != nil {
			t.Fatal(err)
		}
	}
	odd := key(groupNotes, "\xff")
	first := map[string]Marks{key(groupNotes, "g"): {part(0): {1, []int64{5, 4}}, part(1): {2, []int64{7}}}, odd: marked(0, 1)}
	if refused, err := a.record(ctx, first); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	a.settle(key(groupNotes, "g"), []cluster.Committed{at(0, 5), at(3, 9)})
	if diff := cmp.Diff(Marks{part(0): {1, []int64{5}}, part(1): {2, []int64{7}}}, a.marks(key(groupNotes, "g"))); diff != "" {
		t.Error(diff)
	}
	if refused, err := a.record(ctx, map[string]Marks{key(groupNotes, "g"): marked(0, 6, 5)}); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}

	more := map[string]Marks{key(groupNotes, "g"): marked(0, 99), key(groupNotes, "h"): marked(0, 3)}
	if refused, err := b.record(ctx, more); err != nil || !slices.Equal(refused, []string{key(groupNotes, "g")}) {
		t.Fatalf("refused %v, %v", refused, err)
	}
	for _, l := range []*Ledger{b, NewLedger(store, "m")} {
		if err := l.load(ctx); err != nil {
			t.Fatal(err)
		}
		want := Marks{part(0): {1, []int64{6, 5}}, part(1): {2, []int64{7}}}
		if diff := cmp.Diff(want, l.marks(key(groupNotes, "g"))); diff != "" {
			t.Error(diff)
		}
		if len(l.marks(key(groupNotes, "h"))) != 1 || len(l.marks(odd)) != 1 || len(l.pages) != 3 {
			t.Errorf("pages %v", l.pages)
		}
	}
}

// TestLedgerFails: what this process knows remains while the store is away.
func TestLedgerFails(t *testing.T) {
	ctx, store := t.Context(), &notes{}
	l, g := NewLedger(store, "m"), key(groupNotes, "g")
	if err := l.load(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := l.record(ctx, map[string]Marks{g: marked(0, 5)}); err != nil {
		t.Fatal(err)
	}
	store.err = errors.New("down")
	if _, err := l.record(ctx, map[string]Marks{g: marked(0, 6)}); !errors.Is(err, store.err) {
		t.Error(err)
	}
	if err := l.load(ctx); !errors.Is(err, store.err) || l.marks(g)[part(0)].Offsets[0] != 5 {
		t.Error(err, l.marks(g))
	}
	store.err = nil
	if err := l.load(ctx); err != nil || l.marks(g)[part(0)].Offsets[0] != 5 {
		t.Error(err, l.marks(g))
	}
}

func TestLedgerRefuses(t *testing.T) {
	for _, bad := range []string{`{"v":2,"t":{}}`, `{"v":1,"t":{"a":[[1,2]]}}`, `{"v":1,"t":{"a":[[-1,0,5]]}}`, `{"v":1,"t":{"a":[[3000000000,0,5]]}}`, `[]`} {
		l := NewLedger(&notes{all: map[string][]byte{"group/g": []byte(bad)}}, "m")
		if err := l.load(t.Context()); err == nil || !strings.Contains(err.Error(), `"group/g"`) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// FuzzDecode: whatever stands in a note, what is read of it is written again as it was.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"t":{"a":[[1,2,3],[0,1,5,4]],"b":[[0,0,9]]}}`))
	f.Add([]byte(`{"v":1,"t":{"a":[[2147483647,-1,-5]]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		marks, err := decode(b)
		if err != nil {
			return
		}
		again, err := encode(marks)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again)
		if diff := cmp.Diff(marks, back); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
	})
}
