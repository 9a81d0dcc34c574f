package transporttest

import (
	"errors"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
	"github.com/google/go-cmp/cmp"
)

var metaChecks = []check{
	{"cluster id", func(e End) string { return "" }, clusterID},
	{"topics are created and listed", needsDestination, createAndList},
	{"topics grow", needsDestination, grow},
	{"topic settings", func(e End) string {
		if e.Source == nil || e.Destination == nil {
			return "source and destination"
		}
		return ""
	}, settings},
	{"topic settings are changed", with("topics.Settings", func(e End) bool {
		_, ok := e.Destination.(topics.Settings)
		return ok
	}), alterSettings},
	{"committed offsets", needsDestination, committed},
	{"start offsets of share groups", needsDestination, shares},
	{"access rules", with("access rules", func(e End) bool { _, ok := e.Destination.(acl.Sink); return ok }), accessRules},
	{"a group with members", with("Join", func(e End) bool { return e.Join != nil }), members},
}

func clusterID(k *kit) {
	var ids []string
	for range 2 {
		if k.from != nil {
			id, err := k.from.ID(k.ctx)
			ids = append(ids, id)
			if err != nil {
				k.Error(err)
			}
		}
		if k.to != nil {
			id, err := k.to.ID(k.ctx)
			ids = append(ids, id)
			if err != nil {
				k.Error(err)
			}
		}
	}
	if ids = slices.Compact(ids); len(ids) != 1 || ids[0] == "" {
		k.Errorf("one cluster has the ids %q", ids)
	}
}

func createAndList(k *kit) {
	three, one := unique("three"), unique("one")
	errs := k.to.CreateTopics(k.ctx, []cluster.NewTopic{
		{Name: three, Partitions: 3, ReplicationFactor: -1}, {Name: one, Partitions: 1, ReplicationFactor: -1},
	})
	if len(errs) != 2 || errs[0] != nil || errs[1] != nil {
		k.Fatal(errs)
	}
	if errs = k.to.CreateTopics(k.ctx, []cluster.NewTopic{{Name: one, Partitions: 2, ReplicationFactor: -1}}); !errors.Is(errs[0], cluster.ErrTopicExists) {
		k.Errorf("a topic that is there: %v", errs[0])
	}
	all, err := k.to.Topics(k.ctx)
	if err != nil {
		k.Fatal(err)
	}
	found := map[string]cluster.Topic{}
	for _, t := range all {
		found[t.Name] = t
	}
	if found[three].Partitions != 3 || found[one].Partitions != 1 || found[three].Internal {
		k.Errorf("%+v and %+v, want 3 partitions and 1", found[three], found[one])
	}
	if a, b := found[three].ID, found[one].ID; a == b && !a.IsZero() {
		k.Errorf("two topics with the id %v", a)
	}
	// They can be used at once.
	if e := k.look(k.to, stretch(cluster.Partition{Topic: three, Partition: 2})); e.Err != nil || e.TopicID != found[three].ID {
		k.Errorf("%+v, want the topic id %v", e, found[three].ID)
	}
}

// grow is C2.5: more partitions, never fewer, and those there were keep their records.
func grow(k *kit) {
	p := k.started()
	k.land(k.to, p, k.batch(0, 2))
	for _, step := range []struct{ to, want int32 }{{3, 3}, {3, 3}, {2, 3}} {
		if err := k.to.GrowTopics(k.ctx, []cluster.Topic{{Name: p.Topic, Partitions: step.to}})[0]; err != nil {
			k.Fatal(err)
		}
		all, err := k.to.Topics(k.ctx)
		if err != nil {
			k.Fatal(err)
		}
		i := slices.IndexFunc(all, func(t cluster.Topic) bool { return t.Name == p.Topic })
		if i < 0 || all[i].Partitions != step.want {
			k.Fatalf("grown to %d: %+v", step.to, all)
		}
	}
	last := cluster.Partition{Topic: p.Topic, Partition: 2}
	k.begin(k.to, stretch(last))
	k.land(k.to, last, k.batch(0, 1))
	k.holds(k.to, p, k.batch(0, 2))
	if err := k.to.GrowTopics(k.ctx, []cluster.Topic{{Name: unique("absent"), Partitions: 2}})[0]; err == nil {
		k.Error("a topic that is not there was grown")
	}
}

func settings(k *kit) {
	want := []cluster.TopicConfig{{Name: "max.message.bytes", Value: "123456"}, {Name: "retention.ms", Value: "7200000"}}
	with, without := k.topic(1, want...)[0].Topic, k.topic(1)[0].Topic
	answers, err := k.from.TopicConfigs(k.ctx, []string{without, with, unique("absent")})
	if err != nil || len(answers) != 3 || answers[0].Err != nil || answers[1].Err != nil {
		k.Fatal(answers, err)
	}
	got := slices.SortedFunc(slices.Values(answers[1].Configs), func(a, b cluster.TopicConfig) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	if diff := cmp.Diff(want, got); diff != "" {
		k.Errorf("overrides (-want +got):\n%s", diff)
	}
	if len(answers[0].Configs) != 0 {
		k.Errorf("a topic without overrides has %v: defaults of the cluster are none", answers[0].Configs)
	}
	if answers[2].Err == nil {
		k.Errorf("an absent topic: %+v", answers[2])
	}
}

// alterSettings: what is named is changed, the rest stays, and of a topic with a bad change
// all of it; one topic keeps no other from being changed (I10).
func alterSettings(k *kit) {
	to := k.to.(topics.Settings)
	one, two := k.topic(1, cluster.TopicConfig{Name: "retention.ms", Value: "7200000"})[0].Topic, k.topic(1)[0].Topic
	value := func(s string) *string { return &s }
	errs := to.AlterTopics(k.ctx, []topics.Changes{
		{Topic: one, Changes: []topics.Change{{Name: "max.message.bytes", Value: value("123456")}}},
		{Topic: unique("absent"), Changes: []topics.Change{{Name: "max.message.bytes", Value: value("123456")}}},
		{Topic: two, Changes: []topics.Change{{Name: "segment.ms", Value: value("3600000")}}},
	})
	if len(errs) != 3 || errs[0] != nil || errs[1] == nil || errs[2] != nil {
		k.Fatal(errs)
	}
	k.settings(to, one, "max.message.bytes=123456 retention.ms=7200000")
	k.settings(to, two, "segment.ms=3600000")
	errs = to.AlterTopics(k.ctx, []topics.Changes{{Topic: one, Changes: []topics.Change{{Name: "retention.ms"}}}})
	if errs[0] != nil {
		k.Error(errs)
	}
	k.settings(to, one, "max.message.bytes=123456")
	answers, err := to.TopicConfigs(k.ctx, []string{two})
	if err != nil || answers[0].Err != nil {
		k.Fatal(answers, err)
	}
	if len(answers[0].Defaults) == 0 {
		return // it takes any
	}
	errs = to.AlterTopics(k.ctx, []topics.Changes{
		{Topic: two, Changes: []topics.Change{{Name: "retention.ms", Value: value("1000")}, {Name: "no.such.setting", Value: value("1")}}},
	})
	switch {
	case errs[0] == nil: // it takes what it does not know
		k.settings(to, two, "no.such.setting=1 retention.ms=1000 segment.ms=3600000")
	case errors.Is(errs[0], cluster.ErrInvalidConfig):
		k.settings(to, two, "segment.ms=3600000")
	default:
		k.Errorf("a setting that is not known: %v", errs[0])
	}
}

// guarding are settings that are never copied, and that a destination may need as they are
// while it is mirrored to.
var guarding = map[string]bool{"min.insync.replicas": true, "unclean.leader.election.enable": true}

// settings waits until a topic has these overrides, sorted by name, beside those that guard it.
func (k *kit) settings(to topics.Settings, topic, want string) {
	k.Helper()
	for {
		answers, err := to.TopicConfigs(k.ctx, []string{topic})
		if err != nil || answers[0].Err != nil {
			k.Fatal(answers, err)
		}
		var got []string
		for _, c := range answers[0].Configs {
			if !guarding[c.Name] {
				got = append(got, c.Name+"="+c.Value)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") == want {
			return
		}
		if !k.rest() {
			k.Fatalf("settings of %s: %q, want %q", topic, got, want)
		}
	}
}

// committed: what is committed is read back, metadata too, also beyond the log end.
func committed(k *kit) {
	ps := k.topic(3)
	group, other := unique("group"), unique("absent")
	want := []cluster.Committed{{Partition: ps[0], Offset: 0}, {Partition: ps[2], Offset: 17, Metadata: "made by hand"}}
	for _, offset := range []int64{3, 0} { // forwards and backwards
		want[0].Offset = offset
		if err := k.to.Commit(k.ctx, group, want); err != nil {
			k.Fatal(err)
		}
	}
	answers, err := k.to.Committed(k.ctx, []string{other, group})
	if err != nil || answers[0].Err != nil || answers[1].Err != nil {
		k.Fatal(answers, err)
	}
	got := slices.SortedFunc(slices.Values(answers[1].Offsets), func(a, b cluster.Committed) int { return a.Partition.Compare(b.Partition) })
	if diff := cmp.Diff(want, got); diff != "" || len(answers[0].Offsets) != 0 {
		k.Errorf("committed offsets (-want +got):\n%s; an absent group has %v", diff, answers[0].Offsets)
	}
	groups, err := k.to.Groups(k.ctx)
	if err != nil {
		k.Fatal(err)
	}
	i := slices.IndexFunc(groups, func(g cluster.Group) bool { return g.Name == group })
	if i < 0 || groups[i].State != "Empty" {
		k.Errorf("the group is not among %v, or not empty", groups)
	}
}

// shares: where there are share groups, their start offsets are written and read as committed
// offsets are, and the groups are listed by their type.
func shares(k *kit) {
	to, can := k.to.(offsets.ShareSink)
	if !can {
		return
	}
	ps := k.topic(2)
	group, other := unique("shares"), unique("absent")
	answers, err := to.ShareOffsets(k.ctx, []string{other})
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil || answers[0].Err != nil || len(answers[0].Offsets) != 0 {
		k.Fatalf("a share group that is not there: %+v, %v", answers, err)
	}
	want := []cluster.Committed{{Partition: ps[0], Offset: 5}, {Partition: ps[1], Offset: 1}}
	for _, offset := range []int64{3, 1} {
		want[1].Offset = offset
		for err := to.SetShareOffsets(k.ctx, group, want); err != nil; err = to.SetShareOffsets(k.ctx, group, want) {
			if !errors.Is(err, cluster.ErrUnavailable) || !k.rest() { // a cluster may be making the topic of share groups
				k.Fatal(err)
			}
		}
	}
	if answers, err = to.ShareOffsets(k.ctx, []string{group}); err != nil || answers[0].Err != nil {
		k.Fatal(answers, err)
	}
	got := slices.SortedFunc(slices.Values(answers[0].Offsets), func(a, b cluster.Committed) int { return a.Partition.Compare(b.Partition) })
	if diff := cmp.Diff(want, got); diff != "" {
		k.Errorf("start offsets (-want +got):\n%s", diff)
	}
	groups, err := k.to.Groups(k.ctx)
	if err != nil || !slices.ContainsFunc(groups, func(g cluster.Group) bool { return g.Name == group && g.Type == "share" && !g.State.Members() }) {
		k.Errorf("the share group is not among %v, %v", groups, err)
	}
}

// members is I11: a group with members is left as it is.
func members(k *kit) {
	p := k.topic(1)[0]
	group := unique("group")
	at := func(offset int64) []cluster.Committed {
		return []cluster.Committed{{Partition: p, Offset: offset}}
	}
	if err := k.to.Commit(k.ctx, group, at(3)); err != nil {
		k.Fatal(err)
	}
	leave := k.end.Join(k.TB, group)
	if err := k.to.Commit(k.ctx, group, at(9)); !errors.Is(err, cluster.ErrRefused) {
		k.Errorf("a commit beside members: %v", err)
	} else if !errors.Is(err, cluster.ErrMembers) {
		k.Errorf("a commit beside members is not refused for them: %v", err)
	}
	answers, err := k.to.Committed(k.ctx, []string{group})
	if err != nil || !slices.Equal(answers[0].Offsets, at(3)) {
		k.Errorf("the offsets of a group with members: %+v, %v", answers, err)
	}
	leave()
	for k.to.Commit(k.ctx, group, at(9)) != nil {
		if !k.rest() {
			k.Fatal("a group whose members have left takes no commit")
		}
	}
}

var _ topics.Sink = Destination(nil)
