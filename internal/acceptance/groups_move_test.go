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
	"github.com/clustermirror/mirror/internal/kafkatest"
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
	note(t, dst, topic, "third", 1, 0, 1) // behind the fence of the stop
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
	stop := untilItDies(t, src, topic, parts)
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

// untilItDies writes a hundred records a second to each partition, and does not wait for the answers of
// a cluster that is no more.
func untilItDies(t *testing.T, c *kafkatest.Cluster, topic string, parts int32) (stop func()) {
	t.Helper()
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(2*time.Second))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			for p := range parts {
				cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "record %d of %d", i, p)}, nil)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
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
