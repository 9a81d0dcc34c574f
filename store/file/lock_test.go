package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/coordinator"
)

// childFolder tells this test's program to be a child that writes into a folder until
// it is killed, and prints each state epoch that was acknowledged.
const childFolder = "STORE_FILE_TEST_FOLDER"

func child(dir string) {
	s, err := Open(dir, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	loaded, err := s.Load(context.Background(), "m")
	if err != nil {
		fmt.Println(err)
		return
	}
	next := record("t", 0)
	if len(loaded) == 1 {
		next = loaded[0]
	}
	for {
		next.StateEpoch++
		if err := s.Save(context.Background(), "m", []coordinator.Record{next})[0]; err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(next.StateEpoch)
	}
}

func startChild(t *testing.T, dir string) (cmd *exec.Cmd, lines *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFolder+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// TestKilled kills a process that writes, again and again: what it was told is stored
// is there, and at most the write under way besides. While it lives, nobody else gets in.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	for round := range 8 {
		cmd, lines := startChild(t, dir)
		acknowledged := int32(0)
		for range 10 + 7*round {
			if !lines.Scan() {
				t.Fatalf("the child ended: %v", lines.Err())
			}
			if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
		}
		if s, err := Open(dir, nil); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
			t.Errorf("opened beside another process: %v, %v", s, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			fmt.Sscan(lines.Text(), &acknowledged)
		}
		cmd.Wait() // its error is that it was killed
		s := openAt(t, dir)
		records, err := s.Load(t.Context(), "m")
		if err != nil || len(records) != 1 {
			t.Fatalf("after the kill: %v, %v", records, err)
		}
		if got := records[0].StateEpoch; got < acknowledged || got > acknowledged+1 {
			t.Errorf("state epoch %d is stored, %d was acknowledged", got, acknowledged)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	s := openAt(t, dir)
	for range 2 {
		if _, err := Open(dir, nil); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
			t.Errorf("opened twice: %v", err)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := s.Load(t.Context(), "m"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("load of a closed store: %v", err)
	}
	if err := openAt(t, dir).Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestLeftover: a write that was not finished is removed and told of, other files stay.
func TestLeftover(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("mirror-a.json.tmp")
	write("notes.txt")
	write("other.json.tmp")
	if err := os.Mkdir(filepath.Join(dir, "mirror-b.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := Open(dir, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.Contains(log.String(), "mirror-a.json.tmp") {
		t.Errorf("log: %q", log.String())
	}
	for name, want := range map[string]bool{"mirror-a.json.tmp": false, "notes.txt": true, "other.json.tmp": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
