package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTextOfSchedules: what is printed is read again as it was, and a seed makes the
// same schedule every time.
func TestTextOfSchedules(t *testing.T) {
	used := map[Op]bool{}
	for seed := range uint64(2000) {
		s := Generate(seed)
		got, err := Parse("# a comment\n\n" + s.String())
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, s)
		}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Fatalf("seed %d (-made +read):\n%s", seed, diff)
		}
		if again := Generate(seed); again.String() != s.String() {
			t.Fatalf("seed %d makes two schedules:\n%s\n%s", seed, s, again)
		}
		for _, step := range s.Steps {
			used[step.Op] = true
		}
	}
	for op := range ops() {
		if !used[op] && op != Dump && op != Status {
			t.Errorf("no schedule has %s", op)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"setup kind=other":     `line 1: setup: kind=other is not known`,
		"setup partitions=0":   `line 1: setup: partitions=0`,
		"setup colour=red":     `line 1: setup: colour=red is not known`,
		"fly at=A":             `line 1: step "fly" is not known`,
		"\nproduce p=1":        `line 2: produce needs at=`,
		"stop mirror=AA":       `line 1: stop: mirror=AA: is no pair of clusters`,
		"produce at=A x":       `line 1: "x" is no key=value`,
		"produce at=A x=1":     `line 1: produce: x=1: is not known`,
		"produce at=A n=many":  `strconv.ParseInt: parsing "many": invalid syntax`,
		"advance for=tomorrow": `time: invalid duration "tomorrow"`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestMinimize: of a hundred steps the two that matter are left, in their order, and
// of the setup only what has to be.
func TestMinimize(t *testing.T) {
	s := Schedule{Setup: Setup{Partitions: 3, Kind: "keeps", Unclean: true, Scratch: true}}
	for i := range int64(100) {
		s.Steps = append(s.Steps, Step{Op: Produce, At: "A", N: i, Size: 3})
	}
	at := func(c Schedule, n int64) int {
		return slices.IndexFunc(c.Steps, func(s Step) bool { return s.N == n })
	}
	tries := 0
	got := Minimize(s, func(c Schedule) bool {
		tries++
		return at(c, 17) >= 0 && at(c, 80) > at(c, 17) && c.Setup.Scratch
	})
	want := Schedule{
		Setup: Setup{Partitions: 1, Kind: "keeps", Scratch: true},
		Steps: []Step{{Op: Produce, At: "A", N: 17}, {Op: Produce, At: "A", N: 80}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if tries > 200 {
		t.Errorf("%d tries", tries)
	}
}
