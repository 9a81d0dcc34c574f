package mirror_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// TestCrashDuring: the process dies between any two writes of an operation. Whatever
// had been written, repeating it after the restart does all of it, and what it was not
// about is as before.
func TestCrashDuring(t *testing.T) {
	both := []string{"dr", "old"}
	for name, op := range map[string]struct {
		do      func(w *world) error
		want    map[string]coordinator.State
		defined []string
	}{
		"create": {func(w *world) error {
			_, err := w.Create(w.t.Context(), definition("new", "A", "C", "o1"))
			return err
		}, nil, []string{"dr", "new", "old"}},
		"start": {func(w *world) error { _, err := w.Start(briefly(w.t), "dr", "late"); return err },
			map[string]coordinator.State{"late": mirroring}, both},
		"stop":  {func(w *world) error { _, err := w.Stop(briefly(w.t), "dr", "o1"); return err }, map[string]coordinator.State{"o1": stopped}, both},
		"pause": {func(w *world) error { _, err := w.Pause(briefly(w.t), "dr", "o1"); return err }, map[string]coordinator.State{"o1": paused}, both},
		"delete": {func(w *world) error {
			_, err := w.Stop(briefly(w.t), "old")
			if errors.Is(err, mirror.ErrUnknownMirror) {
				err = nil // it is deleted already
			}
			return errors.Join(err, w.Delete(briefly(w.t), "old"))
		}, nil, []string{"dr"}},
	} {
		for n := 0; ; n++ {
			done := false
			t.Run(fmt.Sprintf("%s after %d writes", name, n), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.run()
					w.define("dr", "A", "B", "o.*")
					w.define("old", "A", "C", "o2")
					pass(time.Second)
					memory := w.store.(*coordinator.Memory)
					writes := 0
					memory.SetFault(func(op string, _ coordinator.Record) error {
						if op == "load" || op == "watch" {
							return nil
						}
						if writes++; writes > n {
							return errors.New("died")
						}
						return nil
					})
					done = op.do(w) == nil
					w.stop()
					memory.SetFault(nil)
					w.renew()
					w.run()
					pass(time.Minute)
					if err := op.do(w); err != nil {
						t.Errorf("after the restart: %v", err)
					}
					pass(time.Minute)
					w.states("dr", op.want)
					w.states("dr", map[string]coordinator.State{"o2": mirroring})
					all, err := w.List(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					var defined []string
					for _, o := range all {
						defined = append(defined, o.Name)
					}
					if want := op.defined; !slices.Equal(defined, want) {
						t.Errorf("defined are %v, want %v", defined, want)
					}
				}, newMock("A", "o1", "o2", "late"), newMock("B"), newMock("C"))
			})
			if done || n > 20 {
				if n == 0 || n > 20 {
					t.Errorf("%s: %d writes", name, n)
				}
				break
			}
		}
	}
}
