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
