package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	module       = "github.com/clustermirror/mirror"
	maxFileLines = 500
	maxFuncLines = 60
)

// arrows says for each folder which packages of this module its non-test files
// may import. A folder named with /... stands for all below it; the longest
// match counts. "public" stands for every package that is not internal, "any"
// for every package. What is not in the table may not exist.
var arrows = map[string][]string{
	".":                   {"acl", "cluster", "coordinator", "fetcher", "internal/epoch", "offsets", "preflight", "topics"},
	"acl":                 {"cluster"},
	"bench/...":           {"any"},
	"cluster":             {},
	"cmd/...":             {"public"},
	"coordinator":         {"cluster", "internal/epoch"},
	"examples/...":        {"public"},
	"fetcher":             {"cluster", "internal/batch", "internal/epoch"},
	"internal/acceptance": {"any"},
	"internal/batch":      {"cluster", "internal/crc32c"},
	"internal/clients":    {},
	"internal/crc32c":     {},
	"internal/datadriven": {},
	"internal/epoch":      {"cluster"},
	"internal/kafkatest":  {},
	"internal/lead":       {"cluster", "internal/batch", "internal/epoch"},
	"internal/lint":       {},
	"internal/logdir":     {"cluster", "internal/batch", "internal/epoch"},
	"internal/metalog":    {"cluster", "internal/batch", "internal/wire"},
	"internal/simulation": {"any"},
	"internal/wire":       {"cluster", "internal/crc32c"},
	"internal/zoo":        {"cluster", "internal/batch"},
	"internal/zoo/live":   {"cluster", "internal/batch", "internal/zoo"},
	"offsets":             {"cluster"},
	"preflight":           {"cluster"},
	"prommirror":          {"public"},
	"store/...":           {"cluster", "coordinator", "internal/wire"},
	"store/kafka":         {"cluster", "coordinator", "internal/batch", "internal/wire"},
	"store/storetest":     {"cluster", "coordinator"},
	"topics":              {"cluster"},
	"transport/...": {"acl", "cluster", "fetcher", "internal/batch", "internal/epoch", "internal/lead", "internal/metalog",
		"internal/wire", "offsets", "preflight", "topics", "verify"},

	"internal/metalog/metalogtest": {"internal/batch", "internal/metalog"},

	"verify": {"cluster", "internal/batch"},
}

// outside says which folders may import what is not ours, by the start of the
// import path; the longest match counts. Tests may import all of them. A module
// that is not here may be imported by tests and by modules of their own only.
var outside = map[string][]string{
	"github.com/cenkalti/backoff/v4": {"."},
	"golang.org/x/sync":              {"."},
	"github.com/google/go-cmp":       {"transport/transporttest", "store/storetest", "internal/datadriven"},
	"github.com/klauspost/compress":  {"internal/batch", "internal/zoo", "internal/wire", "verify", "transport/...", "bench/..."},
	"github.com/pierrec/lz4/v4":      {"internal/batch", "internal/zoo", "internal/wire", "verify", "transport/...", "bench/..."},
	"github.com/segmentio/kafka-go":  {"internal/wire", "store/kafka", "transport/kafka/...", "transport/broker/...", "cmd/...", "examples/...", "bench/...", "internal/clients"},
	"github.com/twmb/franz-go":       {"examples/...", "bench/...", "internal/clients", "internal/kafkatest/...", "internal/zoo/live"},
	"github.com/twmb/franz-go/pkg/kmsg": {"internal/wire", "internal/metalog/...", "transport/...", "store/...",
		"internal/kafkatest/...", "internal/zoo/live", "bench/..."},
}

// ownModules are folders with a go.mod of their own: what they import from
// outside is their affair, except for the modules named in outside.
var ownModules = []string{"bench/...", "cmd/...", "examples/...", "internal/clients", "prommirror"}

// covers reports whether a folder is meant by a pattern of the tables.
func covers(pattern, dir string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == base || strings.HasPrefix(dir, base+"/")
	}
	return pattern == dir
}

// arrowsOf are the imports that a folder may have; false when nobody foresaw it.
func arrowsOf(dir string) (allowed []string, ok bool) {
	best := ""
	for pattern := range arrows {
		if covers(pattern, dir) && len(pattern) > len(best) {
			best = pattern
		}
	}
	return arrows[best], best != ""
}

// imports finds the imports that the tables do not allow.
func imports(s source) []string {
	if s.test() {
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), s.name, s.text, parser.ImportsOnly)
	if err != nil {
		return []string{err.Error()}
	}
	allowed, known := arrowsOf(s.dir())
	if !known {
		return []string{fmt.Sprintf("%s: folder %s is not in the table of arrows", s.name, s.dir())}
	}
	var bad []string
	for _, spec := range file.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return []string{err.Error()}
		}
		ok := true
		if target, ours := inModule(imp); ours {
			ok = mayImport(s.dir(), allowed, target)
		} else if first, _, _ := strings.Cut(imp, "/"); strings.Contains(first, ".") {
			ok = mayUse(s.dir(), imp)
		}
		if !ok {
			bad = append(bad, fmt.Sprintf("%s must not import %s", s.name, imp))
		}
	}
	return bad
}

func inModule(imp string) (target string, ours bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

// mayImport decides about a package of ours. What lies below a folder of the
// same row (transport/kafka and its parts, cmd and its parts) is one house.
func mayImport(dir string, allowed []string, target string) bool {
	internal := strings.HasPrefix(target, "internal/") || strings.Contains(target, "/internal/")
	switch {
	case slices.Contains(allowed, "any"), slices.Contains(allowed, target):
		return true
	case strings.HasPrefix(target, dir+"/"):
		return true
	case slices.Contains(allowed, "public"):
		top, _, _ := strings.Cut(dir, "/")
		return !internal || strings.HasPrefix(target, top+"/")
	}
	return false
}

func mayUse(dir, imp string) bool {
	best := ""
	for prefix := range outside {
		if covers(prefix+"/...", imp) && len(prefix) > len(best) {
			best = prefix
		}
	}
	if best == "" {
		return slices.ContainsFunc(ownModules, func(m string) bool { return covers(m, dir) })
	}
	return slices.ContainsFunc(outside[best], func(p string) bool { return p == "." || covers(p, dir) })
}

// lengths finds files and functions that are too long. Tests may have long
// functions: a table is one.
func lengths(s source) []string {
	var bad []string
	if n := s.lines(); n > maxFileLines {
		bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d", s.name, n, maxFileLines))
	}
	if s.test() {
		return bad
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, s.name, s.text, parser.SkipObjectResolution)
	if err != nil {
		return append(bad, err.Error())
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > maxFuncLines {
			bad = append(bad, fmt.Sprintf("%s: func %s has %d lines, more than %d", s.name, fn.Name.Name, n, maxFuncLines))
		}
	}
	return bad
}

// word is a text that must not stand in a file.
type word struct {
	pattern *regexp.Regexp
	why     string
	applies func(source) bool
}

func everywhere(source) bool    { return true }
func inGo(s source) bool        { return s.isGo() }
func mustNotSkip(s source) bool { return s.isGo() && !covers("internal/kafkatest/...", s.dir()) }

// words are written so that this file does not hold them.
var words = []word{
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`), "nothing is left half done", inGo},
	{regexp.MustCompile(`\b[tbf]\.Skip` + `(f|Now)?\(`), "a test that is skipped proves nothing", mustNotSkip},
	{regexp.MustCompile(`(^|[^\w.])/wor` + `k/|/tmp/ba` + `sh`), "no path of somebody's machine", everywhere},
}

// forbidden finds the words that must not be there.
func forbidden(s source) []string {
	var bad []string
	for n, line := range strings.Split(s.text, "\n") {
		for _, w := range words {
			if w.applies(s) && w.pattern.MatchString(line) {
				bad = append(bad, fmt.Sprintf("%s:%d: %s: %s", s.name, n+1, w.why, strings.TrimSpace(line)))
			}
		}
	}
	return bad
}

// sleeps finds tests that wait for time to pass. In a synctest bubble time does
// not really pass, so there it is allowed.
func sleeps(s source) []string {
	if !s.test() {
		return nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, s.name, s.text, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	var bad []string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || calls(call, "synctest", "Test") {
			return !ok
		}
		if calls(call, "time", "Sleep") {
			bad = append(bad, fmt.Sprintf("%v: tests wait for a condition, not for time", fset.Position(call.Pos())))
		}
		return true
	})
	return bad
}

func calls(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// undocumented finds the packages without a package comment.
func undocumented(all []source) []string {
	documented := map[string]bool{}
	for _, s := range all {
		if !s.isGo() || s.test() {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), s.name, s.text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return []string{err.Error()}
		}
		documented[s.dir()] = documented[s.dir()] || file.Doc != nil
	}
	var bad []string
	for dir, ok := range documented {
		if !ok {
			bad = append(bad, fmt.Sprintf("package in %s has no comment", dir))
		}
	}
	slices.Sort(bad)
	return bad
}
