package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clustermirror/mirror/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun is what a reader of the example sees.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, &out, filepath.Join(t.TempDir(), "mirrors.db")); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"  500 records are equal\n", "  1000 records are equal\n", "\nproven\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, &out)
		}
	}
}

// TestConformance: the store is what the library asks of any.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, filepath.Join(t.TempDir(), "db")) })
}

// TestReopen: what was stored is there when the file is opened again.
func TestReopen(t *testing.T) {
	storetest.Reopen(t, func(t *testing.T) storetest.Open {
		path := filepath.Join(t.TempDir(), "db")
		return func(t *testing.T) storetest.Handle { return open(t, path) }
	})
}

// TestOpenTwice: a file that is open is refused.
func TestOpenTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	open(t, path)
	if s, err := Open(path); err == nil {
		s.Close()
		t.Error("was opened")
	}
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // of no effect when it is closed
	return s
}
