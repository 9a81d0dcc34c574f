package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/kafka"
)

// admin counts the requests by which a mirror changes its destination, and those by which
// it reads settings.
type admin struct {
	*kafka.Cluster
	changes, reads atomic.Int64
}

func (a *admin) CreateTopics(ctx context.Context, ts []cluster.NewTopic) []error {
	a.changes.Add(1)
	return a.Cluster.CreateTopics(ctx, ts)
}

func (a *admin) GrowTopics(ctx context.Context, ts []cluster.Topic) []error {
	a.changes.Add(1)
	return a.Cluster.GrowTopics(ctx, ts)
}

func (a *admin) AlterTopics(ctx context.Context, all []topics.Changes) []error {
	a.changes.Add(1)
	return a.Cluster.AlterTopics(ctx, all)
}

func (a *admin) TopicConfigs(ctx context.Context, names []string) ([]topics.ConfigsAnswer, error) {
	a.reads.Add(1)
	return a.Cluster.TopicConfigs(ctx, names)
}

// mixed are the settings and the partitions of the i-th of many topics.
func mixed(name string, i int) cluster.NewTopic {
	n := cluster.NewTopic{Name: name, Partitions: int32(1 + i%3), ReplicationFactor: 1}
	set := func(key, value string) { n.Configs = append(n.Configs, cluster.TopicConfig{Name: key, Value: value}) }
	if i%2 == 0 {
		set("retention.ms", strconv.Itoa(3_600_000*(1+i)))
	}
	if i%3 == 0 {
		set("cleanup.policy", "compact")
	}
	if i%5 == 0 {
		set("compression.type", "lz4")
		set("min.insync.replicas", "1")
	}
	if i%7 == 0 {
		set("segment.bytes", "104857600")
		set("max.message.bytes", strconv.Itoa(2_000_000+i))
	}
	return n
}

// expected are the settings that a mirror topic has for those of the source, sorted.
func expected(source []cluster.TopicConfig) []cluster.TopicConfig {
	out := topics.Validated()
	for _, c := range source {
		if c.Name != "compression.type" && c.Name != "min.insync.replicas" {
			out = append(out, c)
		}
	}
	return byName(out)
}

func byName(cs []cluster.TopicConfig) []cluster.TopicConfig {
	return slices.SortedFunc(slices.Values(cs), func(a, b cluster.TopicConfig) int { return strings.Compare(a.Name, b.Name) })
}

// furnished reports how many topics have neither the settings nor the partitions that they
// are to have.
func furnished(ctx context.Context, end *kafka.Cluster, want map[string]cluster.NewTopic) error {
	var names []string
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	all, err := end.Topics(ctx)
	if err != nil {
		return err
	}
	parts := map[string]int32{}
	for _, t := range all {
		parts[t.Name] = t.Partitions
	}
	answers, err := end.TopicConfigs(ctx, names)
	if err != nil {
		return err
	}
	wrong, first := 0, ""
	for i, name := range names {
		diff := cmp.Diff(expected(want[name].Configs), byName(answers[i].Configs))
		if answers[i].Err != nil || diff != "" || parts[name] != want[name].Partitions {
			if wrong++; first == "" {
				first = fmt.Sprintf("%s: %v, %d partitions, settings (-want +got):\n%s", name, answers[i].Err, parts[name], diff)
			}
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d are not as they should be, the first: %s", wrong, len(names), first)
	}
	return nil
}

// TestSettings: many topics appear with the source's partitions and settings; changes,
// removals and growth are there after one interval, and what somebody edited by hand is
// put back; another process that finds all in step changes nothing. A record that needs
// the source's larger limit comes with it (C5.9), and after the stop a topic has the
// source's compression.
func TestSettings(t *testing.T) {
	if sourceVersion() == "2.1.1" {
		return // this changes settings at the source as brokers from 2.3 on let it
	}
	src, dst := source(t), destination(t)
	from, to := connect(t, src), &admin{Cluster: connect(t, dst)}
	n, interval := sized(100, 1000), sized(2*time.Second, 20*time.Second)
	want, all := map[string]cluster.NewTopic{}, []cluster.NewTopic(nil)
	for i := range n {
		name := fmt.Sprintf("settings-%04d", i)
		want[name] = mixed(name, i)
		all = append(all, want[name])
	}
	for some := range slices.Chunk(all, 200) {
		if err := errors.Join(from.CreateTopics(t.Context(), some)...); err != nil {
			t.Fatal(err)
		}
	}
	partitions := func() (sum int) {
		for _, w := range want {
			sum += int(w.Partitions)
		}
		return sum
	}
	o := mirror.Options{
		Topics: mirror.Topics{Include: []string{"settings-.*"}}, Store: coordinator.NewMemory(), SyncInterval: interval, ConfigInterval: interval,
	}
	m := run(t, "settings", from, to, o)
	mirroring := func(count int) {
		t.Helper()
		began := time.Now()
		kafkatest.Eventually(t, 5*time.Minute, func(context.Context) error {
			if s := m.Status(); s.States[coordinator.StateMirroring] != count || s.Health != "ok" {
				return fmt.Errorf("%s: %v %v", s.Health, s.States, s.Syncs)
			}
			return nil
		})
		t.Logf("%d partitions are mirrored after %v, %d requests have changed something", count, time.Since(began).Round(time.Millisecond), to.changes.Load())
	}
	mirroring(partitions())
	if err := furnished(t.Context(), to.Cluster, want); err != nil {
		t.Fatal(err)
	}
	if most := int64(n/100 + 1); to.changes.Load() > most {
		t.Errorf("%d requests to create %d topics, want at most %d", to.changes.Load(), n, most)
	}

	// Changes, removals, growth; and somebody edits at the destination.
	to.changes.Store(0)
	text := func(s string) *string { return &s }
	var alter, hand []topics.Changes
	var grow []cluster.Topic
	for i, w := range all {
		switch i % 10 {
		case 0:
			alter = append(alter, topics.Changes{Topic: w.Name, Changes: []topics.Change{{Name: "retention.ms"}, {Name: "segment.ms", Value: text("7200000")}}})
			w.Configs = slices.DeleteFunc(slices.Clone(w.Configs), func(c cluster.TopicConfig) bool { return c.Name == "retention.ms" })
			w.Configs = append(w.Configs, cluster.TopicConfig{Name: "segment.ms", Value: "7200000"})
		case 2:
			hand = append(hand, topics.Changes{Topic: w.Name, Changes: []topics.Change{{Name: "retention.ms", Value: text("1000")}}})
		case 3:
			w.Partitions++
			grow = append(grow, cluster.Topic{Name: w.Name, Partitions: w.Partitions})
		}
		want[w.Name] = w
	}
	if err := errors.Join(append(append(from.AlterTopics(t.Context(), alter), from.GrowTopics(t.Context(), grow)...), to.Cluster.AlterTopics(t.Context(), hand)...)...); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	kafkatest.Eventually(t, interval+30*time.Second, func(ctx context.Context) error { return furnished(ctx, to.Cluster, want) })
	t.Logf("changed after %v (interval %v), %d requests", time.Since(began).Round(time.Millisecond), interval, to.changes.Load())
	mirroring(partitions())
	put(t, src, "settings-0013", 0, 5)
	put(t, src, "settings-0013", 2, 7) // a partition that is new
	caughtUp(t, time.Minute, src, dst, "settings-0013")

	// Another process finds nothing to do.
	m.end()
	to.changes.Store(0)
	to.reads.Store(0)
	m = run(t, "settings", from, to, o)
	mirroring(partitions())
	kafkatest.Eventually(t, 4*interval+time.Minute, func(context.Context) error {
		if reads := to.reads.Load(); reads < 3 {
			return fmt.Errorf("settings were read %d times", reads)
		}
		return nil
	})
	if to.changes.Load() != 0 {
		t.Errorf("%d requests change what is in step", to.changes.Load())
	}

	// C5.9.
	const large = "settings-0001"
	grown := []topics.Changes{{Topic: large, Changes: []topics.Change{{Name: "max.message.bytes", Value: text("10000000")}}}}
	if err := errors.Join(from.AlterTopics(t.Context(), grown)...); err != nil {
		t.Fatal(err)
	}
	record := &kgo.Record{Topic: large, Value: make([]byte, 5_000_000)}
	cl := src.Client(t, kgo.ProducerBatchMaxBytes(9_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { return cl.ProduceSync(ctx, record).FirstErr() })
	caughtUp(t, time.Minute, src, dst, large)
	kafkatest.Eventually(t, interval+10*time.Second, func(context.Context) error {
		if got := setting(t, dst, large, "max.message.bytes"); got != "10000000" {
			return fmt.Errorf("max.message.bytes is %q", got)
		}
		return nil
	})

	if err := m.Stop(timeout(t, time.Minute), "settings-0005", "settings-0007"); err != nil {
		t.Fatal(err)
	}
	for topic, compression := range map[string]string{"settings-0005": "lz4", "settings-0007": ""} {
		if a, b := setting(t, dst, topic, "compression.type"), setting(t, dst, topic, "message.timestamp.type"); a != compression || b != "" {
			t.Errorf("%s after the stop: compression.type %q, message.timestamp.type %q", topic, a, b)
		}
	}
	if got := setting(t, dst, "settings-0007", "segment.bytes"); got != "104857600" {
		t.Errorf("segment.bytes after the stop: %q", got)
	}
}
