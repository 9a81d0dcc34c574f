package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// TestControllerPreflight: a mirror that is defined is looked at while it runs and while nobody does, with the
// clusters it has on record; who is not defined, or cannot be opened, is told.
func TestControllerPreflight(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		look := func() []string {
			t.Helper()
			r, err := w.Preflight(t.Context(), "dr", mirror.Topics{})
			if err != nil {
				t.Fatal(err)
			}
			out := []string{}
			for _, f := range r.Findings {
				out = append(out, fmt.Sprintf("%s %s", f.Code, f.Cluster))
			}
			return out
		}
		w.define("dr", "A", "B", "orders", "nowhere")
		want := []string{"topic-missing source"}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Errorf("not running: %s", diff)
		}
		more := mirror.Topics{Include: []string{"oth.*", "(?:later)"}, Exclude: []string{"nowhere"}}
		if r, err := w.Preflight(t.Context(), "dr", more); err != nil || r.Topics != 2 || len(r.Findings) > 0 {
			t.Errorf("with more topics: %+v, %v", r, err)
		}
		w.run()
		pass(5 * time.Second)
		if diff := cmp.Diff(want, look()); diff != "" || w.describe("dr").SourceID != "A" {
			t.Errorf("running, on record as from %q: %s", w.describe("dr").SourceID, diff)
		}
		w.stop()
		opened := false
		open := func(ctx context.Context, d coordinator.Definition) (mirror.Source, mirror.Destination, error) {
			opened = true
			return newMock("C", "orders"), newMock("B"), nil
		}
		c, err := mirror.NewController(w.store, open, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Preflight(t.Context(), "dr", mirror.Topics{})
		if err != nil || !opened || r.Ready || r.Findings[0].Code != "cluster-replaced" {
			t.Errorf("another cluster: %+v, %v", r, err)
		}
		_, err = w.Preflight(t.Context(), "other", mirror.Topics{})
		wantIs(t, err, mirror.ErrUnknownMirror)
		no := errors.New("no such file")
		w.breakOpening("A", no)
		_, err = w.Preflight(t.Context(), "dr", mirror.Topics{})
		wantIs(t, err, no)
	}, newMock("A", "orders", "other"), newMock("B"))
}
