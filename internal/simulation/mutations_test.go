package simulation

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// within so many schedules a mutation has to be found.
const within = 20_000

// TestMutations breaks the engine's source, one place at a time, in a build of this
// test's program (go build -overlay: the source stays as it is), and has schedules
// find it. A mutation that no schedule finds is a hole in the oracle.
func TestMutations(t *testing.T) {
	root := moduleRoot(t)
	for _, m := range mutations() {
		text, ok := unique(t, root, m)
		if !ok || !m.few && !*allMutations || testing.Short() {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			binary := build(t, root, m, text)
			var first *finding
			begin := time.Now()
			shards(t, binary, 1, within, func(f finding) bool {
				if fails(t, Generate(f.Seed), f.Rule, plays) { // that is not the mutation's doing
					return true
				}
				first = &f
				return false
			})
			if first == nil {
				t.Fatalf("%s is broken, and %d schedules do not show it", m.rule, within)
			}
			t.Logf("%s: schedule %d shows it after %v: %s", m.rule, first.Seed, time.Since(begin).Round(time.Second), firstLine(first.Text))
		})
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// unique checks that a mutation still has a place, and gives the file's text.
func unique(t *testing.T, root string, m mutation) (text string, ok bool) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatalf("mutation %s: %v", m.name, err)
	}
	n := strings.Count(string(b), m.old)
	if n != 1 {
		t.Errorf("mutation %s: its old text stands in %s %d times:\n%s", m.name, m.file, n, m.old)
	}
	return string(b), n == 1
}

// build makes this test's program with one file of the engine replaced.
func build(t *testing.T, root string, m mutation, text string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	broken := write("broken.go", []byte(strings.Replace(text, m.old, m.new, 1)))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): broken}})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "simulation.test")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", write("overlay.json", overlay), "-o", binary, "./internal/simulation")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mutation %s: %v\n%s", m.name, err, out)
	}
	return binary
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err == nil {
		_, err = os.Stat(filepath.Join(root, "go.mod"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}
