// Package datadriven runs tests that are written as scripts: blocks of commands
// and the output they gave when somebody last looked at it and found it right.
//
//	# why this block is here
//	command word key=value key="a value"
//	another
//	----
//	the output of both
//
// Blocks are separated by empty lines, so output cannot hold any. With -update
// the outputs are written anew; the diff is reviewed like any other change.
package datadriven

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the outputs in testdata scripts anew")

// Update reports whether -update was given: for other files that tests keep.
func Update() bool { return *update }

// Command is one line of a script.
type Command struct {
	Name  string
	Words []string          // those without "="
	Args  map[string]string // those with, unquoted
	Line  int               // in the file, from 1
}

// Arg is a value, or what it is when it is not given.
func (c Command) Arg(key, otherwise string) string {
	if v, ok := c.Args[key]; ok {
		return v
	}
	return otherwise
}

// Int is a whole number given as key; an error in the script ends the test.
func (c Command) Int(t testing.TB, key string, otherwise int64) int64 {
	t.Helper()
	v, ok := c.Args[key]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		t.Fatalf("line %d: %s=%s is not a number", c.Line, key, v)
	}
	return n
}

// Run runs every script that matches glob as a subtest. start makes the world of
// one script and gives the function that carries out its commands, whose answer
// is what the script shows.
func Run(t *testing.T, glob string, start func(t *testing.T) func(Command) string) {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		t.Fatalf("no script matches %s (%v)", glob, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(text), start(t))
			switch {
			case err != nil:
				t.Fatalf("%s: %v", file, err)
			case got == string(text):
			case *update:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s: %s", file, firstDifference(string(text), got))
			}
		})
	}
}

const divider = "----"

// play carries out a script and gives its text with the outputs as they are now.
func play(text string, do func(Command) string) (string, error) {
	var out strings.Builder
	var answers []string
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	old, commands := false, 0
	for i, line := range lines {
		switch {
		case line == "":
			if commands > 0 {
				return "", fmt.Errorf("line %d: commands without %s", i+1, divider)
			}
			old = false
		case old:
			continue // output as it was
		case line == divider:
			out.WriteString(divider + "\n")
			for _, a := range answers {
				out.WriteString(a + "\n")
			}
			answers, commands, old = nil, 0, true
			continue
		case !strings.HasPrefix(line, "#"):
			cmd, err := parse(line, i+1)
			if err != nil {
				return "", err
			}
			commands++
			if a := strings.TrimRight(do(cmd), "\n"); a != "" {
				answers = append(answers, a)
			}
		}
		out.WriteString(line + "\n")
	}
	if commands > 0 {
		return "", fmt.Errorf("line %d: commands without %s", len(lines), divider)
	}
	return out.String(), nil
}

// parse splits a line into words at spaces; a value in double quotes is one.
func parse(line string, number int) (Command, error) {
	cmd := Command{Args: map[string]string{}, Line: number}
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		word := rest
		if end := strings.IndexAny(rest, " \t"); end >= 0 {
			word = rest[:end]
		}
		key, value, pair := strings.Cut(word, "=")
		if pair && strings.HasPrefix(value, `"`) {
			quoted, err := strconv.QuotedPrefix(rest[len(key)+1:])
			if err != nil {
				return cmd, fmt.Errorf("line %d: the value of %s has no closing quote", number, key)
			}
			word = rest[:len(key)+1+len(quoted)]
			if value, err = strconv.Unquote(quoted); err != nil {
				return cmd, fmt.Errorf("line %d: value of %s: %w", number, key, err)
			}
		}
		rest = rest[len(word):]
		switch {
		case cmd.Name == "":
			cmd.Name = word
		case pair:
			cmd.Args[key] = value
		default:
			cmd.Words = append(cmd.Words, word)
		}
	}
	return cmd, nil
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d differs (-update writes it anew)\nscript: %s\nnow:    %s", i+1, a, b)
		}
	}
	return "the scripts are the same"
}
