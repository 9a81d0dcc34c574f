package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLeaveFlags: all that is wrong is said at once, and a folder that is not there is not
// made.
func TestLeaveFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	join := []string{"--join", "100-102", "--join-listener", "PLAINTEXT://127.0.0.1:1"}
	missing := filepath.Join(t.TempDir(), "missing")
	for name, tt := range map[string]struct {
		args []string
		says []string
	}{
		"nothing":        {nil, []string{"--destination: is needed", "--join: is needed"}},
		"a lost folder":  {append(join, "--destination", "b:1", "--join-state", missing), []string{missing, "--id"}},
		"no time":        {append(join, "--destination", "b:1", "--timeout", "0s"), []string{"--timeout: 0s is not above 0"}},
		"another state":  {append(join, "--destination", "b:1", "--state", "paper"), []string{`--state: "paper"`}},
		"a wrong source": {append(join, "--destination", "b:1", "--source", "nonsense"), []string{"--source"}},
	} {
		code, stdout, stderr := try(t, append([]string{"leave"}, tt.args...)...)
		for _, want := range tt.says {
			if code != exitUsage || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit code %d, %q is not in:\n%s%s", name, code, want, stdout, stderr)
			}
		}
	}
	if made, _ := filepath.Glob("*"); len(made) > 0 {
		t.Errorf("made: %v", made)
	}
}

// TestLeaveFolder: the folder of run is taken where there is one and the state is memory.
func TestLeaveFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ state, given, want string }{
		{inMemory, "", ""}, {inKafka, "", ""}, {inKafka, ".", "."}, {inMemory, ".", "."},
	} {
		f := &leaveFlags{state: stateFlags{state: tt.state}, join: joinFlags{state: tt.given}}
		if err := f.folder(); err != nil || f.join.state != tt.want {
			t.Errorf("%+v: %q, %v", tt, f.join.state, err)
		}
	}
	if err := os.Mkdir(folderOfRun, 0o700); err != nil {
		t.Fatal(err)
	}
	f := &leaveFlags{state: stateFlags{state: inMemory}}
	if err := f.folder(); err != nil || f.join.state != folderOfRun {
		t.Errorf("%q, %v", f.join.state, err)
	}
}
