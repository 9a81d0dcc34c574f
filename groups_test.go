package mirror_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/transport/memory"
)

// groupAt is where a group stands in orders, -1 when it does not.
func groupAt(t *testing.T, c *memory.Cluster, group string) int64 {
	t.Helper()
	answers, err := c.Client("test").Committed(context.Background(), []string{group})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range answers[0].Offsets {
		if o.Partition == orders {
			return o.Offset
		}
	}
	return -1
}

func commitAs(t *testing.T, c *memory.Cluster, group string, offset int64) {
	t.Helper()
	if err := c.CommitAs(group, cluster.Committed{Partition: orders, Offset: offset, Metadata: "of " + group}); err != nil {
		t.Fatal(err)
	}
}

func syncOf(m *mirror.Mirror, kind string) mirror.SyncStatus {
	all := m.Status().Syncs
	return all[slices.IndexFunc(all, func(s mirror.SyncStatus) bool { return s.Kind == kind })]
}

// groupEvents keeps those of a mirror.
func groupEvents(o *mirror.Options) (told *[]string) {
	told = new([]string)
	o.Events.Group = func(e mirror.GroupEvent) { *told = append(*told, e.Group+" "+string(e.Was)+" > "+string(e.Why)) }
	return told
}

// TestGroups is C7.7, C7.9 and C7.21: groups follow the source within an interval, forwards and
// backwards; what has members or has moved by itself stays and shows, and a new process knows it.
func TestGroups(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		for _, group := range []string{"app", "busy", "rogue", "console-consumer-1"} {
			commitAs(t, w.a, group, 5)
		}
		var told *[]string
		m, stop := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { told = groupEvents(o) })
		at := func(when string, want map[string]int64) {
			t.Helper()
			for group, offset := range want {
				if got := groupAt(t, w.b, group); got != offset {
					t.Errorf("%s: %s is at %d, want %d", when, group, got, offset)
				}
			}
		}
		settle(70 * time.Second)
		at("an interval later", map[string]int64{"app": 5, "busy": 5, "rogue": 5, "console-consumer-1": -1})
		seen := len(*told)

		w.b.SetMembers("busy", 1)
		commitAs(t, w.b, "rogue", 9)
		for _, group := range []string{"app", "busy", "rogue"} {
			commitAs(t, w.a, group, 8)
		}
		settle(time.Minute)
		at("forwards", map[string]int64{"app": 8, "busy": 5, "rogue": 9})
		s := m.Status().Groups
		if s == nil {
			t.Fatal("no status")
		}
		want := []mirror.GroupLeft{
			{Group: "rogue", Why: mirror.LeftHeld, Count: 1, Places: []offsets.Place{{Partition: orders, Source: 8, Destination: 9, Ours: 5}}},
			{Group: "busy", Why: mirror.LeftActive, Count: 1, Places: []offsets.Place{{Partition: orders, Source: 8, Destination: 5, Ours: 5}}},
			{Group: "console-consumer-1", Why: mirror.LeftExcluded},
		}
		if diff := cmp.Diff(want, s.Left); diff != "" || s.Matched != 3 || s.Held != 1 || s.Active != 1 || s.Excluded != 1 {
			t.Errorf("%+v %s", s, diff)
		}
		stop()

		m, _ = w.mirror("ab", w.a, w.b, nil)
		commitAs(t, w.a, "app", 2)
		commitAs(t, w.a, "rogue", 7)
		settle(70 * time.Second)
		at("backwards", map[string]int64{"app": 2, "busy": 5, "rogue": 9})
		w.b.SetMembers("busy", 0)
		commitAs(t, w.a, "rogue", 9) // they meet: it is ours again
		settle(time.Minute)
		commitAs(t, w.a, "rogue", 10)
		settle(time.Minute)
		at("at last", map[string]int64{"busy": 8, "rogue": 10})
		if k := syncOf(m, mirror.SyncGroups); k.Error != "" || k.Seen["held"] != 0 || k.Done["offsets"] == 0 {
			t.Errorf("%+v", k)
		}
		// Whether the first round was before the records, and groups were clamped, is chance.
		if !slices.Contains((*told)[:seen], "console-consumer-1  > excluded") {
			t.Errorf("told %q", (*told)[:seen])
		}
		now := slices.Sorted(slices.Values((*told)[seen:]))
		if diff := cmp.Diff([]string{"busy  > active", "rogue  > held"}, now); diff != "" {
			t.Error(diff)
		}
	})
}

// TestGroupsClamped is C7.1: a group that is further than the copy follows it.
func TestGroupsClamped(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "0", "1", "2")
		var told *[]string
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { told = groupEvents(o) })
		settle(70 * time.Second)
		if err := m.Pause(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		commitAs(t, w.a, "app", 3)
		settle(time.Minute)
		if at := groupAt(t, w.b, "app"); at != -1 {
			t.Errorf("the topic is paused, and the group at %d", at)
		}
		commitAs(t, w.a, "app", 99) // as Kafka lets it
		if err := m.Resume(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		settle(10 * time.Second)
		if at, s := groupAt(t, w.b, "app"), m.Status().Groups; at != 3 || s.Clamped != 1 || s.ClampedOffsets != 1 {
			t.Errorf("at %d, %+v", at, s)
		}
		w.write(w.a, "3", "4")
		settle(time.Minute)
		if at := groupAt(t, w.b, "app"); at != 5 {
			t.Errorf("at %d", at)
		}
		commitAs(t, w.a, "app", 4)
		settle(time.Minute)
		if at, s := groupAt(t, w.b, "app"), m.Status().Groups; at != 4 || s.Clamped != 0 {
			t.Errorf("at %d, %+v", at, s)
		}
		if diff := cmp.Diff([]string{"app  > clamped", "app clamped > "}, *told); diff != "" {
			t.Error(diff)
		}
	})
}

// TestGroupsJoin is C7.5: a group that joins between our look and our commit stays where it is.
func TestGroupsJoin(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "0", "1", "2")
		commitAs(t, w.a, "app", 1)
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(70 * time.Second)
		commitAs(t, w.a, "app", 3)
		w.b.SetFault(func(op memory.Op) memory.Fault {
			if op.Call == memory.CallCommit {
				w.b.SetMembers("app", 1)
			}
			return memory.Fault{}
		})
		settle(time.Minute)
		if at, s := groupAt(t, w.b, "app"), m.Status().Groups; at != 1 || s.Active != 1 || s.Failed != 0 {
			t.Errorf("at %d, %+v", at, s)
		}
		w.b.SetFault(nil)
		w.b.SetMembers("app", 0)
		settle(time.Minute)
		if at := groupAt(t, w.b, "app"); at != 3 {
			t.Errorf("at %d", at)
		}
	})
}

// TestGroupsFail is C7.13: a listing that fails at first, or for a while, is tried again soon, keeps
// no topic from being copied, and moves and deletes nothing.
func TestGroupsFail(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "0", "1", "2")
		commitAs(t, w.a, "app", 1)
		var down atomic.Bool
		down.Store(true)
		w.a.SetFault(func(op memory.Op) memory.Fault {
			if op.Call == memory.CallGroups && down.Load() {
				return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrTimeout}
			}
			return memory.Fault{}
		})
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(10 * time.Second)
		if k := syncOf(m, mirror.SyncGroups); !errors.Is(k.Err, cluster.ErrTimeout) || m.Status().Health != "troubled" || syncOf(m, mirror.SyncTopics).Error != "" {
			t.Errorf("%+v", k)
		}
		w.equal()
		down.Store(false)
		settle(30 * time.Second)
		if at, k := groupAt(t, w.b, "app"), syncOf(m, mirror.SyncGroups); at != 1 || k.Error != "" {
			t.Errorf("at %d, %+v", at, k)
		}
		w.a.DeleteGroup("app") // or a listing that has lost it
		settle(2 * time.Minute)
		if at := groupAt(t, w.b, "app"); at != 1 {
			t.Errorf("gone at the source, and at %d", at)
		}
	})
}

// TestGroupsStop is C7.19: what was committed before a stop is there when it returns, whatever round
// is under way: one that writes older offsets, which are waited for, or one that hangs.
func TestGroupsStop(t *testing.T) {
	for name, tc := range map[string]struct {
		at    func(w *twins) *memory.Cluster
		fault memory.Fault
		call  memory.Call
		least time.Duration // that the stop takes
	}{
		"older offsets are on their way": {
			func(w *twins) *memory.Cluster { return w.b }, memory.Fault{Kind: memory.DelayRequest, Delay: 3 * time.Second}, memory.CallCommit, time.Second,
		},
		"the source does not answer": {
			func(w *twins) *memory.Cluster { return w.a }, memory.Fault{Kind: memory.DelayRequest, Delay: time.Hour}, memory.CallCommitted, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *twins) {
				w.write(w.a, "0", "1", "2", "3", "4")
				m, _ := w.mirror("ab", w.a, w.b, nil)
				settle(10 * time.Second)
				commitAs(t, w.a, "app", 2)
				commitAs(t, w.a, "late", 2)
				var slow atomic.Bool
				var asked atomic.Int64
				slow.Store(true)
				tc.at(w).SetFault(func(op memory.Op) memory.Fault {
					if op.Call == memory.CallGroups {
						asked.Add(1)
					}
					if op.Call == tc.call && op.Names[0] == "app" && slow.Swap(false) {
						return tc.fault
					}
					return memory.Fault{}
				})
				for slow.Load() { // until a round has come so far
					settle(time.Second)
				}
				commitAs(t, w.a, "app", 5)
				commitAs(t, w.a, "late", 4)
				began := time.Now()
				if err := m.Stop(context.Background(), "orders"); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < tc.least || took > 5*time.Second {
					t.Errorf("the stop took %v", took)
				}
				if app, late := groupAt(t, w.b, "app"), groupAt(t, w.b, "late"); app != 5 || late != 4 {
					t.Errorf("app is at %d, late at %d", app, late)
				}
				was := asked.Load()
				commitAs(t, w.b, "late", 6) // by itself: the topic is an ordinary one
				commitAs(t, w.a, "late", 3)
				settle(2 * time.Minute)
				if app, late := groupAt(t, w.b, "app"), groupAt(t, w.b, "late"); app != 5 || late != 6 {
					t.Errorf("after the stop app is at %d, late at %d", app, late)
				}
				if now := asked.Load(); now != was {
					t.Errorf("groups were listed %d times after the stop", now-was)
				}
			})
		})
	}
}

// forgetful is a store that keeps nothing of groups.
type forgetful struct{ *coordinator.Memory }

func (f forgetful) SwapNotes(ctx context.Context, mirror string, was, now map[string][]byte) ([]string, error) {
	for key := range now {
		if strings.HasPrefix(key, "group/") {
			return nil, cluster.ErrUnavailable
		}
	}
	return f.Memory.SwapNotes(ctx, mirror, was, now)
}

// TestGroupsWithoutNotes: what cannot be put on record is not written by rounds, and by a stop it
// is: nothing comes after it.
func TestGroupsWithoutNotes(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "0", "1", "2")
		commitAs(t, w.a, "app", 2)
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.Store = forgetful{w.storeB} })
		settle(70 * time.Second)
		if at, k := groupAt(t, w.b, "app"), syncOf(m, mirror.SyncGroups); at != -1 || !errors.Is(k.Err, cluster.ErrUnavailable) {
			t.Errorf("at %d, %+v", at, k)
		}
		if err := m.Stop(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		if at := groupAt(t, w.b, "app"); at != 2 {
			t.Errorf("after the stop at %d", at)
		}
	})
}

// TestGroupsThereAndBack is C7.23: groups go with the topic, over and back and over again.
func TestGroupsThereAndBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		from, to, name, back := w.a, w.b, "ab", "ba" // each turn the other way
		at := int64(0)
		for range 4 {
			w.write(from, "x", "y", "z")
			at += 3
			commitAs(t, from, "app", at)
			m, stop := w.mirror(name, from, to, nil)
			settle(time.Second)
			if err := m.Start(context.Background(), "orders"); err != nil {
				t.Fatal(err)
			}
			settle(70 * time.Second)
			commitAs(t, from, "app", at-1) // backwards too
			if err := m.Promote(context.Background(), "orders"); err != nil {
				t.Fatal(err)
			}
			if got := groupAt(t, to, "app"); got != at-1 {
				t.Fatalf("%s: the group is at %d, want %d", name, got, at-1)
			}
			stop()
			from, to, name, back = to, from, back, name
		}
	})
}

// TestGroupsCut: a group that has read what is cut begins at the cut again, and follows the source from
// there.
func TestGroupsCut(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "0", "1", "2", "3")
		if err := w.a.Lag(orders, w.follower(t, w.a), true); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "4", "5")
		for group, at := range map[string]int64{"far": 6, "near": 2} {
			commitAs(t, w.a, group, at)
		}
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.UncleanRecovery = []string{"orders"} })
		settle(70 * time.Second)
		if far := groupAt(t, w.b, "far"); far != 6 {
			t.Fatalf("before the cut at %d", far)
		}
		for group, at := range map[string]int64{"far": 3, "near": 1} { // its consumers found that the end is gone
			commitAs(t, w.a, group, at)
		}
		if err := w.a.ElectUnclean(orders, w.follower(t, w.a)); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "4, another", "5, another", "6")
		settle(3 * time.Minute)
		if s := w.state(m); s.State != coordinator.StateMirroring || len(w.truncated) == 0 {
			t.Fatalf("%+v, cut %v", s, w.truncated)
		}
		if far, near, s := groupAt(t, w.b, "far"), groupAt(t, w.b, "near"), m.Status().Groups; far != 3 || near != 1 || s.Held != 0 {
			t.Errorf("far is at %d, near at %d, %+v", far, near, s)
		}
	})
}

// TestGroupsLeftAlone: groups that are not wanted are not looked for.
func TestGroupsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "0", "1")
		commitAs(t, w.a, "app", 1)
		var asked atomic.Int64
		for _, c := range []*memory.Cluster{w.a, w.b} {
			c.SetFault(func(op memory.Op) memory.Fault {
				if op.Call == memory.CallGroups || op.Call == memory.CallCommitted {
					asked.Add(1)
				}
				return memory.Fault{}
			})
		}
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.NoGroups = true })
		settle(2 * time.Minute)
		if err := m.Stop(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		if n, k := asked.Load(), syncOf(m, mirror.SyncGroups); n != 0 || k.Idle == "" || k.Error != "" || m.Status().Groups != nil {
			t.Errorf("asked %d times, %+v", n, k)
		}
	})
}
