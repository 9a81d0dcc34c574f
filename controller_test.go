package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

const (
	mirroring = coordinator.StateMirroring
	paused    = coordinator.StatePaused
	stopped   = coordinator.StateStopped
	failed    = coordinator.StateFailed
)

func TestNewControllerReportsEverything(t *testing.T) {
	_, err := mirror.NewController(nil, nil, &mirror.ControllerOptions{
		Mirrors: mirror.Options{
			Topics: mirror.Topics{Include: []string{"a"}}, Store: coordinator.NewMemory(), Positions: coordinator.NewMemory(), SyncInterval: -1,
		},
		LookInterval: -1, ContactTimeout: -1, RetryMin: time.Minute, RetryMax: time.Second,
	})
	if err == nil {
		t.Fatal("all was taken")
	}
	for _, want := range []string{
		"store: is nil", "open: is nil", "Mirrors.Topics", "Mirrors.Store", "Mirrors.Positions", "SyncInterval", "LookInterval",
		"ContactTimeout", "RetryMax",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

// TestCreateReportsEverything: every bad field at once, and nothing is stored.
func TestCreateReportsEverything(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := w.Create(t.Context(), coordinator.Definition{
			Name: "no slash/", Include: []string{"(", "__x"}, Exclude: []string{"["},
			Config: map[string]string{"colour": "red", "shape": "round", "sync.interval": "soon", "scratch": "perhaps",
				"retry.min": "-1s", "start": "yesterday", "unclean.recovery": "a,("},
		})
		if err == nil {
			t.Fatal("all was taken")
		}
		for _, want := range []string{
			`"no slash/"`, "source: is empty", `no such key: "colour"`, `no such key: "shape"`, `sync.interval: "soon"`,
			`scratch: "perhaps"`, `retry.min: "-1s"`, `start: "yesterday"`, `include "("`, `exclude "["`, `"__x"`,
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is missing in: %v", want, err)
			}
		}
		if all, err := w.List(t.Context()); len(all) > 0 || err != nil {
			t.Errorf("defined %v, %v", all, err)
		}
		d := definition("x", "A", "B")
		d.Config = map[string]string{"retry.min": "1h"} // beyond the default of retry.max
		if _, err := w.Create(t.Context(), d); err == nil || !strings.Contains(err.Error(), "RetryMax") {
			t.Errorf("fields that do not go together: %v", err)
		}
	}, newMock("A"), newMock("B"))
}

// TestCreate: the ids are pinned at first contact; again is no change; another one
// of that name is refused; so is one cluster as both ends.
func TestCreate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		d := w.define("dr", "A", "B", "orders")
		want := definition("dr", "A", "B", "orders")
		want.Revision, want.SourceID, want.DestinationID = 1, "A", "B"
		if diff := cmp.Diff(want, d); diff != "" {
			t.Error(diff)
		}
		w.ok("more")(w.Start(t.Context(), "dr", "more"))
		if again := w.define("dr", "A", "B", "orders"); again.Revision != 2 || len(again.Include) != 2 {
			t.Errorf("created again it is %+v", again)
		}
		_, err := w.Create(t.Context(), definition("dr", "B", "A"))
		wantIs(t, err, mirror.ErrMirrorExists)
		_, err = w.Create(t.Context(), definition("self", "A", "A"))
		wantIs(t, err, mirror.ErrSameCluster)
		_, err = w.Describe(t.Context(), "self")
		wantIs(t, err, mirror.ErrUnknownMirror)
	}, newMock("A"), newMock("B"))
}

// TestContactLater: a source that is down, or hangs, keeps no mirror from being
// created; its id is stored as soon as it answers, and before anything is copied.
func TestContactLater(t *testing.T) {
	for name, down := range map[string]func(*mock){
		"down":  func(m *mock) { m.down = cluster.ErrUnreachable },
		"hangs": func(m *mock) { m.hang = true },
	} {
		t.Run(name, func(t *testing.T) {
			a := newMock("A", "orders")
			inWorld(t, func(t *testing.T, w *world) {
				w.run()
				a.set(down)
				began := time.Now()
				if d := w.define("dr", "A", "B", "orders"); d.SourceID != "" {
					t.Errorf("pinned %+v", d)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("Create took %v", took)
				}
				pass(2 * time.Minute)
				if got := w.describe("dr"); !got.Running || got.Status.SyncError == "" && name == "down" {
					t.Errorf("described as %s", show(got))
				}
				a.set(func(m *mock) { m.down, m.hang = nil, false })
				pass(2 * time.Minute)
				if got := w.describe("dr"); got.SourceID != "A" || got.DestinationID != "B" {
					t.Errorf("described as %s", show(got))
				}
				if name == "down" { // what hangs without a bound of its own hangs for its mirror
					w.states("dr", map[string]coordinator.State{"orders": mirroring})
				}
			}, a, newMock("B"))
		})
	}
}

// TestContactSameCluster: found out late, one cluster as both ends is refused too,
// and it stays alone with that.
func TestContactSameCluster(t *testing.T) {
	a := newMock("A", "orders")
	inWorld(t, func(t *testing.T, w *world) {
		a.set(func(m *mock) { m.down = cluster.ErrUnreachable })
		w.define("self", "A", "A", "orders")
		w.define("dr", "C", "B", "other")
		a.set(func(m *mock) { m.down = nil })
		w.run()
		d := w.describe("self")
		wantIs(t, d.Err, mirror.ErrSameCluster)
		if d.Running || d.RetryAt == nil || d.SourceID != "" {
			t.Errorf("described as %s", show(d))
		}
		w.states("dr", map[string]coordinator.State{"other": mirroring})
	}, a, newMock("B"), newMock("C", "other"))
}

// TestSourceReplaced: behind the same address there is another cluster after a
// restart. Not one partition goes on.
func TestSourceReplaced(t *testing.T) {
	a := newMock("A", "orders", "more")
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "orders")
		pass(time.Second)
		w.states("dr", map[string]coordinator.State{"orders": mirroring})
		w.stop()
		a.set(func(m *mock) { m.id = "Z" })
		w.renew()
		w.run()
		w.ok("more")(w.Start(t.Context(), "dr", "more"))
		pass(2 * time.Minute)
		w.states("dr", map[string]coordinator.State{"orders": failed, "more": ""})
		p, _ := w.worst("dr", "orders")
		wantIs(t, p.Err, mirror.ErrClusterReplaced)
		if p.Retriable {
			t.Errorf("is tried again: %s", show(p))
		}
		w.ok("orders")(w.Stop(t.Context(), "dr", "orders")) // the operator can always fail over
	}, a, newMock("B"))
}

// TestIsolation (I10): a mirror that cannot be opened keeps no other from running; it
// is tried again, at longer and longer intervals, and shows why.
func TestIsolation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		secret := errors.New("no such secret")
		w.breakOpening("C", secret)
		w.define("bad", "C", "B", "c")
		w.define("good", "A", "B", "a")
		w.run()
		w.states("good", map[string]coordinator.State{"a": mirroring})
		d := w.describe("bad")
		wantIs(t, d.Err, secret)
		if d.Running || d.Reason == "" || d.RetryAt == nil || d.Status.Running {
			t.Errorf("described as %s", show(d))
		}
		pass(time.Hour)
		if n := w.attempts("bad"); n < 40 || n > 130 {
			t.Errorf("%d attempts in an hour", n)
		}
		w.breakOpening("C", nil)
		w.ok("c")(w.Recover(t.Context(), "bad"))
		pass(time.Second)
		w.states("bad", map[string]coordinator.State{"c": mirroring})
		if n := w.attempts("good"); n != 2 { // by Create, by Run
			t.Errorf("the good one was opened %d times", n)
		}
	}, newMock("A", "a"), newMock("B"), newMock("C", "c"))
}

// TestList: sorted, with states, whether or not anything runs.
func TestList(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.define("two", "A", "B", "x", "y")
		w.define("one", "A", "C", "x")
		w.run()
		w.ok("y")(w.Stop(t.Context(), "two", "y"))
		look := func() (out string) {
			t.Helper()
			all, err := w.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				out += fmt.Sprintf("%s %v %d %d;", o.Name, o.Running, o.States[mirroring], o.States[stopped])
			}
			return out
		}
		if got, want := look(), "one true 1 0;two true 1 1;"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		w.stop()
		if got, want := look(), "one false 1 0;two false 1 1;"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}, newMock("A", "x", "y"), newMock("B"), newMock("C"))
}

// TestFifty mirrors at once, over one store.
func TestFifty(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 50 {
			w.define(fmt.Sprintf("m%02d", i), "A", "B", fmt.Sprintf("t%02d", i))
		}
		w.run()
		for i := range 50 {
			w.states(fmt.Sprintf("m%02d", i), map[string]coordinator.State{fmt.Sprintf("t%02d", i): mirroring})
		}
		w.restart()
		for i := range 50 {
			w.states(fmt.Sprintf("m%02d", i), map[string]coordinator.State{fmt.Sprintf("t%02d", i): mirroring})
		}
	}, newMock("A", names(50)...), newMock("B"))
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("t%02d", i)
	}
	return out
}

// TestStoreDown: trouble with the store is waited out.
func TestStoreDown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.define("dr", "A", "B", "orders")
		memory := w.store.(*coordinator.Memory)
		down := errors.New("disk is full")
		memory.SetFault(func(string, coordinator.Record) error { return down })
		w.run()
		for _, f := range []func() error{
			func() error { _, err := w.List(t.Context()); return err },
			func() error { _, err := w.Describe(t.Context(), "dr"); return err },
			func() error { _, err := w.Stop(t.Context(), "dr"); return err },
			func() error { return w.Delete(t.Context(), "dr") },
			func() error { _, err := w.Create(t.Context(), definition("x", "A", "B")); return err },
		} {
			wantIs(t, f(), down)
		}
		memory.SetFault(nil)
		pass(2 * time.Minute)
		w.states("dr", map[string]coordinator.State{"orders": mirroring})
	}, newMock("A", "orders"), newMock("B"))
}

// TestRunOnce: Run is for one call.
func TestRunOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		wantIs(t, w.Run(context.Background()), mirror.ErrRunning)
		w.stop()
		wantIs(t, w.Run(context.Background()), mirror.ErrRunning)
	})
}
