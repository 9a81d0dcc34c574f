package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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

	lifted(t, d, k, before+d.cfg.ProducerIDBudget+7)
}

// lifted: a producer that is too far ahead has another id in its records and its markers, so
// that its transactions end as they did, and nobody gets that id.
func lifted(t *testing.T, d *Destination, k *kafkatest.Cluster, far int64) {
	t.Helper()
	p := cluster.Partition{Topic: "far"}
	if err := d.CreateTopics(t.Context(), []cluster.NewTopic{{Name: p.Topic, Partitions: 1, ReplicationFactor: 2}})[0]; err != nil {
		t.Fatal(err)
	}
	if _, ok := d.ProducersFrom(); ok {
		t.Error("ids are lifted already")
	}
	txn := func(base int64, value string, end byte) []cluster.Batch {
		who := batch.Producer{ID: far, Sequence: int32(base / 2)}
		data := batch.Spec{Base: base, Attributes: batch.AttrTransactional, Producer: &who, Records: []batch.Record{{Offset: base, Value: []byte(value)}}}
		marker := batch.Spec{Base: base + 1, Attributes: batch.AttrTransactional | batch.AttrControl, Producer: &batch.Producer{ID: far, Sequence: -1},
			Records: []batch.Record{{Offset: base + 1, Key: []byte{0, 0, 0, end}, Value: []byte{0, 0, 0, 0, 0, 1}}}}
		return []cluster.Batch{{Base: base, Next: base + 1, Bytes: batch.Encode(data)}, {Base: base + 1, Next: base + 2, Bytes: batch.Encode(marker)}}
	}
	put := func(all ...cluster.Batch) {
		t.Helper()
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
			ends, err := d.Ends(ctx, []fetcher.Stretch{{Mirror: "m", Partition: p}})
			if err = errors.Join(err, ends[0].Err); err != nil {
				return err
			}
			again := make([]cluster.Batch, len(all)) // they are handed over with their bytes
			for n, b := range all {
				again[n] = cluster.Batch{Base: b.Base, Next: b.Next, Bytes: bytes.Clone(b.Bytes)}
			}
			done := make(chan fetcher.Result, 1)
			d.Append(p, again, nil, func(r fetcher.Result) { done <- r })
			r := <-done
			if _, decided := d.ProducersFrom(); r.Err != nil && (decided || !cluster.Retriable(r.Err)) {
				t.Errorf("%+v", r)
			}
			return r.Err
		})
	}
	put(append(txn(0, "aborted", 0), txn(2, "committed", 1)...)...)
	open := batch.Spec{Base: 4, Attributes: batch.AttrTransactional, Producer: &batch.Producer{ID: far, Sequence: 2}, Records: []batch.Record{{Offset: 4, Value: []byte("open")}}}
	put(cluster.Batch{Base: 4, Next: 5, Bytes: batch.Encode(open)})
	from, ok := d.ProducersFrom()
	if stored, _, err := d.cfg.Overrides.Lifted(t.Context()); !ok || from > far || stored != from || err != nil {
		t.Errorf("lifted from %d, %v; stored is %d, %v; the id was %d", from, ok, stored, err, far)
	}
	if f, err := d.Fence(within(t, time.Minute), []fetcher.Stretch{{Mirror: "m", Partition: p}}); err != nil || f[0].Err != nil {
		t.Fatalf("%+v, %v", f, err)
	}
	want, _ := batch.Lifted(far)
	if a, err := d.AbortOpen(within(t, time.Minute), []cluster.Partition{p}); err != nil || a[0].Err != nil || !slices.Equal(a[0].Producers, []int64{want}) {
		t.Errorf("aborted: %+v, %v; want %d", a, err, want)
	}
	if err := d.GuardProducers(within(t, time.Minute), []cluster.Partition{p})[0]; err != nil {
		t.Error(err)
	}
	cl := k.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.Topic: {0: kgo.NewOffset().AtStart()}}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err := k.Client(t).ProduceSync(within(t, time.Minute), &kgo.Record{Topic: p.Topic, Value: []byte("after")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var read []string
	for len(read) == 0 || read[len(read)-1] != "after" {
		f := cl.PollFetches(within(t, time.Minute))
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) { read = append(read, string(r.Value)) })
	}
	if !slices.Equal(read, []string{"committed", "after"}) {
		t.Errorf("readers of committed records read %q", read)
	}
}
