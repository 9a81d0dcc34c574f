package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/clustermirror/mirror/coordinator"
)

func TestMemoryNotes(t *testing.T) {
	Notes(t, func(*testing.T) []coordinator.Notes { return []coordinator.Notes{coordinator.NewMemory()} })
}

// brokenNotes is wrong in one way.
type brokenNotes struct {
	*coordinator.Memory
	swap func(n coordinator.Notes, ctx context.Context, mirror string, was, now map[string][]byte) ([]string, error)
}

func (b brokenNotes) SwapNotes(ctx context.Context, mirror string, was, now map[string][]byte) ([]string, error) {
	return b.swap(b.Memory, ctx, mirror, was, now)
}

// TestBrokenNotes: every case finds a store that is wrong.
func TestBrokenNotes(t *testing.T) {
	blind := func(n coordinator.Notes, ctx context.Context, mirror string, _, now map[string][]byte) ([]string, error) {
		all, err := n.Notes(ctx, mirror)
		if err != nil {
			return nil, err
		}
		_, err = n.SwapNotes(ctx, mirror, all, now)
		return nil, err
	}
	whole := func(n coordinator.Notes, ctx context.Context, mirror string, was, now map[string][]byte) ([]string, error) {
		all, err := n.Notes(ctx, mirror)
		if err != nil {
			return nil, err
		}
		for key := range now {
			if string(all[key]) != string(was[key]) {
				var refused []string
				for key := range now {
					refused = append(refused, key)
				}
				return refused, nil
			}
		}
		return n.SwapNotes(ctx, mirror, was, now)
	}
	var calls atomic.Int32
	loses := func(n coordinator.Notes, ctx context.Context, mirror string, was, now map[string][]byte) ([]string, error) {
		if calls.Add(1)%7 == 0 {
			return nil, nil
		}
		return n.SwapNotes(ctx, mirror, was, now)
	}
	together := func(n coordinator.Notes, ctx context.Context, _ string, was, now map[string][]byte) ([]string, error) {
		return n.SwapNotes(ctx, "x", was, now)
	}
	late := func(n coordinator.Notes, ctx context.Context, mirror string, was, now map[string][]byte) ([]string, error) {
		return n.SwapNotes(context.WithoutCancel(ctx), mirror, was, now)
	}
	careless := func(n coordinator.Notes, ctx context.Context, mirror string, was, now map[string][]byte) ([]string, error) {
		refused, err := n.SwapNotes(ctx, mirror, was, now)
		if err != nil && ctx.Err() == nil {
			return refused, nil
		}
		return refused, err
	}
	for _, b := range []struct {
		name  string
		swap  func(coordinator.Notes, context.Context, string, map[string][]byte, map[string][]byte) ([]string, error)
		fails []string
	}{
		{"blind", blind, []string{"compare and swap", "one of many takes a place", "a refusal harms no other"}},
		{"whole", whole, []string{"a refusal harms no other"}},
		{"loses", loses, []string{"additions add up"}},
		{"together", together, []string{"names are apart"}},
		{"late", late, []string{"cancelled"}},
		{"careless", careless, []string{"what is no note"}},
	} {
		for name, run := range notesCases() {
			if !slices.Contains(b.fails, name) {
				continue
			}
			n := brokenNotes{coordinator.NewMemory(), b.swap}
			if len(failures(t, func(c *check) { run(c, []coordinator.Notes{n}) })) == 0 {
				t.Errorf("%s: %q does not find it", b.name, name)
			}
		}
	}
	n := &keepsHold{}
	if len(failures(t, func(c *check) { notesAreValues(c, []coordinator.Notes{n}) })) == 0 {
		t.Error("a store that shares its bytes is not found")
	}
}

// keepsHold keeps what it is given, and gives what it keeps.
type keepsHold struct{ all map[string][]byte }

func (k *keepsHold) Notes(context.Context, string) (map[string][]byte, error) { return k.all, nil }

func (k *keepsHold) SwapNotes(_ context.Context, _ string, _, now map[string][]byte) ([]string, error) {
	k.all = now
	return nil, nil
}
