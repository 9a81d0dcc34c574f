package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
)

const (
	partitions = 2
	perTopic   = 3000 // records before the mirror starts
	group      = "billing"
)

var topicNames = []string{"orders", "payments", "audit.events"}

type addresses interface{ ListenAddrs() []string }

type embedded interface {
	addresses
	Close()
}

func address(c addresses) string { return strings.Join(c.ListenAddrs(), ",") }

// startClusters starts two clusters of three brokers each, on free ports. Only
// the source has the topics.
func startClusters() (a, b *kfake.Cluster, err error) {
	a, err = kfake.NewCluster(kfake.NumBrokers(3), kfake.ClusterID("source"), kfake.SeedTopics(partitions, topicNames...))
	if err != nil {
		return nil, nil, err
	}
	b, err = kfake.NewCluster(kfake.NumBrokers(3), kfake.ClusterID("destination"))
	if err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// fill writes keys, headers, nulls and old timestamps, each codec in its turn.
func fill(ctx context.Context, a addresses) (int, error) {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	n := 0
	for i, codec := range codecs {
		cl, err := kgo.NewClient(kgo.SeedBrokers(a.ListenAddrs()...), kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			return n, err
		}
		var records []*kgo.Record
		for _, topic := range topicNames {
			for j := range perTopic / len(codecs) {
				records = append(records, record(topic, i*perTopic+j))
			}
		}
		err = cl.ProduceSync(ctx, records...).FirstErr()
		cl.Close()
		if err != nil {
			return n, err
		}
		n += len(records)
	}
	return n, nil
}

func record(topic string, i int) *kgo.Record {
	r := &kgo.Record{
		Topic: topic, Partition: int32(i % partitions), Key: fmt.Appendf(nil, "customer-%d", i%97),
		Value:     fmt.Appendf(nil, `{"topic":%q,"number":%d,"text":%q}`, topic, i, strings.Repeat("abc", i%50)),
		Headers:   []kgo.RecordHeader{{Key: "trace", Value: fmt.Appendf(nil, "%08x", i)}, {Key: "empty", Value: nil}},
		Timestamp: time.Now().Add(-time.Duration(i%1000) * time.Hour),
	}
	switch i % 10 {
	case 3:
		r.Value = nil // a tombstone
	case 7:
		r.Key = nil
	}
	return r
}

// writeLive writes to all topics for a while, and says which offset was the last
// of each partition.
func writeLive(ctx context.Context, a addresses, long time.Duration) (map[cluster.Partition]int64, int, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(a.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, 0, err
	}
	defer cl.Close()
	var (
		mu   sync.Mutex
		last = map[cluster.Partition]int64{}
		errs []error
		n    int
	)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); n++ {
		<-tick.C
		for i := range partitions * len(topicNames) {
			cl.Produce(ctx, record(topicNames[i%len(topicNames)], n*partitions+i/len(topicNames)), func(r *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					errs = append(errs, err)
					return
				}
				last[cluster.Partition{Topic: r.Topic, Partition: r.Partition}] = r.Offset
			})
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return nil, 0, err
	}
	return last, n * partitions * len(topicNames), errors.Join(errs...)
}

// at is the place of one record of orders.
type at struct {
	partition int32
	offset    int64
}

// reading is what a group has read, and how many records the topic has.
type reading struct {
	seen  map[at]int
	first map[int32]int64
	next  map[int32]int64
	total int
}

func (r reading) begins() []string {
	var out []string
	for _, p := range slices.Sorted(maps.Keys(r.first)) {
		out = append(out, fmt.Sprintf("at orders-%d offset %d", p, r.first[p]))
	}
	return out
}

// consume reads n records of orders as a member of the group and commits them.
func consume(ctx context.Context, c addresses, n int) (reading, error) {
	r := reading{seen: map[at]int{}, first: map[int32]int64{}, next: map[int32]int64{}}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.FetchMaxPartitionBytes(16<<10))
	if err != nil {
		return r, err
	}
	defer cl.Close()
	ends := map[int32]int64{}
	var taken []*kgo.Record
	for len(taken) < n {
		fetches := cl.PollRecords(ctx, n-len(taken))
		if err := fetches.Err0(); err != nil {
			return r, err
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { ends[p.Partition] = p.HighWatermark })
		taken = append(taken, fetches.Records()...)
	}
	for _, rec := range taken {
		r.seen[at{rec.Partition, rec.Offset}]++
		if _, ok := r.first[rec.Partition]; !ok {
			r.first[rec.Partition] = rec.Offset
		}
		r.next[rec.Partition] = rec.Offset + 1
	}
	for _, end := range ends {
		r.total += int(end)
	}
	return r, cl.CommitRecords(ctx, taken...)
}

// contiguous proves that the second reading goes on exactly where the first one
// ended and that both together are the whole topic, once.
func contiguous(first, second reading) error {
	for p, offset := range second.first {
		if offset != first.next[p] {
			return fmt.Errorf("orders-%d: went on at %d, had committed %d", p, offset, first.next[p])
		}
	}
	for place, n := range second.seen {
		if n+first.seen[place] != 1 {
			return fmt.Errorf("orders-%d offset %d was read %d times", place.partition, place.offset, n+first.seen[place])
		}
	}
	if got := len(first.seen) + len(second.seen); got != first.total {
		return fmt.Errorf("%d records of orders were read, the topic has %d", got, first.total)
	}
	return nil
}

// writeOne writes one record to orders-0.
func writeOne(ctx context.Context, c addresses) (int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	r, err := cl.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("written after the failover")}).First()
	if err != nil {
		return 0, err
	}
	return r.Offset, nil
}
