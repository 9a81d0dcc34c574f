package acceptance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestGroupsLeftAlone: a group with members at the destination is not moved, nor one that moved
// there by itself; both show, and follow when nothing keeps them any more (I11, C7.5).
func TestGroupsLeftAlone(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "groups-left"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 100)
	p, ctx := cluster.Partition{Topic: topic}, t.Context()
	from, to := connect(t, src), connect(t, dst)
	const busy, rogue = "groups-left-busy", "groups-left-rogue"
	commit := func(end *kafka.Cluster, at int64, groups ...string) {
		t.Helper()
		for _, g := range groups {
			if err := end.Commit(ctx, g, []cluster.Committed{{Partition: p, Offset: at, Metadata: "by hand: \u00fc"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	stands := func(group string, want int64) {
		t.Helper()
		kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			return groupStands(ctx, to, group, topic, want)
		})
	}
	commit(from, 50, busy, rogue)
	m := run(t, topic, from, to, mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, GroupInterval: 300 * time.Millisecond, Groups: mirror.Groups{Include: []string{"groups-left-.*"}},
	})
	stands(busy, 50)
	stands(rogue, 50)
	answers, err := to.Committed(ctx, []string{busy})
	if err != nil || answers[0].Offsets[0].Metadata != "by hand: \u00fc" {
		t.Errorf("metadata: %+v, %v", answers, err)
	}

	member := dst.Client(t, kgo.ConsumerGroup(busy), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	member.PollRecords(timeout(t, 30*time.Second), 1) // it has joined
	commit(to, 20, rogue)
	commit(from, 80, busy, rogue)
	left := func() (why map[string]mirror.LeftWhy) {
		why = map[string]mirror.LeftWhy{}
		if s := m.Status().Groups; s != nil {
			for _, l := range s.Left {
				why[l.Group] = l.Why
			}
		}
		return why
	}
	shows := func(want map[string]mirror.LeftWhy) {
		t.Helper()
		kafkatest.Eventually(t, 30*time.Second, func(context.Context) error {
			if got := left(); got[busy] != want[busy] || got[rogue] != want[rogue] {
				return fmt.Errorf("left are %v, want %v", got, want)
			}
			return nil
		})
	}
	shows(map[string]mirror.LeftWhy{busy: mirror.LeftActive, rogue: mirror.LeftHeld})
	wait(t, time.Second) // some rounds
	for group, want := range map[string]int64{busy: 50, rogue: 20} {
		if err := groupStands(ctx, to, group, topic, want); err != nil {
			t.Error(err)
		}
	}
	member.LeaveGroup()
	stands(busy, 80)
	commit(to, 80, rogue)
	shows(nil)
	commit(from, 30, busy, rogue) // backwards on purpose
	stands(busy, 30)
	stands(rogue, 30)
}

// TestManyGroups: so many groups, of ten partitions each, are copied within an interval, and nothing is
// written when they have not moved.
func TestManyGroups(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic, parts = "groups-many", 10
	groups := sized(300, 5000)
	for _, c := range []*kafkatest.Cluster{src, dst} {
		c.CreateTopic(t, topic, parts, 1, nil)
	}
	from, to := connect(t, src), connect(t, dst)
	names := make([]string, groups)
	for i := range names {
		names[i] = fmt.Sprint(topic, "-", i)
	}
	moveAll := func(offset int64) {
		t.Helper()
		var wg sync.WaitGroup
		errs := make([]error, len(names))
		for w := range 16 {
			wg.Go(func() {
				for i := w; i < len(names); i += 16 {
					var all []cluster.Committed
					for _, p := range partitions(topic, parts) {
						all = append(all, cluster.Committed{Partition: p, Offset: offset, Metadata: names[i]})
					}
					errs[i] = from.Commit(t.Context(), names[i], all)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	filter, err := offsets.NewFilter([]string{topic + "-.*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := offsets.Copier{Source: from, Destination: to, Filter: filter, Ledger: offsets.NewLedger(nil, "")}
	c.Logs = func(context.Context, []cluster.Partition) (map[cluster.Partition]offsets.Log, error) {
		logs := map[cluster.Partition]offsets.Log{}
		for _, p := range partitions(topic, parts) {
			logs[p] = offsets.Log{Offsets: cluster.Offsets{HighWatermark: 1 << 40}}
		}
		return logs, nil
	}
	for i, step := range []struct {
		to    int64
		wrote int
	}{{100, groups * parts}, {100, 0}, {50, groups * parts}} {
		if step.wrote > 0 {
			moveAll(step.to)
		}
		began := time.Now()
		report, err := c.Copy(timeout(t, 5*time.Minute))
		took := time.Since(began)
		if err != nil || report.Offsets != step.wrote || report.Matched != groups || len(report.Failed)+len(report.Warnings) > 0 {
			t.Fatalf("round %d: %v, %d of %d offsets, %d groups, failed %v, warnings %v", i, err, report.Offsets, step.wrote, report.Matched, report.Failed, report.Warnings)
		}
		t.Logf("%d groups, %d offsets written, in %v", groups, step.wrote, took.Round(time.Millisecond))
		if took > time.Minute {
			t.Errorf("round %d took %v", i, took)
		}
	}
}
