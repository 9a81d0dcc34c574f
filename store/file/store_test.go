package file

import (
	"testing"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/store/storetest"
)

func openAt(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return openAt(t, t.TempDir()) })
}

func TestReopen(t *testing.T) {
	storetest.Reopen(t, func(t *testing.T) storetest.Open {
		dir := t.TempDir()
		return func(t *testing.T) storetest.Handle { return openAt(t, dir) }
	})
}

func TestNotes(t *testing.T) {
	storetest.Notes(t, func(t *testing.T) []coordinator.Notes { return []coordinator.Notes{openAt(t, t.TempDir())} })
}
