package transporttest

import (
	"context"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// variants are the clusters in memory that the contract is checked with.
func variants() map[string]memory.Options {
	return map[string]memory.Options{
		"full":    {},
		"produce": {Produce: true},
		"fills":   {Produce: true, Fills: true},
		"rebuild": {Traits: &fetcher.Traits{Gaps: true, Truncation: fetcher.TruncateRebuild, ReadOnly: true}},
		"cuts":    {Traits: &fetcher.Traits{Truncation: fetcher.TruncateExact, LogAppendTime: true}},
	}
}

func TestMemory(t *testing.T) {
	for name, o := range variants() {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Open: func(t testing.TB) End { return endOf(t, memory.New(o)) }})
		})
	}
}

// endOf is a cluster in memory with all hooks.
func endOf(t testing.TB, c *memory.Cluster) End {
	t.Cleanup(func() { c.Close() })
	return End{
		Source: c, Destination: c,
		Another: func(testing.TB) Destination { return c.Client("another") },
		Produce: func(_ context.Context, p cluster.Partition, batches ...[]byte) error {
			_, err := c.ProduceBatches(p, batches...)
			return err
		},
		Begin: func(_ testing.TB, p cluster.Partition) Transaction { return begun(c, p) },
		Elect: func(t testing.TB, p cluster.Partition) { elect(t, c, p) },
		Join: func(_ testing.TB, group string) func() {
			c.SetMembers(group, 1)
			return func() { c.SetMembers(group, 0) }
		},
	}
}

// elect makes the next replica the leader.
func elect(t testing.TB, c *memory.Cluster, p cluster.Partition) {
	t.Helper()
	s, err := c.State(p)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for i, r := range s.Replicas {
		if r.Broker == s.Leader.Broker {
			at = i
		}
	}
	if err := c.Elect(p, s.Replicas[(at+1)%len(s.Replicas)].Broker); err != nil {
		t.Fatal(err)
	}
}

// transaction is one of a cluster in memory.
type transaction struct {
	p  cluster.Partition
	by *memory.Producer
}

func begun(c *memory.Cluster, p cluster.Partition) *transaction {
	by := c.Producer()
	by.Begin()
	return &transaction{p, by}
}

func (x *transaction) Send(n int) {
	for range n {
		if _, err := x.by.Send(x.p, memory.Values("of a transaction")...); err != nil {
			panic(err)
		}
	}
}

func (x *transaction) End(commit bool) {
	end := x.by.Abort
	if commit {
		end = x.by.Commit
	}
	if err := end(); err != nil {
		panic(err)
	}
}
