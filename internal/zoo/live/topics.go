package live

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// plain has records of every kind, from producers without transactions; one partition
// whose log start is inside a batch, one that was emptied.
func (f *filler) plain(ctx context.Context) (Topic, error) {
	t, _, err := f.make(ctx, "plain", "every codec and record, DeleteRecords inside a batch and up to the end", 3, nil,
		"none", "gzip", "snappy", "lz4", "zstd", Plain, Idempotent, StartInsideBatch, NullKey, EmptyKey, BinaryKey, Tombstone, EmptyValue,
		WithHeaders, NoTimestamp, ZeroTimestamp, FutureTimestamp, FarApart)
	if err != nil {
		return t, err
	}
	for i, n := range []int{2 * f.Batches, f.Batches, 10} {
		l := f.log(uint64(i), zoo.Options{Plain: true, Batches: n})
		if err := f.write(ctx, &t, int32(i), l); err != nil {
			return t, err
		}
	}
	if err := f.cut(ctx, t, 1, t.Truth[1]); err != nil {
		return t, err
	}
	emptied := t.Truth[2]
	emptied.Start, emptied.Batches = emptied.End, nil
	return t, f.w.trim(ctx, cluster.Partition{Topic: t.Name, Partition: 2}, emptied.End)
}

// transactions has settled ones, some that are open at the end, and some cut by the log
// start.
func (f *filler) transactions(ctx context.Context) (Topic, error) {
	t, _, err := f.make(ctx, "transactions", "transactions: committed, aborted, interleaved, open, cut by the log start, of one record", 4, nil,
		Committed, Aborted, AbortedRecords, MarkersInRow, Interleaved, Open, StartInsideBatch, Idempotent, Plain)
	if err != nil {
		return t, err
	}
	for i, o := range []zoo.Options{{Settled: true}, {Batches: f.Batches / 2}, {Settled: true}} {
		l := f.log(uint64(10+i), o)
		for use := uint64(100); !o.Settled && l.LastStable() == l.End; use++ {
			l = f.log(use, o)
		}
		if err := f.write(ctx, &t, int32(i), l); err != nil {
			return t, err
		}
	}
	if err := f.cut(ctx, t, 2, t.Truth[2]); err != nil {
		return t, err
	}
	return t, f.small(ctx, t.Name, 3)
}

// small makes transactions of one record each, as the client of today makes them, every
// third of which is aborted, and at the end a record that all see.
func (f *filler) small(ctx context.Context, topic string, partition int32) error {
	with := func(opts ...kgo.Opt) (*kgo.Client, error) {
		return kgo.NewClient(append(append(opts, f.Client...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	}
	cl, err := with(kgo.TransactionalID(topic + " small"))
	if err != nil {
		return err
	}
	defer cl.Close()
	record := func(i int) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Append(nil, i), Value: []byte("small"), Timestamp: time.UnixMilli(1_700_000_000_000)}
	}
	for i := range 30 {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		if err := cl.ProduceSync(ctx, record(i)).FirstErr(); err != nil {
			return err
		}
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(i%3 > 0)); err != nil {
			return err
		}
	}
	if err := f.w.reaches(ctx, cluster.Partition{Topic: topic, Partition: partition}, latest, 60); err != nil {
		return err
	}
	last, err := with()
	if err != nil {
		return err
	}
	defer last.Close()
	return last.ProduceSync(ctx, record(30)).FirstErr()
}

// sizes has the largest and the smallest records and batches.
func (f *filler) sizes(ctx context.Context) (Topic, error) {
	t, _, err := f.make(ctx, "sizes", "records of nothing and of megabytes, more than Kafka's default allows", 1,
		map[string]string{"max.message.bytes": "12582912"}, LargeValue, EmptyKey, EmptyValue, "none", "gzip", "zstd")
	if err != nil {
		return t, err
	}
	p := cluster.Partition{Topic: t.Name}
	noise := make([]byte, 3<<20/2)
	x := f.Seed + 1
	for i := range noise {
		x = x*6364136223846793005 + 1442695040888963407
		noise[i] = byte(x >> 56)
	}
	tiny := make([]batch.Record, 5000)
	for i := range tiny {
		tiny[i] = batch.Record{Offset: int64(i), Timestamp: 1_700_000_000_000, Key: []byte{}, Value: []byte{}}
	}
	one := func(value []byte) []batch.Record { return []batch.Record{{Timestamp: 1_700_000_000_000, Value: value}} }
	for _, s := range []batch.Spec{
		{Records: one(noise)}, {Records: one([]byte{})}, {Records: one(noise), Codec: batch.LZ4}, {Records: tiny}, {Records: tiny, Codec: batch.Gzip},
		{Records: one(bytes.Repeat([]byte("five megabytes "), 5<<20/15)), Codec: batch.Zstd}, {Records: one(bytes.Repeat(noise[:1<<20], 5))}, {Records: one(nil)},
	} {
		if _, err := f.w.produce(ctx, p, nil, batch.Encode(s)); err != nil {
			return t, err
		}
	}
	return t, nil
}

// aged has a partition whose beginning the broker's retention has deleted.
func (f *filler) aged(ctx context.Context) (Topic, error) {
	t, configs, err := f.make(ctx, "aged", "segments deleted by age", 1, map[string]string{"segment.ms": "1", "segment.index.bytes": "4096"}, StartsLater)
	if err != nil {
		return t, err
	}
	p := cluster.Partition{Topic: t.Name}
	if _, err := f.w.replay(ctx, p, f.log(40, zoo.Options{Plain: true, Tame: true, Batches: 20})); err != nil {
		return t, err
	}
	now := time.Now().UnixMilli()
	var fresh int64
	for i := range 20 { // as old as they are, so that they stay
		r := batch.Record{Timestamp: now + int64(i), Key: fmt.Append(nil, i), Value: []byte("fresh")}
		at, err := f.w.produce(ctx, p, nil, batch.Encode(batch.Spec{Records: []batch.Record{r}}))
		if err != nil {
			return t, err
		}
		if i == 0 {
			fresh = at
		}
	}
	configs["retention.ms"] = fmt.Sprint(30 * 86_400_000)
	if err := f.w.alter(ctx, t.Name, configs); err != nil {
		return t, err
	}
	return t, f.w.reaches(ctx, p, earliest, fresh)
}
