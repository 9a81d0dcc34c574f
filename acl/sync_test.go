package acl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// side is a cluster's rules.
type side struct {
	rules            map[cluster.Binding]bool
	err              error                     // of listings
	refuse           map[cluster.Binding]error // of creations and deletions
	created, deleted []int                     // sizes of requests
	before, creating func()                    // each deletion, each creation
	listed           int
}

func sideOf(bs ...cluster.Binding) *side { return &side{rules: set(bs)} }

func (s *side) ACLs(context.Context) ([]cluster.Binding, error) {
	s.listed++
	return slices.Collect(maps.Keys(s.rules)), s.err
}

func (s *side) CreateACLs(_ context.Context, bs []cluster.Binding) []error {
	s.created = append(s.created, len(bs))
	if s.creating != nil {
		s.creating()
	}
	return s.each(bs, func(b cluster.Binding) { s.rules[b] = true })
}

func (s *side) DeleteACLs(_ context.Context, bs []cluster.Binding) []error {
	s.deleted = append(s.deleted, len(bs))
	if s.before != nil {
		s.before()
	}
	return s.each(bs, func(b cluster.Binding) { delete(s.rules, b) })
}

func (s *side) each(bs []cluster.Binding, do func(cluster.Binding)) []error {
	errs := make([]error, len(bs))
	for i, b := range bs {
		if errs[i] = s.refuse[b]; errs[i] == nil {
			do(b)
		}
	}
	return errs
}

// notes are kept in a map.
type notes struct {
	all map[string]map[string][]byte
	err error
}

func (n *notes) Notes(_ context.Context, mirror string) (map[string][]byte, error) {
	return maps.Clone(n.all[mirror]), n.err
}

func (n *notes) SwapNotes(_ context.Context, mirror string, was, now map[string][]byte) (refused []string, err error) {
	if n.err != nil {
		return nil, n.err
	}
	if n.all == nil {
		n.all = map[string]map[string][]byte{}
	}
	if n.all[mirror] == nil {
		n.all[mirror] = map[string][]byte{}
	}
	for key, value := range now {
		switch {
		case !bytes.Equal(n.all[mirror][key], was[key]):
			refused = append(refused, key)
		case value == nil:
			delete(n.all[mirror], key)
		default:
			n.all[mirror][key] = value
		}
	}
	return refused, nil
}

func syncer(t *testing.T, source, destination *side, n *notes, mirror string) Syncer {
	return Syncer{Source: source, Destination: destination, Filter: topicsOnly(t), Delete: true, Ledger: Ledger{n, "b", mirror}}
}

func must(t *testing.T, s Syncer) Report {
	t.Helper()
	r, err := s.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *side) holds(t *testing.T, want ...cluster.Binding) {
	t.Helper()
	if d := cmp.Diff(set(want), s.rules); d != "" {
		t.Errorf("rules: %s", d)
	}
}

// TestSync is C8.1 and C8.3: rules come with all rights; what was created is deleted when asked,
// also by another process with the same record; others stay; a second round writes nothing.
func TestSync(t *testing.T) {
	write, everything, foreign := rule("orders", func(b *cluster.Binding) { b.Operation = "WRITE" }), rule("orders", all), rule("own")
	a, b, n := sideOf(write, everything, rule("g", group)), sideOf(foreign), &notes{}
	s := syncer(t, a, b, n, "ab")
	s.Delete = false
	if d := cmp.Diff(Report{Matched: 2, Owned: 2, Created: 2, Refused: map[string]error{}}, must(t, s)); d != "" {
		t.Error(d)
	}
	b.holds(t, write, everything, foreign)
	delete(a.rules, everything)
	if r := must(t, s); r.Left != 1 || r.Owned != 2 || r.Deleted != 0 {
		t.Errorf("not asked to delete: %+v", r)
	}
	b.holds(t, write, everything, foreign)
	if r := must(t, syncer(t, a, b, n, "ab")); r.Deleted != 1 || r.Owned != 1 || r.Left != 0 {
		t.Errorf("asked to delete: %+v", r)
	}
	b.holds(t, write, foreign)
	b.created, b.deleted = nil, nil
	must(t, syncer(t, a, b, n, "ab"))
	if b.created != nil || b.deleted != nil {
		t.Errorf("in step, and yet %v were created, %v deleted", b.created, b.deleted)
	}
}

// TestTwoMirrors: a rule that two mirrors want stays until both let go.
func TestTwoMirrors(t *testing.T) {
	a, c, b, n := sideOf(rule("x"), rule("a")), sideOf(rule("x"), rule("c")), sideOf(), &notes{}
	ab, cb := syncer(t, a, b, n, "ab"), syncer(t, c, b, n, "cb")
	must(t, ab)
	must(t, cb)
	delete(a.rules, rule("x"))
	must(t, ab)
	b.holds(t, rule("x"), rule("a"), rule("c"))
	delete(c.rules, rule("x"))
	must(t, ab)
	b.holds(t, rule("x"), rule("a"), rule("c"))
	must(t, cb)
	b.holds(t, rule("a"), rule("c"))

	// One comes to hold what the other is deleting.
	c.rules[rule("a")] = true
	delete(a.rules, rule("a"))
	a.rules[rule("rest")] = true
	b.before = func() { b.before = nil; must(t, cb) }
	if r := must(t, ab); r.Deleted != 0 || len(r.Refused) != 0 || !r.Again {
		t.Errorf("%+v", r)
	}
	b.holds(t, rule("a"), rule("c"), rule("rest"))
	must(t, ab)
	delete(c.rules, rule("a"))
	must(t, cb)
	b.holds(t, rule("c"), rule("rest"))
}

// TestRefused: a rule that is refused is named and hides no other; what was refused is not taken
// for created.
func TestRefused(t *testing.T) {
	bad, stuck := rule("bad"), rule("stuck")
	a, b, n := sideOf(bad, stuck, rule("good")), sideOf(), &notes{}
	b.refuse = map[cluster.Binding]error{bad: cluster.ErrRefused, stuck: cluster.ErrTimeout}
	r := must(t, syncer(t, a, b, n, "ab"))
	if r.Created != 1 || r.Owned != 2 || !errors.Is(r.Refused[bad.String()], cluster.ErrRefused) || !strings.Contains(r.Refused[stuck.String()].Error(), stuck.String()) {
		t.Errorf("%+v", r)
	}
	b.holds(t, rule("good"))
	b.refuse = nil
	b.rules[bad] = true // by somebody else
	delete(a.rules, bad)
	delete(a.rules, stuck)
	b.rules[stuck] = true // the creation that was not answered
	if r = must(t, syncer(t, a, b, n, "ab")); r.Deleted != 1 {
		t.Errorf("%+v", r)
	}
	b.holds(t, bad, rule("good"))
	delete(a.rules, rule("good"))
	a.rules[rule("rest")] = true
	b.refuse = map[cluster.Binding]error{rule("good"): cluster.ErrAuthorization}
	if r = must(t, syncer(t, a, b, n, "ab")); r.Deleted != 0 || r.Created != 1 || r.Owned != 2 || !errors.Is(r.Refused[rule("good").String()], cluster.ErrAuthorization) {
		t.Errorf("%+v", r)
	}
}

// TestBlind: where a side or the record cannot be read, or nothing can be stored, nothing is done.
func TestBlind(t *testing.T) {
	lost := errors.New("lost")
	for _, what := range []string{"source", "destination", "record"} {
		a, b, n := sideOf(rule("a")), sideOf(), &notes{}
		switch what {
		case "source":
			a.err = lost
		case "destination":
			b.err = lost
		case "record":
			n.err = lost
		}
		if _, err := syncer(t, a, b, n, "ab").Sync(t.Context()); !errors.Is(err, lost) || len(b.created) > 0 {
			t.Errorf("%s: %v, created %v", what, err, b.created)
		}
	}
}

// TestPortions: many are written some at a time.
func TestPortions(t *testing.T) {
	a, b, n := sideOf(), sideOf(), &notes{}
	for i := range 2*portion + 1 {
		a.rules[rule(fmt.Sprint(i))] = true
	}
	if r := must(t, syncer(t, a, b, n, "ab")); r.Created != 2*portion+1 || r.Owned != r.Created {
		t.Errorf("%+v", r)
	}
	if d := cmp.Diff([]int{portion, portion, 1}, b.created); d != "" {
		t.Error(d)
	}
}

// FuzzDecode: what stands among the notes is read as it was written, or refused.
func FuzzDecode(f *testing.F) {
	key, value := encode(rule(`a"b/`), []string{"ab", "cd"})
	f.Add(key, value)
	f.Add(`["a"]`, []byte(`{"v":2,"mirrors":[]}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		b, owners, err := decode(key, value)
		if err != nil {
			return
		}
		again, same, err := decode(encode(b, owners))
		if err != nil || again != b || !slices.Equal(owners, same) {
			t.Errorf("%v %v, then %v %v %v", b, owners, again, same, err)
		}
	})
}
