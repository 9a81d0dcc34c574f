package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

// kept leaves the records of a batch at some places, as compaction does.
func kept(places ...int) func(*batch.Spec) {
	return func(s *batch.Spec) {
		all := s.Records
		s.Records = nil
		for _, i := range places {
			s.Records = append(s.Records, all[i])
		}
	}
}

// shapes are the cases C4 and C5 whose subject is what is in a batch: the logs as the
// source has them.
var shapes = map[string][][]byte{
	"c4-1-tail-compacted": {one(100, 10, kept(0, 1, 2, 3)), one(110, 5, nil)},
	"c4-3-large-holes":    {one(0, 1, nil), one(17, 2, nil), one(500, 1, nil)},
	"c4-5-tombstones": {one(0, 3, func(s *batch.Spec) {
		s.Records[0].Value, s.Records[1].Value, s.Records[2].Key = nil, []byte{}, []byte{}
	})},
	"c4-7-binary-keys": {one(0, 2, func(s *batch.Spec) {
		s.Records[0].Key, s.Records[1].Key = []byte{0xff, 0, 0xfe}, []byte{0}
	})},
	"c4-11-delete-horizon": {one(0, 6, func(s *batch.Spec) {
		s.Attributes, s.Timestamp = batch.AttrDeleteHorizon, 1_700_086_400_000
		kept(1, 3, 5)(s)
	}), one(6, 2, func(s *batch.Spec) {
		s.Attributes, s.Timestamp = batch.AttrDeleteHorizon, 1_700_086_400_000
	})},
	"c5-1-far-apart": {one(0, 3, func(s *batch.Spec) {
		s.Records[0].Timestamp, s.Records[1].Timestamp, s.Records[2].Timestamp = 0, 1_795_000_000_000, -1
	}), one(3, 3, func(s *batch.Spec) { // the same with a hole: rebuilt
		s.Records[0].Timestamp, s.Records[2].Timestamp = 1_795_000_000_000, 0
		kept(0, 2)(s)
	})},
	"c5-3-log-append-time": {one(0, 4, func(s *batch.Spec) {
		s.Attributes, s.Timestamp = batch.AttrLogAppendTime, 1_700_000_005_555
	}), one(4, 4, func(s *batch.Spec) {
		s.Attributes, s.Timestamp = batch.AttrLogAppendTime, 1_700_000_006_666
		kept(0, 3)(s)
	}), one(8, 4, func(s *batch.Spec) { // with a delete horizon as well
		s.Attributes, s.Timestamp, s.AppendTime = batch.AttrLogAppendTime|batch.AttrDeleteHorizon, 1_700_086_400_000, 1_700_000_007_777
		kept(1, 3)(s)
	})},
	"c5-11-small-when-packed": {one(0, 2, func(s *batch.Spec) { // 2 MB, of which compression leaves little
		s.Codec = batch.Gzip
		for i := range s.Records {
			s.Records[i].Value = bytes.Repeat([]byte("x"), 1<<20)
		}
	})},
}

// TestShapes are C4.1, C4.3, C4.5, C4.7, C4.11, C5.1, C5.3 and C5.11: consumers read of
// the real destination what the batches hold. kcat says it of the destination, verify of
// both.
func TestShapes(t *testing.T) {
	logs := map[cluster.Partition][][]byte{}
	for name, batches := range shapes {
		logs[cluster.Partition{Topic: name}] = batches
	}
	src := stocked(t, logs)
	for way := range ways {
		dst := zooDestination(t, way)
		end := connect(t, dst, filling(way))
		m := run(t, "shapes", src, end, mirror.Options{Topics: mirror.Topics{Include: []string{"c[45]-.*"}}})
		complain(t, way, m)
		for p, batches := range logs {
			t.Run(way+"/"+p.Topic, func(t *testing.T) {
				reaches(t, dst, p, batch.Header(batches[len(batches)-1]).Next())
				r, err := verify.Partition(t.Context(), src, end, p, nil)
				if err != nil || !r.Equal {
					t.Fatalf("%v, %v, differences %v", r, err, r.Differences)
				}
				var want, got []string
				for _, b := range batches {
					err := batch.Decode(b, func(r batch.Record) error {
						want = append(want, fmt.Sprint(r.Offset, " ", r.Timestamp, " ", shown(r.Key), " ", shown(r.Value)))
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				for _, l := range dst.KcatConsume(t.Context(), t, kafkatest.ConsumeSpec{Topic: p.Topic, Partition: kafkatest.AllPartitions, Committed: true}) {
					got = append(got, fmt.Sprint(l.Offset, " ", l.Time, " ", l.Key, " ", l.Value))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-written +read):\n%.2000s", diff)
				}
			})
		}
	}
}

// TestC4_9_Partitions: records stay in their partition, whatever their keys say.
func TestC4_9_Partitions(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic, parts = "c4-9-partitions", 3
	src.CreateTopic(t, topic, parts, 1, nil)
	cl := src.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 60 {
		r := &kgo.Record{Topic: topic, Partition: int32(i % parts), Value: fmt.Append(nil, i)}
		if i%2 == 0 {
			r.Key = []byte("one key for all")
		}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	run(t, topic, connect(t, src), connect(t, dst), alone(topic))
	caughtUp(t, time.Minute, src, dst, topic)
	spec := kafkatest.ConsumeSpec{Topic: topic, Partition: kafkatest.AllPartitions}
	a, b := src.KcatConsume(t.Context(), t, spec), dst.KcatConsume(t.Context(), t, spec)
	if diff := cmp.Diff(a, b); diff != "" || len(a) != 60 {
		t.Errorf("%d records (-source +destination):\n%s", len(a), diff)
	}
}

// TestC5_9_TooLarge: the destination's topic, which somebody has made before, allows
// less than the source has. The partition stops and names batch, size and limit; the
// others go on; when the limit is raised, so does it. (That the mirror raises it where
// it keeps settings in step is in TestSettings.)
func TestC5_9_TooLarge(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "c5-9"
	src.CreateTopic(t, topic, 2, 1, map[string]string{"max.message.bytes": "10485760"})
	dst.CreateTopic(t, topic, 2, 1, map[string]string{"max.message.bytes": "1048576"})
	put(t, src, topic, 0, 10)
	cl := src.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(10<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, 5<<20)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	o := alone(topic)
	o.NoConfigs = true
	m := run(t, topic, connect(t, src), connect(t, dst), o)
	e := m.event(time.Minute, "too large", func(e mirror.StateEvent) bool { return errors.Is(e.Err, cluster.ErrTooLarge) })
	for _, want := range []string{"5242", "1048576"} { // bytes of the batch, and the limit
		if !strings.Contains(e.Err.Error(), want) {
			t.Errorf("%q does not name %s", e.Err, want)
		}
	}
	if e.Partition != (cluster.Partition{Topic: topic}) || e.Offset != 10 {
		t.Errorf("told of %v offset %d", e.Partition, e.Offset)
	}
	last := put(t, src, topic, 1, 10) + 9
	if err := m.WaitMirrored(timeout(t, 30*time.Second), cluster.Partition{Topic: topic, Partition: 1}, last); err != nil {
		t.Error(err)
	}
	dst.Configure(t, topic, map[string]string{"max.message.bytes": "10485760"})
	if err := m.Recover(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, time.Minute, src, dst, topic)
	equal(t, src, dst, topic, 2)
}

// TestC5_13_WrongCount: a batch says that it ends with its first record, and has two.
// Never are there two records at one offset: that partition stops, the others go on.
func TestC5_13_WrongCount(t *testing.T) {
	const topic = "c5-13"
	src := stocked(t, map[cluster.Partition][][]byte{
		{Topic: topic}:               {one(0, 5, nil), zoo.Misnumbered(5, "a", "b"), one(6, 3, nil)},
		{Topic: topic, Partition: 1}: {one(0, 5, nil)},
	})
	for way := range ways {
		dst := zooDestination(t, way)
		m := run(t, topic, src, connect(t, dst, filling(way)), alone(topic))
		e := m.event(time.Minute, "wrong count", func(e mirror.StateEvent) bool { return failed(e) })
		if e.Partition.Partition != 0 || e.Offset != 5 || !errors.Is(e.Err, cluster.ErrCorrupt) {
			t.Errorf("%s: %v offset %d: %v", way, e.Partition, e.Offset, e.Err)
		}
		reaches(t, dst, cluster.Partition{Topic: topic, Partition: 1}, 5)
		reaches(t, dst, cluster.Partition{Topic: topic}, 5)
	}
}

// TestC5_15_WireCRC: a bit flips on the way from the source. It is found before
// anything is appended, counted, and fetched again.
func TestC5_15_WireCRC(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "c5-15"
	src.CreateTopic(t, topic, 1, 1, nil)
	network := kafkatest.NewNetwork(t)
	m := run(t, topic, connect(t, src, func(c *kafka.Config) { c.Dial = network.Dial }), connect(t, dst), alone(topic))
	put(t, src, topic, 0, 1)
	caughtUp(t, time.Minute, src, dst, topic)
	var flipped []*kafkatest.Shot
	for _, l := range network.Links(src.Bootstrap()...) {
		flipped = append(flipped, l.FlipBit(kafkatest.Read, 50_000))
	}
	cl := src.Client(t, kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, 500_000)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, time.Minute, src, dst, topic)
	<-flipped[0].Done()
	if m.Status().Corrupt == 0 {
		t.Error("nothing was found corrupt")
	}
	equal(t, src, dst, topic, 1)
}

// TestC5_1_Extremes: timestamps as far apart as they go survive a rebuilt batch.
func TestC5_1_Extremes(t *testing.T) {
	times := []int64{-1, 0, 1, math.MaxInt64 / 4, 1_700_000_000_000, -1}
	const topic = "c5-1-extremes"
	src := stocked(t, map[cluster.Partition][][]byte{{Topic: topic}: {one(0, len(times)+2, func(s *batch.Spec) {
		for i, at := range times {
			s.Records[i+1].Timestamp = at
		}
		s.Records = slices.Delete(s.Records, 3, 4)
	})}})
	for way := range ways {
		end := connect(t, zooDestination(t, way), filling(way))
		run(t, "ages", src, end, alone(topic))
		reaches(t, zooDestination(t, way), cluster.Partition{Topic: topic}, int64(len(times)+2))
		r, err := verify.Partition(context.Background(), src, end, cluster.Partition{Topic: topic}, nil)
		if err != nil || !r.Equal || r.Records != int64(len(times)+1) {
			t.Errorf("%s: %v, %v, %v", way, r, err, r.Differences)
		}
	}
}
