package acceptance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestJoinedGroups: groups and settings are kept in step at a site that is joined, as long as we lead and
// once more at the stop; a group with a member there is left alone (I11).
func TestJoinedGroups(t *testing.T) {
	src, dst := source(t), joinable(t, "4.4.0")
	const topic, moves, busy, shares = "joined-groups", "joined-groups-moves", "joined-groups-busy", "joined-groups-shares"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 100)
	from, to := connect(t, src), connect(t, dst)
	commit := func(at int64, groups ...string) {
		t.Helper()
		for _, g := range groups {
			if err := from.Commit(t.Context(), g, []cluster.Committed{{Partition: cluster.Partition{Topic: topic}, Offset: at}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit(50, moves, busy)
	share := func(at int64) {
		t.Helper()
		if err := setShare(t, from, shares, topic, at); err != nil {
			t.Fatal(err)
		}
	}
	sharing := strings.HasPrefix(src.Version(), "4.")
	if sharing {
		share(40)
	}
	us := &member{t: t, k: dst, first: 200}
	m := run(t, topic, from, us.destination(), mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, Store: coordinator.NewMemory(), Groups: mirror.Groups{Include: []string{topic + "-.*"}},
		GroupInterval: 3 * time.Second, ConfigInterval: time.Second,
	})
	stands := func(group string, want int64) {
		t.Helper()
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { return groupStands(ctx, to, group, topic, want) })
	}
	stands(moves, 50)
	stands(busy, 50)

	there := dst.Client(t, kgo.ConsumerGroup(busy), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	if r := there.PollRecords(timeout(t, 30*time.Second), 1).Records(); len(r) != 1 || r[0].Offset != 50 {
		t.Errorf("a member reads on at %v, want 50", r)
	}
	retention := "7200000"
	if err := from.AlterTopics(t.Context(), []topics.Changes{{Topic: topic, Changes: []topics.Change{{Name: "retention.ms", Value: &retention}}}})[0]; err != nil {
		t.Fatal(err)
	}
	commit(80, moves, busy)
	stands(moves, 80)
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if s := m.Status().Groups; s == nil || s.Active != 1 {
			return fmt.Errorf("%+v", s)
		}
		if got := setting(t, dst, topic, "retention.ms"); got != retention {
			return fmt.Errorf("retention.ms is %q", got)
		}
		return nil
	})
	commit(30, moves) // backwards on purpose
	stands(moves, 30)
	if sharing { // its coordinator asks us where the log ends
		share(70)
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { return shareStands(ctx, to, shares, 70) })
	}
	if err := groupStands(t.Context(), to, busy, topic, 50); err != nil {
		t.Error(err)
	}
	there.LeaveGroup()
	stands(busy, 80)

	commit(100, moves, busy) // just after a round
	if err := m.Stop(timeout(t, time.Minute), topic); err != nil {
		t.Fatal(err)
	}
	for _, g := range []string{moves, busy} {
		if err := groupStands(t.Context(), to, g, topic, 100); err != nil {
			t.Errorf("after the stop: %v", err)
		}
	}
	m.end()
	us.away()
}

func groupStands(ctx context.Context, end *kafka.Cluster, group, topic string, want int64) error {
	at, err := committed(ctx, end, group, topic, 0)
	if err != nil || at != want {
		return fmt.Errorf("%s is at %d, want %d: %v", group, at, want, err)
	}
	return nil
}
