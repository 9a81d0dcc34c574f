package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// TestAlter: other settings open the mirror anew, other topics do not; both are followed, and
// Describe says so. What is bad is named as a whole, and not stored.
func TestAlter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "orders")
		pass(time.Second)
		opened := w.attempts("dr")
		for _, step := range []struct {
			change func(*coordinator.Definition)
			opened int
			state  map[string]coordinator.State
		}{
			{func(d *coordinator.Definition) { d.Config = map[string]string{"retry.min": "3s"} }, 1, map[string]coordinator.State{"orders": mirroring, "other": ""}},
			{func(d *coordinator.Definition) { d.Include = append(d.Include, "other"); d.SourceID = "X" }, 1, map[string]coordinator.State{"orders": mirroring, "other": mirroring}},
			{func(d *coordinator.Definition) { delete(d.Config, "retry.min") }, 2, map[string]coordinator.State{"orders": mirroring, "other": mirroring}},
		} {
			d, err := w.Alter(t.Context(), "dr", func(d *coordinator.Definition) error { step.change(d); return nil })
			if err != nil || d.SourceID != "A" {
				t.Fatalf("%v: %+v", err, d)
			}
			pass(5 * time.Second)
			if got := w.describe("dr"); got.Revision != d.Revision || !got.Running {
				t.Errorf("follows revision %d of %d", got.Revision, d.Revision)
			}
			if n := w.attempts("dr") - opened; n != step.opened {
				t.Errorf("opened %d times more, want %d", n, step.opened)
			}
			w.states("dr", step.state)
		}
		before := w.describe("dr").Definition
		_, err := w.Alter(t.Context(), "dr", func(d *coordinator.Definition) error {
			d.Config, d.Source, d.Exclude = map[string]string{"colour": "red", "scratch": "perhaps"}, nil, []string{"("}
			return nil
		})
		for _, want := range []string{`"colour"`, "scratch", "source: is empty", `exclude "("`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is missing in: %v", want, err)
			}
		}
		no := errors.New("no")
		_, err = w.Alter(t.Context(), "dr", func(*coordinator.Definition) error { return no })
		wantIs(t, err, no)
		if after := w.describe("dr").Definition; after.Revision != before.Revision || after.Source["cluster"] != "A" {
			t.Errorf("stored %+v", after)
		}
		_, err = w.Alter(t.Context(), "none", func(*coordinator.Definition) error { return nil })
		wantIs(t, err, mirror.ErrUnknownMirror)
	}, newMock("A", "orders", "other"), newMock("B"))
}

// TestAnotherOfTheName: a mirror that was deleted and made anew by another process, between two looks,
// is another one.
func TestAnotherOfTheName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		other, err := mirror.NewController(w.store, w.open, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, revisions := range []int{1, 3} {
			w.define("dr", "A", "B")
			for n := 1; n < revisions; n++ {
				if _, err := w.Alter(t.Context(), "dr", func(d *coordinator.Definition) error {
					d.Config = map[string]string{"retry.min": fmt.Sprint(n, "s")}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			pass(time.Minute)
			if err := other.Delete(t.Context(), "dr"); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Create(t.Context(), definition("dr", "C", "B", "theirs")); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			w.states("dr", map[string]coordinator.State{"theirs": mirroring})
			w.ok("theirs")(w.Stop(briefly(t), "dr"))
			if err := w.Delete(t.Context(), "dr"); err != nil {
				t.Fatal(err)
			}
		}
	}, newMock("A", "ours"), newMock("B"), newMock("C", "theirs"))
}

// TestControllerTopics: all partitions, from the mirror where it runs, from the store where it does not.
func TestControllerTopics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", ".*")
		pass(time.Second)
		for range 2 {
			got, err := w.Topics(t.Context(), "dr")
			if err != nil || len(got) != 2 || got[0].Name != "audit" || got[1].Name != "orders" || len(got[1].Partitions) != 1 ||
				got[1].Partitions[0].State != mirroring || got[1].ID == "" {
				t.Errorf("%v: %+v", err, got)
			}
			w.stop()
			w.renew()
		}
		_, err := w.Topics(t.Context(), "none")
		wantIs(t, err, mirror.ErrUnknownMirror)
	}, newMock("A", "orders", "audit"), newMock("B"))
}

// unread is a store of peers that cannot be read.
type unread struct{}

func (unread) Positions(context.Context, string, []cluster.Partition) ([]coordinator.PositionAnswer, error) {
	return nil, cluster.ErrUnreachable
}

// TestPeers: where the mirrors into the source stand in another store, that one is asked: a
// failback goes on where the mirror there has stopped, one while that is at work is a loop, and
// nothing is copied before it has answered.
func TestPeers(t *testing.T) {
	inSites(t, func(t *testing.T, s *sites) {
		s.write("A", "begin", 100)
		s.define("ab", "A", "B", "orders")
		s.equal("ab", "A", "B", 200)

		var peers coordinator.Positions = unread{}
		back := &sites{world: &world{t: t, store: coordinator.NewMemory(), opener: s.opener}, at: s.at}
		back.opts.Peers = func(context.Context, coordinator.Definition) (coordinator.Positions, error) { return peers, nil }
		back.renew()
		back.run()
		defer back.stop()
		back.define("ba", "B", "A", "orders")
		pass(time.Second)
		if p, _ := back.worst("ba", "orders"); p.State == mirroring || !strings.Contains(p.Reason, "state of mirrors into the source") {
			t.Errorf("without an answer: %s %s", p.State, p.Reason)
		}
		peers = s.store
		back.restart()
		pass(time.Minute)
		if p, _ := back.worst("ba", "orders"); p.State != failed || !errors.Is(p.Err, mirror.ErrActive) && !errors.Is(p.Err, mirror.ErrLoop) {
			t.Errorf("while the mirror there is at work: %s %s", p.State, p.Reason)
		}
		s.ok("orders")(s.Stop(briefly(t), "ab", "orders"))
		s.write("B", "delta", 10)
		back.ok("orders")(back.Recover(briefly(t), "ba"))
		back.equal("ba", "B", "A", 220)
		if n := back.describe("ba").Status.Records; n != 20 {
			t.Errorf("%d records were copied back, want the delta of 20", n)
		}
	}, "A", "B")
}
