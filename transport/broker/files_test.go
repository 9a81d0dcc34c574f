package broker

import (
	"context"
	"errors"
	"fmt"
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
	if all, err := f.Identities().All(ctx); len(all) > 0 || err != nil {
		t.Errorf("identities in an empty folder: %v, %v", all, err)
	}
	id, other, two := Kept{newIdentity(100), "us", "now"}, Kept{newIdentity(101), "", "x"}, "2"
	own := map[string]Own{"orders": {"min.insync.replicas": &two, "unclean.leader.election.enable": nil}, "audit": {}}
	swap := func(was, now *Kept) error {
		if ok, err := f.Identities().Swap(ctx, was, now); !ok || err != nil {
			return fmt.Errorf("%v for %v: %v, %w", now, was, ok, err)
		}
		return nil
	}
	err := errors.Join(swap(nil, &id), swap(nil, &other), f.Overrides().Save(ctx, own), swap(&other, nil), f.Overrides().Delete(ctx, []string{"audit", "none"}), f.Close())
	if err != nil {
		t.Fatal(err)
	}
	f = open()
	id.Holder = "" // it has ended
	if got, err := f.Identities().All(ctx); err != nil || !slices.Equal(got, []Kept{id}) {
		t.Errorf("%+v, %v, want %+v", got, err, id)
	}
	got, err := f.Overrides().Load(ctx, "orders", "audit")
	if diff := cmp.Diff(map[string]Own{"orders": own["orders"]}, got); err != nil || diff != "" {
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
	for text, what := range map[string]string{"{": "no JSON", `{"version":3}`: "a later version"} {
		if err := os.WriteFile(filepath.Join(dir, filesName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := OpenFiles(dir); err == nil {
			f.Close()
			t.Errorf("%s was taken", what)
		}
	}
}

// TestFilesOfBefore: a folder of the first version is read.
func TestFilesOfBefore(t *testing.T) {
	dir := t.TempDir()
	text := `{"version": 1, "identities": {"joined": {"Broker": 900, "Incarnation": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],
		"Directory": [16,2,3,4,5,6,7,8,9,10,11,12,13,14,15,1]}}, "topics": {"orders": {"min.insync.replicas": "2"}}}`
	if err := os.WriteFile(filepath.Join(dir, filesName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Identities().All(t.Context())
	if err != nil || len(all) != 1 || all[0].Broker != 900 || all[0].Incarnation[15] != 16 || all[0].Directory[0] != 16 || all[0].Holder != "" {
		t.Errorf("%+v, %v", all, err)
	}
	if own, err := f.Overrides().Load(t.Context(), "orders"); err != nil || *own["orders"]["min.insync.replicas"] != "2" {
		t.Errorf("%v, %v", own, err)
	}
}
