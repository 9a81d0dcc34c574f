package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// postOffice is a store, and a Controller with one mirror that runs.
type postOffice struct {
	store  *coordinator.Memory
	c      *mirror.Controller
	source *memory.Cluster
}

// inOffice runs f in a bubble with a mirror "dr" from a source that holds topic orders.
func inOffice(t *testing.T, f func(t *testing.T, o *postOffice)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := memory.New(memory.Options{ID: "A"}), memory.New(memory.Options{ID: "B"})
		defer a.Close()
		defer b.Close()
		o := &postOffice{store: coordinator.NewMemory(), source: a}
		var err error
		o.c, err = mirror.NewController(o.store, func(_ context.Context, d coordinator.Definition) (mirror.Source, mirror.Destination, error) {
			return a.Client(d.Name), b.Client(d.Name), nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.c.Create(t.Context(), coordinator.Definition{Name: "dr", Source: map[string]string{"cluster": "A"}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- o.c.Run(ctx) }()
		f(t, o)
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// clerk answers letters until it is told to end.
func (o *postOffice) clerk(t *testing.T, by string) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&clerk{c: o.c, notes: o.store, by: by, logger: slog.New(slog.DiscardHandler)}).run(ctx)
	}()
	return func() { cancel(); <-done }
}

// letters are those that lie there.
func (o *postOffice) letters(t *testing.T) (all []letter) {
	t.Helper()
	notes, err := o.store.Notes(t.Context(), office)
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range notes {
		var l letter
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// TestOnce: a daemon answers, and nothing is left behind; without one that is said.
func TestOnce(t *testing.T) {
	inOffice(t, func(t *testing.T, o *postOffice) {
		if _, err := once(t.Context(), o.store, question{Ask: askMirrors}); !errors.Is(err, errNoDaemon) {
			t.Errorf("without a daemon: %v", err)
		}
		defer o.clerk(t, "one")()
		for range 2 * boxes {
			a, err := once(t.Context(), o.store, question{Ask: askDescribe, Mirror: "dr"})
			if err != nil || a.By != "one" || a.Description.Definition.Name != "dr" || !a.Description.Running {
				t.Fatalf("%v: %+v", err, a)
			}
		}
		_, err := once(t.Context(), o.store, question{Ask: askDescribe, Mirror: "none"})
		if codeOf(err) != exitUnknown || err.Error() != `mirror "none": no such mirror` {
			t.Errorf("code %d: %v", codeOf(err), err)
		}
		if _, err := once(t.Context(), o.store, question{Ask: "the time"}); err == nil || !strings.Contains(err.Error(), "does not know this question") {
			t.Errorf("a question of another version: %v", err)
		}
		if left := o.letters(t); len(left) > 0 {
			t.Errorf("left behind: %+v", left)
		}
	})
}

// TestTwoDaemons: one of them answers, and the other one goes on when that one is dead.
func TestTwoDaemons(t *testing.T) {
	inOffice(t, func(t *testing.T, o *postOffice) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		a, err := ask(ctx, o.store, question{Ask: askFollow, Mirror: "dr"})
		if err != nil {
			t.Fatal(err)
		}
		endOne := o.clerk(t, "one")
		answered := func(by string) {
			t.Helper()
			for range 4 * 60 {
				got, err := a.look(ctx)
				if err != nil || got != nil && got.By != by {
					t.Fatalf("answer %+v, error %v, want %s to answer", got, err, by)
				}
				pass(post.look)
			}
		}
		pass(2 * post.look)
		endTwo := o.clerk(t, "two")
		answered("one")
		endOne()
		pass(post.quiet + 2*post.look)
		answered("two")
		endTwo()
		pass(post.quiet + 2*post.look)
		if _, err := a.look(ctx); !errors.Is(err, errNoDaemon) {
			t.Errorf("when all are dead: %v", err)
		}
		a.withdraw()
		if left := o.letters(t); len(left) > 0 {
			t.Errorf("left behind: %+v", left)
		}
	})
}

// TestWithdrawn: what a command does not wait for any more is not done, and nothing is stopped.
func TestWithdrawn(t *testing.T) {
	inOffice(t, func(t *testing.T, o *postOffice) {
		defer o.clerk(t, "one")()
		orders := cluster.Partition{Topic: "orders"}
		done := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		done(nil, o.source.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}))
		done(o.c.Start(t.Context(), "dr", "orders"))
		pass(time.Second)
		done(o.c.Pause(t.Context(), "dr"))
		done(o.source.Produce(orders, memory.Values("behind")...))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		a, err := ask(ctx, o.store, question{Ask: askPromote, Mirror: "dr", Topics: []string{"orders"}})
		done(nil, err)
		pass(time.Second)
		if got, err := a.look(ctx); err != nil || got == nil || got.Done || got.Fares == nil {
			t.Errorf("%v: a promote that waits says %+v", err, got)
		}
		a.withdraw()
		pass(time.Minute)
		done(o.c.Resume(t.Context(), "dr"))
		pass(time.Minute)
		d, err := o.c.Describe(t.Context(), "dr")
		if err != nil || d.States[coordinator.StateMirroring] != 1 || len(d.Definition.Exclude) > 0 || len(o.letters(t)) > 0 {
			t.Errorf("%v: %v, excluded %q, letters %+v", err, d.States, d.Definition.Exclude, o.letters(t))
		}
	})
}

// TestForgottenLetters: those of commands that were killed are thrown away by a daemon, and
// hold up nobody before: the oldest makes room.
func TestForgottenLetters(t *testing.T) {
	inOffice(t, func(t *testing.T, o *postOffice) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var first *asked
		for i := range boxes + 1 {
			a, err := ask(ctx, o.store, question{Ask: askFollow, Mirror: fmt.Sprint(i)})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = a
			}
			pass(time.Millisecond)
		}
		if _, err := first.look(ctx); !errors.Is(err, errNoDaemon) {
			t.Errorf("the letter that made room: %v", err)
		}
		if n := len(o.letters(t)); n != boxes {
			t.Errorf("%d letters", n)
		}
		defer o.clerk(t, "one")()
		pass(5 * time.Minute)
		if left := o.letters(t); len(left) > 0 {
			t.Errorf("left behind: %+v", left)
		}
	})
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }
