package mirror_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// parted brings the source to lose two records that were mirrored, and to write
// another one at the offset of the first.
func (w *twins) parted(t *testing.T, m *mirror.Mirror) {
	t.Helper()
	settle(time.Second)
	other := w.follower(t, w.a)
	if err := w.a.Lag(orders, other, true); err != nil {
		t.Fatal(err)
	}
	w.write(w.a, "d", "e")
	settle(time.Second)
	w.equal()
	if err := w.a.ElectUnclean(orders, other); err != nil {
		t.Fatal(err)
	}
	w.write(w.a, "other d")
	settle(time.Minute)
	if s := w.state(m); s.State != coordinator.StateFailed || !errors.Is(s.Err, mirror.ErrTruncated) {
		t.Fatalf("%s", show(s))
	}
}

// TestPromoteOfPartedLogs: a destination that has more than the source, and not the
// same, does not have all that the source has.
func TestPromoteOfPartedLogs(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a", "b", "c")
		m, _ := w.mirror("ab", w.a, w.b, nil)
		w.parted(t, m)
		for _, write := range []string{"", "other e", "other f"} { // fewer, as many, more
			if write != "" {
				w.write(w.a, write)
			}
			settle(time.Minute)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := m.Promote(ctx, "orders")
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mirror.ErrTruncated) {
				t.Errorf("after %q: %v", write, err)
			}
			wantState(t, m, "orders", coordinator.StateFailed)
		}
		if err := m.Stop(hour(t), "orders"); err != nil {
			t.Error(err)
		}
		w.write(w.b, "local") // a topic that is stopped is nobody's to wait for
		if err := m.Promote(hour(t), "orders"); err != nil {
			t.Error(err)
		}
	})
}

// TestWaitMirroredOfPartedLogs: what stands at the offset is another record.
func TestWaitMirroredOfPartedLogs(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a", "b", "c")
		m, _ := w.mirror("ab", w.a, w.b, nil)
		w.parted(t, m)
		if err := m.WaitMirrored(hour(t), orders, 2); err != nil {
			t.Errorf("what both have: %v", err)
		}
		if err := m.WaitMirrored(hour(t), orders, 3); !errors.Is(err, mirror.ErrTruncated) {
			t.Errorf("what the source has instead: %v", err)
		}
		if err := m.Stop(hour(t), "orders"); err != nil {
			t.Fatal(err)
		}
		w.write(w.b, "local")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.WaitMirrored(ctx, orders, 5); err == nil {
			t.Error("a local record was taken for a mirrored one")
		}
	})
}
