package mirror_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// TestDeleteGuarded: a mirror whose guard has rules at the destination is not deleted; one that is
// holds no rule any more, so that another mirror may delete what both had copied.
func TestDeleteGuarded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "o1", "o2")
		pass(time.Second)
		w.ok("o1", "o2")(w.Stop(briefly(t), "dr"))
		notes := w.store.(*coordinator.Memory)
		b := memory.New(memory.Options{ID: "B"})
		defer b.Close()
		grant(t, b, right("TOPIC", "o2", "WRITE"))
		ledger := acl.Ledger{Notes: notes, Cluster: "B", Mirror: "dr"}
		g := acl.Guard{Cluster: b.Client("dr"), Ledger: ledger, Guarding: acl.Guarding{May: []string{"User:mirror"}}}
		if _, err := g.Keep(t.Context(), []string{"o2"}, func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		err := w.Delete(briefly(t), "dr")
		if wantIs(t, err, mirror.ErrNotStopped); err == nil || !strings.Contains(err.Error(), "topic o2: ") || strings.Contains(err.Error(), "o1") {
			t.Errorf("%v", err)
		}
		if _, err := g.Lift(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		filter, err := acl.NewFilter([]acl.Rule{{}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := memory.New(memory.Options{ID: "A"})
		defer a.Close()
		grant(t, a, right("TOPIC", "o3", "READ"), right("TOPIC", "o4", "READ"))
		for _, name := range []string{"dr", "other"} {
			s := acl.Syncer{Source: a.Client(name), Destination: b.Client(name), Filter: filter, Ledger: ledger}
			s.Ledger.Mirror = name
			if _, err := s.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if name == "dr" {
				revoke(t, a, right("TOPIC", "o4", "READ"))
			}
		}
		if err := w.Delete(briefly(t), "dr"); err != nil {
			t.Fatal(err)
		}
		left, err := notes.Notes(t.Context(), "acls:B")
		if err != nil || len(left) != 1 {
			t.Errorf("left on record: %s, %v", left, err)
		}
		for _, note := range left {
			if !strings.Contains(string(note), `["other"]`) {
				t.Errorf("left on record: %s", note)
			}
		}
		rights(t, b, "deleted", right("TOPIC", "o2", "WRITE"), right("TOPIC", "o3", "READ"), right("TOPIC", "o4", "READ"))
	}, newMock("A", "o1", "o2"), newMock("B"))
}

// TestGuardOfAController: a definition's keys guard its topics, with the Controller's store.
func TestGuardOfAController(t *testing.T) {
	inSites(t, func(t *testing.T, s *sites) {
		s.at["B"].Close()
		s.at["B"] = memory.New(memory.Options{ID: "B", Produce: true})
		grant(t, s.at["B"], right("TOPIC", "orders", "WRITE"))
		s.write("A", "begin", 10)
		def := definition("ab", "A", "B", "orders")
		def.Config = map[string]string{"guard.enabled": "true", "guard.may": "User:mirror", "acls.enabled": "true", "acls.include": "resource=GROUP"}
		if _, err := s.Create(briefly(t), def); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		var kinds []string
		for _, k := range s.describe("ab").Status.Syncs {
			kinds = append(kinds, k.Kind)
		}
		if got := strings.Join(kinds, " "); !strings.HasSuffix(got, "acls guard") {
			t.Errorf("kinds: %s", got)
		}
		rights(t, s.at["B"], "mirrored", right("TOPIC", "orders", "WRITE"), denied("orders"))
		s.ok("orders")(s.Stop(briefly(t), "ab"))
		rights(t, s.at["B"], "stopped", right("TOPIC", "orders", "WRITE"))
		if err := s.Delete(briefly(t), "ab"); err != nil {
			t.Error(err)
		}
	}, "A", "B")
}
