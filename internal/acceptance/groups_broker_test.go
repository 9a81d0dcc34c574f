package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

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
