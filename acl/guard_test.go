package acl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

func guardOf(b *side, n *notes, mirror string) Guard {
	return Guard{Cluster: b, Ledger: Ledger{n, "b", mirror}, Guarding: Guarding{May: []string{"User:mirror"}}}
}

// kept does a round for some topics and leaves leaving as it is.
func kept(t *testing.T, g Guard, leaving []string, topics ...string) GuardReport {
	t.Helper()
	r, err := g.Keep(t.Context(), topics, func(topic string) bool { return slices.Contains(leaving, topic) })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func lifted(t *testing.T, g Guard, topics ...string) GuardReport {
	t.Helper()
	r, err := g.Lift(t.Context(), func(topic string) bool { return slices.Contains(topics, topic) })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGuard: writers are denied and let in again, topic by topic; what others have stays, also when it
// is the very rule; a second round writes nothing; another process knows what was added.
func TestGuard(t *testing.T) {
	a, b, own := rule("a", write), rule("b", prefixed, write), rule("b", write, deny)
	c, n := sideOf(a, b, own), &notes{}
	g := guardOf(c, n, "ab")
	if d := cmp.Diff(GuardReport{Rules: 1, Added: 1, Bare: []string{"z"}, Refused: map[string]error{}}, kept(t, g, nil, "a", "b", "z")); d != "" {
		t.Error(d)
	}
	no := rule("a", write, deny)
	c.holds(t, a, b, own, no)
	kept(t, g, nil, "a", "b")
	if len(c.created)+len(c.deleted) != 1 {
		t.Errorf("a second round writes: %v %v", c.created, c.deleted)
	}
	c.rules[rule("a", all, of("User:x"))] = true
	kept(t, g, nil, "a", "b")
	c.holds(t, a, b, own, no, rule("a", all, of("User:x")), rule("a", write, deny, of("User:x")))
	delete(c.rules, rule("a", all, of("User:x")))
	delete(c.rules, own)
	kept(t, g, nil, "a", "b")
	c.holds(t, a, b, no, rule("b", write, deny))

	again := guardOf(c, n, "ab")
	if topics, err := again.Ledger.Guarded(t.Context()); err != nil || !slices.Equal(topics, []string{"a", "b"}) {
		t.Errorf("%v %v", topics, err)
	}
	if r := lifted(t, again, "a"); r.Removed != 1 || r.Rules != 1 {
		t.Errorf("%+v", r)
	}
	c.holds(t, a, b, rule("b", write, deny))
	kept(t, again, []string{"b"}, "z")
	c.holds(t, a, b, rule("b", write, deny)) // it leaves, and stays until then
	kept(t, again, nil, "z")
	c.holds(t, a, b)
	before := c.listed
	if r, err := again.Lift(t.Context(), nil); err != nil || r.Removed != 0 || len(n.all["acls:b"]) > 0 || c.listed != before {
		t.Errorf("%+v %v, notes %v", r, err, n.all)
	}
}

// TestGuardCrash: dead between the note and the rule, and between the rule and its end: the next
// process removes what there is, and nothing else.
func TestGuardCrash(t *testing.T) {
	for _, point := range []string{"before it is created", "after", "before it is struck off"} {
		a := rule("a", write)
		c, n := sideOf(a), &notes{}
		g := guardOf(c, n, "ab")
		dead := errors.New("dead")
		switch point {
		case "before it is created":
			c.refuse = map[cluster.Binding]error{rule("a", write, deny): cluster.ErrTimeout} // nothing certain
			kept(t, g, nil, "a")
		case "after":
			kept(t, g, nil, "a")
		case "before it is struck off":
			kept(t, g, nil, "a")
			c.before = func() { n.err = dead }
			if _, err := g.Lift(t.Context(), nil); !errors.Is(err, dead) {
				t.Error(err)
			}
		}
		c.refuse, c.before, n.err = nil, nil, nil
		if topics, err := g.Ledger.Guarded(t.Context()); err != nil || len(topics) != 1 {
			t.Errorf("%s: on record are %v, %v", point, topics, err)
		}
		kept(t, guardOf(c, n, "ab"), nil)
		c.holds(t, a)
		if len(n.all["acls:b"]) > 0 {
			t.Errorf("%s: left on record: %v", point, n.all)
		}
	}
}

// TestGuardOvertaken: a process that was frozen while it added a rule, and whose topic
// another one has let go meanwhile, takes it away again.
func TestGuardOvertaken(t *testing.T) {
	a := rule("a", write)
	c, n := sideOf(a), &notes{}
	c.creating = func() { c.creating = nil; lifted(t, guardOf(c, n, "ab"), "a") }
	if r := kept(t, guardOf(c, n, "ab"), nil, "a"); !r.Again {
		t.Errorf("%+v", r)
	}
	c.holds(t, a)
}

// TestGuardRefused: errors name topic and principal, and hide no other topic; what is certainly not
// added is not on record; what is not removed is, and is removed later.
func TestGuardRefused(t *testing.T) {
	no := rule("a", write, deny)
	c, n := sideOf(rule("a", write), rule("b", write), rule("c", write, of("User:*"))), &notes{}
	g := guardOf(c, n, "ab")
	c.refuse = map[cluster.Binding]error{no: cluster.ErrAuthorization}
	r := kept(t, g, nil, "a", "b", "c")
	if r.Added != 1 || r.Rules != 1 || len(r.Refused) != 2 || !errors.Is(r.Refused["a"], cluster.ErrAuthorization) ||
		!strings.Contains(r.Refused["a"].Error(), "topic a: ACL DENY User:a WRITE") || !strings.Contains(r.Refused["c"].Error(), "topic c: ALLOW User:*") {
		t.Errorf("%+v", r)
	}
	c.refuse = nil
	kept(t, g, nil, "a", "b")
	c.refuse = map[cluster.Binding]error{no: cluster.ErrTimeout}
	if r = lifted(t, g, "a", "b"); r.Removed != 1 || r.Rules != 1 || !errors.Is(r.Refused["a"], cluster.ErrTimeout) || r.Refused["b"] != nil {
		t.Errorf("%+v", r)
	}
	c.refuse = map[cluster.Binding]error{no: cluster.ErrNoAuthorizer} // nobody is refused by now
	if r = lifted(t, g, "a"); r.Removed != 0 || r.Rules != 1 || len(r.Refused) > 0 {
		t.Errorf("%+v", r)
	}
	c.refuse = nil
	lifted(t, g, "a")
	c.holds(t, rule("a", write), rule("b", write), rule("c", write, of("User:*")))
}

// TestGuardAndSync: what a guard has added is not copied back, and not taken for the
// destination's own: a rule that the source has too outlives the guard.
func TestGuardAndSync(t *testing.T) {
	a, no := rule("a", write), rule("a", write, deny)
	source, c, n := sideOf(a), sideOf(a), &notes{}
	g, copying := guardOf(c, n, "ab"), syncer(t, source, c, n, "ab")
	kept(t, g, nil, "a")
	back := Syncer{
		Source: c, Destination: source, Filter: topicsOnly(t), Delete: true, Ledger: Ledger{&notes{}, "a", "ba"}, Guards: []Ledger{{Notes: n, Cluster: "b"}},
	}
	must(t, back)
	source.holds(t, a)
	back.Guards = nil
	must(t, back)
	source.holds(t, a, no) // as if nothing were known of it

	must(t, copying) // now the source has it by itself
	lifted(t, g, "a")
	c.holds(t, a, no)
	kept(t, g, nil, "a")
	if r := lifted(t, g, "a"); r.Rules != 0 {
		t.Errorf("%+v", r)
	}
	c.holds(t, a, no)

	// It goes at the source while the guard needs it.
	delete(c.rules, no)
	kept(t, g, nil, "a")
	must(t, copying)
	delete(source.rules, no)
	must(t, copying)
	c.holds(t, a, no)

	// What is copied serves the guard, and is its own again when that ends.
	source.rules[no] = true
	must(t, copying)
	if r := kept(t, g, nil, "a"); r.Rules != 0 || r.Added != 0 {
		t.Errorf("%+v", r)
	}
	delete(source.rules, no)
	must(t, copying)
	c.holds(t, a)
	kept(t, g, nil, "a")
	c.holds(t, a, no)
	lifted(t, g, "a")
	c.holds(t, a)
}

// TestGuardsOfTwo: two mirrors into one cluster keep each other's topics, and a rule that both
// hold until both let go.
func TestGuardsOfTwo(t *testing.T) {
	x, y := rule("x", write), rule("y", write)
	c, n := sideOf(x, y), &notes{}
	ab, cb := guardOf(c, n, "ab"), guardOf(c, n, "cb")
	kept(t, ab, nil, "x")
	kept(t, cb, nil, "y")
	kept(t, ab, nil, "x")
	c.holds(t, x, y, rule("x", write, deny), rule("y", write, deny))
	kept(t, cb, nil, "x", "y")
	lifted(t, ab, "x", "y")
	c.holds(t, x, y, rule("x", write, deny), rule("y", write, deny))
	lifted(t, cb, "x", "y")
	c.holds(t, x, y)
}

// TestGuardPortions: a thousand topics are few requests, and the rules of one are in one of them.
func TestGuardPortions(t *testing.T) {
	c, n := sideOf(), &notes{}
	g := guardOf(c, n, "ab")
	g.Guarding.Open = true
	var topics []string
	for i := range 1000 {
		topics = append(topics, fmt.Sprintf("t%04d", i))
	}
	if r := kept(t, g, nil, topics...); r.Added != 6000 {
		t.Errorf("%+v", r)
	}
	for _, size := range slices.Concat(c.created[:len(c.created)-1]) {
		if size%6 != 0 || size < portion || size >= portion+6 {
			t.Errorf("requests of %v", c.created)
			break
		}
	}
	if r := lifted(t, g, topics...); r.Removed != 6000 || len(c.rules) > 0 || len(c.deleted) > 12 {
		t.Errorf("%+v, %d are left, %v", r, len(c.rules), c.deleted)
	}
}

// TestGuardBlind: where the cluster or the record cannot be read, or nothing can be stored, nothing is done.
func TestGuardBlind(t *testing.T) {
	lost := errors.New("lost")
	for _, what := range []string{"cluster", "record"} {
		c, n := sideOf(rule("a", write)), &notes{}
		if what == "cluster" {
			c.err = lost
		} else {
			n.err = lost
		}
		if _, err := guardOf(c, n, "ab").Keep(t.Context(), []string{"a"}, func(string) bool { return false }); !errors.Is(err, lost) || len(c.created) > 0 {
			t.Errorf("%s: %v, created %v", what, err, c.created)
		}
	}
}
