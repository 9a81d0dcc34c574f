package broker

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

const firstTime = int64(1_700_000_000_000) // of record 0; each has a second more

// leadTopic makes a topic of one partition whose leader we are and whose replicas are
// real brokers besides, and leads it from an empty log on.
func leadTopic(t *testing.T, us *joined, admin *kgo.Client, topic string, replicas ...int32) *lead.Partition {
	t.Helper()
	cordon := us.Cordon(within(t, time.Minute), false)
	if cordon != nil && !errors.Is(cordon, errors.ErrUnsupported) {
		t.Fatal(cordon)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, -1, -1
	placed := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	placed.Replicas = append([]int32{us.Self().Broker}, replicas...)
	one.ReplicaAssignment = append(one.ReplicaAssignment, placed)
	req.Topics, req.TimeoutMillis = append(req.Topics, one), 30_000
	resp, err := req.RequestWith(t.Context(), admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	image, err := us.log.Wait(within(t, time.Minute), func(i metalog.Image) bool { _, ok := i.TopicNamed(topic); return ok })
	if err != nil {
		t.Fatal(err)
	}
	made, _ := image.TopicNamed(topic)
	state, _ := image.Partition(metalog.PartitionID{Topic: made.ID})
	if state.Leader != us.Self().Broker {
		t.Fatalf("%s is led by %d", topic, state.Leader)
	}
	p := lead.New(lead.Config{
		Topic: made.ID, Partition: cluster.Partition{Topic: topic}, Epoch: state.LeaderEpoch, Quorum: 1, Followers: replicas,
		Window: 1 << 20, Stamp: true,
	})
	p.Live(replicas)
	us.server.led.add(p)
	if cordon == nil {
		if err := us.Cordon(within(t, time.Minute), true); err != nil {
			t.Fatal(err)
		}
	}
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if s := p.State(); s.Phase != lead.Leading {
			return fmt.Errorf("no leader yet: %+v", s)
		}
		return nil
	})
	return p
}

// appendTo appends records and waits until consumers can read them.
func appendTo(t *testing.T, p *lead.Partition, from, to int64) {
	t.Helper()
	done := make(chan error, 1)
	spec := batch.Spec{Base: from}
	for n := from; n < to; n++ {
		spec.Records = append(spec.Records, batch.Record{Offset: n, Timestamp: firstTime + 1000*n, Value: fmt.Append(nil, "value ", n)})
	}
	b := cluster.Batch{Base: from, Next: to, Bytes: batch.Encode(spec), MaxTimestamp: firstTime + 1000*(to-1)}
	p.Append([]cluster.Batch{b}, nil, func(_ int64, _ int, err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-within(t, time.Minute).Done():
		t.Fatalf("records %d to %d do not get to the followers: %+v", from, to, p.State())
	}
}

// TestRealConsumers: clients of all families read what we lead, from whatever real
// broker they happen to be connected to, and cannot write.
func TestRealConsumers(t *testing.T) {
	for _, version := range newest() {
		t.Run(version, func(t *testing.T) {
			k := kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3})
			admin := k.Client(t)
			us := join(t, k, Config{
				IDs: IDs{First: 100, Last: 100}, Identities: new(MemoryIdentities),
				Ours: func(topic string, _ cluster.TopicID, _ int32) bool { return strings.HasPrefix(topic, "mirrored") },
			})
			if err := us.WaitJoined(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			p := leadTopic(t, us, admin, "mirrored", 1, 2) // broker 3 has no replica
			appendTo(t, p, 0, 100)
			for n := range 4 { // each is connected to some real broker
				franzReads(t, k, p, int64(100*(n+1)))
				kafkaGoReads(t, k, int64(100*(n+2)))
			}
			kcatReads(t, k, 500)
			writesFail(t, k, admin, p)
			offsetsAreKnown(t, admin, p)
			transactionsEnd(t, k)
			producersAreDescribed(t, k, p)
			if version != "3.9.1" { // whose share groups are no more than a preview
				shareGroupsWait(t, k, p)
			}
			replicaDies(t, k, p)
		})
	}
}

// franzReads reads to the end, and what is appended then.
func franzReads(t *testing.T, k *kafkatest.Cluster, p *lead.Partition, end int64) {
	t.Helper()
	cl := k.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"mirrored": {0: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	next := int64(0)
	read := func(to int64) {
		t.Helper()
		for next < to {
			got := cl.PollFetches(within(t, time.Minute))
			if err := got.Err(); err != nil {
				t.Fatalf("franz-go at %d of %d: %v", next, to, err)
			}
			got.EachRecord(func(r *kgo.Record) {
				if r.Offset != next || string(r.Value) != fmt.Sprint("value ", next) {
					t.Errorf("franz-go: offset %d holds %q where %d is next", r.Offset, r.Value, next)
				}
				next = r.Offset + 1
			})
		}
	}
	read(end)
	appendTo(t, p, end, end+100)
	read(end + 100)
}

func kafkaGoReads(t *testing.T, k *kafkatest.Cluster, end int64) {
	t.Helper()
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: k.Bootstrap(), Topic: "mirrored", MaxBytes: 1 << 20, MaxWait: 100 * time.Millisecond})
	defer r.Close()
	for n := range end {
		m, err := r.ReadMessage(within(t, time.Minute))
		if err != nil {
			t.Fatalf("kafka-go at %d of %d: %v", n, end, err)
		}
		if m.Offset != n || string(m.Value) != fmt.Sprint("value ", n) {
			t.Fatalf("kafka-go: offset %d holds %q where %d is next", m.Offset, m.Value, n)
		}
	}
}

func kcatReads(t *testing.T, k *kafkatest.Cluster, end int64) {
	t.Helper()
	lines := k.KcatConsume(within(t, time.Minute), t, kafkatest.ConsumeSpec{Topic: "mirrored"})
	if int64(len(lines)) != end {
		t.Fatalf("kcat reads %d records, want %d", len(lines), end)
	}
	for n, l := range lines {
		if l.Offset != int64(n) || l.Value != fmt.Sprint("value ", n) {
			t.Fatalf("kcat: %v where %d is next", l, n)
		}
	}
}

// writesFail: each client tells its user at once, and nothing is written.
func writesFail(t *testing.T, k *kafkatest.Cluster, admin *kgo.Client, p *lead.Partition) {
	t.Helper()
	const text = "topic mirrored is a read-only mirror of another cluster until failover"
	began := time.Now()
	err := admin.ProduceSync(within(t, time.Minute), &kgo.Record{Topic: "mirrored", Value: []byte("x")}).FirstErr()
	if !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("franz-go writes: %v", err)
	}
	connections := new(kafka.Transport)
	defer connections.CloseIdleConnections()
	w := &kafka.Writer{Addr: kafka.TCP(k.Bootstrap()...), Transport: connections, Topic: "mirrored", RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond, MaxAttempts: 2}
	defer w.Close()
	if err := w.WriteMessages(within(t, time.Minute), kafka.Message{Value: []byte("x")}); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("kafka-go writes: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("refused after %v", took)
	}
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(within(t, time.Minute), kcat, "-b", strings.Join(k.Bootstrap(), ","), "-P", "-t", "mirrored", "-X", "message.timeout.ms=20000")
	cmd.Stdin = strings.NewReader("x\n")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(strings.ToLower(string(out)), "policy") {
		t.Errorf("kcat writes: %v, %s", err, out)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	topic := kmsg.NewProduceRequestTopic()
	topic.TopicID, _ = p.ID()
	topic.Topic = "mirrored"
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = batch.Encode(batch.Spec{Records: []batch.Record{{Value: []byte("x")}}})
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	answer, err := admin.Broker(100).Request(within(t, time.Minute), req)
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0]; got.ErrorCode != 44 || got.ErrorMessage == nil || *got.ErrorMessage != text {
		t.Errorf("a write is answered %+v", got)
	}
	del := kmsg.NewPtrDeleteRecordsRequest()
	one := kmsg.NewDeleteRecordsRequestTopic()
	one.Topic = "mirrored"
	one.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 10}}
	del.Topics, del.TimeoutMillis = append(del.Topics, one), 10_000
	gone, err := del.RequestWith(within(t, time.Minute), admin)
	if err != nil || gone.Topics[0].Partitions[0].ErrorCode != 44 {
		t.Errorf("records are deleted: %+v %v", gone, err)
	}
}

func offsetsAreKnown(t *testing.T, admin *kgo.Client, p *lead.Partition) {
	t.Helper()
	end, epoch := p.State().HighWatermark, p.State().Epoch
	for timestamp, want := range map[int64]int64{-1: end, -2: 0, -3: end - 1, firstTime + 1000*42: 42, firstTime + 1000*end: -1} {
		for range 4 { // each time another real broker, or the same
			req := kmsg.NewPtrListOffsetsRequest()
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = "mirrored"
			part := kmsg.NewListOffsetsRequestTopicPartition()
			part.Timestamp, part.CurrentLeaderEpoch = timestamp, epoch
			topic.Partitions = append(topic.Partitions, part)
			req.Topics = append(req.Topics, topic)
			resp, err := req.RequestWith(within(t, time.Minute), admin)
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.Offset != want {
				t.Errorf("offset for %d: %+v, want %d", timestamp, got, want)
			}
		}
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = "mirrored"
	part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	part.LeaderEpoch, part.CurrentLeaderEpoch = epoch, epoch
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(within(t, time.Minute), admin)
	if err != nil || resp.Topics[0].Partitions[0].EndOffset != end || resp.Topics[0].Partitions[0].LeaderEpoch != epoch {
		t.Errorf("end of epoch %d: %+v %v, want %d", epoch, resp, err, end)
	}
}

// transactionsEnd: a producer that tried to write here in a transaction goes on with
// others.
func transactionsEnd(t *testing.T, k *kafkatest.Cluster) {
	t.Helper()
	k.CreateTopic(t, "theirs", 1, 1, nil)
	cl := k.Client(t, kgo.TransactionalID("writer"), kgo.TransactionTimeout(time.Minute))
	for topic, want := range map[string]error{"mirrored": kerr.PolicyViolation, "theirs": nil} {
		for range 2 {
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(within(t, time.Minute), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); !errors.Is(err, want) {
				t.Errorf("a transaction writes to %s: %v", topic, err)
			}
			if err := cl.EndTransaction(within(t, 20*time.Second), kgo.TransactionEndTry(want == nil)); err != nil {
				t.Fatalf("the end of a transaction in %s: %v", topic, err)
			}
		}
	}
}

// replicaDies: a consumer goes on while one of the two replicas is down, wherever he
// is connected.
func replicaDies(t *testing.T, k *kafkatest.Cluster, p *lead.Partition) {
	t.Helper()
	cl := k.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"mirrored": {0: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	next, end := int64(0), p.State().HighWatermark
	read := func(end int64) {
		t.Helper()
		for next < end {
			got := cl.PollFetches(within(t, time.Minute))
			if err := got.Err(); err != nil {
				t.Fatalf("at %d of %d: %v", next, end, err)
			}
			got.EachRecord(func(r *kgo.Record) {
				if r.Offset != next {
					t.Errorf("offset %d where %d is next", r.Offset, next)
				}
				next = r.Offset + 1
			})
		}
	}
	read(end)
	k.Kill(1)
	p.Live([]int32{2})
	began := time.Now()
	appendTo(t, p, end, end+50)
	read(end + 50)
	t.Logf("read to the end %v after broker 1 was killed", time.Since(began))
}
