package acceptance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/store/file"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/kafka"
)

func rebuilding(c *kafka.Config) { c.Truncation = kafka.Rebuild }

// homeward mirrors in a process of its own, to be killed: name, source, destination,
// topic, where its state is (kafka or a folder), where tails are saved; and to cut
// instead of to rebuild, the folder of the broker that it becomes for it.
func homeward(args []string) error {
	source, err := kafka.New(kafka.Config{Bootstrap: strings.Split(args[1], ",")})
	if err != nil {
		return err
	}
	to := kafka.Config{Bootstrap: strings.Split(args[2], ","), Truncation: kafka.Rebuild}
	if len(args) > 6 {
		to.Truncation = kafka.Join
		if to.Truncater, err = cutFrom(to.Bootstrap, args[6]); err != nil {
			return err
		}
	}
	destination, err := kafka.New(to)
	if err != nil {
		return err
	}
	store, err := openState(args[4], args[2])
	if err != nil {
		return err
	}
	positions, err := openState("kafka", args[1])
	if err != nil {
		return err
	}
	m, err := mirror.New(args[0], source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: []string{args[3]}}, Store: store, Positions: positions, SyncInterval: time.Second,
		Events: mirror.Events{
			State: func(e mirror.StateEvent) { fmt.Printf("state %v %s %s %v\n", e.Partition, e.From, e.To, e.Err) },
			Truncated: func(e mirror.TruncatedEvent) {
				fmt.Printf("cut %v from %d to %d: %s\n", e.Partition, e.Span.From, e.Span.To, e.Why)
			},
		},
		Salvage: mirror.SalvageTo(args[5]),
	})
	if err != nil {
		return err
	}
	return m.Run(context.Background()) // until it is killed
}

// TestKillDuringRebuild: the mirror's process is killed once the cut is stored, when
// the topic is deleted and not there again, and in the middle of the copy. The next
// process goes on: the logs are equal, the topic is as it was, the groups are at
// their places.
func TestKillDuringRebuild(t *testing.T) {
	for _, state := range []string{"kafka", "file"} {
		t.Run(state, func(t *testing.T) { killDuringRebuild(t, state) })
	}
}

func killDuringRebuild(t *testing.T, state string) {
	a, b := sites(t)
	topic, name := "killed-"+state, "killed-ba-"+state
	n := sized(4_000, 200_000)
	a.CreateTopic(t, topic, 2, 2, map[string]string{"segment.bytes": "1048576", "min.insync.replicas": "1"})
	note(t, a, topic, "before", n, 0, 1)
	planned(t, "killed-ab-"+state, a, b, topic)
	tail := note(t, a, topic, "lost", 50, 1)[1] // nobody has told the application yet
	cut := tail[0].Offset
	commit(t, a, "killed-"+state, topic, 0, cut/2)
	commit(t, a, "killed-"+state, topic, 1, cut)
	note(t, b, topic, "after", 100, 0, 1)

	place, dir := state, t.TempDir()
	if state != "kafka" {
		place = t.TempDir()
	}
	start := func() *kafkatest.Process {
		return kafkatest.SpawnChild(t, "homeward", name, strings.Join(b.Bootstrap(), ","), strings.Join(a.Bootstrap(), ","), topic, place, dir)
	}
	was, cl := shaped(t, a, topic), a.Client(t)
	one := start()
	one.WaitLine(timeout(t, time.Minute), fmt.Sprintf("state %s-1 LOG_ALIGNMENT ULE_RECOVERY", topic))
	one.Kill()
	t.Logf("killed when the cut was stored: topic is %v", presence(t, cl, topic, was))

	two := start()
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		if _, err := shapeOf(ctx, cl, topic); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("the topic is not deleted yet: %w", err)
		}
		return nil
	})
	two.Kill()
	t.Logf("killed when the topic was deleted: topic is %v", presence(t, cl, topic, was))

	three := start()
	var made shape
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		made, _ = shapeOf(ctx, cl, topic)
		if now, err := highWatermarks(ctx, cl, topic); err != nil || made.ID == was.ID || sum(now) == 0 {
			return fmt.Errorf("nothing is copied yet: %v %w\n%s", now, err, strings.Join(three.Lines(), "\n"))
		}
		return nil
	})
	three.Kill()
	half := ends(t, a, topic)
	if t.Logf("killed during the copy: ends are %v", half); sum(half) >= int64(2*n) {
		t.Errorf("killed too late: ends are %v", half)
	}

	four := start()
	upTo(t, sized(time.Minute, 5*time.Minute), b, a, topic)
	sameRecords(t, "the tail that was saved", tail, salvaged(t, dir, name, cluster.Partition{Topic: topic, Partition: 1}, cut))
	if now := madeAnew(t, a, topic, was); now != made {
		t.Errorf("topic is %v, was %v in between: it is to be made anew once", now, made)
	}
	stands(t, a, "killed-"+state, topic, 0, cut/2)
	stands(t, a, "killed-"+state, topic, 1, cut)
	four.Kill()
}

// madeAnew makes sure that a topic, which had min.insync.replicas=1, is another one by
// now, and is as it was.
func madeAnew(t *testing.T, c *kafkatest.Cluster, topic string, was shape) shape {
	t.Helper()
	now := shaped(t, c, topic)
	if now.ID == was.ID || now.Replicas != was.Replicas || now.Partitions != was.Partitions {
		t.Errorf("topic %s is %v, was %v: it is to be made anew, as it was", topic, now, was)
	}
	if got := setting(t, c, topic, "min.insync.replicas"); got != "1" {
		t.Errorf("the rebuilt topic %s has min.insync.replicas=%q, had 1", topic, got)
	}
	return now
}

// presence says in which of its lives a topic is.
func presence(t *testing.T, cl *kgo.Client, topic string, was shape) string {
	t.Helper()
	now, err := shapeOf(t.Context(), cl, topic)
	switch {
	case err != nil:
		return err.Error()
	case now.ID == was.ID:
		return "the old one"
	}
	return "a new one"
}

// state is what a process of its own keeps.
type state interface {
	coordinator.Store
	coordinator.Positions
}

func openState(place, bootstrap string) (state, error) {
	if place != "kafka" {
		return file.Open(place, nil)
	}
	return statekafka.New(statekafka.Config{Bootstrap: strings.Split(bootstrap, ","), Partitions: 3})
}
