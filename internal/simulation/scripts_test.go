package simulation

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/clustermirror/mirror/internal/datadriven"
)

// TestScripts plays the schedules of testdata, each a story with what the logs held
// when somebody last looked at it and found it right. A comment in each names the
// rule, the example (semantics E1 to E5) or the case that it shows.
func TestScripts(t *testing.T) {
	datadriven.Run(t, "testdata/*.txt", func(t *testing.T) func(datadriven.Command) string {
		shown := tellAll(t, filepath.Join("testdata", filepath.Base(t.Name())+".txt"))
		next := 0
		return func(c datadriven.Command) string {
			if c.Name == "setup" {
				return ""
			}
			if next++; next > len(shown) {
				return "was not reached"
			}
			return shown[next-1]
		}
	})
}

// tellAll plays a whole script at once, since a bubble of virtual time cannot be left
// between two lines, and gives what every step has shown.
func tellAll(t *testing.T, file string) (shown []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	err = Play(t, s, slog.New(slog.DiscardHandler), func(_ int, out string) { shown = append(shown, out) })
	if err != nil {
		t.Errorf("%s: %v", file, err)
	}
	return append(shown, fmt.Sprint("broken: ", err))
}
