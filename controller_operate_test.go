package mirror_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// briefly bounds an operation inside a bubble.
func briefly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestLifeOfTopics: every operation, its result for each topic, and that it changes
// nothing to do it again.
func TestLifeOfTopics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B")
		w.ok()(w.Start(briefly(t), "dr"))
		pass(time.Second)
		for range 2 {
			w.ok()(w.Start(briefly(t), "dr", "nothing-.*")) // success with no topics
			_, err := w.Start(briefly(t), "dr", "o.*", "audit")
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			w.states("dr", map[string]coordinator.State{"o1": mirroring, "o2": mirroring, "audit": mirroring, "z": ""})
		}
		for range 2 {
			w.ok("o1", "o2")(w.Pause(briefly(t), "dr", "o.*"))
			w.states("dr", map[string]coordinator.State{"o1": paused, "o2": paused, "audit": mirroring})
		}
		for range 2 {
			w.ok("audit", "o1", "o2")(w.Resume(briefly(t), "dr"))
			pass(time.Second)
			w.states("dr", map[string]coordinator.State{"o1": mirroring, "o2": mirroring, "audit": mirroring})
		}
		for range 2 {
			w.ok("o1")(w.Stop(briefly(t), "dr", "o1"))
			w.states("dr", map[string]coordinator.State{"o1": stopped, "o2": mirroring, "audit": mirroring})
		}
		w.ok("audit", "o2")(w.Resume(briefly(t), "dr")) // all that can be
		w.ok("o2")(w.Pause(briefly(t), "dr", "o.*"))
		w.refused("o1", mirror.ErrStopped)(w.Pause(briefly(t), "dr", "o1", "o2"))
		w.refused("o1", mirror.ErrStopped)(w.Resume(briefly(t), "dr", "o1", "o2"))
		w.ok("o2")(w.Recover(briefly(t), "dr", "o2"))
		w.ok("o2")(w.Resume(briefly(t), "dr", "o2"))
		for range 2 {
			w.ok("audit")(w.Promote(briefly(t), "dr", "audit"))
			w.states("dr", map[string]coordinator.State{"audit": stopped, "o2": mirroring})
		}
		if d := w.describe("dr").Definition; !slices.Equal(d.Exclude, []string{"o1", "audit"}) || !slices.Equal(d.Include, []string{"nothing-.*", "o.*", "audit"}) {
			t.Errorf("definition %+v", d)
		}
		w.ok("o1")(w.Start(briefly(t), "dr", "o1"))
		pass(time.Second)
		w.states("dr", map[string]coordinator.State{"o1": mirroring})
		w.ok("audit", "o1", "o2")(w.Stop(briefly(t), "dr"))
		w.states("dr", map[string]coordinator.State{"o1": stopped, "o2": stopped, "audit": stopped})
		w.refused("nowhere", mirror.ErrUnknownTopic)(w.Stop(briefly(t), "dr", "nowhere"))
	}, newMock("A", "o1", "o2", "audit", "z"), newMock("B"))
}

func TestOperationsRefuse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.define("dr", "A", "B", "orders")
		for op, f := range operations(w) {
			if _, err := f(briefly(t), "other"); op != "promote" {
				wantIs(t, err, mirror.ErrUnknownMirror)
			}
			if _, err := f(briefly(t), "dr", "("); op != "promote" && (err == nil || !strings.Contains(err.Error(), `"("`)) {
				t.Errorf("%s with a bad pattern: %v", op, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := f(ctx, "dr"); err == nil {
				t.Errorf("%s without time", op)
			}
		}
		w.refused("__consumer_offsets", mirror.ErrInternalTopic)(w.Start(briefly(t), "dr", "__consumer_offsets", "more"))
		if d := w.describe("dr").Definition; !slices.Equal(d.Include, []string{"orders", "more"}) {
			t.Errorf("included %v", d.Include)
		}
		_, err := w.Promote(briefly(t), "dr")
		wantIs(t, err, mirror.ErrNotRunning)
	}, newMock("A", "orders", "more"), newMock("B"))
}

type operation = func(ctx context.Context, name string, topics ...string) ([]mirror.TopicResult, error)

func operations(w *world) map[string]operation {
	return map[string]operation{
		"start": w.Start, "stop": w.Stop, "pause": w.Pause, "resume": w.Resume, "recover": w.Recover, "promote": w.Promote,
	}
}

// TestControllerBeforeRun: what is asked for before Run is recorded, and holds from the first
// moment on.
func TestControllerBeforeRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.define("dr", "A", "B", "o.*")
		w.ok("o1")(w.Pause(briefly(t), "dr", "o1"))
		w.ok("o2")(w.Stop(briefly(t), "dr", "o2"))
		w.ok("late")(w.Start(briefly(t), "dr", "late"))
		w.refused("o2", mirror.ErrStopped)(w.Pause(briefly(t), "dr", "o2"))
		w.run()
		pass(time.Second)
		w.states("dr", map[string]coordinator.State{"o1": paused, "o2": "", "o3": mirroring, "late": mirroring})
		w.stop()

		w.renew() // and after Run, it is recorded too
		w.ok("o1")(w.Resume(briefly(t), "dr", "o1"))
		w.ok("o2")(w.Start(briefly(t), "dr", "o2"))
		w.ok("o1", "o2", "o3")(w.Stop(briefly(t), "dr", "o.*"))
		w.refused("o1", mirror.ErrExcluded)(w.Start(briefly(t), "dr", "o1"))
		w.run()
		pass(time.Second)
		w.states("dr", map[string]coordinator.State{"o1": stopped, "o2": "", "o3": stopped, "late": mirroring})
		w.ok("o1", "o2", "o3")(w.Start(briefly(t), "dr", "o.*"))
		pass(time.Second)
		w.states("dr", map[string]coordinator.State{"o1": mirroring, "o2": mirroring, "o3": mirroring})
	}, newMock("A", "o1", "o2", "o3", "late"), newMock("B"))
}

// TestRestart: definitions, topics and desired states survive the process.
func TestRestart(t *testing.T) {
	a := newMock("A", "o1", "o2", "o3", "other")
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "o.*")
		pass(time.Second)
		w.ok("o1")(w.Pause(briefly(t), "dr", "o1"))
		w.ok("o2")(w.Stop(briefly(t), "dr", "o2"))
		w.ok("other")(w.Stop(briefly(t), "dr", "other"))
		before := w.describe("dr").Definition
		a.add("o4")
		for range 2 {
			w.restart()
			pass(2 * time.Minute)
			w.states("dr", map[string]coordinator.State{"o1": paused, "o2": stopped, "other": stopped, "o3": mirroring, "o4": mirroring})
			if diff := cmp.Diff(before, w.describe("dr").Definition); diff != "" {
				t.Errorf("definition (-before +after):\n%s", diff)
			}
		}
		w.ok("o2")(w.Start(briefly(t), "dr", "o2"))
		w.restart()
		w.states("dr", map[string]coordinator.State{"o2": mirroring})
		if got := w.describe("dr").Definition.Exclude; !slices.Equal(got, []string{"other"}) {
			t.Errorf("excluded are %v", got)
		}
	}, a, newMock("B"))
}

// TestSourceDown: with a dead source, and a process that has never seen it alive,
// everything answers, and topics can be stopped and paused.
func TestSourceDown(t *testing.T) {
	a := newMock("A", "o1", "o2", "o3")
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "o.*")
		pass(time.Second)
		w.stop()
		a.set(func(m *mock) { m.down = cluster.ErrUnreachable })
		w.renew()
		w.run()
		pass(time.Minute)
		w.ok("o1")(w.Stop(briefly(t), "dr", "o1"))
		w.ok("o2")(w.Pause(briefly(t), "dr", "o2"))
		w.states("dr", map[string]coordinator.State{"o1": stopped, "o2": paused})
		w.ok("o1", "o2", "o3")(w.Stop(briefly(t), "dr"))
		w.states("dr", map[string]coordinator.State{"o1": stopped, "o2": stopped, "o3": stopped})
		if d := w.describe("dr"); d.Status.SyncError == "" || d.Status.States[stopped] != 3 {
			t.Errorf("described as %s", show(d))
		}
	}, a, newMock("B"))
}

// TestStopUnopened (C10.7): a stop of a mirror that cannot be opened says that it is
// not done, with the reason; it is done as soon as the mirror opens, by a call that
// still waits and by itself.
func TestStopUnopened(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "o.*")
		pass(time.Second)
		w.stop()
		w.breakOpening("A", cluster.ErrAuthentication)
		w.renew()
		w.run()
		results, err := w.Stop(briefly(t), "dr", "o1")
		wantIs(t, err, context.DeadlineExceeded, cluster.ErrAuthentication)
		if len(results) != 1 || results[0].Topic != "o1" || results[0].Err == nil {
			t.Errorf("results %v", results)
		}
		waited := make(chan error, 1)
		go func() {
			_, err := w.Stop(t.Context(), "dr", "o2")
			waited <- err
		}()
		pass(time.Minute)
		w.breakOpening("A", nil)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		pass(time.Second)
		w.states("dr", map[string]coordinator.State{"o1": stopped, "o2": stopped, "o3": mirroring})
	}, newMock("A", "o1", "o2", "o3"), newMock("B"))
}

// TestDelete (C10.9): refused while a topic is not stopped, each such topic named;
// nothing is halted by the refusal. Then nothing is left.
func TestDelete(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "o1", "o2", "o3")
		pass(time.Second)
		w.ok("o1")(w.Stop(briefly(t), "dr", "o1"))
		w.ok("o2")(w.Pause(briefly(t), "dr", "o2"))
		err := w.Delete(briefly(t), "dr")
		wantIs(t, err, mirror.ErrNotStopped)
		for _, want := range []string{"topic o2", "PAUSED", "topic o3", "MIRRORING"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is missing in: %v", want, err)
			}
		}
		if strings.Contains(err.Error(), "topic o1") || w.attempts("dr") != 2 {
			t.Errorf("after %d attempts: %v", w.attempts("dr"), err)
		}
		w.ok("o1", "o2", "o3")(w.Stop(briefly(t), "dr"))
		for range 2 {
			if err := w.Delete(briefly(t), "dr"); err != nil {
				t.Error(err)
			}
		}
		_, err = w.Describe(briefly(t), "dr")
		wantIs(t, err, mirror.ErrUnknownMirror)
		if records, _ := w.store.Load(t.Context(), "dr"); len(records) > 0 {
			t.Errorf("records are left: %v", records)
		}
		pass(time.Minute)
		w.define("dr", "A", "B", "o1") // a new life
		pass(time.Second)
		w.states("dr", map[string]coordinator.State{"o1": mirroring})
	}, newMock("A", "o1", "o2", "o3"), newMock("B"))
}

// TestGone (C2.11): exactly the topics that the source no longer has are marked, after
// a restart too.
func TestGone(t *testing.T) {
	a := newMock("A", names(5)...)
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "t.*")
		pass(time.Second)
		w.ok("t04")(w.Stop(briefly(t), "dr", "t04"))
		if gone := w.describe("dr").Gone; len(gone) > 0 {
			t.Errorf("gone %v", gone)
		}
		a.set(func(m *mock) {
			for _, n := range []string{"t01", "t03", "t04"} { // a stopped topic is nobody's affair
				delete(m.topics, n)
			}
		})
		for range 2 {
			pass(3 * time.Minute)
			if diff := cmp.Diff([]string{"t01", "t03"}, w.describe("dr").Gone); diff != "" {
				t.Error(diff)
			}
			w.states("dr", map[string]coordinator.State{"t00": mirroring, "t01": failed, "t02": mirroring, "t03": failed, "t04": stopped})
			w.restart()
		}
	}, a, newMock("B"))
}

// TestTwoControllers over one store do not corrupt it: the later one has the
// partitions, the first is fenced, and what either defines the other runs.
func TestTwoControllers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B", "o1")
		pass(time.Second)
		first := w.Controller
		cancelFirst, endedFirst := w.cancel, w.ended
		w.renew()
		w.run()
		w.states("dr", map[string]coordinator.State{"o1": mirroring})
		if _, err := first.Create(t.Context(), definition("more", "A", "C", "o2")); err != nil {
			t.Fatal(err)
		}
		pass(11 * time.Second)
		w.states("more", map[string]coordinator.State{"o2": mirroring})
		w.ok("o1")(w.Stop(briefly(t), "dr", "o1"))
		pass(time.Minute)
		records, _ := w.store.Load(t.Context(), "dr")
		if len(records) != 1 || records[0].State != stopped || records[0].OwnerEpoch != 2 {
			t.Errorf("records %+v", records)
		}
		if err := w.Delete(briefly(t), "dr"); err != nil {
			t.Error(err)
		}
		pass(time.Minute)
		if all, err := first.List(t.Context()); err != nil || len(all) != 1 || all[0].Name != "more" {
			t.Errorf("the other one has %v, %v", all, err)
		}
		cancelFirst()
		if err := <-endedFirst; err != nil {
			t.Error(err)
		}
	}, newMock("A", "o1", "o2"), newMock("B"), newMock("C"))
}

// TestConcurrentOperations on one mirror, by two controllers: none is lost.
func TestConcurrentOperations(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		w.define("dr", "A", "B")
		other, err := mirror.NewController(w.store, w.open, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 20)
		for i, name := range names(20) {
			c := w.Controller
			if i%2 == 1 {
				c = other // one that does not run
			}
			go func() {
				_, err := c.Start(briefly(t), "dr", name)
				done <- err
			}()
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		got := w.describe("dr").Definition.Include
		slices.Sort(got)
		if diff := cmp.Diff(names(20), got); diff != "" {
			t.Errorf("included (-want +got):\n%s", diff)
		}
		pass(2 * time.Minute)
		if n := w.describe("dr").Status.States[mirroring]; n != 20 {
			t.Errorf("%d topics are mirrored", n)
		}
	}, newMock("A", names(20)...), newMock("B"))
}

// TestRedefined: settings that another wrote have the mirror opened anew with them, and
// topics that another wrote are taken up without that.
func TestRedefined(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.run()
		d := w.define("dr", "A", "B", "o1")
		pass(time.Second)
		d.Revision, d.Include = 2, []string{"o1", "o2"}
		if err := w.store.Define(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		w.states("dr", map[string]coordinator.State{"o1": mirroring, "o2": mirroring})
		if n := w.attempts("dr"); n != 2 {
			t.Errorf("opened %d times", n)
		}
		d.Revision, d.Config = 3, map[string]string{"sync.interval": "5s"}
		if err := w.store.Define(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		pass(11 * time.Second)
		if n := w.attempts("dr"); n != 3 || !w.describe("dr").Running {
			t.Errorf("opened %d times, %s", n, show(w.describe("dr")))
		}
		w.clusters["A"].add("o3")
		w.ok("o3")(w.Start(briefly(t), "dr", "o3"))
		w.clusters["A"].set(func(m *mock) { m.looks = nil })
		pass(time.Minute)
		if n := len(w.clusters["A"].looks); n < 11 {
			t.Errorf("%d looks in a minute", n)
		}
		w.states("dr", map[string]coordinator.State{"o1": mirroring, "o2": mirroring, "o3": mirroring})
	}, newMock("A", "o1", "o2"), newMock("B"))
}

// TestPromoteUnseen: topics of a source that has not answered yet are not promoted because nothing
// is known of them.
func TestPromoteUnseen(t *testing.T) {
	a := newMock("A", "orders")
	inWorld(t, func(t *testing.T, w *world) {
		w.define("dr", "A", "B", "orders", "none")
		a.set(func(m *mock) { m.down = cluster.ErrUnreachable })
		w.run()
		results, err := w.Promote(briefly(t), "dr")
		wantIs(t, err, cluster.ErrUnreachable)
		for _, r := range results {
			if r.Err == nil {
				t.Errorf("topic %s was promoted", r.Topic)
			}
		}
		a.set(func(m *mock) { m.down = nil })
		w.ok("orders")(w.Promote(t.Context(), "dr"))
		w.states("dr", map[string]coordinator.State{"orders": stopped})
	}, a, newMock("B"))
}

// TestPromoteKnowsTopics (C10.11): a promote just after the start finds what patterns
// match; what matches nothing is said; without names it is about all that is left.
func TestPromoteKnowsTopics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.define("dr", "A", "B", ".*")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		<-time.After(time.Nanosecond)
		w.ok("o1", "o2")(w.Promote(briefly(t), "dr", "o.*"))
		w.states("dr", map[string]coordinator.State{"o1": stopped, "o2": stopped, "x": mirroring})
		_, err := w.Promote(briefly(t), "dr", "nothing-.*")
		wantIs(t, err, mirror.ErrUnknownTopic)
		w.ok("x")(w.Promote(briefly(t), "dr"))
		w.ok()(w.Promote(briefly(t), "dr"))
		if got := w.describe("dr").Definition.Exclude; !slices.Equal(got, []string{"o1", "o2", "x"}) {
			t.Errorf("excluded are %v", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}, newMock("A", "o1", "o2", "x"), newMock("B"))
}
