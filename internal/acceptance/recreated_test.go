package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestRecreated: a source topic is deleted and created again, while a mirror runs, while
// one has lost sight of the source and while none runs, and soon holds more records than
// were mirrored of the old one (C2.1). Not one of them is appended to the old ones.
// Sources before 2.8 have no topic ids that tell: there the records do (C2.3), unless
// all of it happens while a broker holds one fetch; that is warned of.
func TestRecreated(t *testing.T) {
	src, dst := source(t), destination(t)
	const live, unseen, away, other, old = "recreated-live", "recreated-unseen", "recreated-away", "recreated-other", "recreated-old"
	for _, topic := range []string{live, unseen, away, other} {
		src.CreateTopic(t, topic, 1, 1, nil)
		note(t, src, topic, "before", 100, 0)
	}
	included := []string{live, unseen, other}
	if oldFormats() { // and what is of an old format is recognized
		included = append(included, old)
		src.CreateTopic(t, old, 1, 1, map[string]string{"message.format.version": "0.10.2"})
		messages(t, src, old, 100)
	}
	idle := mirror.Options{Topics: mirror.Topics{Include: []string{away}}, Store: coordinator.NewMemory()}
	m := run(t, "recreated-away", connect(t, src), connect(t, dst), idle)
	upTo(t, time.Minute, src, dst, away)
	m.end()
	recreate(t, src, away, 0)
	refusesRecreated(t, run(t, "recreated-away", connect(t, src), connect(t, dst), idle), dst, away)

	var said bytes.Buffer
	network := kafkatest.NewNetwork(t)
	m = run(t, "recreated-live", connect(t, src, func(c *kafka.Config) { c.Dial = network.Dial }), connect(t, dst), mirror.Options{
		Topics: mirror.Topics{Include: included}, Logger: slog.New(slog.NewTextHandler(&said, nil)),
	})
	upTo(t, time.Minute, src, dst, included...)
	recreate(t, src, live, 1200*time.Millisecond)
	refusesRecreated(t, m, dst, live)
	for _, l := range network.Links(src.Bootstrap()...) {
		l.Refuse(true)
		l.Cut()
	}
	recreate(t, src, unseen, 0)
	for _, l := range network.Links(src.Bootstrap()...) {
		l.Refuse(false)
	}
	refusesRecreated(t, m, dst, unseen)
	last := note(t, src, other, "after", 10, 0)[0][9].Offset
	if err := m.WaitMirrored(timeout(t, time.Minute), cluster.Partition{Topic: other}, last); err != nil {
		t.Error(err)
	}
	if oldFormats() {
		messages(t, src, old, 10)
		if err := m.WaitMirrored(timeout(t, time.Minute), cluster.Partition{Topic: old}, 109); err != nil {
			t.Error(err)
		}
	}
	if now := ends(t, dst, live); now[0] != 100 {
		t.Errorf("%s: the destination ends at %d, want 100", live, now[0])
	}
	m.end()
	warned, nameless := strings.Count(said.String(), "no topic ids"), shaped(t, src, other).ID.IsZero()
	if nameless && warned != 1 || !nameless && warned != 0 {
		t.Errorf("source without topic ids: %v, warned of %d times", nameless, warned)
	}
}

// oldFormats: the source can write message formats before 2.
func oldFormats() bool { return strings.HasPrefix(sourceVersion(), "2.") }

// messages writes n records that any format can hold.
func messages(t *testing.T, c *kafkatest.Cluster, topic string, n int) {
	t.Helper()
	cl := c.Client(t, kgo.DisableIdempotentWrite())
	for i := range n {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: fmt.Append(nil, "message ", i)}).FirstErr(); err != nil {
			t.Fatalf("%s: %v", topic, err)
		}
	}
}

// recreate deletes a topic, and makes another of its name. A batch begins at 100, where
// the old one ended. For a while there is none.
func recreate(t *testing.T, c *kafkatest.Cluster, topic string, while time.Duration) {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	req.TopicNames = []string{topic}
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = &topic
	req.Topics = append(req.Topics, one)
	cl := c.Client(t, kgo.RetryTimeout(5*time.Second))
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("deleting topic %s: %v", topic, err)
	}
	wait(t, while)
	anew := kmsg.NewCreateTopicsRequestTopic()
	anew.Topic, anew.NumPartitions, anew.ReplicationFactor = topic, 1, 1
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 30_000
	create.Topics = append(create.Topics, anew)
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { // it is there until it is deleted everywhere
		resp, err := create.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		return err
	})
	if first := note(t, c, topic, "anew", 100, 0)[0][0].Offset; first != 0 {
		t.Fatalf("the first record has offset %d: that is the old topic", first)
	}
	note(t, c, topic, "anew", 50, 0)
}

// refusesRecreated: the topic has failed for good, and the destination has the 100
// records of the old one, and nothing else.
func refusesRecreated(t *testing.T, m *running, dst *kafkatest.Cluster, topic string) {
	t.Helper()
	e := m.event(time.Minute, "recreated", func(e mirror.StateEvent) bool {
		return failed(e) && e.Partition.Topic == topic && !cluster.Retriable(e.Err)
	})
	t.Logf("%v", e.Err)
	if !errors.Is(e.Err, mirror.ErrTopicReplaced) && !errors.Is(e.Err, mirror.ErrDiverged) && !errors.Is(e.Err, mirror.ErrTruncated) {
		t.Errorf("failed with: %v", e.Err)
	}
	if now := ends(t, dst, topic); now[0] != 100 {
		t.Errorf("%s: the destination ends at %d, want 100", topic, now[0])
	}
	for _, l := range kcat(t, dst, topic, 0, 0, 100) {
		if l.Key != "before" {
			t.Fatalf("%s: the destination holds what the new topic has: %.60s", topic, l.String())
		}
	}
}
