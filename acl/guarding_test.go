package acl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

func write(b *cluster.Binding) { b.Operation = "WRITE" }

func of(principal string) func(*cluster.Binding) {
	return func(b *cluster.Binding) { b.Principal = principal }
}

// TestGuarding: what stands beside rules of others.
func TestGuarding(t *testing.T) {
	type bs = []cluster.Binding
	denied := func(name, principal string) cluster.Binding { return rule(name, write, deny, of(principal)) }
	open := bs{
		rule("t", of("User:*"), func(b *cluster.Binding) { b.Operation = "ALTER" }),
		rule("t", of("User:*"), func(b *cluster.Binding) { b.Operation = "ALTER_CONFIGS" }),
		rule("t", of("User:*"), func(b *cluster.Binding) { b.Operation = "CREATE" }),
		rule("t", of("User:*"), func(b *cluster.Binding) { b.Operation = "DELETE" }),
		rule("t", of("User:*")), rule("t", write, of("User:mirror")),
	}
	ours := Guarding{May: []string{"User:mirror"}}
	for _, tt := range []struct {
		name      string
		g         Guarding
		others    bs
		want      bs
		bare      []string
		unguarded string
	}{
		{"a writer", ours, bs{rule("t", write)}, bs{denied("t", "User:a")}, nil, ""},
		{"may do everything", ours, bs{rule("t", all)}, bs{denied("t", "User:a")}, nil, ""},
		{"by a prefix, by any, by none", ours, bs{
			rule("", write, prefixed, of("User:b")), rule("t", write, prefixed, of("User:c")), rule("*", write, of("User:d")),
			rule("u", write, prefixed, of("User:e")), rule("tt", write, prefixed, of("User:f")), rule("u", write, of("User:g")), rule("t", write, group, of("User:h")),
		}, bs{denied("t", "User:b"), denied("t", "User:c"), denied("t", "User:d")}, nil, ""},
		{"from one host", ours, bs{rule("t", write, func(b *cluster.Binding) { b.Host = "10.0.0.1" })}, bs{denied("t", "User:a")}, nil, ""},
		{"readers", ours, bs{rule("t"), rule("t", of("User:*"))}, nil, nil, ""},
		{"those that may", ours, bs{rule("t", all, of("User:mirror"))}, nil, nil, ""},
		{"denied already", ours, bs{rule("t", write), rule("t", write, deny)}, nil, nil, ""},
		{"denied with everything else", ours, bs{rule("t", write), rule("*", all, deny)}, nil, nil, ""},
		{"denied to everyone", ours, bs{rule("t", write), rule("t", write, of("User:*")), rule("t", write, deny, of("User:*"))}, nil, nil, ""},
		{"denied from one host", ours, bs{rule("t", write), rule("t", write, deny, func(b *cluster.Binding) { b.Host = "10.0.0.1" })},
			bs{denied("t", "User:a")}, nil, ""},
		{"everyone", ours, bs{rule("t", write, of("User:*")), rule("t", write)}, bs{denied("t", "User:a")}, nil, "topic t: ALLOW User:* WRITE on TOPIC t"},
		{"everyone but super users", Guarding{May: ours.May, SuperUsers: true}, bs{rule("t", write, of("User:*"))}, bs{denied("t", "User:*")}, nil, ""},
		{"no rule", ours, bs{rule("u", write)}, nil, []string{"t"}, ""},
		{"no rule in an open cluster", Guarding{May: ours.May, Open: true}, bs{rule("u", write)}, open, []string{"t"}, ""},
		{"a rule in an open cluster", Guarding{May: ours.May, Open: true}, bs{rule("t", write)}, bs{denied("t", "User:a")}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, bare, unguarded := tt.g.Rules([]string{"t"}, tt.others)
			if d := cmp.Diff(tt.want, want); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tt.bare, bare); d != "" {
				t.Error(d)
			}
			if tt.unguarded == "" && len(unguarded) > 0 || tt.unguarded != "" && (unguarded["t"] == nil || !strings.Contains(unguarded["t"].Error(), tt.unguarded)) {
				t.Errorf("%v", unguarded)
			}
		})
	}
}

// TestGuardingRefused: what cannot be meant is refused by its field.
func TestGuardingRefused(t *testing.T) {
	for want, may := range map[string][]string{
		"May: is empty": nil, `May[1]: "app" has not the form`: {"User:a", "app"}, "May[0]: User:* is everyone": {"User:*"},
	} {
		if err := (Guarding{May: may}).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if err := (Guarding{May: []string{"User:a", "Group:x:y"}}).Validate(); err != nil {
		t.Error(err)
	}
}

// authorized is StandardAuthorizerData.authorize: rules are of a topic, and none of them of a host.
func authorized(rules []cluster.Binding, topic, principal, operation string, open bool) bool {
	some, allowed := false, false
	for _, b := range rules {
		if b.ResourceType != "TOPIC" || !(Rule{Name: topic, PatternType: matching}).named(b) {
			continue
		}
		some = true
		implied := b.Operation == operation || b.Operation == "ALL"
		if b.Permission == "ALLOW" {
			switch operation {
			case "DESCRIBE":
				implied = implied || slices.Contains([]string{"READ", "WRITE", "DELETE", "ALTER"}, b.Operation)
			case "DESCRIBE_CONFIGS":
				implied = implied || b.Operation == "ALTER_CONFIGS"
			}
		}
		if (b.Principal == principal || b.Principal == everyone) && implied {
			if b.Permission == "DENY" {
				return false
			}
			allowed = true
		}
	}
	return allowed || !some && open
}

// FuzzGuarding: whatever rules there are, who may not write is refused, and nothing else changes
// for anybody, whether the cluster is open or not.
func FuzzGuarding(f *testing.F) {
	f.Add([]byte{1, 2, 3}, false, false)
	f.Add([]byte{0xff, 0x80, 0x41, 7, 9, 200}, true, true)
	f.Add([]byte{}, true, false)
	principals := []string{"User:mirror", "User:a", "User:b", everyone}
	operations := []string{"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
	var pool []cluster.Binding
	for _, principal := range principals {
		for _, operation := range append([]string{"ALL"}, operations[:2]...) {
			for _, permission := range []string{"ALLOW", "DENY"} {
				for _, name := range []cluster.Binding{rule("to"), rule("t", prefixed), rule("*")} {
					name.Principal, name.Operation, name.Permission = principal, operation, permission
					pool = append(pool, name)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, script []byte, open, super bool) {
		rules := map[cluster.Binding]bool{}
		for _, op := range script {
			rules[pool[int(op)%len(pool)]] = true
		}
		others := slices.Collect(maps.Keys(rules))
		g := Guarding{May: principals[:1], SuperUsers: super, Open: open}
		topics := []string{"to", "too", "x"}
		want, _, unguarded := g.Rules(topics, others)
		after := slices.Concat(others, want)
		for _, topic := range topics {
			for _, principal := range principals[:3] {
				if super && principal == "User:mirror" {
					continue // no rule binds it
				}
				for _, operation := range operations {
					was, is := authorized(others, topic, principal, operation, open), authorized(after, topic, principal, operation, open)
					switch {
					case operation != "WRITE" || principal == "User:mirror":
						if was != is {
							t.Errorf("%s %s %s: was %v, is %v: %v and %v", topic, principal, operation, was, is, others, want)
						}
					case is && unguarded[topic] == nil:
						t.Errorf("%s: %s may write: %v and %v", topic, principal, others, want)
					}
				}
			}
		}
	})
}

// BenchmarkGuarding: time grows with the topics and rules, not with one times the other.
func BenchmarkGuarding(b *testing.B) {
	for _, topics := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(topics), func(b *testing.B) {
			var names []string
			others := []cluster.Binding{rule("", write, prefixed), rule("topic-", write, prefixed, of("User:mirror"))}
			for i := range topics {
				names = append(names, fmt.Sprintf("topic-%06d", i))
				others = append(others, rule(names[i]), rule(names[i], write, of("User:b")))
			}
			g := Guarding{May: []string{"User:mirror"}}
			b.ReportAllocs()
			for b.Loop() {
				if want, _, _ := g.Rules(names, others); len(want) != 2*topics {
					b.Fatal(len(want))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*topics), "ns/topic")
		})
	}
}
