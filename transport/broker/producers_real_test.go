package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/wire"
)

// newIDs takes a producer id from each real broker: its next ones follow.
func newIDs(t *testing.T, d *Destination, brokers ...int32) (ids []int64) {
	t.Helper()
	for _, broker := range brokers {
		conn, err := d.m.brokers.Conn(t.Context(), broker, "test")
		if err != nil {
			t.Fatal(err)
		}
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { // a block may be on its way
			resp, err := conn.Do(ctx, kmsg.NewPtrInitProducerIDRequest())
			if err != nil {
				return err
			}
			answer := resp.(*kmsg.InitProducerIDResponse)
			if answer.ErrorCode == 0 {
				ids = append(ids, answer.ProducerID)
			}
			return wire.CodeError(answer.ErrorCode)
		})
	}
	return ids
}

// idsOfSource makes a topic that holds a batch of one record of each of many producers of
// the source: those whose ids the real brokers are about to hand out. It gives the end of
// its log and the highest id.
func idsOfSource(t *testing.T, d *Destination, topic string, put func(cluster.Partition, []cluster.Batch, func(error))) (end, highest int64) {
	t.Helper()
	p := cluster.Partition{Topic: topic}
	if err := d.CreateTopics(t.Context(), []cluster.NewTopic{{Name: topic, Partitions: 1, ReplicationFactor: 2}})[0]; err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		ends, err := d.Ends(ctx, []fetcher.Stretch{{Mirror: "m", Partition: p}})
		return errors.Join(err, ends[0].Err)
	})
	var batches []cluster.Batch
	for _, id := range newIDs(t, d, 1, 2) {
		for next := id + 1; next <= id+60; next++ {
			b := batch.Encode(batch.Spec{Base: end, Producer: &batch.Producer{ID: next}, Records: []batch.Record{{Offset: end, Value: fmt.Append(nil, "of ", next)}}})
			batches = append(batches, cluster.Batch{Base: end, Next: end + 1, Bytes: b})
			end, highest = end+1, max(highest, next)
		}
	}
	done := make(chan error, 1)
	put(p, batches, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return end, highest
}

// lostRecords has the mirror stopped, and counts the records of 20 new producers, each told that
// it was written, that are not behind the mirrored ones.
func lostRecords(t *testing.T, d *Destination, k *kafkatest.Cluster, topic string, end int64) (n int) {
	t.Helper()
	ends, err := d.Fence(within(t, time.Minute), []fetcher.Stretch{{Mirror: "m", Partition: cluster.Partition{Topic: topic}}})
	if err != nil || ends[0].Err != nil || ends[0].LogEnd != end {
		t.Fatalf("Fence: %+v, %v", ends, err)
	}
	for range 20 {
		cl := k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		r := &kgo.Record{Topic: topic, Value: []byte("new")}
		if err := cl.ProduceSync(within(t, time.Minute), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if r.Offset < end {
			n++
		}
	}
	return n
}

// TestRealProducerIDs (C3.1): the source's producers have the ids that the destination is
// about to hand out. Where nobody minds that, new producers lose what they are told was
// written; the destination does, before it is stopped.
func TestRealProducerIDs(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{Nodes: 2, Config: map[string]string{"broker.session.timeout.ms": "3000"}})
	d, _ := destinationOf(t, k, nil)
	if err := d.Membership().WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	end, _ := idsOfSource(t, d, "unminded", func(p cluster.Partition, batches []cluster.Batch, done func(error)) {
		led, err := d.holding(p).lead()
		if err != nil {
			t.Fatal(err)
		}
		led.Append(batches, nil, func(_ int64, _ int, err error) { done(err) })
	})
	n := lostRecords(t, d, k, "unminded", end)
	if t.Logf("%d of 20 records are lost", n); n == 0 {
		t.Error("nothing was lost: the test shows nothing")
	}

	end, highest := idsOfSource(t, d, "minded", func(p cluster.Partition, batches []cluster.Batch, done func(error)) {
		d.Append(p, batches, nil, func(r fetcher.Result) { done(r.Err) })
	})
	began := time.Now()
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if !d.isPast(highest) {
			return fmt.Errorf("id %d may be handed out", highest)
		}
		return nil
	})
	t.Logf("ahead after %v", time.Since(began))
	if n := lostRecords(t, d, k, "minded", end); n > 0 {
		t.Errorf("%d of 20 records are lost", n)
	}
	before := d.m.log.Image().NextProducerID
	began = time.Now()
	if err := d.GuardProducers(within(t, time.Minute), []cluster.Partition{{Topic: "minded"}})[0]; err != nil {
		t.Error(err)
	}
	t.Logf("what a stop has left to do took %v", time.Since(began))
	if after := d.m.log.Image().NextProducerID; after != before {
		t.Errorf("a stop had to ask for ids: %d were next, now %d", before, after)
	}

	far := before + d.cfg.ProducerIDBudget
	p := cluster.Partition{Topic: "far"}
	if err := d.CreateTopics(t.Context(), []cluster.NewTopic{{Name: p.Topic, Partitions: 1, ReplicationFactor: 2}})[0]; err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		ends, err := d.Ends(ctx, []fetcher.Stretch{{Mirror: "m", Partition: p}})
		return errors.Join(err, ends[0].Err)
	})
	done := make(chan fetcher.Result, 1)
	d.Append(p, []cluster.Batch{of(far)}, nil, func(r fetcher.Result) { done <- r })
	if r := <-done; !errors.Is(r.Err, ErrProducerIDs) || cluster.Retriable(r.Err) {
		t.Errorf("%d where %d is next: %v", far, before, r.Err)
	} else {
		t.Log(r.Err)
	}
	if err := d.known(p).forget(within(t, time.Minute), nil); err != nil {
		t.Errorf("the append that was refused is not over: %v", err)
	}
}
