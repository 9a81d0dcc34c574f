package lint

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// source is one file of the repository.
type source struct {
	name string // with slashes, from the root
	text string
}

func (s source) dir() string  { return path.Dir(s.name) }
func (s source) test() bool   { return strings.HasSuffix(s.name, "_test.go") }
func (s source) lines() int   { return strings.Count(s.text, "\n") }
func (s source) isGo() bool   { return strings.HasSuffix(s.name, ".go") }
func (s source) isText() bool { return s.isGo() || strings.HasSuffix(s.name, ".md") }

// read reads every Go and Markdown file below root, those of nested modules
// too. It reads them itself rather than ask a tool, so that the test cache knows
// what the tests depend on.
func read(root string) ([]source, error) {
	var all []source
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			hidden := file != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_"))
			if hidden || name == "testdata" || name == "vendor" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		s := source{name: filepath.ToSlash(rel)}
		if !s.isText() || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s.text = string(text)
		all = append(all, s)
		return nil
	})
	return all, err
}
