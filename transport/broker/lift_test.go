package broker

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

func keepsLifted(t *testing.T, o Overrides) {
	t.Helper()
	if from, ok, err := o.Lifted(t.Context()); ok || err != nil {
		t.Errorf("before: %d, %v, %v", from, ok, err)
	}
	err := errors.Join(o.SaveLifted(t.Context(), 5), o.SaveLifted(t.Context(), 1<<41))
	if from, ok, failed := o.Lifted(t.Context()); err != nil || failed != nil || !ok || from != 1<<41 {
		t.Errorf("%d, %v, %v, %v", from, ok, err, failed)
	}
}

// TestLiftsApply: from the id on that is decided producers have others, and a batch stays a
// sound one.
func TestLiftsApply(t *testing.T) {
	old := of(9)
	old.Bytes[16] = 1 // bytes of message format 1 mean something else there
	before := slices.Clone(old.Bytes)
	batches := []cluster.Batch{of(-1), of(99), of(100), of(5000), of(batch.OwnProducers + 1), old}
	l := newLifts(new(MemoryOverrides))
	if highest, err := l.apply(batches); highest != 5000 || err != nil {
		t.Errorf("nothing is decided: %d, %v", highest, err)
	}
	l.from.Store(100)
	highest, err := l.apply(batches)
	if highest != 99 || err != nil {
		t.Errorf("the highest that stays is %d, %v", highest, err)
	}
	var got []int64
	for _, b := range batches[:5] {
		h := batch.Header(b.Bytes)
		if err := h.Check(); err != nil {
			t.Error(err)
		}
		got = append(got, h.ProducerID())
	}
	if want := []int64{-1, 99, 1<<40 + 100, 1<<40 + 5000, batch.OwnProducers + 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if !slices.Equal(old.Bytes, before) {
		t.Error("an old format was changed")
	}
	if _, err := l.apply([]cluster.Batch{of(batch.OwnProducers - 1)}); !errors.Is(err, ErrProducerIDs) || cluster.Retriable(err) {
		t.Errorf("no room: %v", err)
	}
	again := slices.Concat(of(99).Bytes, of(100).Bytes)
	if err := l.applyTo(again); err != nil || !slices.Equal(again, slices.Concat(batches[1].Bytes, batches[2].Bytes)) {
		t.Errorf("read again it is another log: %v", err)
	}
}

// fullOverrides refuse to store, and cannot be asked.
type fullOverrides struct {
	MemoryOverrides
	full, mute error
}

func (f *fullOverrides) SaveLifted(ctx context.Context, from int64) error {
	return errors.Join(f.MemoryOverrides.SaveLifted(ctx, from), f.full)
}

func (f *fullOverrides) Lifted(ctx context.Context) (int64, bool, error) {
	from, ok, err := f.MemoryOverrides.Lifted(ctx)
	return from, ok, errors.Join(err, f.mute)
}

// TestLiftsDecide: it is decided once, by whoever is first, and stored before it is so.
func TestLiftsDecide(t *testing.T) {
	ctx, store := t.Context(), &fullOverrides{full: errors.New("full"), mute: errors.New("mute")}
	first := newLifts(store)
	if err := first.learn(ctx); !errors.Is(err, store.mute) {
		t.Error(err)
	}
	store.mute = nil
	if _, err := first.decide(ctx, 100); !errors.Is(err, store.full) || first.from.Load() != math.MaxInt64 {
		t.Errorf("%v, from %d", err, first.from.Load())
	}
	if decided, err := first.decide(ctx, 700); err != nil || decided || first.from.Load() != 100 { // it was stored
		t.Errorf("%v, %v, from %d", decided, err, first.from.Load())
	}
	next := newLifts(store)
	if decided, err := next.decide(ctx, 900); err != nil || decided || next.from.Load() != 100 {
		t.Errorf("another process: %v, %v, from %d", decided, err, next.from.Load())
	}
	fresh := newLifts(new(MemoryOverrides))
	if decided, err := fresh.decide(ctx, 900); err != nil || !decided || fresh.from.Load() != 900 {
		t.Errorf("%v, %v, from %d", decided, err, fresh.from.Load())
	}
}
