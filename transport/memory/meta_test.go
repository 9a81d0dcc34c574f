package memory_test

import (
	"errors"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/google/go-cmp/cmp"
)

func TestTopics(t *testing.T) {
	c := memory.New(memory.Options{})
	news := []cluster.NewTopic{
		{Name: "b", Partitions: 2, ReplicationFactor: -1, Configs: []cluster.TopicConfig{{Name: "z", Value: "1"}, {Name: "a", Value: "2"}}},
		{Name: "a", Partitions: 1, ReplicationFactor: 1}, {Name: "b", Partitions: 1}, {Name: "c", Partitions: 1, ReplicationFactor: 5},
	}
	errs := c.CreateTopics(t.Context(), news)
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], cluster.ErrTopicExists) || !errors.Is(errs[3], cluster.ErrRefused) {
		t.Fatal(errs)
	}
	all, err := c.Topics(t.Context())
	must(t, err)
	if len(all) != 2 || all[0].Name != "a" || all[1].Partitions != 2 || all[0].ID.IsZero() || all[0].ID == all[1].ID {
		t.Errorf("%+v", all)
	}
	must(t, c.SetTopicConfig("b", "m", "3"))
	must(t, c.SetTopicConfig("b", "z", ""))
	answers, err := c.TopicConfigs(t.Context(), []string{"b", "no", "a"})
	must(t, err)
	if d := cmp.Diff([]cluster.TopicConfig{{Name: "a", Value: "2"}, {Name: "m", Value: "3"}}, answers[0].Configs); d != "" {
		t.Error(d)
	}
	if !errors.Is(answers[1].Err, cluster.ErrUnknownTopic) || answers[2].Err != nil || len(answers[2].Configs) != 0 {
		t.Errorf("%+v", answers)
	}
	must(t, c.CreatePartitions("b", 3))
	if err := c.CreatePartitions("b", 3); !errors.Is(err, cluster.ErrRefused) {
		t.Error(err)
	}
	must(t, c.CommitAs("g", cluster.Committed{Partition: cluster.Partition{Topic: "b", Partition: 2}, Offset: 5}))
	must(t, c.DeleteTopic("b"))
	must(t, c.CreateTopic(cluster.NewTopic{Name: "b", Partitions: 3}))
	now, err := c.Topics(t.Context())
	must(t, err)
	if now[1].ID == all[1].ID {
		t.Error("the same id after it was created again")
	}
	if got, err := c.Committed(t.Context(), []string{"g"}); err != nil || len(got[0].Offsets) != 0 {
		t.Errorf("offsets of a deleted topic: %+v", got)
	}
}

// TestRebuild: it is deleted by its id, once.
func TestRebuild(t *testing.T) {
	c := with(t, memory.Options{Traits: &fetcher.Traits{Truncation: fetcher.TruncateRebuild}})
	must(t, c.SetTopicConfig(p0.Topic, "retention.ms", "7"))
	produce(t, c, "x")
	id, was, err := c.Describe(t.Context(), p0.Topic)
	must(t, err)
	made, err := c.Rebuild(t.Context(), p0.Topic, id, was)
	must(t, err)
	again, err := c.Rebuild(t.Context(), p0.Topic, id, was)
	must(t, err)
	if made == id || again != made || len(c.Log(p0)) != 0 {
		t.Errorf("was %v, made %v, again %v", id, made, again)
	}
	if now, is, err := c.Describe(t.Context(), p0.Topic); err != nil || now != made || !cmp.Equal(was, is) {
		t.Errorf("%v %+v %v", now, is, err)
	}
	if _, err := with(t, memory.Options{}).Rebuild(t.Context(), p0.Topic, id, was); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// TestGroups is I11's ground: a group with members takes no commit from outside.
func TestGroups(t *testing.T) {
	c := with(t, memory.Options{})
	at := func(o int64, meta string) cluster.Committed {
		return cluster.Committed{Partition: p0, Offset: o, Metadata: meta}
	}
	must(t, c.CommitAs("busy", at(3, "m")))
	c.SetMembers("busy", 2)
	must(t, c.Commit(t.Context(), "idle", []cluster.Committed{at(7, "")}))
	if err := c.Commit(t.Context(), "busy", []cluster.Committed{at(9, "")}); !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("a group with members: %v", err)
	}
	if err := c.Commit(t.Context(), "idle", []cluster.Committed{at(9, ""), {Partition: cluster.Partition{Topic: "no"}}}); !errors.Is(err, cluster.ErrUnknownTopic) {
		t.Errorf("a partition that is not there: %v", err)
	}
	c.SetGroupType("shared", "share")
	groups, err := c.Groups(t.Context())
	must(t, err)
	want := []cluster.Group{{Name: "busy", State: "Stable", Type: "classic"}, {Name: "idle", State: "Empty", Type: "classic"}, {Name: "shared", State: "Empty", Type: "share"}}
	if d := cmp.Diff(want, groups); d != "" {
		t.Error(d)
	}
	got, err := c.Committed(t.Context(), []string{"idle", "no", "busy"})
	must(t, err)
	if d := cmp.Diff([]cluster.Committed{at(7, "")}, got[0].Offsets); d != "" || len(got[1].Offsets) != 0 || got[2].Offsets[0] != at(3, "m") {
		t.Errorf("%+v", got)
	}
	c.DeleteGroup("idle")
	if got, _ := c.Groups(t.Context()); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestACLs(t *testing.T) {
	c := memory.New(memory.Options{})
	rule := func(name string) cluster.Binding {
		return cluster.Binding{ResourceType: "TOPIC", Name: name, PatternType: "LITERAL", Principal: "User:a", Host: "*", Operation: "READ", Permission: "ALLOW"}
	}
	for _, err := range append(c.CreateACLs(t.Context(), []cluster.Binding{rule("b"), rule("a"), rule("b")}), c.DeleteACLs(t.Context(), []cluster.Binding{rule("c")})...) {
		must(t, err)
	}
	got, err := c.ACLs(t.Context())
	must(t, err)
	if d := cmp.Diff([]cluster.Binding{rule("a"), rule("b")}, got); d != "" {
		t.Error(d)
	}
	must(t, c.DeleteACLs(t.Context(), []cluster.Binding{rule("a")})[0])
	if got, _ := c.ACLs(t.Context()); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestSameCallsSameCluster: nothing is left to chance.
func TestSameCallsSameCluster(t *testing.T) {
	run := func() (dump string, ids []cluster.Topic) {
		c := memory.New(memory.Options{})
		for _, n := range []string{"x", "orders", "a", "q"} {
			must(t, c.CreateTopic(cluster.NewTopic{Name: n, Partitions: 4}))
		}
		produce(t, c, "a")
		c.StopBroker(state(t, c).Leader.Broker)
		produce(t, c, "b")
		c.StopBroker(state(t, c).Leader.Broker)
		produce(t, c, "c")
		all, err := c.Topics(t.Context())
		must(t, err)
		return c.Dump(p0), all
	}
	dump, ids := run()
	for range 20 {
		if d, i := run(); d != dump || !cmp.Equal(i, ids) {
			t.Fatalf("%s%s%v %v", dump, d, ids, i)
		}
	}
}

func BenchmarkNewClusterWithTopic(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c := memory.New(memory.Options{})
		c.CreateTopic(cluster.NewTopic{Name: "t", Partitions: 3})
	}
}

func BenchmarkAppend(b *testing.B) {
	c := with(b, memory.Options{})
	w := c.Client("w")
	begin(b, w, one)
	at := int64(0)
	done := make(chan fetcher.Result, 1)
	b.ReportAllocs()
	for b.Loop() {
		w.Append(p0, []cluster.Batch{batchAt(at, 0, "v")}, nil, func(r fetcher.Result) { done <- r })
		if r := <-done; r.Err != nil {
			b.Fatal(r.Err)
		}
		at++
	}
}

// TestPartitionsNeedBrokers: where fewer brokers run than a partition has replicas, none
// is added.
func TestPartitionsNeedBrokers(t *testing.T) {
	c := with(t, memory.Options{Brokers: 2, ReplicationFactor: 2})
	for _, down := range []int32{1, 2} {
		c.StopBroker(down)
		if err := c.CreatePartitions(p0.Topic, 3); !errors.Is(err, cluster.ErrRefused) {
			t.Errorf("broker %d down: %v", down, err)
		}
		if err := c.Client("m").GrowTopics(t.Context(), []cluster.Topic{{Name: p0.Topic, Partitions: 3}})[0]; err == nil {
			t.Errorf("broker %d down: a mirror added partitions", down)
		}
	}
}
