package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/internal/datadriven"
)

// matrix is the table once more, drawn by hand: rows are from, columns to.
const matrix = `
              UNKNOWN LOG_ALIGNMENT EPOCH_FENCING ULE_RECOVERY MIRRORING PAUSING PAUSED STOPPING STOPPED FAILED
UNKNOWN       x       x             .             .            .         x       .      x        x       x
LOG_ALIGNMENT .       x             .             x            x         x       .      x        .       x
EPOCH_FENCING .       .             x             .            x         x       .      x        .       x
ULE_RECOVERY  .       .             .             x            x         x       .      x        .       x
MIRRORING     .       .             x             x            x         x       .      x        .       x
PAUSING       .       .             .             .            .         x       x      x        .       x
PAUSED        .       x             .             x            x         .       x      x        .       x
STOPPING      .       .             .             .            .         .       .      x        x       x
STOPPED       .       x             .             .            .         .       .      .        x       x
FAILED        .       x             x             x            x         x       .      x        .       x
`

func TestEveryCellOfTheTable(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(matrix), "\n")
	columns := strings.Fields(lines[0])
	if len(columns) != len(States()) || len(lines) != len(States())+1 {
		t.Fatalf("the matrix has %d columns and %d rows for %d states", len(columns), len(lines)-1, len(States()))
	}
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		for i, to := range columns {
			from := State(cells[0])
			if want := cells[i+1] == "x"; Legal(from, State(to)) != want {
				t.Errorf("Legal(%s, %s) = %v, want %v", from, to, !want, want)
			}
		}
	}
}

func TestUnknownNamesAreLegalNowhere(t *testing.T) {
	for _, s := range States() {
		if Legal("SLEEPING", s) || Legal(s, "SLEEPING") {
			t.Errorf("SLEEPING is legal together with %s", s)
		}
	}
	if Legal("SLEEPING", "SLEEPING") {
		t.Error("SLEEPING is legal by itself")
	}
}

// TestStatesPage keeps docs/states.md, which is drawn from the table.
func TestStatesPage(t *testing.T) {
	file := filepath.Join("..", "docs", "states.md")
	want := statesPage()
	if datadriven.Update() {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/states.md is not what the table says; -update writes it anew (-table +page):\n%s", diff)
	}
}

func statesPage() string {
	var b strings.Builder
	b.WriteString("# States of a partition\n\nDrawn from the table in `coordinator/state.go` by its test" +
		" (`go test ./coordinator -update`).\n\n```mermaid\nstateDiagram-v2\n    [*] --> UNKNOWN\n")
	for _, t := range table {
		for _, from := range t.from {
			if t.to != StateFailed {
				fmt.Fprintf(&b, "    %s --> %s\n", from, t.to)
			}
		}
	}
	b.WriteString("```\n\nNot drawn: every state may go to FAILED, and every state may be entered again from itself.\n\n" +
		"| state | what is done there | entered from |\n|---|---|---|\n")
	for _, t := range table {
		from := make([]string, len(t.from))
		for i, s := range t.from {
			from[i] = string(s)
		}
		doing := string(t.effect)
		if doing == "" {
			doing = "-"
		}
		entered := strings.Join(from, ", ")
		if entered == "" {
			entered = "-"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", t.to, doing, entered)
	}
	return b.String()
}
