package mirror_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// inBubble runs a mirror of two mocks in a bubble, where time is the test's own,
// until f returns.
func inBubble(t *testing.T, source mirror.Source, destination mirror.Destination, o mirror.Options, f func(t *testing.T, m *mirror.Mirror)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMirror(t, source, destination, o)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		f(t, m)
		cancel()
		began := time.Now()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("Run took %v to return", d)
		}
	})
}

// pass lets time go by and everything come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestSyncInterval: topics are looked for once a minute by default, at once when
// started, and soon again after a failure, which the status shows meanwhile.
func TestSyncInterval(t *testing.T) {
	source, destination := newMock("A", "orders-1"), newMock("B")
	inBubble(t, source, destination, mirror.Options{Topics: mirror.Topics{Include: []string{"orders.*"}}}, func(t *testing.T, m *mirror.Mirror) {
		source.add("orders-2")
		pass(59 * time.Second)
		if diff := cmp.Diff([]string{"orders-1"}, topicNames(m)); diff != "" {
			t.Error(diff)
		}
		pass(2 * time.Second)
		if diff := cmp.Diff([]string{"orders-1", "orders-2"}, topicNames(m)); diff != "" {
			t.Error(diff)
		}
		source.add("other")
		if err := m.Start(context.Background(), "other"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if s := m.Status(); s.States[coordinator.StateMirroring] != 3 || s.Health != "ok" {
			t.Errorf("status %s", show(s))
		}

		source.set(func(m *mock) { m.down = cluster.ErrUnreachable })
		pass(61 * time.Second)
		if s := m.Status(); s.SyncError == "" || s.Health != "troubled" || s.States[coordinator.StateFailed] != 0 {
			t.Errorf("status %s", show(s))
		}
		source.set(func(m *mock) { m.down = nil })
		pass(10 * time.Second) // not a whole interval
		if s := m.Status(); s.SyncError != "" || s.Health != "ok" {
			t.Errorf("status %s", show(s))
		}
	})
}

// TestTopicGone: a topic that two looks in a row do not find is FAILED for good,
// one look is not enough, and it can still be stopped.
func TestTopicGone(t *testing.T) {
	source, destination := newMock("A", "orders", "other"), newMock("B")
	inBubble(t, source, destination, mirror.Options{Topics: mirror.Topics{Include: []string{".*"}}}, func(t *testing.T, m *mirror.Mirror) {
		gone := source.topics["orders"]
		state := func() mirror.PartitionStatus {
			top, _ := m.Topic("orders")
			return top.Partitions[0]
		}
		source.set(func(m *mock) { delete(m.topics, "orders") })
		pass(61 * time.Second)
		if s := state(); s.State != coordinator.StateMirroring {
			t.Errorf("after one look: %s", show(s))
		}
		source.set(func(m *mock) { m.topics["orders"] = gone })
		pass(60 * time.Second)
		source.set(func(m *mock) { delete(m.topics, "orders") })
		pass(60 * time.Second)
		if s := state(); s.State != coordinator.StateMirroring {
			t.Errorf("after one look again: %s", show(s))
		}
		pass(60 * time.Second)
		if s := state(); s.State != coordinator.StateFailed || s.Retriable || !errors.Is(s.Err, mirror.ErrTopicDeleted) {
			t.Errorf("after two looks: %s", show(s))
		}
		if err := m.Stop(context.Background(), "orders"); err != nil || state().State != coordinator.StateStopped {
			t.Errorf("stop: %v, %s", err, show(state()))
		}
	})
}

// TestClusterReplaced: another cluster at the source's address fails every
// partition for good; nothing of it is mirrored.
func TestClusterReplaced(t *testing.T) {
	source, destination := newMock("A", "orders"), newMock("B")
	inBubble(t, source, destination, mirror.Options{Topics: mirror.Topics{Include: []string{".*"}}}, func(t *testing.T, m *mirror.Mirror) {
		source.set(func(m *mock) { m.id = "other" })
		source.add("foreign")
		pass(61 * time.Second)
		s := m.Status()
		if len(s.Worst) != 1 || !errors.Is(s.Worst[0].Err, mirror.ErrClusterReplaced) || s.Worst[0].Retriable || s.SyncError == "" || s.Source != "A" {
			t.Errorf("status %s", show(s))
		}
		if _, there := destination.topics["foreign"]; there {
			t.Error("a topic of the other cluster was created")
		}
	})
}

// TestStopIsBounded: a source that never answers for groups holds up a stop for
// GroupTimeout and no longer.
func TestStopIsBounded(t *testing.T) {
	source, destination := newMock("A", "orders"), newMock("B")
	o := mirror.Options{Topics: mirror.Topics{Include: []string{".*"}}, GroupTimeout: 7 * time.Second}
	inBubble(t, source, destination, o, func(t *testing.T, m *mirror.Mirror) {
		source.set(func(m *mock) { m.groups = make(chan struct{}) })
		began := time.Now()
		if err := m.Stop(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 7*time.Second {
			t.Errorf("stop took %v", d)
		}
		if diff := cmp.Diff([]cluster.Partition{orders}, destination.fenced); diff != "" {
			t.Error(diff)
		}
	})
}

// TestHang: questions that are never answered hold up neither the status nor the
// end of Run, nor operations beyond their context.
func TestHang(t *testing.T) {
	source, destination := newMock("A", "orders"), newMock("B")
	inBubble(t, source, destination, mirror.Options{Topics: mirror.Topics{Include: []string{".*"}}}, func(t *testing.T, m *mirror.Mirror) {
		source.set(func(m *mock) { m.hang = true })
		destination.set(func(m *mock) { m.hang = true })
		pass(2 * time.Minute)
		began := time.Now()
		if s := m.Status(); s.Partitions != 1 || time.Since(began) != 0 {
			t.Errorf("status %s after %v", show(s), time.Since(began))
		}
		for _, op := range []struct {
			name string
			f    func(context.Context, ...string) error
		}{{"pause", m.Pause}, {"promote", m.Promote}, {"stop", m.Stop}} {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			began := time.Now()
			err := op.f(ctx, "orders")
			cancel()
			if d := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || d != 3*time.Second {
				t.Errorf("%s: %v after %v", op.name, err, d)
			}
			if err := m.Resume(context.Background(), "orders"); op.name != "stop" && err != nil {
				t.Error(err)
			}
		}
	})
}
