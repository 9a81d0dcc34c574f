package topics

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSyncHeld: a topic that the mirror has deleted to make it anew is not created by
// a sync that comes in between, which does not know how it was; nor is any other while
// that cannot be found out.
func TestSyncHeld(t *testing.T) {
	f, err := NewFilter([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	source, destination := &side{topics: topicsOf("a b c")}, &side{topics: topicsOf("c")}
	held := func(context.Context) (map[string]bool, error) { return map[string]bool{"a": true}, nil }
	res, err := Syncer{Source: source, Destination: destination, Held: held}.Sync(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"b"}, {"c", "a", "b"}}, [][]string{res.Created, namesOf(res.Ready)}); diff != "" || len(res.Refused) != 0 {
		t.Errorf("created, ready: %s refused %v", diff, res.Refused)
	}
	down := errors.New("down")
	held = func(context.Context) (map[string]bool, error) { return nil, down }
	_, err = Syncer{Source: source, Destination: &side{}, Held: held}.Sync(context.Background(), f)
	if !errors.Is(err, down) {
		t.Errorf("not known what is held: %v", err)
	}
}
