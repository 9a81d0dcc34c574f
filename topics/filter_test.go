package topics

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilterMatches(t *testing.T) {
	long := strings.Repeat("x", 249)
	for _, tc := range []struct {
		name             string
		include, exclude []string
		yes, no          []string
	}{
		{name: "C9.1 literal is no expression", include: []string{"audit.events"}, yes: []string{"audit.events"}, no: []string{"audit-events", "xaudit.events", "audit.events2"}},
		{
			name: "C9.3 exclude wins", include: []string{"prod-.*"}, exclude: []string{"prod-x", "prod-tmp.*"},
			yes: []string{"prod-", "prod-a", "prod-xy"}, no: []string{"prod-x", "prod-tmp", "prod-tmp1", "other", ""},
		},
		{name: "whole name", include: []string{"a+"}, yes: []string{"a", "aaa"}, no: []string{"ab", "ba", ""}},
		{name: "alternatives are one group", include: []string{"a|bc"}, yes: []string{"a", "bc"}, no: []string{"ac", "abc", "b"}},
		{name: "internal never", include: []string{".*"}, yes: []string{"a", "_a", "a__"}, no: []string{"__consumer_offsets", "__x"}},
		{name: "nothing included", exclude: []string{"a"}, no: []string{"a", "b"}},
		{name: "longest name", include: []string{long}, yes: []string{long}, no: []string{long[1:]}},
		{name: "literal excluded by expression", include: []string{"a", "b"}, exclude: []string{"[a]"}, yes: []string{"b"}, no: []string{"a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := NewFilter(tc.include, tc.exclude)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range tc.yes {
				if !f.Matches(n) {
					t.Errorf("%q is not in", n)
				}
			}
			for _, n := range tc.no {
				if f.Matches(n) {
					t.Errorf("%q is in", n)
				}
			}
		})
	}
}

// TestFilterErrors: every bad entry is named, and a bad lot changes nothing.
func TestFilterErrors(t *testing.T) {
	long := strings.Repeat("x", 250)
	_, err := NewFilter([]string{"a(", "__consumer_offsets", "", "ok", long}, []string{"[z", "*"})
	for _, want := range []string{`include "a("`, `"__consumer_offsets"`, "include: an empty entry", `exclude "[z"`, `exclude "*"`, "at most 249"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if !errors.Is(err, ErrInternal) {
		t.Errorf("%v is not ErrInternal", err)
	}
	f, err := NewFilter([]string{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Include("b", "c(") == nil || f.Matches("b") {
		t.Error("half of a bad lot was included")
	}
	if f.Exclude("a", "c(") == nil || !f.Matches("a") {
		t.Error("half of a bad lot was excluded")
	}
}

// TestFilterChanges: exclusion of a stopped topic, its way back, and copies.
func TestFilterChanges(t *testing.T) {
	f, err := NewFilter([]string{"orders.*", "audit"}, []string{"orders-tmp"})
	if err != nil {
		t.Fatal(err)
	}
	before := f.Clone()
	for range 2 {
		if err := f.Exclude("orders-1", "audit"); err != nil {
			t.Fatal(err)
		}
	}
	if f.Matches("orders-1") || f.Matches("audit") || !f.Matches("orders-2") || len(f.Literals()) != 0 {
		t.Error("exclusion is not seen")
	}
	if !before.Matches("orders-1") || !before.Matches("audit") {
		t.Error("a copy saw the exclusion")
	}
	excluded := f.Clone()
	f.Readmit("orders-1", "audit", "never-excluded")
	if !f.Matches("orders-1") || !f.Matches("audit") || f.Matches("orders-tmp") {
		t.Error("readmission is not seen")
	}
	if excluded.Matches("orders-1") {
		t.Error("a copy saw the readmission")
	}
	if err := f.Exclude("orders-1"); err != nil || f.Matches("orders-1") {
		t.Error("excluded a second time, it is still in")
	}
	if diff := cmp.Diff([]string{"audit"}, f.Literals()); diff != "" {
		t.Error(diff)
	}
}

func TestSelect(t *testing.T) {
	names := []string{"a", "a.b", "a-b", "c"}
	for _, tc := range []struct {
		entries, want []string
	}{
		{nil, names}, {[]string{"a.b"}, []string{"a.b"}}, {[]string{"a.*"}, []string{"a", "a.b", "a-b"}}, {[]string{"c", "a"}, []string{"a", "c"}},
		{[]string{"x"}, nil},
	} {
		got, err := Select(tc.entries, names)
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", tc.entries, err, diff)
		}
	}
	if _, err := Select([]string{"a("}, names); err == nil || !strings.Contains(err.Error(), `"a("`) {
		t.Errorf("bad entry: %v", err)
	}
	all, _ := Select(nil, names)
	all[0] = "changed"
	if names[0] != "a" {
		t.Error("the answer shares the question's memory")
	}
}

// FuzzFilter: whatever is given, internal topics are out, exclusion wins, a
// literal matches itself only, and a copy agrees.
func FuzzFilter(f *testing.F) {
	for _, s := range [][3]string{
		{"orders.*", "orders-x", "orders-x"}, {"audit.events", "", "audit-events"}, {"a(", "b", "c"}, {"__x", "y", "__x"}, {".*", "[", "t"},
		{"(?i)A|b", "\\Qa\\E", "a"}, {"^a$", "a\n", "a"}, {"(?m)^x$", "", "y\nx"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, include, exclude, topic string) {
		var excludes []string
		if exclude != "" {
			excludes = []string{exclude}
		}
		filter, err := NewFilter([]string{include}, excludes)
		if err != nil {
			return
		}
		in := filter.Matches(topic)
		if in != filter.Clone().Matches(topic) {
			t.Error("a copy decides otherwise")
		}
		switch {
		case in && strings.HasPrefix(topic, "__"):
			t.Error("an internal topic is in")
		case in && topic == exclude && Literal(exclude):
			t.Error("an excluded topic is in")
		case in && Literal(include) && include != topic:
			t.Error("a literal matches another name")
		case !in && include == topic && Literal(include) && exclude == "":
			t.Error("a literal does not match itself")
		}
		if err := filter.Exclude(topic); err == nil && Literal(topic) && filter.Matches(topic) {
			t.Error("excluded and in")
		}
	})
}
