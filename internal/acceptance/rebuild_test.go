package acceptance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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

// TestUnplanned: the way between two sites breaks, then the source dies with
// acknowledged records that were not mirrored (E2). The destination takes over while
// the source is dead. When that is back, its tail is saved record by record, the one
// topic that has such a tail is copied again, and groups find their places; the other
// topic is left as it is.
func TestUnplanned(t *testing.T) {
	a, b := sites(t)
	const lossy, lucky = "unplanned-lossy", "unplanned-lucky"
	n := sized(300, 20_000)
	for _, topic := range []string{lossy, lucky} {
		a.CreateTopic(t, topic, 3, 2, map[string]string{"segment.bytes": "1048576", "min.insync.replicas": "1"})
		note(t, a, topic, "before", n, 0, 1, 2)
	}
	network := kafkatest.NewNetwork(t)
	stateA, stateB := coordinator.NewMemory(), coordinator.NewMemory()
	include := mirror.Topics{Include: []string{lossy, lucky}}
	there := run(t, "unplanned-ab", connect(t, a, func(c *kafka.Config) { c.Dial = network.Dial }), connect(t, b), mirror.Options{
		Topics: include, Store: stateB, Positions: stateA, GroupTimeout: 2 * time.Second,
	})
	upTo(t, time.Minute, a, b, lossy, lucky)
	for _, l := range network.Links(a.Bootstrap()...) {
		l.Blackhole(true)
	}
	tails := note(t, a, lossy, "lost", n/3, 0, 2) // partition 1 has none
	cut := tails[0][0].Offset
	commit(t, a, "idle-inside", lossy, 0, cut/2)
	commit(t, a, "idle-inside", lossy, 1, cut/3)
	commit(t, a, "idle-tail", lossy, 0, cut+int64(n/6)) // it has read lost records
	commit(t, a, "idle-tail", lossy, 2, cut+int64(n/6))
	commit(t, a, "idle-inside", lucky, 0, cut/4)
	was := map[string]shape{lossy: shaped(t, a, lossy), lucky: shaped(t, a, lucky)}

	back := died(t, a)
	if err := there.Stop(timeout(t, 30*time.Second), lossy, lucky); err != nil {
		t.Fatalf("stop with a dead source: %v", err)
	}
	there.end()
	for _, topic := range []string{lossy, lucky} {
		if at := note(t, b, topic, "after", n, 0, 1, 2)[0][0].Offset; at < cut {
			t.Fatalf("%s: the application's first record got offset %d, mirrored was up to %d", topic, at, cut)
		}
	}

	back()
	dir := t.TempDir()
	home := run(t, "unplanned-ba", connect(t, b), connect(t, a, rebuilding), mirror.Options{
		Topics: include, Store: stateA, Positions: stateB, Salvage: mirror.SalvageTo(dir), SyncInterval: time.Second,
	})
	for p := range int32(3) { // the logs were as long before, with other records
		last := b.Ends(t.Context(), t, lossy)[p] - 1
		if err := home.WaitMirrored(timeout(t, 2*time.Minute), cluster.Partition{Topic: lossy, Partition: p}, last); err != nil {
			t.Fatal(err)
		}
	}
	upTo(t, time.Minute, b, a, lossy, lucky)
	for p, tail := range tails {
		sameRecords(t, "the tail that was saved", tail, salvaged(t, dir, "unplanned-ba", cluster.Partition{Topic: lossy, Partition: p}, cut))
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*", "*", "*")); len(files) != len(tails) {
		t.Errorf("saved was %v, only %d partitions had a tail", files, len(tails))
	}
	now := map[string]shape{lossy: shaped(t, a, lossy), lucky: shaped(t, a, lucky)}
	if now[lossy].ID == was[lossy].ID || now[lucky] != was[lucky] || now[lossy].Replicas != 2 || now[lossy].Partitions != 3 {
		t.Errorf("topics are %v, were %v: only %s is to be made anew, as it was", now, was, lossy)
	}
	if got := setting(t, a, lossy, "min.insync.replicas"); got != "1" {
		t.Errorf("the rebuilt topic has min.insync.replicas=%q, had 1", got)
	}
	stands(t, a, "idle-inside", lossy, 0, cut/2)
	stands(t, a, "idle-inside", lossy, 1, cut/3)
	stands(t, a, "idle-tail", lossy, 0, cut) // what it read is gone, what comes it has not read
	stands(t, a, "idle-tail", lossy, 2, cut)
	stands(t, a, "idle-inside", lucky, 0, cut/4)
	if err := home.Promote(timeout(t, time.Minute), lossy, lucky); err != nil {
		t.Fatal(err)
	}
	home.end()
	if at := note(t, a, lossy, "home", 10, 0, 1, 2)[0][0].Offset; at <= cut {
		t.Errorf("the application at home goes on at %d, lost was from %d on", at, cut)
	}
	// The topic is another one now for the first mirror; a new one goes on where the
	// last stopped, and ships the delta.
	anew := run(t, "unplanned-anew", connect(t, a), connect(t, b), mirror.Options{Topics: include, Store: stateB, Positions: stateA})
	last := a.Ends(t.Context(), t, lossy)[0] - 1
	if err := anew.WaitMirrored(timeout(t, time.Minute), cluster.Partition{Topic: lossy}, last); err != nil {
		t.Fatalf("%v: %+v", err, anew.Status().Worst)
	}
	upTo(t, time.Minute, a, b, lossy, lucky)
	if s := anew.Status(); s.Bytes > 60_000 {
		t.Errorf("%d bytes shipped for 30 records of 1 KB", s.Bytes)
	}
}

// homeward mirrors in a process of its own, to be killed: name, source, destination,
// topic, where its state is (kafka or a folder), where the positions are, where tails
// are saved.
func homeward(args []string) error {
	source, err := kafka.New(kafka.Config{Bootstrap: strings.Split(args[1], ",")})
	if err != nil {
		return err
	}
	destination, err := kafka.New(kafka.Config{Bootstrap: strings.Split(args[2], ","), Truncation: kafka.Rebuild})
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
	const parts, replicas = 2, 2
	n := sized(4_000, 200_000)
	a.CreateTopic(t, topic, parts, replicas, map[string]string{"segment.bytes": "1048576", "min.insync.replicas": "1"})
	note(t, a, topic, "before", n, 0, 1)
	planned(t, "killed-ab-"+state, a, b, topic)
	tail := note(t, a, topic, "lost", 50, 1)[1] // nobody has told the application yet
	cut := tail[0].Offset
	commit(t, a, "killed-"+state, topic, 0, cut/2)
	commit(t, a, "killed-"+state, topic, 1, cut)
	note(t, b, topic, "after", 100, 0, 1)

	place, dir := state, t.TempDir()
	if state == "file" {
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
	t.Logf("killed during the copy: ends are %v", half)
	if sum(half) >= int64(parts*n) {
		t.Errorf("killed too late: ends are %v", half)
	}

	four := start()
	upTo(t, sized(time.Minute, 5*time.Minute), b, a, topic)
	sameRecords(t, "the tail that was saved", tail, salvaged(t, dir, name, cluster.Partition{Topic: topic, Partition: 1}, cut))
	now := shaped(t, a, topic)
	if now.ID == was.ID || now != made || now.Replicas != replicas || now.Partitions != parts {
		t.Errorf("topic is %v, was %v, and %v in between: it is to be made anew once, as it was", now, was, made)
	}
	if got := setting(t, a, topic, "min.insync.replicas"); got != "1" {
		t.Errorf("the rebuilt topic has min.insync.replicas=%q, had 1", got)
	}
	stands(t, a, "killed-"+state, topic, 0, cut/2)
	stands(t, a, "killed-"+state, topic, 1, cut)
	four.Kill()
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
