package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// creator counts requests and refuses settings.
type creator struct {
	side
	requests []int // topics in each
	unknown  string
}

func (c *creator) CreateTopics(ctx context.Context, ts []cluster.NewTopic) []error {
	c.requests = append(c.requests, len(ts))
	errs := c.side.CreateTopics(ctx, ts)
	for i, t := range ts {
		if slices.ContainsFunc(t.Configs, func(s cluster.TopicConfig) bool { return s.Name == c.unknown }) {
			errs[i] = fmt.Errorf("unknown setting: %w", cluster.ErrInvalidConfig)
			c.created = slices.DeleteFunc(c.created, func(n cluster.NewTopic) bool { return n.Name == t.Name })
		}
	}
	return errs
}

// TestCreateInRequests: a request has many topics, and not more than a cluster takes.
func TestCreateInRequests(t *testing.T) {
	source := &side{}
	for i := range 1000 {
		source.topics = append(source.topics, cluster.Topic{Name: fmt.Sprintf("t%04d", i), Partitions: 5})
	}
	source.topics = append(source.topics, cluster.Topic{Name: "wide", Partitions: 9000}, cluster.Topic{Name: "x", Partitions: 1})
	there := &creator{}
	f, err := NewFilter([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := Syncer{Source: source, Destination: there}.Sync(t.Context(), f)
	if err != nil || len(res.Created) != 1002 || len(res.Refused) != 0 {
		t.Fatalf("%v: %d created, refused %v", err, len(res.Created), res.Refused)
	}
	if diff := cmp.Diff([]int{333, 333, 333, 1, 1, 1}, there.requests); diff != "" {
		t.Errorf("topics in the requests: %s", diff)
	}
}

// TestCreateBare: C6.5: a topic with a setting that the cluster does not know is created
// without the source's, and says so; the others have theirs. What is claimed is what is
// tried.
func TestCreateBare(t *testing.T) {
	source := &side{topics: topicsOf("a b"), configs: map[string]ConfigsAnswer{
		"a": {Configs: configsOf("new=1 retention.ms=2")}, "b": {Configs: configsOf("retention.ms=2")},
	}}
	there := &creator{unknown: "new"}
	f, err := NewFilter([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	claimed := map[string]Own{}
	claim := func(_ context.Context, news map[string]Own) error {
		for name, own := range news {
			claimed[name] = own
		}
		return nil
	}
	res, err := Syncer{Source: source, Destination: there, Required: configsOf("compression.type=producer"), Claim: claim}.Sync(t.Context(), f)
	if err != nil || len(res.Refused) != 0 {
		t.Fatalf("%v, refused %v", err, res.Refused)
	}
	if diff := cmp.Diff([][]string{{"b", "a"}, {"a"}, {"b", "a"}}, [][]string{res.Created, res.Bare, namesOf(res.Ready)}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]cluster.TopicConfig{configsOf("compression.type=producer retention.ms=2"), configsOf("compression.type=producer")},
		[][]cluster.TopicConfig{there.created[0].Configs, there.created[1].Configs}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]Own{"a": {Set: mapOf("compression.type=producer")}, "b": {Set: mapOf("compression.type=producer retention.ms=2")}}, claimed); diff != "" {
		t.Errorf("claimed: %s", diff)
	}
}

// TestCreateUnclaimed: nothing is created of which it could not be stored whose doing it is
// (I7).
func TestCreateUnclaimed(t *testing.T) {
	full := errors.New("store is full")
	there := &creator{}
	f, err := NewFilter([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(context.Context, map[string]Own) error { return full }
	res, err := Syncer{Source: &side{topics: topicsOf("a b")}, Destination: there, Claim: claim}.Sync(t.Context(), f)
	if err != nil || len(there.requests) != 0 || len(res.Refused) != 2 || !errors.Is(res.Refused["b"], full) || !strings.Contains(res.Refused["b"].Error(), "topic b") {
		t.Errorf("%v, requests %v, refused %v", err, there.requests, res.Refused)
	}
}
