package acceptance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestForeignWrite: an application writes into a mirror topic. That partition
// fails and the event names the offset; the others go on; nothing is overwritten
// (I1, I4, I10).
func TestForeignWrite(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy=%v", busy), func(t *testing.T) {
			src, dst := source(t), destination(t)
			topic := fmt.Sprintf("foreign-%v", busy)
			src.CreateTopic(t, topic, 3, 1, nil)
			for p := range int32(3) {
				put(t, src, topic, p, 100)
			}
			m := run(t, "foreign", connect(t, src), connect(t, dst), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
			caughtUp(t, 30*time.Second, src, dst, topic)
			if busy {
				defer writer(t, src, topic, 3, 0)()
			}
			at := put(t, dst, topic, 1, 1)
			if !busy {
				put(t, src, topic, 1, 10)
			}
			e := m.event(time.Minute, "foreign write", func(e mirror.StateEvent) bool {
				return failed(e) && (errors.Is(e.Err, mirror.ErrForeignWrite) || errors.Is(e.Err, mirror.ErrDisplaced))
			})
			t.Logf("%v", e.Err)
			if e.Partition.Partition != 1 || e.Offset < at || !busy && e.Offset > at+1 {
				t.Errorf("event at %v offset %d, the foreign record is at %d", e.Partition, e.Offset, at)
			}
			if cluster.Retriable(e.Err) {
				t.Error("the failure is tried again by itself")
			}
			last := put(t, src, topic, 0, 10) + 9
			for _, p := range []int32{0, 2} {
				if p == 2 {
					last = put(t, src, topic, 2, 10) + 9
				}
				if err := m.WaitMirrored(timeout(t, 30*time.Second), cluster.Partition{Topic: topic, Partition: p}, last); err != nil {
					t.Error(err)
				}
			}
			if lines := kcat(t, dst, topic, 1, at, 1); len(lines) != 1 || lines[0].Value != "of an application" {
				t.Errorf("the foreign record at %d was %v", at, lines)
			}
		})
	}
}

// TestForeignWriteWhileIdle: nothing comes from the source, so nothing of ours is
// appended; the foreign record is found all the same, at its own offset.
func TestForeignWriteWhileIdle(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "foreign-idle"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 100)
	m := run(t, "idle", connect(t, src), connect(t, dst), mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, SyncInterval: time.Second,
	})
	caughtUp(t, 30*time.Second, src, dst, topic)
	put(t, dst, topic, 0, 3)
	e := m.event(time.Minute, "foreign write", func(e mirror.StateEvent) bool { return errors.Is(e.Err, mirror.ErrForeignWrite) })
	if e.Offset != 100 || cluster.Retriable(e.Err) {
		t.Errorf("found at offset %d, want 100: %v", e.Offset, e.Err)
	}
}

// TestForeignWriteAfterRest: the source rests, an application writes into the
// mirror topic, the source goes on. Nothing of ours lands behind the foreign
// record.
func TestForeignWriteAfterRest(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "foreign-rest"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 100)
	m := run(t, "rest", connect(t, src), connect(t, dst), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
	caughtUp(t, 30*time.Second, src, dst, topic)
	wait(t, 1200*time.Millisecond)
	put(t, dst, topic, 0, 1)
	put(t, src, topic, 0, 10)
	e := m.event(time.Minute, "foreign write", func(e mirror.StateEvent) bool { return errors.Is(e.Err, mirror.ErrForeignWrite) })
	if e.Offset != 100 {
		t.Errorf("found at offset %d, want 100: %v", e.Offset, e.Err)
	}
	if now := ends(t, dst, topic); now[0] != 101 {
		t.Errorf("destination ends at %d, want 101: something landed behind the foreign record", now[0])
	}
}

// TestBlackhole: the source stops answering. Status and Stop answer at once.
func TestBlackhole(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "blackhole"
	src.CreateTopic(t, topic, 2, 1, nil)
	put(t, src, topic, 0, 100)
	network := kafkatest.NewNetwork(t)
	m := run(t, "blackhole", connect(t, src, func(c *kafka.Config) { c.Dial = network.Dial }), connect(t, dst), mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, GroupTimeout: time.Second,
	})
	caughtUp(t, 30*time.Second, src, dst, topic)
	for _, l := range network.Links(src.Bootstrap()...) {
		l.Blackhole(true)
	}
	began := time.Now()
	for range 100 {
		m.Status()
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("100 times Status took %v", took)
	}
	if err := m.Stop(timeout(t, 10*time.Second), topic); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Stop took %v", took)
	}
	if at := put(t, dst, topic, 0, 1); at != 101 { // behind the fence
		t.Errorf("the application's first record got offset %d", at)
	}
	m.end()
}

// TestBrokers: a destination broker of three is killed and comes back, and a
// source leader moves. All catches up, what does not live there never stops, and
// full speed is back within ten seconds of the new leader (I10).
func TestBrokers(t *testing.T) {
	src, dst := sites(t)
	const topic, parts = "brokers", 6
	src.CreateTopic(t, topic, parts, 3, nil)
	dst.CreateTopic(t, topic, parts, 3, map[string]string{"min.insync.replicas": "2"})
	stop := writer(t, src, topic, parts, 0)
	m := run(t, "brokers", connect(t, src), connect(t, dst), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
	flowing(t, m, topic, parts, 20*time.Second)

	led := leaders(t, dst, topic)
	gaps := watch(t, m, topic, parts)
	dst.Kill(led[0])
	fresh := newLeaders(t, dst, topic, led[0], 30*time.Second)
	flowing(t, m, topic, parts, fresh.Add(10*time.Second).Sub(time.Now()))
	dst.Restart(led[0])
	still := gaps()
	for p, leader := range led {
		if leader != led[0] && still[p] > max(2*time.Second, still[0]/2) { // a busy machine stops all for a while
			t.Errorf("partition %d is led by broker %d, not by the dead %d, but stood still for %v", p, leader, led[0], still[p])
		}
	}
	t.Logf("longest standstill by partition %v, leaders were %v", still, led)

	led = leaders(t, src, topic)
	src.Kill(led[1])
	fresh = newLeaders(t, src, topic, led[1], 30*time.Second)
	flowing(t, m, topic, parts, fresh.Add(10*time.Second).Sub(time.Now()))
	src.Restart(led[1])
	if s := m.Status(); s.States[coordinator.StateFailed] > 0 {
		t.Errorf("partitions FAILED for a mere leader move: %+v", s.Worst)
	}
	stop()
	caughtUp(t, time.Minute, src, dst, topic)
	equal(t, src, dst, topic, parts)
}

// flowing waits until every partition's copy moves and is less than a second
// behind.
func flowing(t *testing.T, m *running, topic string, parts int, within time.Duration) {
	t.Helper()
	kafkatest.Eventually(t, within, func(context.Context) error {
		top, ok := m.Topic(topic)
		if !ok || len(top.Partitions) != parts {
			return errors.New("topic not there yet")
		}
		for _, p := range top.Partitions {
			if p.LastAppend == nil || time.Since(*p.LastAppend) > time.Second || p.Lag > 500 {
				return fmt.Errorf("%v: %s, lag %d, last append %v, %s", p.Partition, p.State, p.Lag, p.LastAppend, p.Reason)
			}
		}
		return nil
	})
}
