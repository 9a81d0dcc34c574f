package offsets

import (
	"strings"
	"testing"
)

// TestFilter is C7.21.
func TestFilter(t *testing.T) {
	for _, tc := range []struct {
		name             string
		include, exclude []string
		in, out          []string
	}{
		{name: "default", in: []string{"app", "connect-x", "my-console-consumer-1", "a/b c"}, out: []string{"console-consumer-1", "console-consumer-x"}},
		{name: "an explicit name wins", include: []string{"console-consumer-1"}, in: []string{"console-consumer-1"}, out: []string{"app", "console-consumer-2"}},
		{name: "an explicit pattern wins", include: []string{".*"}, in: []string{"app", "console-consumer-1", "line\nbreak"}},
		{name: "a name is exact", include: []string{"a.b"}, in: []string{"a.b"}, out: []string{"axb", "a.b.c"}},
		{name: "a pattern matches the whole name", include: []string{"a|b+"}, in: []string{"a", "bb"}, out: []string{"ab", "xbb"}},
		{name: "exclusion wins", include: []string{"app.*"}, exclude: []string{"app-2"}, in: []string{"app-1"}, out: []string{"app-2"}},
		{name: "exclusion beside the default", exclude: []string{"app"}, in: []string{"other"}, out: []string{"app", "console-consumer-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := NewFilter(tc.include, tc.exclude)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range tc.in {
				if !f.Includes(g) {
					t.Errorf("%q is left out", g)
				}
			}
			for _, g := range tc.out {
				if f.Includes(g) {
					t.Errorf("%q is let through", g)
				}
			}
		})
	}
	var none *Filter
	if !none.Includes("app") || none.Includes("console-consumer-1") {
		t.Error("a nil Filter is not the default")
	}
	_, err := NewFilter([]string{"a(", "ok"}, []string{"", "[z"})
	for _, want := range []string{`include "a("`, `exclude ""`, `exclude "[z"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
