package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/memory"
)

func right(kind, name, operation string) cluster.Binding {
	return cluster.Binding{ResourceType: kind, Name: name, PatternType: "LITERAL", Principal: "User:app", Host: "*", Operation: operation, Permission: "ALLOW"}
}

func grant(t *testing.T, c *memory.Cluster, bs ...cluster.Binding) {
	t.Helper()
	if err := errors.Join(c.Client("admin").CreateACLs(context.Background(), bs)...); err != nil {
		t.Fatal(err)
	}
}

func revoke(t *testing.T, c *memory.Cluster, bs ...cluster.Binding) {
	t.Helper()
	if err := errors.Join(c.Client("admin").DeleteACLs(context.Background(), bs)...); err != nil {
		t.Fatal(err)
	}
}

func rights(t *testing.T, c *memory.Cluster, when string, want ...cluster.Binding) {
	t.Helper()
	got, err := c.Client("admin").ACLs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	byText := func(a, b cluster.Binding) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(got, byText)
	slices.SortFunc(want, byText)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: %s", when, d)
	}
}

// TestACLs is C8.1 and C8.3: rules come in full within an interval; a process that comes after another
// knows what was created, and deletes that, and nothing else, when asked; two mirrors do not fight.
func TestACLs(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		write, every, own, app := right("TOPIC", "orders", "WRITE"), right("TOPIC", "orders", "ALL"), right("TOPIC", "own", "READ"), right("GROUP", "app", "READ")
		grant(t, w.a, write, every, app)
		grant(t, w.b, own)
		on := func(remove bool) func(*mirror.Options) {
			return func(o *mirror.Options) {
				o.ACLs = mirror.ACLs{Sync: true, Include: []acl.Rule{{ResourceType: "TOPIC"}}, Delete: remove}
			}
		}
		m, end := w.mirror("ab", w.a, w.b, on(false))
		settle(time.Second)
		rights(t, w.b, "at once", write, every, own)
		revoke(t, w.a, every)
		settle(61 * time.Second)
		rights(t, w.b, "only added", write, every, own)
		s := syncOf(m, mirror.SyncACLs)
		if d := cmp.Diff(map[string]int64{"matched": 1, "owned": 2, "left": 1}, s.Seen); d != "" || s.Done["created"] != 2 || s.Done["deleted"] != 0 || s.Idle != "" {
			t.Errorf("%+v %s", s, d)
		}
		end()

		_, end = w.mirror("ab", w.a, w.b, on(true))
		settle(time.Second)
		rights(t, w.b, "deletion is asked for", write, own)

		c := memory.New(memory.Options{ID: "c"})
		grant(t, c, write)
		if err := c.CreateTopic(cluster.NewTopic{Name: "other", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		_, endC := w.mirror("cb", c, w.b, func(o *mirror.Options) { on(true)(o); o.Topics.Include = []string{"other"}; o.Positions = nil })
		settle(time.Second)
		revoke(t, w.a, write)
		grant(t, w.a, right("TOPIC", "rest", "READ"))
		settle(61 * time.Second)
		rights(t, w.b, "one of two lets go", write, own, right("TOPIC", "rest", "READ"))
		revoke(t, c, write)
		grant(t, c, right("TOPIC", "rest", "READ"))
		settle(61 * time.Second)
		rights(t, w.b, "both let go", own, right("TOPIC", "rest", "READ"))
		end()
		endC()
	})
}

// TestACLsIdle: where a cluster keeps no rules, or nobody can tell, the kind is idle with one warning
// and the mirror goes on; it begins when there are some.
func TestACLsIdle(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		grant(t, w.a, right("TOPIC", "orders", "READ"))
		w.b.SetFault(func(op memory.Op) memory.Fault {
			if op.Call == memory.CallACLs {
				return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrNoAuthorizer}
			}
			return memory.Fault{}
		})
		var log bytes.Buffer
		m, _ := w.mirror("ab", w.a, w.b, func(o *mirror.Options) {
			o.ACLs = mirror.ACLs{Sync: true, Include: []acl.Rule{{}}, Interval: 10 * time.Second}
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		settle(35 * time.Second)
		s := syncOf(m, mirror.SyncACLs)
		if s.Rounds < 4 || s.Error != "" || s.Failures != 0 || !strings.Contains(s.Idle, "no authorizer") || m.Status().Health != "ok" {
			t.Errorf("%+v, the mirror is %s", s, m.Status().Health)
		}
		w.b.SetFault(nil)
		settle(10 * time.Second)
		rights(t, w.b, "with an authorizer", right("TOPIC", "orders", "READ"))
		if s = syncOf(m, mirror.SyncACLs); s.Idle != "" {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(log.String(), "access rules are not synced"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, &log)
		}
	})
}

// TestACLsRefused is C8.7: what cannot be meant is refused by its field.
func TestACLsRefused(t *testing.T) {
	for want, a := range map[string]mirror.ACLs{
		"ACLs: Include: is empty":                    {Sync: true},
		`ACLs: Include[0]: ResourceType: "TOPICS"`:   {Sync: true, Include: []acl.Rule{{ResourceType: "TOPICS"}}},
		"ACLs.Interval: -1s is negative":             {Sync: true, Include: []acl.Rule{{}}, Interval: -time.Second},
		`ACLs: Exclude[1]: Principal: "app" has not`: {Sync: true, Include: []acl.Rule{{}}, Exclude: []acl.Rule{{}, {Principal: "app"}}},
	} {
		if _, err := mirror.New("ab", newMock("a"), newMock("b"), &mirror.Options{ACLs: a}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	m, err := mirror.New("ab", newMock("a"), newMock("b"), nil)
	if err != nil || slices.ContainsFunc(m.Status().Syncs, func(s mirror.SyncStatus) bool { return s.Kind == mirror.SyncACLs }) {
		t.Errorf("without Sync: %v", err)
	}
}
