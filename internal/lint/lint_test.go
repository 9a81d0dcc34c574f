package lint

import (
	"path/filepath"
	"strings"
	"testing"
)

func repository(t *testing.T) []source {
	t.Helper()
	all, err := read(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d files were found: the walk is wrong", len(all))
	}
	return all
}

func check(t *testing.T, rule func(source) []string, applies func(source) bool) {
	t.Helper()
	for _, s := range repository(t) {
		if !applies(s) {
			continue
		}
		for _, bad := range rule(s) {
			t.Error(bad)
		}
	}
}

func TestImports(t *testing.T)   { check(t, imports, inGo) }
func TestLengths(t *testing.T)   { check(t, lengths, inGo) }
func TestForbidden(t *testing.T) { check(t, forbidden, everywhere) }

func TestSleeps(t *testing.T) { check(t, sleeps, inGo) }

func TestPackageComments(t *testing.T) {
	for _, bad := range undocumented(repository(t)) {
		t.Error(bad)
	}
}

// TestRulesBite shows each rule something that breaks it, and something that
// only looks like it.
func TestRulesBite(t *testing.T) {
	pkg := func(imports ...string) string {
		text := "package p\n"
		for _, imp := range imports {
			text += "import _ \"" + imp + "\"\n"
		}
		return text
	}
	ours := func(rel string) string { return pkg(module + "/" + rel) }
	long := func(lines int) string {
		return "package p\n\nfunc f() {\n" + strings.Repeat("\t_ = 0\n", lines-2) + "}\n"
	}
	kmsg, kgo := "github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kgo"
	tests := []struct {
		name string
		rule func(source) []string
		file string
		text string
		bad  bool
	}{
		{"an arrow", imports, "coordinator/x.go", ours("cluster"), false},
		{"no arrow", imports, "coordinator/x.go", ours("fetcher"), true},
		{"no arrow back", imports, "cluster/x.go", ours("coordinator"), true},
		{"the root and a transport", imports, "mirror.go", ours("transport/kafka"), true},
		{"a transport and the root", imports, "transport/kafka/x.go", pkg(module), true},
		{"a transport and a seam", imports, "transport/kafka/x.go", ours("fetcher"), false},
		{"a test imports what it likes", imports, "cluster/x_test.go", ours("coordinator"), false},
		{"an unknown folder", imports, "somewhere/x.go", pkg(), true},
		{"a command and a public package", imports, "cmd/kafka-mirrors/x.go", ours("transport/kafka"), false},
		{"a command and an internal package", imports, "cmd/kafka-mirrors/x.go", ours("internal/wire"), true},
		{"a command and its own internal package", imports, "cmd/kafka-mirrors/x.go", ours("cmd/kafka-mirrors/internal/x"), false},
		{"an example and an internal package", imports, "examples/quickstart/x.go", ours("internal/kafkatest"), true},
		{"a bench and an internal package", imports, "bench/x.go", ours("internal/kafkatest"), false},
		{"kmsg on the wire", imports, "internal/wire/x.go", pkg(kmsg), false},
		{"kmsg in the core", imports, "fetcher/x.go", pkg(kmsg), true},
		{"kgo on the wire", imports, "internal/wire/x.go", pkg(kgo), true},
		{"kgo in an example", imports, "examples/quickstart/x.go", pkg(kgo), false},
		{"kafka-go in a transport", imports, "transport/kafka/x.go", pkg("github.com/segmentio/kafka-go/sasl"), false},
		{"kafka-go in another", imports, "transport/memory/x.go", pkg("github.com/segmentio/kafka-go"), true},
		{"a module of no table", imports, "cluster/x.go", pkg("example.com/other"), true},
		{"a name that only begins the same", imports, "cluster/x.go", pkg("golang.org/x/synctool"), true},
		{"the standard library", imports, "cluster/x.go", pkg("net/http"), false},
		{"60 lines of function", lengths, "cluster/x.go", long(60), false},
		{"61 lines of function", lengths, "cluster/x.go", long(61), true},
		{"61 lines of test function", lengths, "cluster/x_test.go", long(61), false},
		{"500 lines of file", lengths, "cluster/x_test.go", "package p\n" + strings.Repeat("\n", 499), false},
		{"501 lines of file", lengths, "cluster/x_test.go", "package p\n" + strings.Repeat("\n", 500), true},
		{"a test sleeps", sleeps, "cluster/x_test.go", "package p\n\nfunc f() { time.Sleep" + "(1) }\n", true},
		{"a test sleeps in a bubble", sleeps, "cluster/x_test.go",
			"package p\n\nfunc f() { synctest.Test(t, func(t *testing.T) { time.Sleep" + "(1) }) }\n", false},
		{"a program sleeps", sleeps, "cluster/x.go", "package p\n\nfunc f() { time.Sleep" + "(1) }\n", false},
		{"left half done", forbidden, "cluster/x.go", "// TO" + "DO: later", true},
		{"a skipped test", forbidden, "cluster/x_test.go", "t.Skip" + "(\"no\")", true},
		{"a skipped benchmark", forbidden, "cluster/x_test.go", "b.Skip" + "f(\"no\")", true},
		{"no Kafka here", forbidden, "internal/kafkatest/x.go", "t.Skip" + "(\"no Kafka\")", false},
		{"a machine's path", forbidden, "docs/x.md", "see /wor" + "k/main", true},
		{"a path inside", forbidden, "docs/x.md", "see the net" + "/wor" + "k/layer", false},
		{"at the start of a line", forbidden, "docs/x.md", "/wor" + "k/main", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.rule(source{name: tt.file, text: tt.text})
			if (len(got) > 0) != tt.bad {
				t.Errorf("found %q, want some: %v", got, tt.bad)
			}
		})
	}
}

func TestUndocumentedBites(t *testing.T) {
	all := []source{
		{name: "a/a.go", text: "package a\n"},
		{name: "a/doc.go", text: "// Package a is one.\npackage a\n"},
		{name: "b/b.go", text: "// not about it\n\npackage b\n"},
		{name: "b/b_test.go", text: "// Package b is tested.\npackage b\n"},
	}
	if got := undocumented(all); len(got) != 1 || got[0] != "package in b has no comment" {
		t.Errorf("found %q", got)
	}
}
