package acceptance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestC1_11_StartChangedLater: where a copy begins is asked for once. What is there goes
// on, what is new begins where it is said now.
func TestC1_11_StartChangedLater(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "c1-11"
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 100)
	m := run(t, topic, connect(t, src), connect(t, dst), alone(topic))
	caughtUp(t, time.Minute, src, dst, topic)
	m.end()
	put(t, src, topic, 0, 100)
	src.CreateTopic(t, topic+"-new", 1, 1, nil)
	put(t, src, topic+"-new", 0, 100)
	o := alone(topic)
	o.Start.Latest = true
	o.Topics.Include = append(o.Topics.Include, topic+"-new")
	m = run(t, topic, connect(t, src), connect(t, dst), o)
	for range 2 {
		m.event(time.Minute, "mirroring", func(e mirror.StateEvent) bool { return e.To == coordinator.StateMirroring })
	}
	caughtUp(t, time.Minute, src, dst, topic)
	equal(t, src, dst, topic, 1)
	caughtUp(t, time.Minute, src, dst, topic+"-new")
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { return startsAt(ctx, t, dst, topic+"-new", []int64{100}) })
}

// TestStartTooFar: more would have to be filled than is permitted. The partition is FAILED
// and says what it would cost and what can be chosen; nothing is written, and the other
// partition goes on.
func TestStartTooFar(t *testing.T) {
	const topic = "start-too-far"
	src := stocked(t, map[cluster.Partition][][]byte{
		{Topic: topic}:               {one(10_000_000_000, 5, nil)},
		{Topic: topic, Partition: 1}: {one(0, 5, nil)},
	})
	if err := src.DeleteRecords(cluster.Partition{Topic: topic}, 10_000_000_000); err != nil {
		t.Fatal(err)
	}
	dst := destination(t)
	m := run(t, topic, src, connect(t, dst, func(c *kafka.Config) { c.MaxStartFill = 9_999_999_999 }), alone(topic))
	e := m.event(time.Minute, "too far", failed)
	if e.Partition.Partition != 0 || !errors.Is(e.Err, cluster.ErrRefused) {
		t.Fatalf("%v: %v", e.Partition, e.Err)
	}
	for _, part := range []string{"10000000000", "about 5245 MB, 20m50s", "MaxStartFill", "Options.Start"} {
		if !strings.Contains(e.Err.Error(), part) {
			t.Errorf("%v does not say %q", e.Err, part)
		}
	}
	reaches(t, dst, cluster.Partition{Topic: topic, Partition: 1}, 5)
	reaches(t, dst, cluster.Partition{Topic: topic}, 0)
	top, _ := m.Topic(topic)
	if s := top.Partitions[0]; s.State != coordinator.StateFailed || s.Filling != nil {
		t.Errorf("%s, filling %v", s.State, s.Filling)
	}
}

// TestEmptied: a partition of which nothing is left keeps its end, one that was copied and
// one that comes new; what is written next stands at its offset.
func TestEmptied(t *testing.T) {
	src := source(t)
	for way := range ways {
		dst, topic := zooDestination(t, way), "emptied-"+way
		src.CreateTopic(t, topic, 2, 1, nil)
		put(t, src, topic, 0, 300)
		put(t, src, topic, 1, 50)
		trim(t, src, topic, 0, 300)
		run(t, topic, connect(t, src), connect(t, dst, filling(way)), alone(topic))
		caughtUp(t, time.Minute, src, dst, topic)
		trim(t, src, topic, 1, 50)
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { return startsAt(ctx, t, dst, topic, []int64{300, 50}) })
		caughtUp(t, time.Minute, src, dst, topic)
		for partition, want := range []int64{300, 50} {
			if at := put(t, src, topic, int32(partition), 1); at != want {
				t.Fatalf("the source's next record is at %d", at)
			}
		}
		caughtUp(t, time.Minute, src, dst, topic)
		equal(t, src, dst, topic, 2)
	}
}

// TestC3_1_ProducerIDs: the source's records carry the very producer ids that the
// destination hands out next. After the failover a new producer with one of them begins at
// sequence 0, and what it is told was written is there.
func TestC3_1_ProducerIDs(t *testing.T) {
	const topic = "c3-1"
	dst := destination(t)
	last := nextProducerID(t, dst)
	var batches [][]byte
	for i := range int64(100) { // of 20 producers, each has written five batches of one record
		batches = append(batches, one(i, 1, func(s *batch.Spec) { s.Producer = &batch.Producer{ID: last + 1 + i/5, Sequence: int32(i % 5)} }))
	}
	src := stocked(t, map[cluster.Partition][][]byte{{Topic: topic}: batches})
	m := run(t, topic, src, connect(t, dst), alone(topic))
	reaches(t, dst, cluster.Partition{Topic: topic}, 100)
	if err := m.Stop(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	cl := dst.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	id, _, err := cl.ProducerID(t.Context())
	if err != nil || id <= last || id > last+20 {
		t.Fatalf("the new producer's id is %d, the source has %d to %d: %v", id, last+1, last+20, err)
	}
	for i := range 5 { // each a batch of its own: sequences 0 to 4
		r := &kgo.Record{Topic: topic, Value: []byte{byte('a' + i)}}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil || r.Offset < 100 {
			t.Fatalf("record %d was written at %d: %v", i, r.Offset, err)
		}
		if got := kcat(t, dst, topic, 0, r.Offset, 1); len(got) != 1 || string(got[0].Value) != string(r.Value) {
			t.Errorf("at %d stands %v, want %q", r.Offset, got, r.Value)
		}
	}
}

// nextProducerID takes an id from the cluster.
func nextProducerID(t *testing.T, c *kafkatest.Cluster) int64 {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resp.ProducerID
}
