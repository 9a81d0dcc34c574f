package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTopicsAndConfigs(t *testing.T) {
	f := fake(t, 3, "seed", 2)
	testTopics(t, open(t, f.ListenAddrs()))
}

func testTopics(t *testing.T, c *Cluster) {
	ctx := within(t, 60*time.Second)
	made, plain := unique("made"), unique("plain")
	errs := c.CreateTopics(ctx, []cluster.NewTopic{
		{Name: made, Partitions: 5, ReplicationFactor: -1, Configs: []cluster.TopicConfig{{Name: "retention.ms", Value: "12345"}, {Name: "cleanup.policy", Value: "compact"}}},
		{Name: "bad-count", Partitions: 0, ReplicationFactor: -1},
		{Name: plain, Partitions: 1, ReplicationFactor: 1},
	})
	if errs[0] != nil || errs[2] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "bad-count") {
		t.Fatal(errs)
	}
	if errs := c.CreateTopics(ctx, []cluster.NewTopic{{Name: made, Partitions: 5, ReplicationFactor: -1}}); !errors.Is(errs[0], cluster.ErrTopicExists) {
		t.Errorf("a topic that is there: %v", errs)
	}
	all, err := c.Topics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(t cluster.Topic) bool { return t.Name == made })
	if at < 0 || all[at].Partitions != 5 || all[at].ID.IsZero() || all[at].Internal {
		t.Errorf("%+v", all)
	}
	configs, err := c.TopicConfigs(ctx, []string{plain, made, "none"})
	if err != nil || configs[0].Err != nil || configs[1].Err != nil || !errors.Is(configs[2].Err, cluster.ErrUnknownTopic) {
		t.Fatal(err, configs)
	}
	slices.SortFunc(configs[1].Configs, func(a, b cluster.TopicConfig) int { return strings.Compare(a.Name, b.Name) })
	want := []cluster.TopicConfig{{Name: "cleanup.policy", Value: "compact"}, {Name: "retention.ms", Value: "12345"}}
	if diff := cmp.Diff(want, configs[1].Configs); diff != "" {
		t.Error(diff)
	}
	if len(configs[0].Configs) != 0 {
		t.Errorf("defaults are given as overrides: %v", configs[0].Configs)
	}
}

func TestGroups(t *testing.T) {
	f := fake(t, 3, "t", 4)
	testGroups(t, open(t, f.ListenAddrs()), "t", kgo.SeedBrokers(f.ListenAddrs()...))
}

// testGroups copies committed offsets of groups from and to one cluster.
func testGroups(t *testing.T, c *Cluster, topic string, opts ...kgo.Opt) {
	ctx := within(t, 60*time.Second)
	var want []cluster.Committed
	for i := range int32(4) {
		want = append(want, cluster.Committed{Partition: cluster.Partition{Topic: topic, Partition: i}, Offset: int64(i) * 7, Metadata: strings.Repeat("m", int(i))})
	}
	a, b, cc := unique("a"), unique("b"), unique("c")
	for _, g := range []string{a, b, cc} {
		if err := c.Commit(ctx, g, shuffled(want)); err != nil {
			t.Fatal(err)
		}
	}
	answers, err := c.Committed(ctx, []string{cc, "nobody", a, b})
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range answers {
		if i == 1 {
			if len(got.Offsets) != 0 {
				t.Errorf("a group that does not exist: %+v", got)
			}
			continue
		}
		slices.SortFunc(got.Offsets, func(x, y cluster.Committed) int { return x.Partition.Compare(y.Partition) })
		if diff := cmp.Diff(want, got.Offsets); diff != "" || got.Err != nil {
			t.Errorf("group %d: %v %s", i, got.Err, diff)
		}
	}
	withMembers(t, c, a, topic, opts...)
}

// withMembers: a group with a member refuses a commit and stays as it is.
func withMembers(t *testing.T, c *Cluster, idle, topic string, opts ...kgo.Opt) {
	ctx := within(t, 60*time.Second)
	name := unique("live")
	joined := make(chan struct{})
	member, err := kgo.NewClient(append(opts, kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(joined) }))...)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	polls, stop := context.WithCancel(ctx)
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		for polls.Err() == nil {
			member.PollFetches(polls)
		}
	}()
	defer func() { stop(); <-polled }()
	<-joined
	var live cluster.Group
	until(t, func() bool {
		groups, err := c.Groups(ctx)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(groups, func(g cluster.Group) bool { return g.Name == name })
		if at >= 0 {
			live = groups[at]
		}
		return live.State == "Stable"
	})
	groups, err := c.Groups(ctx)
	if err != nil || !slices.ContainsFunc(groups, func(g cluster.Group) bool { return g.Name == idle && g.State == "Empty" }) {
		t.Errorf("groups: %+v %v", groups, err)
	}
	err = c.Commit(ctx, name, []cluster.Committed{{Partition: cluster.Partition{Topic: topic}, Offset: 1}})
	if !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("commit into a group with members: %v", err)
	}
}

func TestCommitFollowsTheCoordinator(t *testing.T) {
	f := fake(t, 3, "t", 1)
	c := open(t, f.ListenAddrs())
	tries := 0
	f.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if tries++; tries > 2 {
			return nil, nil, false
		}
		req := kreq.(*kmsg.OffsetCommitRequest)
		if req.Version > commitVersion || req.Version < 2 {
			t.Errorf("version %d", req.Version)
		}
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = "t"
		p := kmsg.NewOffsetCommitResponseTopicPartition()
		p.ErrorCode = []int16{16, 14}[tries-1] // NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS
		rt.Partitions = append(rt.Partitions, p)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	if err := c.Commit(within(t, 20*time.Second), "g", []cluster.Committed{{Partition: p0, Offset: 3}}); err != nil {
		t.Fatal(err)
	}
}

func TestStartAtFake(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs(), func(cfg *Config) { cfg.MaxStartFill = 1_000_000 })
	testStartAt(t, c, p0, 250_000)
	if err := c.StartAt(within(t, 20*time.Second), stretchOf(p0), 9_000_000, nil); !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("above the limit, or not empty: %v", err)
	}
}

func testStartAt(t *testing.T, c *Cluster, p cluster.Partition, offset int64) {
	t.Helper()
	ctx := within(t, 60*time.Second)
	s := stretchOf(p)
	// Broken off after the first batch.
	half, cancel := context.WithCancel(ctx)
	err := c.StartAt(half, s, offset, func(int64) { cancel() })
	if !errors.Is(err, context.Canceled) && err == nil {
		t.Fatalf("broken off: %v", err)
	}
	if e := beginAt(t, c, s); e.LogEnd == 0 || e.LogEnd >= offset {
		t.Fatalf("broken off: %+v", e)
	}
	var seen []int64
	if err := c.StartAt(ctx, s, offset, func(done int64) { seen = append(seen, done) }); err != nil {
		t.Fatal(err)
	}
	if len(seen) == 0 || seen[len(seen)-1] != offset || !slices.IsSorted(seen) {
		t.Errorf("progress %v", seen)
	}
	if err := c.StartAt(ctx, s, offset, nil); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if e := beginAt(t, c, s); e.LogStart != offset || e.LogEnd != offset || e.Stopped {
		t.Fatalf("%+v", e)
	}
	mustAppend(t, c, p, batchesAt(offset, 3, 2, now()))
	if e := beginAt(t, open(t, c.cfg.Bootstrap), s); e.LogEnd != offset+6 || e.Stopped {
		t.Fatalf("%+v", e)
	}
	var o *cluster.OffsetError
	if err := c.StartAt(ctx, s, offset+100, nil); !errors.Is(err, cluster.ErrRefused) || !errors.As(err, &o) {
		t.Errorf("a log with records: %v", err)
	}
}

func TestRunClosesWithTheLast(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs())
	one, stopOne := context.WithCancel(t.Context())
	two, stopTwo := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- c.Run(one) }()
	go func() { ended <- c.Run(two) }()
	until(t, func() bool { return c.runs.Load() == 2 })
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 1, 1, now()))
	stopOne()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	mustAppend(t, c, p0, batchesAt(1, 1, 1, now()))
	conn, err := c.client.Conn(t.Context(), 0, slotAsk)
	if err != nil {
		t.Fatal(err)
	}
	stopTwo()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if conn.Err() == nil {
		t.Error("a connection is left")
	}
	if _, err := c.Offsets(t.Context(), []cluster.Partition{p0}); err != nil {
		t.Errorf("after Run the next call dials again: %v", err)
	}
	if id, err := c.ID(t.Context()); err != nil || id == "" {
		t.Errorf("cluster id %q, %v", id, err)
	}
	if got := c.Traits(); got != (fetcher.Traits{Gaps: true, Fills: true, LogAppendTime: true}) {
		t.Errorf("traits %+v", got)
	}
}

func TestCommitErrors(t *testing.T) {
	for code, want := range map[int16]error{
		22: cluster.ErrMembers, 25: cluster.ErrMembers, 27: cluster.ErrMembers, 68: cluster.ErrMembers, 69: cluster.ErrRefused, 113: cluster.ErrMembers,
		14: cluster.ErrUnavailable, 16: cluster.ErrUnavailable, 30: cluster.ErrAuthorization, 0: nil,
	} {
		if got := commitError(code); !errors.Is(got, want) {
			t.Errorf("code %d: %v, want %v", code, got, want)
		}
	}
}
