package acceptance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// placed creates a topic whose replicas stand on the brokers given, the first of
// which leads, and that elects a leader without the newest records if it must.
func placed(t *testing.T, c *kafkatest.Cluster, topic string, partitions int32, brokers ...int32) {
	t.Helper()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, -1, -1
	for p := range partitions {
		where := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		where.Partition, where.Replicas = p, brokers
		one.ReplicaAssignment = append(one.ReplicaAssignment, where)
	}
	for name, value := range map[string]string{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"} {
		s := kmsg.NewCreateTopicsRequestTopicConfig()
		s.Name, s.Value = name, &value
		one.Configs = append(one.Configs, s)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	led(t, c, topic, int(brokers[0]))
}

// led waits until a broker leads all partitions of a topic.
func led(t *testing.T, c *kafkatest.Cluster, topic string, broker int) {
	t.Helper()
	cl := c.Client(t)
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		now, err := leadersNow(ctx, cl, topic)
		for _, l := range now {
			if l != broker {
				err = errors.Join(err, fmt.Errorf("leaders of %s are %v, want %d", topic, now, broker))
			}
		}
		return err
	})
}

// TestUnclean: while a mirror runs, the source elects a leader that has not the
// newest records, and other records are written at their offsets (E4). The epochs
// tell, not the ends: the new log is longer. Without permission the partition has
// FAILED with the first offset named and nothing is changed; with permission and a
// destination that may rebuild, the topic is copied again; others go on.
func TestUnclean(t *testing.T) {
	a, b := sites(t)
	const refused, allowed, other, cutting = "unclean-refused", "unclean-allowed", "unclean-other", "unclean-cut"
	n := sized(300, 20_000)
	placed(t, a, refused, 1, 1, 2)
	placed(t, a, allowed, 2, 1, 2)
	placed(t, a, other, 1, 3, 1, 2)
	placed(t, a, cutting, 2, 1, 2)
	note(t, a, refused, "both", n, 0)
	note(t, a, allowed, "both", n, 0, 1)
	note(t, a, other, "both", n, 0)
	note(t, a, cutting, "both", n, 0, 1)
	strict := mirror.Options{Topics: mirror.Topics{Include: []string{refused}}, Store: coordinator.NewMemory()}
	m := run(t, "unclean-strict", connect(t, a), connect(t, b), strict)
	free := run(t, "unclean-free", connect(t, a), connect(t, b, rebuilding), mirror.Options{
		Topics: mirror.Topics{Include: []string{allowed, other}}, UncleanRecovery: []string{allowed, other}, SyncInterval: time.Second,
	})
	exact := run(t, "unclean-exact", connect(t, a), connect(t, b, cutBy(t, b)), mirror.Options{
		Topics: mirror.Topics{Include: []string{cutting}}, UncleanRecovery: []string{cutting}, SyncInterval: time.Second,
	})
	upTo(t, time.Minute, a, b, refused, allowed, other, cutting)

	a.Stop(2) // the follower
	lost := note(t, a, refused, "lost", 50, 0)[0][0].Offset
	note(t, a, allowed, "lost", 50, 0) // partition 1 loses nothing
	note(t, a, cutting, "lost", 50, 0)
	upTo(t, time.Minute, a, b, refused, allowed, cutting)
	commit(t, b, "unclean-idle", allowed, 0, lost/2)
	commit(t, b, "unclean-idle", allowed, 1, lost)
	held := kcat(t, b, refused, 0, 0, int(lost)+50)
	was := map[string]shape{refused: shaped(t, b, refused), allowed: shaped(t, b, allowed), other: shaped(t, b, other), cutting: shaped(t, b, cutting)}

	unclean(t, a, refused, allowed, cutting)
	if at := note(t, a, refused, "instead", 50, 0)[0][0].Offset; at != lost {
		t.Fatalf("the new leader goes on at %d, lost is what is behind %d: that was no unclean election", at, lost)
	}
	note(t, a, refused, "instead", 30, 0) // a batch begins where the mirror's position is
	note(t, a, allowed, "instead", 50, 0, 1)
	note(t, a, allowed, "instead", 30, 0, 1)
	note(t, a, cutting, "instead", 80, 0, 1)
	last := note(t, a, other, "meanwhile", 20, 0)[0][19].Offset
	if err := free.WaitMirrored(timeout(t, time.Minute), cluster.Partition{Topic: other}, last); err != nil {
		t.Errorf("the topic that lost nothing does not go on: %v", err)
	}

	e := m.event(time.Minute, "truncated", func(e mirror.StateEvent) bool { return failed(e) && errors.Is(e.Err, mirror.ErrTruncated) })
	t.Logf("%v", e.Err)
	if e.Offset != lost || cluster.Retriable(e.Err) {
		t.Errorf("the event names offset %d, the logs part at %d; tried again by itself: %v", e.Offset, lost, cluster.Retriable(e.Err))
	}
	m.end()
	if now := shaped(t, b, refused); now != was[refused] || ends(t, b, refused)[0] != lost+50 {
		t.Errorf("topic was %v up to %d, is %v up to %v", was[refused], lost+50, now, ends(t, b, refused))
	}
	if now := kcat(t, b, refused, 0, 0, int(lost)+50); fmt.Sprint(now) != fmt.Sprint(held) {
		t.Error("the destination's records changed")
	}

	upTo(t, time.Minute, a, b, allowed, other, cutting)
	if s := exact.Status(); shaped(t, b, cutting) != was[cutting] || s.Truncated != 50 {
		t.Errorf("topic is %v, was %v, and %d offsets were cut", shaped(t, b, cutting), was[cutting], s.Truncated)
	}
	now := map[string]shape{allowed: shaped(t, b, allowed), other: shaped(t, b, other)}
	if now[allowed].ID == was[allowed].ID || now[other] != was[other] {
		t.Errorf("topics are %v, were %v: only %s is to be made anew", now, was, allowed)
	}
	stands(t, b, "unclean-idle", allowed, 0, lost/2)
	stands(t, b, "unclean-idle", allowed, 1, lost)

	strict.UncleanRecovery = []string{refused}
	permitted(t, run(t, "unclean-strict", connect(t, a), connect(t, b, rebuilding), strict), b, refused, was[refused])
	upTo(t, time.Minute, a, b, refused)
}

// unclean has broker 2, which lacks the newest records, lead topics instead of broker 1.
func unclean(t *testing.T, c *kafkatest.Cluster, topics ...string) {
	t.Helper()
	c.Kill(1) // with the only copy
	t.Cleanup(func() { c.Restart(1) })
	c.Restart(2)
	for _, topic := range topics {
		led(t, c, topic, 2)
	}
}

// permitted waits for a restarted mirror, which may rebuild now, to do so: the
// permission counts once somebody has looked at the failure.
func permitted(t *testing.T, m *running, c *kafkatest.Cluster, topic string, was shape) {
	t.Helper()
	kafkatest.Eventually(t, 30*time.Second, func(context.Context) error {
		if states := m.Status().States; states[coordinator.StateFailed] == 0 {
			return fmt.Errorf("the failure is not known again: %v", states)
		}
		return m.Recover(t.Context(), topic)
	})
	cl := c.Client(t)
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		if now, err := shapeOf(ctx, cl, topic); err != nil || now.ID == was.ID {
			return fmt.Errorf("not rebuilt: %s, %v", m.Status().Worst[0].State, m.Status().Worst[0].Err)
		}
		return nil
	})
}
