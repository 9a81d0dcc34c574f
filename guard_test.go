package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// guarding runs a test with clusters that clients can write to.
func guarding(t *testing.T, f func(*testing.T, *twins)) {
	bubble(t, func(t *testing.T, w *twins) {
		w.b = memory.New(memory.Options{ID: "b", Produce: true})
		f(t, w)
	})
}

func guardOn(o *mirror.Options) {
	o.Guard = mirror.Guard{On: true, May: []string{"User:mirror"}}
	o.Start = mirror.Start{}
	o.Positions = nil
}

// denied is what a guard adds.
func denied(topic string) cluster.Binding {
	b := right("TOPIC", topic, "WRITE")
	b.Permission = "DENY"
	return b
}

// refusing has calls of one kind to the destination fail until the test says otherwise.
func refusing(c *memory.Cluster, call memory.Call, err error) {
	c.SetFault(func(op memory.Op) memory.Fault {
		if op.Call == call && op.Client != "admin" {
			return memory.Fault{Kind: memory.LoseRequest, Err: err}
		}
		return memory.Fault{}
	})
}

// TestGuard: topics are guarded while the mirror has them, whatever comes at the source or the
// destination; a topic is STOPPED only when what was added is gone, exactly that.
func TestGuard(t *testing.T) {
	guarding(t, func(t *testing.T, w *twins) {
		write, reads, other := right("TOPIC", "orders", "WRITE"), right("TOPIC", "orders", "READ"), denied("other")
		grant(t, w.b, write, reads, other)
		w.write(w.a, "a")
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { guardOn(o); o.Topics.Include = []string{"orders", "late"} })
		settle(time.Second)
		rights(t, w.b, "once it is mirrored", write, reads, other, denied("orders"))
		if err := w.a.CreateTopic(cluster.NewTopic{Name: "late", Partitions: 2}); err != nil {
			t.Fatal(err)
		}
		lateWrite := right("TOPIC", "late", "ALL")
		grant(t, w.b, lateWrite)
		settle(61 * time.Second)
		all := []cluster.Binding{write, reads, other, lateWrite}
		rights(t, w.b, "a topic more", slices.Concat(all, []cluster.Binding{denied("orders"), denied("late")})...)
		s := syncOf(m, mirror.SyncGuard)
		if s.Seen["topics"] != 2 || s.Seen["rules"] != 2 || s.Done["added"] != 2 || s.Done["removed"] != 0 || s.Idle != "" || s.Synced == nil || len(s.Notes) > 0 {
			t.Errorf("%+v", s)
		}

		refusing(w.b, memory.CallDeleteACLs, cluster.ErrAuthorization)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := m.Stop(ctx, "orders")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "take the guard away: topic orders: ACL DENY User:app WRITE") {
			t.Errorf("%v", err)
		}
		settle(0)
		if s := w.state(m); s.State == coordinator.StateStopped {
			t.Errorf("shown as stopped while it is guarded: %s", show(s))
		}
		all = append(all, right("TOPIC", "orders", "ALL"))
		all[len(all)-1].Principal = "User:new"
		grant(t, w.b, all[len(all)-1])
		settle(2 * time.Minute) // rounds do not take it away before the stop does, nor add anything
		rights(t, w.b, "a stop that is refused", slices.Concat(all, []cluster.Binding{denied("orders"), denied("late")})...)
		w.b.SetFault(nil)
		settle(5 * time.Minute)
		rights(t, w.b, "stopped", slices.Concat(all, []cluster.Binding{denied("late")})...)
		if s := w.state(m); s.State != coordinator.StateStopped {
			t.Errorf("%s", show(s))
		}
		if s := syncOf(m, mirror.SyncGuard); s.Done["removed"] != 1 || s.Seen["topics"] != 1 {
			t.Errorf("%+v", s)
		}
		refusing(w.b, memory.CallFence, cluster.ErrTimeout)
		if ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute); m.Stop(ctx, "late") == nil {
			t.Error("stopped without a fence")
		}
		cancel()
		rights(t, w.b, "a stop that has not come to it", slices.Concat(all, []cluster.Binding{denied("late")})...)
		w.b.SetFault(nil)
		if err := m.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		rights(t, w.b, "all is stopped", slices.Clone(all)...)
	})
}

// TestGuardDuringAStop: a stop waits for the round that is under way, so that nothing is added to
// what is STOPPED.
func TestGuardDuringAStop(t *testing.T) {
	guarding(t, func(t *testing.T, w *twins) {
		write := right("TOPIC", "orders", "WRITE")
		grant(t, w.b, write)
		var deletions atomic.Int32
		w.b.SetFault(func(op memory.Op) memory.Fault {
			if op.Call == memory.CallDeleteACLs {
				deletions.Add(1)
			}
			if op.Call == memory.CallCreateACLs {
				return memory.Fault{Kind: memory.DelayRequest, Delay: 5 * time.Second}
			}
			return memory.Fault{}
		})
		m, _ := w.mirror("ab", w.a, w.b, guardOn)
		settle(time.Second)
		began := time.Now()
		if err := m.Stop(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 4*time.Second || deletions.Load() != 1 {
			t.Errorf("stopped after %v, with %d deletions", took, deletions.Load())
		}
		settle(time.Minute)
		rights(t, w.b, "stopped", write)
	})
}

// TestGuardOfTwoProcesses: one that has lost its partitions to another one neither guards what that has
// stopped, nor lets go what it guards.
func TestGuardOfTwoProcesses(t *testing.T) {
	guarding(t, func(t *testing.T, w *twins) {
		write, lateWrite := right("TOPIC", "orders", "WRITE"), right("TOPIC", "late", "WRITE")
		grant(t, w.b, write, lateWrite)
		if err := w.a.CreateTopic(cluster.NewTopic{Name: "late", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		w.mirror("ab", w.a, w.b, guardOn) // its records stay as they were: it has lost them
		settle(time.Second)
		second, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { guardOn(o); o.Topics.Include = []string{"orders", "late"} })
		settle(3 * time.Second)
		w.write(w.a, "a") // with which the first is fenced
		settle(time.Second)
		rights(t, w.b, "both run", write, lateWrite, denied("orders"), denied("late"))
		if err := second.Stop(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			rights(t, w.b, "stopped", write, lateWrite, denied("late"))
			settle(7 * time.Second)
		}
	})
}

// TestGuardBefore: no topic of somebody else is guarded (I12).
func TestGuardBefore(t *testing.T) {
	guarding(t, func(t *testing.T, w *twins) {
		write := right("TOPIC", "orders", "WRITE")
		grant(t, w.b, write)
		if err := w.b.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "a")
		w.write(w.b, "x", "y")
		m, _ := w.mirror("ab", w.a, w.b, guardOn)
		settle(3 * time.Minute)
		if s := w.state(m); s.State != coordinator.StateFailed {
			t.Fatalf("%s", show(s))
		}
		rights(t, w.b, "an alignment that fails", write)
	})
}

// TestGuardAfterACrash: what a process has left behind the next one takes away at its stop, though
// the source is dead; also when the stop was asked for with nobody there, and when the
// guard is switched off.
func TestGuardAfterACrash(t *testing.T) {
	for _, how := range []string{"a stop by the next process", "a stop while nobody runs", "switched off"} {
		t.Run(how, func(t *testing.T) {
			guarding(t, func(t *testing.T, w *twins) {
				write := right("TOPIC", "orders", "WRITE")
				grant(t, w.b, write)
				_, end := w.mirror("ab", w.a, w.b, guardOn)
				settle(time.Second)
				rights(t, w.b, "guarded", write, denied("orders"))
				end()
				rights(t, w.b, "left behind", write, denied("orders"))
				switch how {
				case "a stop while nobody runs":
					if _, err := w.storeB.SaveIntents(context.Background(), "ab", []coordinator.Intent{{Topic: "orders", Desired: coordinator.WantStopped}}); err != nil {
						t.Fatal(err)
					}
				case "switched off":
					w.mirror("ab", w.a, w.b, func(o *mirror.Options) { o.Positions = nil })
					settle(time.Second)
					rights(t, w.b, "switched off", write)
					return
				}
				w.a.SetFault(func(memory.Op) memory.Fault {
					return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrUnavailable}
				})
				m, _ := w.mirror("ab", w.a, w.b, guardOn)
				settle(2 * time.Second)
				if how == "a stop by the next process" {
					rights(t, w.b, "the next process", write, denied("orders"))
					if err := m.Stop(context.Background(), "orders"); err != nil {
						t.Fatal(err)
					}
				}
				settle(time.Minute)
				rights(t, w.b, how, write)
				if s := w.state(m); s.State != coordinator.StateStopped {
					t.Errorf("%s", show(s))
				}
			})
		})
	}
}

// TestGuardNotCopied: a mirror the other way does not take a guard's rules for the source's, and its
// own guard is the other side's.
func TestGuardNotCopied(t *testing.T) {
	guarding(t, func(t *testing.T, w *twins) {
		write, otherWrite := right("TOPIC", "orders", "WRITE"), right("TOPIC", "other", "WRITE")
		grant(t, w.a, write, otherWrite)
		if err := w.b.CreateTopic(cluster.NewTopic{Name: "other", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		both := func(o *mirror.Options) {
			positions := o.Positions
			guardOn(o)
			o.Positions = positions
			o.ACLs = mirror.ACLs{Sync: true, Include: []acl.Rule{{}}, Delete: true}
			o.Guard.Interval = 24 * time.Hour // it is told of what was copied
		}
		m, _ := w.mirror("ab", w.a, w.b, both)
		settle(2 * time.Second)
		rights(t, w.b, "copied, and guarded at once", write, otherWrite, denied("orders"))
		w.mirror("ba", w.b, w.a, func(o *mirror.Options) { both(o); o.Topics.Include = []string{"other"} })
		settle(5 * time.Minute)
		more, no := right("TOPIC", "orders", "ALL"), denied("orders")
		more.Principal, no.Principal = "User:more", "User:more"
		grant(t, w.a, more)
		settle(5 * time.Minute)
		rights(t, w.b, "forth", write, otherWrite, more, denied("orders"), no)
		rights(t, w.a, "back", write, otherWrite, more) // clients cannot write to mirror topics of a anyway
		if err := m.Stop(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		settle(2 * time.Minute)
		rights(t, w.b, "stopped", write, otherWrite, more)
		rights(t, w.a, "stopped", write, otherWrite, more)
	})
}

// TestGuardIdle: where nobody can write, and where a cluster keeps no rules, the guard is idle and says
// why, with one warning at most; a stop does not wait for an authorizer.
func TestGuardIdle(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		grant(t, w.b, right("TOPIC", "orders", "WRITE"))
		m, _ := w.mirror("ab", w.a, w.b, guardOn)
		settle(time.Second)
		rights(t, w.b, "read-only by nature", right("TOPIC", "orders", "WRITE"))
		if s := syncOf(m, mirror.SyncGuard); !strings.Contains(s.Idle, "clients cannot write") || s.Error != "" {
			t.Errorf("%+v", s)
		}
	})
	guarding(t, func(t *testing.T, w *twins) {
		grant(t, w.b, right("TOPIC", "orders", "WRITE"))
		var log bytes.Buffer
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) {
			guardOn(o)
			o.Logger, o.Guard.Interval = slog.New(slog.NewTextHandler(&log, nil)), 10*time.Second
		})
		settle(time.Second)
		w.b.SetFault(func(op memory.Op) memory.Fault {
			if slices.Contains([]memory.Call{memory.CallACLs, memory.CallCreateACLs, memory.CallDeleteACLs}, op.Call) && op.Client != "admin" {
				return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrNoAuthorizer}
			}
			return memory.Fault{}
		})
		settle(35 * time.Second)
		if s := syncOf(m, mirror.SyncGuard); s.Error != "" || !strings.Contains(s.Idle, "no authorizer") || m.Status().Health != "ok" {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(log.String(), "mirror topics are not guarded"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, &log)
		}
		if err := m.Stop(context.Background(), "orders"); err != nil {
			t.Error(err)
		}
		w.b.SetFault(nil)
		settle(15 * time.Second)
		rights(t, w.b, "with an authorizer again", right("TOPIC", "orders", "WRITE"))
	})
}

// TestGuardShows: topics that cannot be guarded are named with the reason, and such as have no rule are
// counted.
func TestGuardShows(t *testing.T) {
	guarding(t, func(t *testing.T, w *twins) {
		everyone := right("TOPIC", "orders", "WRITE")
		everyone.Principal = "User:*"
		grant(t, w.b, everyone)
		if err := w.a.CreateTopic(cluster.NewTopic{Name: "bare", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		m, end := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { guardOn(o); o.Topics.Include = []string{".*"} })
		settle(time.Second)
		s := syncOf(m, mirror.SyncGuard)
		if !strings.Contains(s.Refused["orders"], "topic orders: ALLOW User:* WRITE") || s.Seen["bare"] != 1 || len(s.Notes) != 1 || m.Status().Health != "troubled" {
			t.Errorf("%+v", s)
		}
		end()
		m, _ = w.mirror("ab", w.a, w.b, func(o *mirror.Options) {
			guardOn(o)
			o.Topics.Include, o.Guard.Open, o.Guard.SuperUsers = []string{".*"}, true, true
		})
		settle(time.Second)
		if s = syncOf(m, mirror.SyncGuard); len(s.Refused)+len(s.Notes) > 0 || s.Seen["rules"] != 7 {
			t.Errorf("%+v", s)
		}
		if err := m.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		rights(t, w.b, "stopped", everyone)
	})
}

// TestGuardBindsUs: where the mirror's own principal is none of those that may, the guard says so; and it
// does not keep a topic from being stopped.
func TestGuardBindsUs(t *testing.T) {
	guarding(t, func(t *testing.T, w *twins) {
		write := right("TOPIC", "orders", "WRITE")
		grant(t, w.b, write)
		m, _ := w.mirror("ab", w.a, w.b, guardOn)
		settle(time.Second)
		refusing(w.b, memory.CallAppend, cluster.ErrAuthorization)
		w.write(w.a, "a")
		settle(2 * time.Minute)
		if s := syncOf(m, mirror.SyncGuard); !strings.Contains(s.Refused["orders"], "is its principal, by that very name, among Guard.May?") {
			t.Errorf("%+v", s)
		}
		rights(t, w.b, "refused", write, denied("orders"))
		refusing(w.b, memory.CallFence, cluster.ErrAuthorization)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		if m.Stop(ctx, "orders") == nil {
			t.Error("stopped without a fence")
		}
		rights(t, w.b, "the fence is refused", write)
		w.b.SetFault(nil)
		if err := m.Stop(context.Background(), "orders"); err != nil {
			t.Error(err)
		}
		rights(t, w.b, "stopped", write)
	})
}

// TestGuardRequests: a thousand topics are guarded, and let go, with few requests.
func TestGuardRequests(t *testing.T) {
	guarding(t, func(t *testing.T, w *twins) {
		const topics = 1000
		for i := range topics {
			name := fmt.Sprintf("t%04d", i)
			if err := w.a.CreateTopic(cluster.NewTopic{Name: name, Partitions: 1}); err != nil {
				t.Fatal(err)
			}
		}
		wide := right("TOPIC", "t", "WRITE")
		wide.PatternType = "PREFIXED"
		grant(t, w.b, wide)
		var asked [3]atomic.Int32
		calls := []memory.Call{memory.CallACLs, memory.CallCreateACLs, memory.CallDeleteACLs}
		w.b.SetFault(func(op memory.Op) memory.Fault {
			if i := slices.Index(calls, op.Call); i >= 0 {
				asked[i].Add(1)
			}
			return memory.Fault{}
		})
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) { guardOn(o); o.Topics.Include = []string{"t.*"} })
		settle(5 * time.Second)
		if s := syncOf(m, mirror.SyncGuard); s.Seen["rules"] != topics {
			t.Fatalf("%+v", s)
		}
		if err := m.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		rights(t, w.b, "stopped", wide)
		for i, call := range calls {
			if n := asked[i].Load(); n > 12 {
				t.Errorf("%d times %s", n, call)
			}
		}
	})
}

// TestGuardRefusedOptions: what cannot be meant is refused by its field.
func TestGuardRefusedOptions(t *testing.T) {
	for want, o := range map[string]mirror.Options{
		"Guard: May: is empty":            {Guard: mirror.Guard{On: true}},
		`Guard: May[0]: "mirror" has not`: {Guard: mirror.Guard{On: true, May: []string{"mirror"}}},
		"Guard: needs a Store":            {Guard: mirror.Guard{On: true, May: []string{"User:mirror"}}},
		"Guard.Interval: -1s is negative": {Guard: mirror.Guard{On: true, May: []string{"User:mirror"}, Interval: -time.Second}},
	} {
		if _, err := mirror.New("ab", newMock("a"), newMock("b"), &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	m, err := mirror.New("ab", newMock("a"), newMock("b"), nil)
	if err != nil || slices.ContainsFunc(m.Status().Syncs, func(s mirror.SyncStatus) bool { return s.Kind == mirror.SyncGuard }) {
		t.Errorf("without On: %v", err)
	}
}
