package topics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

func topicsOf(names string) []cluster.Topic {
	var out []cluster.Topic
	for f := range strings.FieldsSeq(names) { // "name:partitions"
		name, n, _ := strings.Cut(f, ":")
		t := cluster.Topic{Name: name, Partitions: 1}
		for range strings.Count(n, "+") {
			t.Partitions++
		}
		out = append(out, t)
	}
	return out
}

func namesOf(ts []cluster.Topic) (names []string) {
	for _, t := range ts {
		names = append(names, t.Name)
	}
	return names
}

func TestDiff(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		include, exclude       []string
		source, destination    string
		create, ready, missing []string
		grow                   []string
		refused                map[string]string
	}{
		{
			name: "create and ready, by name", include: []string{".*"}, source: "c b:+ a", destination: "b:+ other",
			create: []string{"a", "c"}, ready: []string{"b"},
		},
		{
			name: "other numbers of partitions", include: []string{".*"}, source: "more:+ fewer:+++ same:+", destination: "more:++ fewer:+ same:+",
			ready: []string{"same"}, grow: []string{"fewer"},
			refused: map[string]string{"more": "destination has 3 partitions, source has 2"},
		},
		{
			name: "missing literals only", include: []string{"z", "y", "a", "p.*", "x"}, exclude: []string{"x"}, source: "a", destination: "a y",
			ready: []string{"a"}, missing: []string{"y", "z"},
		},
		{name: "excluded and internal", include: []string{".*"}, exclude: []string{"b"}, source: "__a b c", create: []string{"c"}},
		{name: "nothing", include: []string{"x.*"}, source: "a b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := NewFilter(tc.include, tc.exclude)
			if err != nil {
				t.Fatal(err)
			}
			plan := Diff(topicsOf(tc.source), topicsOf(tc.destination), f)
			if diff := cmp.Diff([][]string{tc.create, tc.ready, tc.missing, tc.grow},
				[][]string{namesOf(plan.Create), namesOf(plan.Ready), plan.Missing, namesOf(plan.Grow)}); diff != "" {
				t.Error(diff)
			}
			if len(plan.Refused) != len(tc.refused) {
				t.Errorf("refused %v", plan.Refused)
			}
			for name, text := range tc.refused {
				err := plan.Refused[name]
				if !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v, want %q", name, err, text)
				}
			}
		})
	}
}

// TestDiffInternal: what the cluster itself calls internal is left out too.
func TestDiffInternal(t *testing.T) {
	f, err := NewFilter([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan := Diff([]cluster.Topic{{Name: "hidden", Partitions: 1, Internal: true}}, nil, f); len(plan.Create) != 0 {
		t.Errorf("%+v", plan)
	}
}

// side is a cluster in memory.
type side struct {
	topics  []cluster.Topic
	err     error
	configs map[string]ConfigsAnswer
	cfgErr  error
	refuse  map[string]error
	created []cluster.NewTopic
	grown   []cluster.Topic
}

func (s *side) Topics(context.Context) ([]cluster.Topic, error) { return s.topics, s.err }

func (s *side) TopicConfigs(_ context.Context, names []string) ([]ConfigsAnswer, error) {
	out := make([]ConfigsAnswer, len(names))
	for i, n := range names {
		out[i] = s.configs[n]
	}
	return out, s.cfgErr
}

func (s *side) CreateTopics(_ context.Context, ts []cluster.NewTopic) []error {
	errs := make([]error, len(ts))
	for i, t := range ts {
		if errs[i] = s.refuse[t.Name]; errs[i] == nil {
			s.created = append(s.created, t)
		}
	}
	return errs
}

func (s *side) GrowTopics(_ context.Context, ts []cluster.Topic) []error {
	errs := make([]error, len(ts))
	for i, t := range ts {
		if errs[i] = s.refuse[t.Name]; errs[i] == nil {
			s.grown = append(s.grown, t)
		}
	}
	return errs
}

// TestSyncGrows: a source topic that has more partitions by now grows the
// destination's; one that is refused keeps no other from growing (C2.5, I10).
func TestSyncGrows(t *testing.T) {
	source := &side{topics: []cluster.Topic{{Name: "a", Partitions: 6}, {Name: "b", Partitions: 5}, {Name: "c", Partitions: 2}}}
	destination := &side{
		topics: []cluster.Topic{{Name: "a", Partitions: 3}, {Name: "b", Partitions: 1}, {Name: "c", Partitions: 2}},
		refuse: map[string]error{"b": errors.New("not authorized")},
	}
	f, err := NewFilter([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := Syncer{Source: source, Destination: destination}.Sync(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]cluster.Topic{{Name: "a", Partitions: 6}}, destination.grown); diff != "" {
		t.Errorf("grown (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]cluster.Topic{{Name: "c", Partitions: 2}, {Name: "a", Partitions: 6}}, res.Ready); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	if len(res.Refused) != 1 || !strings.Contains(res.Refused["b"].Error(), "topic b: grow to 5 partitions: not authorized") {
		t.Errorf("refused %v", res.Refused)
	}
}

// TestSync: a topic that is refused, or whose settings cannot be read, does not
// keep the others from being created (I10).
func TestSync(t *testing.T) {
	full, unread := errors.New("policy violation"), errors.New("not authorized")
	source := &side{
		topics: topicsOf("a b:+ c d:++"),
		configs: map[string]ConfigsAnswer{
			"a": {Configs: []cluster.TopicConfig{{Name: "retention.ms", Value: "5"}}}, "b": {Err: unread},
		},
	}
	destination := &side{refuse: map[string]error{"c": full}}
	f, err := NewFilter([]string{".*", "gone"}, nil)
	if err == nil {
		err = f.Include("e")
	}
	if err != nil {
		t.Fatal(err)
	}
	required := []cluster.TopicConfig{{Name: "compression.type", Value: "producer"}}
	res, err := Syncer{Source: source, Destination: destination, Required: required}.Sync(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"a", "d"}, {"a", "d"}, {"e", "gone"}}, [][]string{res.Created, namesOf(res.Ready), res.Missing}); diff != "" {
		t.Error(diff)
	}
	if len(res.Refused) != 2 || !errors.Is(res.Refused["b"], unread) || !errors.Is(res.Refused["c"], full) || !strings.Contains(res.Refused["c"].Error(), "topic c") {
		t.Errorf("refused %v", res.Refused)
	}
	want := []cluster.NewTopic{
		{Name: "a", Partitions: 1, ReplicationFactor: -1, Configs: []cluster.TopicConfig{{Name: "compression.type", Value: "producer"}, {Name: "retention.ms", Value: "5"}}},
		{Name: "d", Partitions: 3, ReplicationFactor: -1, Configs: required},
	}
	if diff := cmp.Diff(want, destination.created); diff != "" { // C2.13: the destination's own replication factor
		t.Error(diff)
	}
}

func TestSyncFails(t *testing.T) {
	down := errors.New("down")
	f, err := NewFilter([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name                string
		source, destination side
		text                string
	}{
		{"source", side{err: down}, side{}, "source topics"},
		{"destination", side{topics: topicsOf("a")}, side{err: down}, "destination topics"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Syncer{Source: &tc.source, Destination: &tc.destination}.Sync(context.Background(), f)
			if !errors.Is(err, down) || !strings.Contains(err.Error(), tc.text) || len(tc.destination.created) != 0 {
				t.Errorf("error %v, created %v", err, tc.destination.created)
			}
		})
	}
}

// TestSyncWithoutConfigs: where no settings can be read nothing is created, and
// what is there already can be mirrored.
func TestSyncWithoutConfigs(t *testing.T) {
	down := errors.New("down")
	f, err := NewFilter([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	destination := &side{topics: topicsOf("b")}
	res, err := Syncer{Source: &side{topics: topicsOf("a b"), cfgErr: down}, Destination: destination}.Sync(context.Background(), f)
	if err != nil || !errors.Is(res.Refused["a"], down) || len(destination.created) != 0 || len(res.Created) != 0 {
		t.Errorf("error %v, refused %v, created %v", err, res.Refused, destination.created)
	}
	if diff := cmp.Diff([]string{"b"}, namesOf(res.Ready)); diff != "" {
		t.Error(diff)
	}
}

// FuzzDiff: every topic of the source that belongs to the mirror is in exactly one of the
// plan's parts, and no other is in any; a plan that was carried out leaves nothing to do.
func FuzzDiff(f *testing.F) {
	f.Add("a b c __d", "a b", "c", []byte{1, 2, 3, 4}, []byte{1, 3})
	f.Add("a.b a_b", "", "", []byte{0}, []byte{9})
	f.Fuzz(func(t *testing.T, theirs, ours, exclude string, m, n []byte) {
		list := func(names string, parts []byte) (out []cluster.Topic) {
			for i, name := range strings.Fields(names) {
				p := int32(1)
				if len(parts) > 0 {
					p += int32(parts[i%len(parts)])
				}
				if !slices.ContainsFunc(out, func(t cluster.Topic) bool { return t.Name == name }) {
					out = append(out, cluster.Topic{Name: name, Partitions: p, Internal: p == 7})
				}
			}
			return out
		}
		filter, err := NewFilter([]string{".*"}, strings.Fields(exclude))
		if err != nil {
			return
		}
		source, destination := list(theirs, m), list(ours, n)
		plan := Diff(source, destination, filter)
		in := map[string]int{}
		for _, part := range [][]cluster.Topic{plan.Create, plan.Grow, plan.Ready} {
			for _, topic := range part {
				in[topic.Name]++
			}
		}
		for name := range plan.Refused {
			in[name]++
		}
		for _, topic := range source {
			want := 0
			if !topic.Internal && !strings.HasPrefix(topic.Name, "__") && filter.Matches(topic.Name) {
				want = 1
			}
			if in[topic.Name] != want {
				t.Errorf("%s is in %d parts of the plan, want %d", topic.Name, in[topic.Name], want)
			}
			delete(in, topic.Name)
		}
		if len(in) > 0 {
			t.Errorf("not the source's: %v", in)
		}
		for _, topic := range append(plan.Create, plan.Grow...) {
			destination = slices.DeleteFunc(destination, func(d cluster.Topic) bool { return d.Name == topic.Name })
			destination = append(destination, topic)
		}
		if again := Diff(source, destination, filter); len(again.Create)+len(again.Grow) > 0 || len(again.Refused) != len(plan.Refused) {
			t.Errorf("a second time: %+v", again)
		}
	})
}
