package kafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/transporttest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transaction is one of a producer that has no other, in one partition.
type transaction struct {
	t  testing.TB
	c  *Cluster
	p  cluster.Partition
	by *kgo.Client
}

var transactionalIDs atomic.Int64

func begin(t testing.TB, c *Cluster, bootstrap []string, p cluster.Partition) transporttest.Transaction {
	t.Helper()
	by, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...), kgo.TransactionalID(fmt.Sprintf("%s-%d-%d", p.Topic, p.Partition, transactionalIDs.Add(1))),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(by.Close)
	if err := by.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	return &transaction{t: t, c: c, p: p, by: by}
}

func (x *transaction) Send(n int) {
	x.t.Helper()
	for range n {
		r := &kgo.Record{Topic: x.p.Topic, Partition: x.p.Partition, Value: []byte("of a transaction")}
		if err := x.by.ProduceSync(x.t.Context(), r).FirstErr(); err != nil {
			x.t.Fatal(err)
		}
	}
}

// End waits for the marker: the coordinator answers before it is in the log.
func (x *transaction) End(commit bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.t.Context()), 30*time.Second)
	defer cancel()
	before := x.end(ctx)
	if err := x.by.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		x.t.Errorf("ending a transaction: %v", err)
	}
	for x.end(ctx) == before {
		if !sleep(ctx, 5*time.Millisecond) {
			x.t.Errorf("%v: the marker does not come", x.p)
			return
		}
	}
}

func (x *transaction) end(ctx context.Context) int64 {
	answers, err := x.c.Offsets(ctx, []cluster.Partition{x.p})
	if err != nil || answers[0].Err != nil {
		x.t.Errorf("offsets of %v: %+v, %v", x.p, answers, err)
		return -1
	}
	return answers[0].HighWatermark
}
