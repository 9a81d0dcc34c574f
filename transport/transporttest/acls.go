package transporttest

import (
	"errors"
	"slices"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
)

// accessRules: rules of all kinds are listed as they were added; exactly those that are named
// are deleted; one that is refused hides no other. A cluster that keeps none says so.
func accessRules(k *kit) {
	to := k.to.(acl.Sink)
	name := unique("acl")
	rule := func(kind, name, pattern, operation, permission string) cluster.Binding {
		return cluster.Binding{
			ResourceType: kind, Name: name, PatternType: pattern, Principal: "User:" + name, Host: "*", Operation: operation, Permission: permission,
		}
	}
	all := []cluster.Binding{
		rule("TOPIC", name, "LITERAL", "WRITE", "ALLOW"), rule("TOPIC", name, "PREFIXED", "WRITE", "ALLOW"),
		rule("TOPIC", name, "LITERAL", "ALL", "DENY"), rule("GROUP", name, "PREFIXED", "READ", "ALLOW"),
		rule("TRANSACTIONAL_ID", name, "LITERAL", "DESCRIBE", "ALLOW"),
	}
	if _, err := to.ACLs(k.ctx); errors.Is(err, cluster.ErrNoAuthorizer) {
		for _, err := range to.CreateACLs(k.ctx, all) {
			if !errors.Is(err, cluster.ErrNoAuthorizer) {
				k.Errorf("a rule in a cluster that keeps none: %v", err)
			}
		}
		return
	}
	expect := func(when string, want []cluster.Binding) {
		k.Helper()
		for {
			got, err := to.ACLs(k.ctx)
			if err != nil {
				k.Fatal(err)
			}
			got = slices.DeleteFunc(got, func(b cluster.Binding) bool { return b.Name != name })
			same := len(got) == len(want) && !slices.ContainsFunc(want, func(b cluster.Binding) bool { return !slices.Contains(got, b) })
			if same {
				return
			}
			if !k.rest() { // brokers hear of rules a little later
				k.Fatalf("%s there are %v, want %v", when, got, want)
			}
		}
	}
	none := func(errs []error, n int) {
		k.Helper()
		if len(errs) != n || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			k.Fatal(errs)
		}
	}
	none(to.CreateACLs(k.ctx, all), len(all))
	none(to.CreateACLs(k.ctx, all[:2]), 2)
	expect("afterwards", all)
	none(to.DeleteACLs(k.ctx, []cluster.Binding{all[0], all[3], rule("TOPIC", name, "PREFIXED", "READ", "ALLOW")}), 3)
	left := []cluster.Binding{all[1], all[2], all[4]}
	expect("after some were deleted", left)
	none(to.DeleteACLs(k.ctx, left), len(left))
	expect("in the end", nil)
}
