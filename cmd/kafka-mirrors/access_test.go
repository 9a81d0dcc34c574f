package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestGuard: rules are copied, who may write by them is denied it while the topic is mirrored, also by the
// next run after one that ended without a stop; kafka-mirrors stop lets them in again.
func TestGuard(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
	produce(t, a, "orders", 0, 10, "first")
	rule := func(permission string) cluster.Binding {
		return cluster.Binding{ResourceType: "TOPIC", PatternType: "LITERAL", Name: "orders", Principal: "User:CN=app,OU=x", Host: "*", Operation: "WRITE", Permission: permission}
	}
	from, to := aclsOf(t, a), aclsOf(t, b)
	if err := errors.Join(from.CreateACLs(t.Context(), []cluster.Binding{rule("ALLOW")})...); err != nil {
		t.Fatal(err)
	}
	are := func(when string, want ...string) {
		t.Helper()
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
			all, err := to.ACLs(ctx)
			got := map[string]bool{}
			for _, r := range all {
				got[r.Permission] = true
			}
			if err != nil || len(all) != len(want) || len(got) != len(want) {
				return errors.Join(err, errors.New(when+": "+cmp.Diff(want, all)))
			}
			return nil
		})
	}
	run := []string{
		"run", "--name", "a-to-b", "--source", a, "--destination", b, "--topics", "orders", "--state", "kafka", "--acls", "principal=User:CN=app,OU=x",
		"--guard", "User:mirror; User:other",
	}
	c := start(t, 0, run...)
	are("mirrored", "ALLOW", "DENY")
	c.stop(t)
	are("ended", "ALLOW", "DENY")
	c = start(t, 0, run...)
	says(t, exitOK, []string{"stop", "--name", "a-to-b", "--destination", b}, "orders: stopped")
	are("stopped", "ALLOW")
	c.stop(t)
}

// aclsOf is a client of a cluster.
func aclsOf(t *testing.T, address string) *kafka.Cluster {
	t.Helper()
	c, err := kafka.New(kafka.Config{Bootstrap: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAccessApplies(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want mirror.Options
	}{
		{"nothing", nil, mirror.Options{}},
		{"rules", []string{"--acls", "resource=TOPIC;name=x", "--acls", "all", "--acls-exclude", "principal=User:a", "--acls-delete"}, mirror.Options{
			ACLs: mirror.ACLs{Sync: true, Delete: true, Include: []acl.Rule{{ResourceType: "TOPIC"}, {Name: "x"}, {}}, Exclude: []acl.Rule{{Principal: "User:a"}}},
		}},
		{"guard", []string{"--guard", "User:CN=m,OU=x;User:n", "--guard", "User:o", "--guard-open", "--guard-super-users"}, mirror.Options{
			Guard: mirror.Guard{On: true, May: []string{"User:CN=m,OU=x", "User:n", "User:o"}, Open: true, SuperUsers: true},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f accessFlags
			c := &cobra.Command{}
			f.register(c)
			if err := c.ParseFlags(tt.args); err != nil {
				t.Fatal(err)
			}
			var o mirror.Options
			if err := f.apply(&o, true); err != nil {
				t.Fatal(err)
			}
			o.Store = nil
			if d := cmp.Diff(tt.want, o); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestAccessRefused: what cannot be meant is named by its flag, all of it.
func TestAccessRefused(t *testing.T) {
	base := []string{"run", "--source", "a:1", "--destination", "b:1", "--topics", "orders"}
	for want, args := range map[string][]string{
		"--acls-exclude: needs --acls":                        {"--acls-exclude", "all"},
		"--acls-delete: needs --acls":                         {"--acls-delete"},
		`--acls: rule "orders": begins with none of resource`: {"--acls", "orders"},
		`--acls-exclude: rule "resource=X"`:                   {"--acls", "all", "--acls-exclude", "resource=X"},
		"--acls: names no rule":                               {"--acls", ";"},
		"--guard-open: needs --guard":                         {"--guard-open"},
		"--guard-super-users: needs --guard":                  {"--guard-super-users"},
		`--guard: May[0]: "mirror" has not the form`:          {"--guard", "mirror", "--state", "kafka"},
		"--guard: needs --state kafka or file:DIR":            {"--guard", "User:mirror"},
	} {
		says(t, exitUsage, append(base, args...), want)
	}
	var out output
	if code := execute(t.Context(), append(base, "--guard", "User:mirror"), streams{out: &out, err: &out, width: func() int { return 0 }}); code != exitUsage {
		t.Errorf("exit %d", code)
	}
	if n := strings.Count(out.String(), "needs"); n != 1 {
		t.Errorf("told %d times:\n%s", n, &out)
	}
}
