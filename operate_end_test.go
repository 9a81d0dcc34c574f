package mirror_test

import (
	"context"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
)

// TestRecoverAfterTheEnd: nothing comes of it, and that is said.
func TestRecoverAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		m, end := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		end()
		wantIs(t, m.Recover(context.Background(), "orders"), mirror.ErrNotRunning)
	})
}
