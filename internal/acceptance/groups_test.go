package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// moveTo has the members enter at another cluster, without what they remember of the first.
func (a *crowd) moveTo(c *kafkatest.Cluster, audience *audience) {
	a.c = c
	a.each(func(l *listener) {
		l.enter = entrance(a.t, c, audience, l.family, a.topic, l.group)
		l.again()
	})
}

// TestGroupsMoveOver: members of groups of all families of clients read half a topic at the source and, after
// a promote, the rest at the destination: no record twice, none left out (C7.19).
func TestGroupsMoveOver(t *testing.T) {
	src, dst, audience := source(t), destination(t), invite(t)
	const topic, parts = "groups-move", 2
	src.CreateTopic(t, topic, parts, 1, nil)
	note(t, src, topic, "first", sized(300, 20_000), 0, 1)
	m := run(t, topic, connect(t, src), connect(t, dst), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}, GroupInterval: time.Hour})
	all := gather(t, src, audience, topic, topic+"-")
	all.hear("at the source")
	all.each((*listener).leave)
	note(t, src, topic, "second", sized(300, 20_000), 0, 1)
	if err := m.Promote(timeout(t, time.Minute), topic); err != nil {
		t.Fatal(err)
	}
	all.moveTo(dst, audience)
	all.hear("at the destination")
	all.each((*listener).leave)
	all.heard(standing(t, dst, topic, parts))
}

// TestGroupsOfADeadSource: the source dies while it is read from. What a group reads again at
// the destination is what it had committed within the last interval, and nothing is left out.
func TestGroupsOfADeadSource(t *testing.T) {
	src, dst, audience := kafkatest.Start(t, kafkatest.Options{Version: sourceVersion()}), destination(t), invite(t)
	const topic, parts, interval = "groups-dead", 2, 2 * time.Second
	src.CreateTopic(t, topic, parts, 1, nil)
	m := run(t, topic, connect(t, src), connect(t, dst), mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, GroupInterval: interval, GroupTimeout: 2 * time.Second,
	})
	stop := writer(t, src, topic, parts, 0)
	all := gather(t, src, audience, topic, topic+"-")
	kafkatest.Eventually(t, time.Minute, func(context.Context) (err error) {
		for _, l := range all.members {
			err = errors.Join(err, l.upTo([]int64{200, 200}))
		}
		return err
	})
	log := watchGroups(t, connect(t, src), all)
	wait(t, 3*interval)
	log.end()
	died := time.Now()
	src.Kill(1)
	stop()
	all.each(func(l *listener) { l.process.Kill(); l.hear() })
	if err := m.Stop(timeout(t, time.Minute), topic); err != nil {
		t.Fatal(err)
	}
	end, ends := connect(t, dst), dst.Ends(t.Context(), t, topic)
	was := log.at(died.Add(-interval - time.Second)) // a round takes a moment
	began := map[string][]int64{}
	for _, l := range all.members {
		for p := range int32(parts) {
			at, err := committed(t.Context(), end, l.group, topic, p)
			saw := l.saw[p]
			if err != nil || at < min(was[l.group][p], ends[p]) || at > saw[len(saw)-1].Offset+1 {
				t.Errorf("%s: partition %d: committed is %d, %v; at the source it was %d an interval before the end, and %d was shown",
					l.family, p, at, err, was[l.group][p], saw[len(saw)-1].Offset)
			}
			began[l.group] = append(began[l.group], at)
		}
		l.saw = map[int32][]told{}
	}
	put(t, dst, topic, 0, 1)
	put(t, dst, topic, 1, 1)
	all.moveTo(dst, audience)
	all.hear("at the destination")
	truth := standing(t, dst, topic, parts)
	for _, l := range all.members {
		for p, want := range truth {
			from := slices.IndexFunc(want, func(r told) bool { return r.Offset >= began[l.group][p] })
			if diff := fromOn(want, from, l.saw[p]); diff != "" {
				t.Errorf("%s: partition %d from %d on: %s", l.family, p, began[l.group][p], diff)
			}
		}
	}
}

// fromOn is parts for what was read from one record on.
func fromOn(want []told, from int, got []told) string {
	if from < 0 {
		return fmt.Sprintf("there is nothing to be read, and %d records were", len(got))
	}
	return parts(want[from:], got)
}

// groupLog is where groups were at what time.
type groupLog struct {
	end func()
	of  []groupsAt
}

type groupsAt struct {
	time  time.Time
	where map[string]map[int32]int64
}

// watchGroups looks at the members' groups five times a second until it is ended.
func watchGroups(t *testing.T, from *kafka.Cluster, all *crowd) *groupLog {
	t.Helper()
	l := &groupLog{}
	var names []string
	all.each(func(m *listener) { names = append(names, m.group) })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	l.end = func() { cancel(); wg.Wait() }
	t.Cleanup(l.end)
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			at := groupsAt{time.Now(), map[string]map[int32]int64{}}
			answers, _ := from.Committed(ctx, names)
			for i, a := range answers {
				at.where[names[i]] = map[int32]int64{}
				for _, o := range a.Offsets {
					at.where[names[i]][o.Partition.Partition] = o.Offset
				}
			}
			l.of = append(l.of, at)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return l
}

// at is where groups were at a time.
func (l *groupLog) at(when time.Time) (where map[string]map[int32]int64) {
	for _, at := range l.of {
		if at.time.Before(when) {
			where = at.where
		}
	}
	return where
}

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
			if at, err := committed(ctx, to, group, topic, 0); err != nil || at != want {
				return fmt.Errorf("%s is at %d, want %d: %v", group, at, want, err)
			}
			return nil
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
		if at, err := committed(ctx, to, group, topic, 0); err != nil || at != want {
			t.Errorf("%s is at %d, want %d: %v", group, at, want, err)
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

// TestGroupsOfADeadBroker: while the only coordinator of some groups is down, all others go on,
// and those go on when it is back; nobody starts anything again.
func TestGroupsOfADeadBroker(t *testing.T) {
	src := kafkatest.Start(t, kafkatest.Options{Version: sourceVersion(), Nodes: 3, Config: map[string]string{"offsets.topic.replication.factor": "1"}})
	dst := destination(t)
	const topic = "groups-broker"
	src.CreateTopic(t, topic, 1, 3, nil)
	put(t, src, topic, 0, 1000)
	from, to, p := connect(t, src), connect(t, dst), cluster.Partition{Topic: topic}
	var names []string
	for i := range 24 {
		names = append(names, fmt.Sprint(topic, "-", i))
	}
	at := func(end *kafka.Cluster, name string) int64 {
		offset, err := committed(timeout(t, 20*time.Second), end, name, topic, 0)
		if err != nil {
			return -2
		}
		return offset
	}
	var away []string // whose coordinator is down
	commitAll := func(offset int64) {
		t.Helper()
		for _, name := range names {
			if !slices.Contains(away, name) {
				if err := from.Commit(timeout(t, 20*time.Second), name, []cluster.Committed{{Partition: p, Offset: offset}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	arrive := func(offset int64) {
		t.Helper()
		kafkatest.Eventually(t, time.Minute, func(context.Context) error {
			for _, name := range names {
				if got := at(to, name); !slices.Contains(away, name) && got != offset {
					return fmt.Errorf("%s is at %d, want %d", name, got, offset)
				}
			}
			return nil
		})
	}
	commitAll(100)
	run(t, topic, connect(t, src), to, mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, GroupInterval: time.Second, RetryMax: 2 * time.Second, Groups: mirror.Groups{Include: []string{topic + "-.*"}},
	})
	arrive(100)

	src.Kill(3)
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		answers, err := from.Committed(ctx, names)
		away = nil
		for i, a := range answers {
			if a.Err != nil {
				away = append(away, names[i])
			}
		}
		if err == nil && len(away) == 0 {
			err = errors.New("no group has lost its coordinator")
		}
		return err
	})
	if len(away) == len(names) {
		t.Fatal("all groups have lost their coordinator")
	}
	t.Logf("%d of %d groups have lost their coordinator", len(away), len(names))
	for _, offset := range []int64{200, 300} {
		commitAll(offset)
		arrive(offset)
	}
	for _, name := range away {
		if got := at(to, name); got != 100 {
			t.Errorf("%s, whose coordinator is down, was moved to %d", name, got)
		}
	}
	src.Restart(3)
	away = nil
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		answers, err := from.Committed(ctx, names)
		for _, a := range answers {
			err = errors.Join(err, a.Err)
		}
		return err
	})
	commitAll(400)
	arrive(400)
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
