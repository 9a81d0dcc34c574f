package topics

import (
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

// shelf is a cluster's topics with their settings.
type shelf struct {
	side
	set     map[string]map[string]string
	refuse  map[string]error // by "topic" or "name=value" or "-name"
	asked   int              // requests
	altered []string         // changes that were made
}

func newShelf(topics ...string) *shelf { // "topic: name=value name=value"
	s := &shelf{set: map[string]map[string]string{}, refuse: map[string]error{}}
	for _, t := range topics {
		name, settings, _ := strings.Cut(t, ":")
		s.set[name] = values(configsOf(settings))
	}
	return s
}

func (s *shelf) TopicConfigs(_ context.Context, names []string) ([]ConfigsAnswer, error) {
	s.asked++
	out := make([]ConfigsAnswer, len(names))
	for i, n := range names {
		set, ok := s.set[n]
		if !ok {
			out[i].Err = cluster.ErrUnknownTopic
		}
		for _, k := range slices.Sorted(maps.Keys(set)) {
			out[i].Configs = append(out[i].Configs, cluster.TopicConfig{Name: k, Value: set[k]})
		}
		if out[i].Err == nil {
			out[i].Err = s.refuse["read "+n]
		}
	}
	return out, s.cfgErr
}

func (s *shelf) AlterTopics(_ context.Context, all []Changes) []error {
	s.asked++
	errs := make([]error, len(all))
	for i, t := range all {
		errs[i] = s.refuse[t.Topic]
		var said []string
		for _, ch := range t.Changes {
			said = append(said, text([]Altered{{Name: ch.Name, To: ch.Value}}))
			errs[i] = errors.Join(errs[i], s.refuse[said[len(said)-1]])
		}
		for k, ch := range t.Changes {
			if errs[i] != nil {
				continue
			}
			if s.altered = append(s.altered, t.Topic+" "+said[k]); ch.Value == nil {
				delete(s.set[t.Topic], ch.Name)
			} else {
				s.set[t.Topic][ch.Name] = *ch.Value
			}
		}
	}
	return errs
}

// kept is an Owned in memory.
type kept struct {
	own   map[string]Own
	err   error
	loads int
	swaps int
}

func (k *kept) Load(context.Context) (map[string]Own, error) {
	k.loads++
	return maps.Clone(k.own), k.err
}

func (k *kept) Swap(_ context.Context, was, now map[string]Own) (refused []string, err error) {
	k.swaps++
	if k.err != nil {
		return nil, k.err
	}
	if k.own == nil {
		k.own = map[string]Own{}
	}
	for name, own := range now {
		switch {
		case !k.own[name].Equal(was[name]):
			refused = append(refused, name)
		case own.IsZero():
			delete(k.own, name)
		default:
			k.own[name] = own.clone()
		}
	}
	return refused, nil
}

func synced(t *testing.T, c *Configs, names ...string) ConfigReport {
	t.Helper()
	r, err := c.Sync(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestConfigs: changes and removals arrive, what the destination has of its own stays
// (C6.3), and a second round does nothing: two requests, none of them a change.
func TestConfigs(t *testing.T) {
	source := newShelf("a: retention.ms=1 segment.ms=2", "b: cleanup.policy=compact", "c")
	there := newShelf("a: index.interval.bytes=5", "b", "c: retention.ms=9")
	owned := &kept{}
	c := NewConfigs(source, there, owned, nil)
	round := func(want ...string) ConfigReport {
		t.Helper()
		there.altered, source.asked, there.asked, owned.swaps = nil, 0, 0, 0
		r := synced(t, c, "a", "b", "c")
		if diff := cmp.Diff(want, there.altered); diff != "" {
			t.Fatalf("changes: %s", diff)
		}
		if len(r.Altered) != len(want) || len(r.Refused) != 0 || len(r.Compared) != 3 {
			t.Fatalf("report %+v", r)
		}
		return r
	}
	round("a retention.ms=1", "a segment.ms=2", "b cleanup.policy=compact")
	round()
	if source.asked != 1 || there.asked != 1 || owned.loads != 1 || owned.swaps != 0 {
		t.Errorf("a round without work: %d requests to the source, %d to the destination, store read %d times, written %d times",
			source.asked, there.asked, owned.loads, owned.swaps)
	}
	source.set["a"] = mapOf("retention.ms=3")
	source.set["b"]["segment.ms"] = "4"
	round("a retention.ms=3", "a -segment.ms", "b segment.ms=4")
	if source.asked != 1 || there.asked != 2 {
		t.Errorf("%d and %d requests", source.asked, there.asked)
	}

	c = NewConfigs(source, there, owned, nil) // another process knows what is the mirror's
	source.set["a"] = nil
	there.set["b"]["segment.ms"] = "hand"
	r := round("a -retention.ms", "b segment.ms=4")
	if drift := r.Altered[1]; !drift.Drift || drift.From == nil || *drift.From != "hand" || r.Altered[0].Drift {
		t.Errorf("C6.7: %+v", r.Altered)
	}
	want := map[string]map[string]string{
		"a": mapOf("index.interval.bytes=5"), "b": mapOf("cleanup.policy=compact segment.ms=4"), "c": mapOf("retention.ms=9"),
	}
	if diff := cmp.Diff(want, there.set); diff != "" {
		t.Errorf("destination: %s", diff)
	}
	if diff := cmp.Diff(map[string]Own{"b": {Set: want["b"]}}, owned.own); diff != "" {
		t.Errorf("owned: %s", diff)
	}
}

// TestConfigsRefused: one topic, or one setting, that is refused keeps no other from its
// own (I10), and only what was set is the mirror's doing.
func TestConfigsRefused(t *testing.T) {
	invalid, denied := fmt.Errorf("%w: policy", cluster.ErrInvalidConfig), cluster.ErrAuthorization
	source := newShelf("a: retention.ms=1 segment.ms=bad x=1", "b: retention.ms=1", "c: retention.ms=1", "e: y=1", "f: segment.ms=bad")
	there := newShelf("a", "b", "c: retention.ms=5", "e: z=1", "f")
	there.refuse["segment.ms=bad"], there.refuse["b"] = invalid, denied
	there.refuse["-z"] = fmt.Errorf("lost: %w", cluster.ErrUnknownOutcome)
	source.refuse["read c"] = denied
	owned := &kept{own: map[string]Own{"e": {Set: mapOf("z=1")}}}
	r := synced(t, NewConfigs(source, there, owned, nil), "a", "b", "c", "d", "e", "f")
	if diff := cmp.Diff([]string{"a retention.ms=1", "a x=1"}, there.altered); diff != "" {
		t.Errorf("changes: %s", diff)
	}
	for name, want := range map[string]error{"a": invalid, "b": denied, "c": denied, "d": nil, "e": cluster.ErrUnknownOutcome, "f": invalid} {
		if !errors.Is(r.Refused[name], want) || want != nil && !strings.Contains(r.Refused[name].Error(), "topic "+name) {
			t.Errorf("%s: %v, want %v", name, r.Refused[name], want)
		}
	}
	if !strings.Contains(r.Refused["a"].Error(), "segment.ms=bad") || strings.Contains(r.Refused["a"].Error(), "retention.ms") {
		t.Errorf("a: %v", r.Refused["a"])
	}
	if diff := cmp.Diff([]string{"b", "c"}, slices.Sorted(maps.Keys(r.Lasting))); diff != "" {
		t.Errorf("records depend on it: %s", diff)
	}
	want := map[string]Own{"a": {Set: mapOf("retention.ms=1 x=1")}, "e": {Set: mapOf("y=1 z=1")}} // of e nothing is known
	if diff := cmp.Diff(want, owned.own); diff != "" {
		t.Errorf("owned: %s", diff)
	}
}

// TestConfigsCrash: what is about to be set is the mirror's on record before it is set
// (I7), and what is about to be removed until it is removed.
func TestConfigsCrash(t *testing.T) {
	source, there, owned := newShelf("a: retention.ms=2"), newShelf("a: segment.ms=1"), &kept{own: map[string]Own{"a": {Set: mapOf("segment.ms=1")}}}
	crashing := &crash{shelf: there, owned: owned}
	_, err := NewConfigs(source, crashing, owned, nil).Sync(t.Context(), []string{"a"})
	if err == nil {
		t.Fatal("the store was gone")
	}
	if diff := cmp.Diff(Own{Set: mapOf("retention.ms=2 segment.ms=1")}, owned.own["a"]); diff != "" {
		t.Errorf("on record: %s", diff)
	}
	owned.err = nil
	synced(t, NewConfigs(source, there, owned, nil), "a")
	if diff := cmp.Diff(map[string]Own{"a": {Set: mapOf("retention.ms=2")}}, owned.own); diff != "" {
		t.Errorf("on record: %s", diff)
	}

	owned.err = errors.New("full")
	source.set["a"]["x"] = "1"
	there.altered = nil
	if _, err := NewConfigs(source, there, owned, nil).Sync(t.Context(), []string{"a"}); !errors.Is(err, owned.err) || len(there.altered) > 0 {
		t.Errorf("not stored: %v, changed %v", err, there.altered)
	}
}

// crash makes the changes, and the store is gone from there on.
type crash struct {
	*shelf
	owned *kept
}

func (c *crash) AlterTopics(ctx context.Context, all []Changes) []error {
	c.owned.err = errors.New("gone")
	return c.shelf.AlterTopics(ctx, all)
}

// TestConfigsTwo: of two processes one may have stored something since: that topic is left
// alone this time and is looked at anew the next.
func TestConfigsTwo(t *testing.T) {
	source, there, owned := newShelf("a: retention.ms=2", "b: retention.ms=2"), newShelf("a", "b"), &kept{}
	c := NewConfigs(source, there, owned, nil)
	if err := c.Claim(t.Context(), nil); err != nil { // loaded
		t.Fatal(err)
	}
	owned.own = map[string]Own{"a": {Set: mapOf("segment.ms=7")}}
	r := synced(t, c, "a", "b")
	if diff := cmp.Diff([]string{"b retention.ms=2"}, there.altered); diff != "" || r.Refused["a"] == nil || len(r.Refused) != 1 {
		t.Errorf("changes %s refused %v", diff, r.Refused)
	}
	if r = synced(t, c, "a", "b"); len(r.Refused) != 0 || there.set["a"]["retention.ms"] != "2" {
		t.Errorf("second round: %v, %v", r.Refused, there.set)
	}
}

// TestConfigsPutBack: what the destination required is gone after the stop, from a process
// that knows it by the store alone; a topic of which nothing is owed costs no request.
func TestConfigsPutBack(t *testing.T) {
	source, there := newShelf("a: compression.type=zstd retention.ms=1", "b", "c"), newShelf("a", "b: compression.type=gzip", "c")
	owned, required := &kept{}, configsOf("compression.type=producer")
	c := NewConfigs(source, there, owned, required)
	synced(t, c, "a", "b", "c")
	c = NewConfigs(newShelf(), there, owned, required) // the source is dead
	there.altered = nil
	there.refuse["b"] = cluster.ErrAuthorization
	delete(there.set, "c")
	r, err := c.PutBack(t.Context(), []string{"a", "b", "c"})
	if err != nil || !errors.Is(r.Refused["b"], cluster.ErrAuthorization) || len(r.Refused) != 1 {
		t.Errorf("%v, refused %v", err, r.Refused)
	}
	delete(there.refuse, "b")
	if r, err = c.PutBack(t.Context(), []string{"a", "b", "c"}); err != nil || len(r.Refused) != 0 {
		t.Errorf("%v, refused %v", err, r.Refused)
	}
	if diff := cmp.Diff([]string{"a compression.type=zstd", "b compression.type=gzip"}, there.altered); diff != "" {
		t.Errorf("changes: %s", diff)
	}
	there.asked = 0
	if _, err = c.PutBack(t.Context(), []string{"a", "b", "c"}); err != nil || there.asked != 0 {
		t.Errorf("%v, %d requests for nothing", err, there.asked)
	}
	if diff := cmp.Diff(map[string]Own{"a": {Set: mapOf("retention.ms=1")}}, owned.own); diff != "" {
		t.Errorf("owned: %s", diff)
	}
}

// TestConfigsAgain: what was altered a moment ago may still be shown as it was; nobody is
// said to have changed it.
func TestConfigsAgain(t *testing.T) {
	source, there := newShelf("a: retention.ms=2"), newShelf("a")
	c := NewConfigs(source, there, &kept{}, nil)
	synced(t, c, "a")
	there.set["a"] = map[string]string{}
	if r := synced(t, c, "a"); len(r.Altered) != 1 || r.Altered[0].Drift {
		t.Errorf("%+v", r.Altered)
	}
}

// TestConfigsDown: where one side does not answer, the error says which.
func TestConfigsDown(t *testing.T) {
	down := errors.New("down")
	for _, side := range []string{"source", "destination"} {
		source, there := newShelf("a: retention.ms=2"), newShelf("a")
		map[string]*shelf{"source": source, "destination": there}[side].cfgErr = down
		if _, err := NewConfigs(source, there, &kept{}, nil).Sync(t.Context(), []string{"a"}); !errors.Is(err, down) || !strings.Contains(err.Error(), side) {
			t.Errorf("%s: %v", side, err)
		}
	}
}
