package storetest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clustermirror/mirror/coordinator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Store { return coordinator.NewMemory() })
}

func TestMemoryReopened(t *testing.T) {
	Reopen(t, func(*testing.T) Open { return new(place).open })
}

func TestMemoryTwice(t *testing.T) {
	Second(t, func(*testing.T) Open { return new(place).open })
}

// place keeps a Memory over the handles on it.
type place struct{ memory *coordinator.Memory }

func (p *place) open(*testing.T) Handle {
	if p.memory == nil {
		p.memory = coordinator.NewMemory()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &handle{Store: p.memory, ctx: ctx, cancel: cancel}
}

// handle is a Memory that can be closed.
type handle struct {
	Store
	ctx    context.Context
	cancel context.CancelFunc
}

func (h *handle) Close() error {
	h.cancel()
	return nil
}

func (h *handle) closed() error {
	if h.ctx.Err() != nil {
		return os.ErrClosed
	}
	return nil
}

func (h *handle) Load(ctx context.Context, mirror string) ([]coordinator.Record, error) {
	if err := h.closed(); err != nil {
		return nil, err
	}
	return h.Store.Load(ctx, mirror)
}

func (h *handle) Save(ctx context.Context, mirror string, records []coordinator.Record) []error {
	if err := h.closed(); err != nil {
		return slices.Repeat([]error{err}, len(records))
	}
	return h.Store.Save(ctx, mirror, records)
}

func (h *handle) SaveIntents(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error) {
	if err := h.closed(); err != nil {
		return nil, err
	}
	return h.Store.SaveIntents(ctx, mirror, intents)
}

func (h *handle) Watch(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
	if err := h.closed(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(h.ctx, cancel)
	return h.Store.Watch(ctx, mirror)
}

// recorder takes the failures of a case.
type recorder struct {
	ctx    context.Context
	mu     sync.Mutex
	failed []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fatal{})
}

// fatal ends a case that cannot go on.
type fatal struct{}

// failures runs a case and gives what it found. What it started ends with it, and so
// does a call that a broken store never answers.
func failures(t *testing.T, run func(t *check)) []string {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r := &recorder{ctx: ctx}
	func() {
		defer func() {
			if p := recover(); p != nil && p != (fatal{}) {
				panic(p)
			}
		}()
		run(&check{tb: r, patience: 500 * time.Millisecond})
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// report runs the cases whose names are asked for (all of them for nil) and gives what
// those that fail say.
func report(t *testing.T, b broken) map[string]string {
	out := map[string]string{}
	note := func(name string, run func(t *check)) {
		if b.fails != nil && !slices.Contains(b.fails, name) {
			return
		}
		if failed := failures(t, run); len(failed) > 0 {
			out[name] = strings.Join(failed, "\n")
		}
	}
	for _, c := range cases() {
		note(c.name, func(ck *check) { c.run(ck, b.store(coordinator.NewMemory())) })
	}
	for kind, places := range map[string][]placeCase{"reopen/": reopenCases(), "second/": secondCases()} {
		for _, c := range places {
			var p place
			open := func() Handle {
				h := p.open(t).(*handle)
				h.Store = b.store(h.Store)
				return h
			}
			note(kind+c.name, func(ck *check) { c.run(ck, open) })
		}
	}
	return out
}

// TestFindsWhatIsBroken: each of these is found by the cases that are meant for it, and
// nothing is found in a store that is right.
func TestFindsWhatIsBroken(t *testing.T) {
	if found := report(t, broken{store: func(s Store) Store { return s }}); len(found) > 0 {
		t.Fatalf("found in a store that is right: %q", found)
	}
	for _, b := range allBroken() {
		t.Run(b.name, func(t *testing.T) {
			found := report(t, b)
			for _, name := range b.fails {
				if found[name] == "" {
					t.Errorf("case %q did not find it", name)
				}
			}
		})
	}
}
