package acl

import (
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

// rule is ALLOW User:a READ on a literal topic, changed.
func rule(name string, change ...func(*cluster.Binding)) cluster.Binding {
	b := cluster.Binding{ResourceType: "TOPIC", Name: name, PatternType: "LITERAL", Principal: "User:a", Host: "*", Operation: "READ", Permission: "ALLOW"}
	for _, f := range change {
		f(&b)
	}
	return b
}

func prefixed(b *cluster.Binding) { b.PatternType = "PREFIXED" }
func group(b *cluster.Binding)    { b.ResourceType = "GROUP" }
func all(b *cluster.Binding)      { b.Operation = "ALL" }
func deny(b *cluster.Binding)     { b.Permission = "DENY" }

// TestRule is the matrix of AclBindingFilter: patterns of every kind, and each field.
func TestRule(t *testing.T) {
	for _, tt := range []struct {
		name string
		rule Rule
		yes  []cluster.Binding
		no   []cluster.Binding
	}{
		{"everything", Rule{}, []cluster.Binding{rule("a"), rule("*", group), rule("x", prefixed, all, deny)}, nil},
		{"any in words", Rule{ResourceType: "ANY", PatternType: "ANY", Operation: "ANY", Permission: "ANY"}, []cluster.Binding{rule("a"), rule("x", group, prefixed, deny)}, nil},
		{"type", Rule{ResourceType: "TOPIC"}, []cluster.Binding{rule("a")}, []cluster.Binding{rule("a", group)}},
		{"name under any pattern", Rule{Name: "orders"}, []cluster.Binding{rule("orders"), rule("orders", prefixed)}, []cluster.Binding{rule("orders2"), rule("ord", prefixed), rule("*")}},
		{"literal", Rule{PatternType: "LITERAL", Name: "orders"}, []cluster.Binding{rule("orders")}, []cluster.Binding{rule("orders", prefixed), rule("*")}},
		{"the wildcard itself", Rule{PatternType: "LITERAL", Name: "*"}, []cluster.Binding{rule("*")}, []cluster.Binding{rule("orders")}},
		{"prefixed", Rule{PatternType: "PREFIXED", Name: "ord"}, []cluster.Binding{rule("ord", prefixed)}, []cluster.Binding{rule("ord"), rule("orders", prefixed)}},
		{"prefixed of any name", Rule{PatternType: "PREFIXED"}, []cluster.Binding{rule("ord", prefixed)}, []cluster.Binding{rule("ord")}},
		{"match", Rule{PatternType: "MATCH", Name: "orders"},
			[]cluster.Binding{rule("orders"), rule("*"), rule("ord", prefixed), rule("orders", prefixed)},
			[]cluster.Binding{rule("ord"), rule("orders2", prefixed), rule("orders2")}},
		{"match of a dot is no expression", Rule{PatternType: "MATCH", Name: "audit.events"}, nil, []cluster.Binding{rule("audit-events")}},
		{"principal", Rule{Principal: "User:a"}, []cluster.Binding{rule("x")}, []cluster.Binding{rule("x", func(b *cluster.Binding) { b.Principal = "User:*" })}},
		{"host", Rule{Host: "*"}, []cluster.Binding{rule("x")}, []cluster.Binding{rule("x", func(b *cluster.Binding) { b.Host = "10.0.0.1" })}},
		{"ALL is an operation", Rule{Operation: "ALL"}, []cluster.Binding{rule("x", all)}, []cluster.Binding{rule("x")}},
		{"permission", Rule{Permission: "DENY"}, []cluster.Binding{rule("x", deny)}, []cluster.Binding{rule("x")}},
	} {
		f, err := NewFilter([]Rule{tt.rule}, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, b := range tt.yes {
			if !f.Includes(b) {
				t.Errorf("%s leaves out %v", tt.name, b)
			}
		}
		for _, b := range tt.no {
			if f.Includes(b) {
				t.Errorf("%s takes in %v", tt.name, b)
			}
		}
	}
}

// TestFilter: exclusion wins; what nothing includes is out (C9.3).
func TestFilter(t *testing.T) {
	f, err := NewFilter([]Rule{{ResourceType: "TOPIC"}, {ResourceType: "GROUP", Name: "app"}}, []Rule{{Name: "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	for b, want := range map[cluster.Binding]bool{
		rule("orders"): true, rule("app", group): true, rule("other", group): false, rule("secret"): false, rule("secret", prefixed): false,
	} {
		if f.Includes(b) != want {
			t.Errorf("%v is included: %v", b, !want)
		}
	}
}

// TestFilterRefused is C8.7: every bad field is named, with its place.
func TestFilterRefused(t *testing.T) {
	for _, tt := range []struct {
		include, exclude []Rule
		want             []string
	}{
		{nil, nil, []string{"Include: is empty"}},
		{nil, []Rule{{Operation: "READS"}}, []string{"Include: is empty", `Exclude[0]: Operation: "READS" is none of ALL, READ`}},
		{[]Rule{{}, {ResourceType: "topic", PatternType: "REGEX", Permission: "GRANT", Principal: "alice"}}, nil, []string{
			`Include[1]: ResourceType: "topic"`, `PatternType: "REGEX"`, `Permission: "GRANT"`, `Principal: "alice" has not the form Type:name`}},
		{[]Rule{{PatternType: "MATCH"}}, nil, []string{"Include[0]: Name: is empty with PatternType MATCH"}},
	} {
		f, err := NewFilter(tt.include, tt.exclude)
		if err == nil || f != nil {
			t.Errorf("%v %v: taken", tt.include, tt.exclude)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %q", want, err)
			}
		}
	}
}
