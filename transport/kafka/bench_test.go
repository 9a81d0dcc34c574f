package kafka

import (
	"sync/atomic"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkAppend is the way of a batch from Append to its result without the
// network: queue, patch, framing, answer.
func BenchmarkAppend(b *testing.B) {
	c := open(b, []string{"broker.invalid:9092"})
	const partitions = 50
	p := newPipe(c, pipeKey{1, acksLeader})
	c.gen.pipes[p.key] = p
	run := make([][]cluster.Batch, partitions)
	lanes := make([]*lane, partitions)
	var landed atomic.Int64
	for i := range lanes {
		run[i] = batchesAt(0, 1, 16, now())
		lanes[i] = c.lane(cluster.Partition{Topic: "t", Partition: int32(i)})
		lanes[i].id, lanes[i].broker, lanes[i].proven, lanes[i].expiry = 1<<62, 1, true, defaultExpiry
	}
	done := func(r fetcher.Result) { landed.Add(int64(r.Batches)) }
	b.SetBytes(int64(len(run[0][0].Bytes)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		i := n % partitions
		run[i][0].Base, run[i][0].Next = lanes[i].tail, lanes[i].tail+16
		c.Append(lanes[i].p, run[i], nil, done)
		if n++; n%partitions == 0 {
			r := p.build()
			for _, it := range r.items {
				c.landed(it, &kmsg.ProduceResponseTopicPartition{BaseOffset: it.base, LogAppendTime: -1})
			}
			r.free()
		}
	}
	if got, want := landed.Load(), int64(n-n%partitions); got != want {
		b.Fatalf("%d landed of %d", got, want)
	}
}
