package mirror_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// hookedStore lets something happen before a write.
type hookedStore struct {
	mirror.Store
	define, undefine func()
}

func (s *hookedStore) Define(ctx context.Context, d coordinator.Definition) error {
	if f := s.define; f != nil {
		s.define = nil
		f()
	}
	return s.Store.Define(ctx, d)
}

func (s *hookedStore) Undefine(ctx context.Context, name string) error {
	if s.undefine != nil {
		s.undefine()
	}
	return s.Store.Undefine(ctx, name)
}

// TestConflict: what another writes into a definition between our look and our write
// is kept.
func TestConflict(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		hooked := &hookedStore{Store: w.store}
		w.store = hooked
		w.renew()
		d := w.define("dr", "A", "B", "o1")
		hooked.define = func() {
			d.Revision++
			d.Include = []string{"o1", "theirs"}
			if err := hooked.Store.Define(t.Context(), d); err != nil {
				t.Error(err)
			}
		}
		w.ok("ours")(w.Start(briefly(t), "dr", "ours"))
		if got := w.describe("dr").Definition.Include; !slices.Equal(got, []string{"o1", "theirs", "ours"}) {
			t.Errorf("included %v", got)
		}
	}, newMock("A"), newMock("B"))
}

// TestDeleteSlowly: a mirror that is being deleted is not begun again meanwhile, and
// one whose deletion failed is.
func TestDeleteSlowly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		meanwhile := make(chan int, 1)
		hooked := &hookedStore{Store: w.store, undefine: func() {
			<-time.After(29 * time.Second)
			meanwhile <- w.attempts("dr")
			<-time.After(31 * time.Second)
		}}
		w.store = hooked
		w.renew()
		w.run()
		w.define("dr", "A", "B", "o1")
		pass(time.Second)
		w.ok("o1")(w.Stop(briefly(t), "dr"))
		opened := w.attempts("dr")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		wantIs(t, w.Delete(ctx, "dr"), context.DeadlineExceeded)
		if n := <-meanwhile; n != opened {
			t.Errorf("was opened %d times, %d before", n, opened)
		}
		pass(time.Second)
		if !w.describe("dr").Running {
			t.Error("does not run though it is defined")
		}
	}, newMock("A", "o1"), newMock("B"))
}

// TestUndefined: a mirror that another has deleted ends here.
func TestUndefined(t *testing.T) {
	a := newMock("A", "o1")
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "o1")
		pass(time.Second)
		if err := w.store.Undefine(t.Context(), "dr"); err != nil {
			t.Fatal(err)
		}
		pass(11 * time.Second)
		a.set(func(m *mock) { m.looks = nil })
		pass(5 * time.Minute)
		if len(a.looks) > 0 {
			t.Errorf("%d looks of a mirror that is no more", len(a.looks))
		}
	}, a, newMock("B"))
}

// TestBegunAgain: a mirror begins again only after the one before it has ended, however
// long that takes.
func TestBegunAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		w.opener = func(ctx context.Context, d coordinator.Definition) (mirror.Source, mirror.Destination, error) {
			s, d2, err := w.open(ctx, d)
			if w.attempts("dr") == 2 {
				<-release // whatever becomes of ctx
			}
			return s, d2, err
		}
		w.renew()
		w.define("dr", "A", "B", "o1")
		w.run()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantIs(t, w.Delete(ctx, "dr"), context.DeadlineExceeded)
		pass(time.Minute)
		if n := w.attempts("dr"); n != 2 {
			t.Errorf("opened %d times while one was not over", n)
		}
		close(release)
		pass(time.Second)
		w.states("dr", map[string]coordinator.State{"o1": mirroring})
	}, newMock("A", "o1"), newMock("B"))
}

// TestOwnStretch: a mirror that has been at work on a topic all along is not kept from
// it by another that has got in between and copied nothing.
func TestOwnStretch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.define("first", "A", "B", "shared")
		w.define("second", "C", "B", ".*")
		rec := coordinator.Record{
			Partition: at("shared", 0), State: coordinator.StateLogAlignment, Previous: coordinator.StateUnknown,
			Desired: coordinator.WantMirroring, OwnerEpoch: 1, StateEpoch: 1, Cut: -1, Stretch: 1, Aligned: true,
		}
		other := rec
		other.State, other.Previous, other.Desired, other.Aligned = paused, coordinator.StatePausing, coordinator.WantPaused, false
		for name, r := range map[string]coordinator.Record{"first": rec, "second": other} {
			if errs := w.store.Save(t.Context(), name, []coordinator.Record{r}); errs[0] != nil {
				t.Fatal(errs[0])
			}
		}
		w.run()
		pass(time.Minute)
		w.states("first", map[string]coordinator.State{"shared": mirroring})
		w.wantFailed("second", "shared", mirror.ErrActive)
	}, newMock("A", "shared"), newMock("B"), newMock("C", "shared"))
}
