package acceptance

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// deaths are the blows to a worker that another one makes good.
var deaths = []struct {
	name   string
	kind   int // of blows
	pauses []time.Duration
}{
	{"back", 0, []time.Duration{0, 200 * time.Millisecond}},
	{"away", 7, []time.Duration{5 * time.Second}},
	{"frozen", 1, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}},
	{"frozen for long", 2, []time.Duration{5 * time.Second}},
	{"with a broker", 8, []time.Duration{time.Second}},
}

// TestTakeOvers: the worker that leads dies in each of the ways of a storm, and the log has
// when which step of the other's taking over was done. MIRROR_DEATHS names some of deaths.
func TestTakeOvers(t *testing.T) {
	for _, version := range patientVersions {
		t.Run(version, func(t *testing.T) {
			s := newStorm(t, version, 2)
			s.begin()
			n := 0
			for _, d := range deaths {
				if only := os.Getenv("MIRROR_DEATHS"); only != "" && !slices.Contains(strings.Split(only, ","), d.name) {
					continue
				}
				for _, pause := range slices.Concat(d.pauses, d.pauses) {
					b := blow{kind: d.kind, node: 1 + n%3, pause: pause}
					began := time.Now()
					s.blow(n, b)
					t.Logf("%v:\n%s", b, s.timeline(began))
					n++
				}
			}
			t.Logf("stood still for, by event:\n%v", &s.costs)
		})
	}
}

// timeline is what the workers have said since a moment, and which readers stood still.
func (s *storm) timeline(began time.Time) string {
	type said struct {
		at   time.Time
		text string
	}
	var all []said
	for n, w := range s.workers {
		for _, p := range w.lives {
			for _, line := range p.Lines() {
				stamp, rest, ok := strings.Cut(strings.TrimPrefix(line, "time="), " ")
				at, err := time.Parse(time.RFC3339Nano, stamp)
				if ok && err == nil && !at.Before(began) {
					all = append(all, said{at, fmt.Sprintf("worker %d: %s", n+1, rest)})
				}
			}
		}
	}
	for p, gap := range s.read.gaps() {
		all = append(all, said{gap.to, fmt.Sprintf("%v: readers stood still for %v", p, gap.to.Sub(gap.from).Round(time.Millisecond))})
	}
	slices.SortStableFunc(all, func(a, b said) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	var b strings.Builder
	for _, line := range all {
		fmt.Fprintf(&b, "%+.3f %s\n", line.at.Sub(began).Seconds(), line.text)
	}
	return b.String()
}
