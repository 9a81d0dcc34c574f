package acceptance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// alone mirrors one topic, and looks at the log starts every second.
func alone(topic string) mirror.Options {
	return mirror.Options{Topics: mirror.Topics{Include: []string{topic}}, SyncInterval: time.Second}
}

// TestC1_1_RetentionOutran: the source's retention has deleted what was not copied yet.
// The log goes on where the source's begins, nothing is renumbered, and it is told.
func TestC1_1_RetentionOutran(t *testing.T) {
	src := source(t)
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			dst, topic := zooDestination(t, way), "c1-1-"+way
			src.CreateTopic(t, topic, 1, 1, nil)
			put(t, src, topic, 0, 100)
			var mu sync.Mutex
			var skipped []cluster.Span
			o := alone(topic)
			o.Events.Skipped = func(e mirror.SkippedEvent) {
				mu.Lock()
				defer mu.Unlock()
				skipped = append(skipped, e.Span)
			}
			m := run(t, topic, connect(t, src), connect(t, dst, filling(way)), o)
			caughtUp(t, time.Minute, src, dst, topic)
			if err := m.Pause(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			m.event(time.Minute, "paused", func(e mirror.StateEvent) bool { return e.To == coordinator.StatePaused })
			put(t, src, topic, 0, 400)
			put(t, src, topic, 0, 500)
			trim(t, src, topic, 0, 500)
			if err := m.Resume(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			caughtUp(t, time.Minute, src, dst, topic)
			kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error { return startsAt(ctx, t, dst, topic, []int64{500}) })
			equal(t, src, dst, topic, 1)
			if l := kcat(t, dst, topic, 0, 500, 1); len(l) != 1 || l[0].Offset != 500 {
				t.Errorf("the first record is %v", l)
			}
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(skipped) != "[[100,500)]" || m.Status().Skipped != 400 {
				t.Errorf("events %v, status %d; want [100,500) once, 400", skipped, m.Status().Skipped)
			}
		})
	}
}

// TestC1_3_TrimBelow: after a restart the source trims below what was copied. Exactly
// that goes.
func TestC1_3_TrimBelow(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "c1-3"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 4000)
	m := run(t, topic, connect(t, src), connect(t, dst), alone(topic))
	caughtUp(t, time.Minute, src, dst, topic)
	m.end()
	run(t, topic, connect(t, src), connect(t, dst), alone(topic))
	trim(t, src, topic, 0, 1000)
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { return startsAt(ctx, t, dst, topic, []int64{1000}) })
	if lines := kcat(t, dst, topic, 0, 1000, 3000); len(lines) != 3000 || lines[0].Offset != 1000 {
		t.Errorf("%d records are left", len(lines))
	}
	equal(t, src, dst, topic, 1)
}

// TestC1_5_StartTimePastTheEnd: a start time that no record has reached begins at the
// end, and copies no history.
func TestC1_5_StartTimePastTheEnd(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "c1-5"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 100)
	o := alone(topic)
	o.Start = mirror.Start{Time: time.Now().Add(time.Hour)}
	m := run(t, topic, connect(t, src), connect(t, dst), o)
	m.event(time.Minute, "mirroring", func(e mirror.StateEvent) bool { return e.To == coordinator.StateMirroring })
	if at := put(t, src, topic, 0, 1); at != 100 {
		t.Fatalf("the source's next record is at %d", at)
	}
	caughtUp(t, time.Minute, src, dst, topic)
	if lines := dst.KcatConsume(t.Context(), t, kafkatest.ConsumeSpec{Topic: topic, Partition: kafkatest.AllPartitions}); len(lines) != 1 || lines[0].Offset != 100 {
		t.Errorf("the destination holds %v", lines)
	}
}

// TestC1_7_StartInsideABatch: the log start lies in the only batch. Consumers read from
// there on, at both sides.
func TestC1_7_StartInsideABatch(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "c1-7"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 10)
	trim(t, src, topic, 0, 5)
	run(t, topic, connect(t, src), connect(t, dst), alone(topic))
	caughtUp(t, time.Minute, src, dst, topic)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error { return startsAt(ctx, t, dst, topic, []int64{5}) })
	spec := kafkatest.ConsumeSpec{Topic: topic, Partition: kafkatest.AllPartitions}
	a, b := src.KcatConsume(t.Context(), t, spec), dst.KcatConsume(t.Context(), t, spec)
	if diff := cmp.Diff(a, b); diff != "" || len(a) != 5 || a[0].Offset != 5 {
		t.Errorf("(-source +destination):\n%s", diff)
	}
}

// TestC3_7_MarkersShiftOffsets: a group that has read ten transactions of one record
// each stands behind the last marker, and at the destination just so.
func TestC3_7_MarkersShiftOffsets(t *testing.T) {
	src := source(t)
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			dst, topic := zooDestination(t, way), "c3-7-"+way
			src.CreateTopic(t, topic, 1, 1, nil)
			cl := src.Client(t, kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
			for i := range 10 {
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				if err := cl.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
					t.Fatal(err)
				}
				if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
					t.Fatal(err)
				}
			}
			commit(t, src, topic, topic, 0, 19)
			m := run(t, topic, connect(t, src), connect(t, dst, filling(way)), alone(topic))
			caughtUp(t, time.Minute, src, dst, topic)
			put(t, src, topic, 0, 1)
			caughtUp(t, time.Minute, src, dst, topic)
			if err := m.Stop(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			if at, err := committed(t.Context(), connect(t, dst), topic, topic, 0); at != 19 || err != nil {
				t.Errorf("the group stands at %d, want 19: %v", at, err)
			}
			a, b := kcat(t, src, topic, 0, 19, 1), kcat(t, dst, topic, 0, 19, 1)
			if diff := cmp.Diff(a, b); diff != "" || len(a) != 1 || a[0].Offset != 20 {
				t.Errorf("the group's next record (-source +destination):\n%s", diff)
			}
		})
	}
}
