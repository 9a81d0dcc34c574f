package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFiles: what is stored is there again after a restart, and a folder is one
// process's.
func TestFiles(t *testing.T) {
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "state")
	open := func() *Files {
		t.Helper()
		f, err := OpenFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	if _, err := OpenFiles(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("a second one: %v", err)
	}
	if _, ok, err := f.Identities().Load(ctx, "joined"); ok || err != nil {
		t.Errorf("an identity in an empty folder: %v", err)
	}
	id, two := newIdentity(100), "2"
	own := map[string]Own{"orders": {"min.insync.replicas": &two, "unclean.leader.election.enable": nil}, "audit": {}}
	err := errors.Join(f.Identities().Save(ctx, "joined", id), f.Identities().Save(ctx, "other", newIdentity(101)),
		f.Overrides().Save(ctx, own), f.Identities().Delete(ctx, "other"), f.Identities().Delete(ctx, "none"),
		f.Overrides().Delete(ctx, []string{"audit", "none"}), f.Close())
	if err != nil {
		t.Fatal(err)
	}
	f = open()
	if got, ok, err := f.Identities().Load(ctx, "joined"); !ok || err != nil || got != id {
		t.Errorf("%+v, %v, want %+v", got, err, id)
	}
	if _, ok, _ := f.Identities().Load(ctx, "other"); ok {
		t.Error("an identity that was deleted is there")
	}
	got, ok, err := f.Overrides().Load(ctx, "orders")
	if diff := cmp.Diff(own["orders"], got); !ok || err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if all, err := f.Overrides().Topics(ctx); err != nil || !slices.Equal(all, []string{"orders"}) {
		t.Errorf("%v, %v", all, err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.Overrides().Delete(over, []string{"orders"}); err == nil {
		t.Error("stored although its time is over")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
	for text, what := range map[string]string{"{": "no JSON", `{"version":2}`: "a later version"} {
		if err := os.WriteFile(filepath.Join(dir, filesName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := OpenFiles(dir); err == nil {
			f.Close()
			t.Errorf("%s was taken", what)
		}
	}
}
