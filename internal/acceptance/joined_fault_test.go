package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestJoinedRestart: the process that leads dies in the middle of copying, comes back at
// once, and dies again for longer than its session lasts. Nobody can write meanwhile, and
// copying goes on where it was.
func TestJoinedRestart(t *testing.T) {
	for _, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			topic, n := "joined-restart-"+version[:1], int32(8)
			src.CreateTopic(t, topic, n, 1, nil)
			stop := writer(t, src, topic, n, 0)
			us := &member{t: t, k: dst, first: 110}
			options := mirror.Options{Topics: mirror.Topics{Include: []string{topic}}, Store: coordinator.NewMemory()}
			begin := func() *running {
				m := run(t, "joined-restart", connect(t, src), us.destination(), options)
				complain(t, version, m)
				return m
			}
			m := begin()
			kafkatest.Eventually(t, time.Minute, func(context.Context) error {
				if sum(ends(t, dst, topic)) < 2500 {
					return errors.New("little is copied yet")
				}
				return nil
			})
			before := ends(t, dst, topic)
			m.end()
			us.addresses = nil // it comes back at another one
			m = begin()
			moving(t, dst, topic, before)
			t.Log("goes on after a restart")

			m.end()
			leaderless(t, dst, topic)
			cannotWrite(t, dst, topic, n)
			m = begin()
			moving(t, dst, topic, before)
			stop()
			caughtUp(t, time.Minute, src, dst, topic)
			equal(t, src, dst, topic, n)
			sameBytes(t, time.Minute, src, dst, 1, topic, n)
			if err := m.Stop(timeout(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			put(t, dst, topic, 0, 10)
			m.end()
			us.away()
		})
	}
}

// leaderless waits until nobody leads a topic.
func leaderless(t *testing.T, c *kafkatest.Cluster, topic string) {
	t.Helper()
	cl := c.Client(t)
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		now, err := leadersNow(ctx, cl, topic)
		if slices.ContainsFunc(now, func(l int) bool { return l >= 0 }) {
			return fmt.Errorf("leaders are %v", now)
		}
		return err
	})
}

// cannotWrite tries every partition for a second.
func cannotWrite(t *testing.T, c *kafkatest.Cluster, topic string, partitions int32) {
	t.Helper()
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(time.Second), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	var records []*kgo.Record
	for p := range partitions {
		records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: []byte("of others")})
	}
	for _, r := range cl.ProduceSync(t.Context(), records...) {
		if r.Err == nil {
			t.Errorf("%s-%d: written to while nobody leads", topic, r.Record.Partition)
		}
	}
}

// TestJoinedUnclean: the source elects a leader without the newest records while we
// mirror (E4). Every real replica is cut where the logs part, and has what came instead.
func TestJoinedUnclean(t *testing.T) {
	a, _ := sites(t)
	dst := joinable(t, "4.4.0")
	const topic = "joined-unclean"
	n := sized(300, 20_000)
	placed(t, a, topic, 2, 1, 2)
	note(t, a, topic, "both", n, 0, 1)
	us := &member{t: t, k: dst, first: 120}
	var cut []cluster.Span
	m := run(t, "joined-unclean", connect(t, a), us.destination(), mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, UncleanRecovery: []string{topic}, SyncInterval: time.Second,
		Events: mirror.Events{Truncated: func(e mirror.TruncatedEvent) { cut = append(cut, e.Span) }},
	})
	complain(t, "joined", m)
	upTo(t, time.Minute, a, dst, topic)
	a.Stop(2) // the follower
	lost := note(t, a, topic, "lost", 50, 0)[0][0].Offset
	upTo(t, time.Minute, a, dst, topic)
	id := shaped(t, dst, topic)

	unclean(t, a, topic)
	note(t, a, topic, "instead", 50, 0, 1)
	note(t, a, topic, "instead", 30, 0, 1)
	upTo(t, time.Minute, a, dst, topic)
	sameBytes(t, time.Minute, a, dst, 2, topic, 2)
	if now := shaped(t, dst, topic); now != id {
		t.Errorf("the topic is %v, was %v", now, id)
	}
	if err := m.Stop(timeout(t, time.Minute)); err != nil {
		t.Error(err)
	}
	m.end()
	if want := []cluster.Span{{From: lost, To: lost + 50}}; !slices.Equal(cut, want) {
		t.Errorf("cut were %v, want %v", cut, want)
	}
	us.away()
}
