package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestGroupsShare: a share group reads half a topic at the source and, after a promote, the rest at the destination: no
// record twice, none left out. One that has members at the destination, or has read by itself there, is left
// alone (I11). A source that has no share groups loses nothing by it.
func TestGroupsShare(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic, moves, stays = "groups-share", "groups-share-moves", "groups-share-stays"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 100)
	from, to := connect(t, src), connect(t, dst)
	m := run(t, topic, from, to, mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, GroupInterval: 300 * time.Millisecond, Groups: mirror.Groups{Include: []string{topic + "-.*"}},
	})
	set := func(at int64) error { return setShare(t, from, stays, topic, at) }
	if err := set(40); errors.Is(err, errors.ErrUnsupported) && !strings.HasPrefix(src.Version(), "4.") {
		kafkatest.Eventually(t, 30*time.Second, func(context.Context) error { return groupsSynced(m.Status()) })
		return
	} else if err != nil {
		t.Fatal(err)
	}
	stands := func(group string, want int64) {
		t.Helper()
		kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error { return shareStands(ctx, to, group, want) })
	}
	stands(stays, 40)

	atSource, there := sharer(t, src, topic, moves), sharer(t, dst, topic, stays)
	atSource.reads(0, 100)
	there.reads(40, 100)
	if err := set(70); err != nil {
		t.Fatal(err)
	}
	if err := setShare(t, to, stays, topic, 70); !errors.Is(err, cluster.ErrMembers) {
		t.Errorf("a share group with a member was set: %v", err)
	}
	there.leave()
	kafkatest.Eventually(t, 30*time.Second, func(context.Context) error {
		s := m.Status().Groups
		if s == nil || !slices.ContainsFunc(s.Left, func(l mirror.GroupLeft) bool { return l.Group == stays && l.Why == mirror.LeftHeld }) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	stands(stays, 100)

	atSource.leave()
	stands(moves, 100)
	put(t, src, topic, 0, 50)
	wait(t, time.Second) // some rounds, in which the broker says that the group starts at 0
	stands(moves, 100)
	if err := m.Promote(timeout(t, time.Minute), topic); err != nil {
		t.Fatal(err)
	}
	member := sharer(t, dst, topic, moves)
	member.reads(100, 150)
	member.leave()
	member.reads(100, 150)
}

// reads waits until the member of a share group has shown the records of partition 0 between two
// offsets, each once and no other.
func (l *listener) reads(from, to int64) {
	l.t.Helper()
	kafkatest.Eventually(l.t, time.Minute, func(context.Context) error {
		if l.hear(); int64(len(l.saw[0])) < to-from {
			return fmt.Errorf("%s has shown %d records of %d; it said %q", l.group, len(l.saw[0]), to-from, tail(l.remarks, 3))
		}
		return nil
	})
	var got []int64
	for _, r := range l.saw[0] {
		got = append(got, r.Offset)
	}
	if slices.Sort(got); int64(len(got)) != to-from || got[0] != from || got[len(got)-1] != to-1 || len(slices.Compact(got)) != len(l.saw[0]) {
		l.t.Errorf("%s has read %v, want %d to %d", l.group, got, from, to-1)
	}
}

// setShare has a share group start at an offset of partition 0. The first such group of a cluster makes a
// topic, which takes its time.
func setShare(t *testing.T, end *kafka.Cluster, group, topic string, at int64) error {
	t.Helper()
	starts := []cluster.Committed{{Partition: cluster.Partition{Topic: topic}, Offset: at}}
	ctx := timeout(t, time.Minute)
	err := end.SetShareOffsets(ctx, group, starts)
	for ctx.Err() == nil && errors.Is(err, cluster.ErrUnavailable) {
		err = end.SetShareOffsets(ctx, group, starts)
	}
	return err
}

func shareStands(ctx context.Context, end *kafka.Cluster, group string, want int64) error {
	answers, err := end.ShareOffsets(ctx, []string{group})
	if err != nil || answers[0].Err != nil || len(answers[0].Offsets) != 1 || answers[0].Offsets[0].Offset != want {
		return fmt.Errorf("%s stands at %+v, want %d: %v", group, answers, want, err)
	}
	return nil
}

func groupsSynced(s mirror.Status) error {
	for _, k := range s.Syncs {
		if k.Kind == mirror.SyncGroups && (k.Synced == nil || k.Error != "") {
			return fmt.Errorf("%+v", k)
		}
	}
	return nil
}
