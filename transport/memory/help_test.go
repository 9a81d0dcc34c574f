package memory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/google/go-cmp/cmp"
)

var p0 = cluster.Partition{Topic: "orders"}

var one = fetcher.Stretch{Mirror: "m", Partition: p0}

// with is a cluster with the topic of p0.
func with(t testing.TB, o memory.Options) *memory.Cluster {
	t.Helper()
	c := memory.New(o)
	t.Cleanup(func() { c.Close() })
	must(t, c.CreateTopic(cluster.NewTopic{Name: p0.Topic, Partitions: 1}))
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// produce writes one batch of values.
func produce(t testing.TB, c *memory.Cluster, values ...string) int64 {
	t.Helper()
	rs := memory.Values(values...)
	for i := range rs {
		rs[i].Timestamp = 1
	}
	base, err := c.Produce(p0, rs...)
	must(t, err)
	return base
}

// batchAt is a batch as a source would have it.
func batchAt(base int64, epoch int32, values ...string) cluster.Batch {
	return batchOf(batch.Spec{Base: base, LeaderEpoch: epoch}, values...)
}

func batchOf(s batch.Spec, values ...string) cluster.Batch {
	for _, v := range values {
		s.Records = append(s.Records, batch.Record{Timestamp: 1, Value: []byte(v)})
	}
	b := batch.Encode(s)
	h := batch.Header(b)
	return cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: h.LeaderEpoch(), MaxTimestamp: h.MaxTimestamp(), Bytes: b}
}

// begin asks Ends of p0.
func begin(t testing.TB, c *memory.Client, s fetcher.Stretch) fetcher.End {
	t.Helper()
	ends, err := c.Ends(context.Background(), []fetcher.Stretch{s})
	must(t, err)
	return ends[0]
}

// appended appends a run and waits for the result.
func appended(c *memory.Client, batches ...cluster.Batch) fetcher.Result {
	return <-appending(c, batches...)
}

func appending(c *memory.Client, batches ...cluster.Batch) <-chan fetcher.Result {
	done := make(chan fetcher.Result, 1)
	c.Append(p0, batches, nil, func(r fetcher.Result) { done <- r })
	return done
}

// dumped compares a log with what is wanted of it.
func dumped(t testing.TB, c *memory.Cluster, want string) {
	t.Helper()
	if d := cmp.Diff(want, "\n"+c.Dump(p0)); d != "" {
		t.Errorf("log (-want +got):\n%s", d)
	}
}

func state(t testing.TB, c *memory.Cluster) memory.State {
	t.Helper()
	s, err := c.State(p0)
	must(t, err)
	return s
}

// ends are the replicas' log ends, in the order of their assignment.
func ends(t testing.TB, c *memory.Cluster) (all []int64) {
	t.Helper()
	for _, r := range state(t, c).Replicas {
		all = append(all, r.LogEnd)
	}
	return all
}

func followers(t testing.TB, c *memory.Cluster) (ids []int32) {
	s := state(t, c)
	for _, r := range s.Replicas {
		if r.Broker != s.Leader.Broker {
			ids = append(ids, r.Broker)
		}
	}
	return ids
}

func values(from, to int) (vs []string) {
	for i := from; i < to; i++ {
		vs = append(vs, fmt.Sprint(i))
	}
	return vs
}

// batches takes a log apart.
func batches(log []byte) (all []cluster.Batch) {
	for w := batch.Walk(log); w.Next(); {
		h := w.Header()
		all = append(all, cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: h.LeaderEpoch(), MaxTimestamp: h.MaxTimestamp(), Bytes: h})
	}
	return all
}
