package datadriven

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func echo(c Command) string {
	if c.Name == "quiet" {
		return ""
	}
	return fmt.Sprintf("%s %v %v", c.Name, c.Words, c.Args)
}

func TestPlay(t *testing.T) {
	tests := []struct{ name, in, want, err string }{
		{name: "output is written", in: "a x k=v\n----\n", want: "a x k=v\n----\na [x] map[k:v]\n"},
		{name: "old output is replaced", in: "a\n----\nold\nolder\n\nb\n----\n",
			want: "a\n----\na [] map[]\n\nb\n----\nb [] map[]\n"},
		{name: "comments stay", in: "# one\n\n# two\na\n----\n", want: "# one\n\n# two\na\n----\na [] map[]\n"},
		{name: "two commands", in: "a\nb\n----\n", want: "a\nb\n----\na [] map[]\nb [] map[]\n"},
		{name: "no output", in: "quiet\n----\nold\n", want: "quiet\n----\n"},
		{name: "a quoted value", in: `a k="b c" d` + "\n----\n", want: `a k="b c" d` + "\n----\na [d] map[k:b c]\n"},
		{name: "no divider", in: "a\n\nb\n----\n", err: "line 2: commands without ----"},
		{name: "no divider at the end", in: "a\n", err: "line 1: commands without ----"},
		{name: "open quote", in: "a k=\"b\n----\n", err: "line 1: the value of k has no closing quote"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := play(tt.in, echo)
			if fmt.Sprint(err) != tt.err && (err != nil || tt.err != "") {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("script (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFirstDifferenceNamesTheLine(t *testing.T) {
	if got := firstDifference("a\nb\n", "a\nc\n"); !strings.HasPrefix(got, "line 2 differs") {
		t.Errorf("got %q", got)
	}
}

// FuzzPlay: playing a script a second time changes nothing, whatever the text.
func FuzzPlay(f *testing.F) {
	f.Add("# c\na x k=\"v w\"\n----\nout\n\nb\n----\n")
	f.Fuzz(func(t *testing.T, text string) {
		once, err := play(text, func(Command) string { return "out" })
		if err != nil {
			return
		}
		twice, err := play(once, func(Command) string { return "out" })
		if err != nil || once != twice {
			t.Fatalf("second time: %v\n%s", err, cmp.Diff(once, twice))
		}
	})
}
