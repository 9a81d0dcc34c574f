package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// wantFailed wants a topic to have failed for good, in one way.
func (w *world) wantFailed(name, topic string, kind error) {
	w.t.Helper()
	p, _ := w.worst(name, topic)
	if p.State != failed || p.Retriable {
		w.t.Errorf("mirror %s, topic %s is %s: %s", name, topic, p.State, p.Reason)
	}
	wantIs(w.t, p.Err, kind)
}

// TestActive: two mirrors never share a destination topic. By name it is refused at
// the call, by pattern before anything is appended; other topics go on, and so does
// the mirror that had it first, over restarts. Once it is stopped there, the other
// may have it.
func TestActive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("first", "A", "B", "shared", "a.*")
		pass(time.Second)
		w.define("second", "C", "B")
		w.refused("shared", mirror.ErrActive)(w.Start(briefly(t), "second", "shared", "c"))
		w.refused("a1", mirror.ErrActive)(w.Start(briefly(t), "second", "a1"))
		pass(time.Second)
		w.states("second", map[string]coordinator.State{"shared": "", "a1": "", "c": mirroring})
		w.ok("c")(w.Start(briefly(t), "second", ".*"))
		pass(time.Minute)
		for range 2 {
			w.wantFailed("second", "shared", mirror.ErrActive)
			w.wantFailed("second", "a1", mirror.ErrActive)
			w.states("second", map[string]coordinator.State{"c": mirroring})
			w.states("first", map[string]coordinator.State{"shared": mirroring, "a1": mirroring})
			w.ok("shared")(w.Recover(briefly(t), "second", "shared")) // no better for that
			pass(time.Minute)
		}
		w.ok("a1")(w.Stop(briefly(t), "first", "a1")) // what was refused the other one is no claim of it
		w.ok("a1")(w.Start(briefly(t), "first", "a1"))
		w.restart()
		pass(time.Minute)
		w.states("first", map[string]coordinator.State{"shared": mirroring, "a1": mirroring})
		w.states("second", map[string]coordinator.State{"shared": failed, "a1": failed, "c": mirroring})

		w.ok("shared")(w.Stop(briefly(t), "first", "shared"))
		w.ok("shared")(w.Recover(briefly(t), "second", "shared"))
		pass(time.Minute)
		w.states("second", map[string]coordinator.State{"shared": mirroring})
		w.refused("shared", mirror.ErrActive)(w.Start(briefly(t), "first", "shared"))
	}, newMock("A", "shared", "a1"), newMock("B"), newMock("C", "shared", "a1", "c"))
}

// TestActiveElsewhere: into another cluster the same topic is another topic.
func TestActiveElsewhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("first", "A", "B", "shared")
		w.define("second", "A", "C")
		w.ok("shared")(w.Start(briefly(t), "second", "shared"))
		pass(time.Second)
		w.states("first", map[string]coordinator.State{"shared": mirroring})
		w.states("second", map[string]coordinator.State{"shared": mirroring})
	}, newMock("A", "shared"), newMock("B"), newMock("C"))
}

// TestActiveAtOnce: of two mirrors that begin with one topic at one moment, never both
// go on.
func TestActiveAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.define("first", "A", "B", ".*")
		w.define("second", "C", "B", ".*")
		w.run()
		pass(time.Minute)
		if a, b := w.state("first", "shared"), w.state("second", "shared"); a == mirroring && b == mirroring {
			t.Error("both are mirroring")
		}
	}, newMock("A", "shared"), newMock("B"), newMock("C", "shared"))
}

// TestLoops (C9.7) of any length are refused, whichever mirror comes last and in
// whichever order the others came; other topics go on.
func TestLoops(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		for last := range n {
			for _, step := range []int{1, -1} {
				t.Run(fmt.Sprintf("%d clusters, mirror %d last, step %d", n, last, step), func(t *testing.T) {
					testLoop(t, n, last, step)
				})
			}
		}
	}
}

func testLoop(t *testing.T, n, last, step int) {
	var clusters []*mock
	for i := range n {
		clusters = append(clusters, newMock(fmt.Sprintf("C%d", i), "orders", fmt.Sprintf("own%d", i)))
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		for i := range n { // mirror i leads from cluster i to the next
			at := (last + step*(i+1) + n) % n
			own := fmt.Sprintf("own%d", at)
			w.define(fmt.Sprintf("m%d", at), fmt.Sprintf("C%d", at), fmt.Sprintf("C%d", (at+1)%n), "orders", own)
			pass(time.Minute)
			w.states(fmt.Sprintf("m%d", at), map[string]coordinator.State{own: mirroring})
		}
		for i := range n {
			name := fmt.Sprintf("m%d", i)
			if i != last {
				w.states(name, map[string]coordinator.State{"orders": mirroring})
				continue
			}
			kind := mirror.ErrLoop
			if n == 2 {
				kind = mirror.ErrActive // the other way is at work
			}
			w.wantFailed(name, "orders", kind)
		}
		w.restart()
		pass(time.Minute)
		w.states(fmt.Sprintf("m%d", last), map[string]coordinator.State{"orders": failed})
	}, clusters...)
}

// TestChain: A to B to C is no loop.
func TestChain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("one", "A", "B", "orders")
		pass(time.Minute)
		w.define("two", "B", "C", "orders")
		pass(time.Minute)
		w.states("one", map[string]coordinator.State{"orders": mirroring})
		w.states("two", map[string]coordinator.State{"orders": mirroring})
	}, newMock("A", "orders"), newMock("B"), newMock("C"))
}
