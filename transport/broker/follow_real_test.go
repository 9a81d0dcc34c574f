package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// realLead is a topic of a real cluster whose partitions we lead.
type realLead struct {
	*testing.T
	k     *kafkatest.Cluster
	us    *joined
	admin *kgo.Client
	topic string
	id    cluster.TopicID
	parts []*lead.Partition
}

// placeLed makes a topic with us in front of the brokers 1 and 2, of whom a quorum has
// to hold what is committed.
func placeLed(t *testing.T, k *kafkatest.Cluster, us *joined, topic string, partitions int32, quorum int) *realLead {
	t.Helper()
	l := &realLead{T: t, k: k, us: us, admin: k.Client(t), topic: topic}
	cordon := func(on bool) {
		if err := us.Cordon(within(t, time.Minute), on); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
	}
	cordon(false)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, -1, -1
	for n := range partitions {
		part := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		part.Partition, part.Replicas = n, []int32{100, 1, 2}
		one.ReplicaAssignment = append(one.ReplicaAssignment, part)
	}
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(within(t, time.Minute), l.admin)
	if err == nil {
		err = wire.CodeError(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	cordon(true)
	image, err := us.log.Wait(within(t, time.Minute), func(i metalog.Image) bool { _, ok := i.TopicNamed(topic); return ok })
	if err != nil {
		t.Fatal(err)
	}
	made, _ := image.TopicNamed(topic)
	l.id = made.ID
	for n := range partitions {
		p, _ := image.Partition(metalog.PartitionID{Topic: l.id, Partition: n})
		if p.Leader != 100 {
			t.Fatalf("broker %d leads", p.Leader)
		}
		l.parts = append(l.parts, lead.New(lead.Config{Topic: l.id, Partition: cluster.Partition{Topic: topic, Partition: n},
			Epoch: p.LeaderEpoch, Quorum: quorum, Followers: []int32{1, 2}, Window: 1 << 16, Stamp: true}))
		us.server.led.add(l.parts[n])
	}
	l.within("leading", func() error {
		for _, p := range l.parts {
			if state := p.State(); state.Phase != lead.Leading {
				return fmt.Errorf("%+v", state)
			}
		}
		return nil
	})
	return l
}

func (l *realLead) within(what string, ok func() error) {
	l.Helper()
	kafkatest.Eventually(l, time.Minute, func(context.Context) error {
		if err := ok(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// add appends batches and waits until both real brokers hold them. It gives them as
// they should be stored.
func (l *realLead) add(n int, batches ...[]byte) [][]byte {
	l.Helper()
	p := l.parts[n]
	var run []cluster.Batch
	var stored [][]byte
	for _, b := range batches {
		h := batch.Header(b)
		run = append(run, cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: h.LeaderEpoch(), Bytes: b})
		b = bytes.Clone(b)
		binary.BigEndian.PutUint32(b[12:], uint32(p.State().Epoch))
		stored = append(stored, b)
	}
	held := make(chan error, 1)
	p.Append(run, nil, func(_ int64, _ int, err error) { held <- err })
	select {
	case err := <-held:
		if err != nil {
			l.Fatalf("partition %d: %v", n, err)
		}
	case <-time.After(time.Minute):
		l.Fatalf("partition %d: not held: %+v", n, p.State())
	}
	return stored
}

// holds reads the log of each real broker as it lies there, and its bounds.
func (l *realLead) holds(n int, start, end int64, want ...[]byte) {
	l.Helper()
	for _, broker := range []int32{1, 2} {
		l.within(fmt.Sprintf("partition %d on broker %d", n, broker), func() error {
			first, last, err := l.bounds(broker, int32(n))
			if err != nil || first != start || last != end {
				return fmt.Errorf("log [%d,%d), want [%d,%d): %w", first, last, start, end, err)
			}
			var got []byte
			for offset := start; offset < end; {
				b, _, err := l.us.readReplica(l.Context(), broker, lackingPiece{topic: l.id,
					name: cluster.Partition{Topic: l.topic, Partition: int32(n)}, offset: offset, max: 1 << 20})
				if err != nil {
					return err
				}
				if b = whole(b, offset, end); b == nil {
					break
				}
				for walk := batch.Walk(b); walk.Next(); {
					offset = walk.Header().Next()
				}
				got = append(got, b...)
			}
			if !bytes.Equal(got, bytes.Join(want, nil)) {
				return fmt.Errorf("%d bytes, want %d", len(got), len(bytes.Join(want, nil)))
			}
			return nil
		})
	}
}

// bounds are a broker's own log start and log end.
func (l *realLead) bounds(broker, n int32) (start, end int64, err error) {
	for i, when := range []int64{earliestOffset, latestOffset} {
		conn, err := l.us.brokers.Conn(l.Context(), broker, "bounds")
		if err != nil {
			return 0, 0, err
		}
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -2 // whoever is asked answers, and the log end for the latest
		topic, part := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = n, when
		topic.Topic, topic.Partitions = l.topic, append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		resp, err := conn.Do(l.Context(), req)
		if err != nil {
			return 0, 0, err
		}
		got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if err := wire.CodeError(got.ErrorCode); err != nil {
			return 0, 0, err
		}
		*[]*int64{&start, &end}[i] = got.Offset
	}
	return start, end, nil
}

// handBack gives the partitions to the real brokers and waits until one leads each.
func (l *realLead) handBack() {
	l.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 30_000
	topic := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	topic.Topic = l.topic
	for n := range l.parts {
		part := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		part.Partition, part.Replicas = int32(n), []int32{1, 2}
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(within(l.T, time.Minute), l.admin)
	if err == nil {
		err = wire.CodeError(resp.ErrorCode)
	}
	if err != nil {
		l.Fatal(err)
	}
	offUs(l.T, l.us.Membership, l.topic, len(l.parts), 2)
	for _, p := range l.parts {
		l.us.server.led.remove(p)
		p.Close(cluster.ErrFenced)
	}
}

// TestRealFollowers: real brokers copy from us what we append, byte for byte, with a
// gap, from a start in the middle, and after a cut; and lead it when we hand it back.
func TestRealFollowers(t *testing.T) {
	for _, version := range both() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3})
			us := join(t, k, Config{IDs: IDs{100, 100}, Identities: new(MemoryIdentities),
				Ours: func(topic string, _ cluster.TopicID, _ int32) bool { return strings.HasPrefix(topic, "led") }})
			if err := us.WaitJoined(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			l := placeLed(t, k, us, "led", 2, 2)
			began := time.Now()
			log := l.add(0, batchAt(0, 100, 1), batchAt(100, 50, 1), batchAt(170, 30, 1)) // a gap of 20
			t.Logf("three batches are held after %v", time.Since(began))
			l.holds(0, 0, 200, log...)

			if err := l.parts[1].StartAt(520); err != nil {
				t.Fatal(err)
			}
			began = time.Now()
			later := l.add(1, batchAt(520, 5, 1), batchAt(525, 5, 1))
			t.Logf("a log that starts at 520 is held after %v", time.Since(began))
			l.holds(1, 520, 530, later...)

			began = time.Now()
			cut := make(chan error, 1)
			l.parts[0].Truncate(160, func(err error) { cut <- err }) // in the gap
			if err := <-cut; err != nil {
				t.Fatal(err)
			}
			t.Logf("cut on both after %v", time.Since(began))
			l.holds(0, 0, 160, log[:2]...)
			log = append(log[:2:2], l.add(0, batchAt(160, 10, 2), batchAt(180, 10, 2))...)
			l.holds(0, 0, 190, log...)

			began = time.Now()
			const more = 200
			for n := range int64(more) {
				log = append(log, l.add(0, batchAt(190+5*n, 5, 2))...)
			}
			t.Logf("%v for each of %d appends that wait for each other", time.Since(began)/more, more)
			l.holds(0, 0, 190+5*more, log...)

			l.handBack()
			l.readable(log, later)
			if err := k.Client(t, kgo.DefaultProduceTopic("led")).ProduceSync(within(t, time.Minute), kgo.StringRecord("x")).FirstErr(); err != nil {
				t.Errorf("writing after the hand-back: %v", err)
			}
		})
	}
}

// readable compares what a consumer reads with the records of each partition's batches.
func (l *realLead) readable(partitions ...[][]byte) {
	l.Helper()
	want := make(map[string]bool)
	for n, batches := range partitions {
		for _, b := range batches {
			if err := batch.Decode(batch.Header(b), func(r batch.Record) error {
				want[fmt.Sprint(n, "/", r.Offset, " ", string(r.Value))] = true
				return nil
			}); err != nil {
				l.Fatal(err)
			}
		}
	}
	cl := l.k.Client(l.T, kgo.ConsumeTopics(l.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for ctx := within(l.T, time.Minute); len(want) > 0; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			l.Fatalf("%d records are not read: %v", len(want), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			one := fmt.Sprint(r.Partition, "/", r.Offset, " ", string(r.Value))
			if !want[one] {
				l.Errorf("record %q is none of ours, or is read twice", one)
			}
			delete(want, one)
		})
	}
}
