package memory_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/memory"
)

// TestMirrorBetweenClusters: the engine copies from one cluster in memory to another,
// byte for byte, in a bubble of its own time, and stops.
func TestMirrorBetweenClusters(t *testing.T) {
	for name, o := range map[string]memory.Options{"full": {ID: "b"}, "produce": {ID: "b", Produce: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, destination := memory.New(memory.Options{ID: "a"}), memory.New(o)
				must(t, source.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 3}))
				for range 10 {
					for n := range int32(3) {
						_, err := source.Produce(cluster.Partition{Topic: "orders", Partition: n}, memory.Values("a", "b")...)
						must(t, err)
					}
				}
				m, err := mirror.New("m", source, destination, nil)
				must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- m.Run(ctx) }()
				must(t, m.Start(ctx, "orders"))
				within, done := context.WithTimeout(ctx, time.Minute)
				defer done()
				for n := range int32(3) {
					must(t, m.WaitMirrored(within, cluster.Partition{Topic: "orders", Partition: n}, 19))
				}
				if _, err := destination.Produce(p0, memory.Values("foreign")...); (err == nil) != o.Produce {
					t.Errorf("a client writes into the mirror topic: %v", err)
				}
				if !o.Produce {
					if a, b := source.Log(p0), destination.Log(p0); !bytes.Equal(a, b) {
						t.Errorf("logs differ:\n%s\n%s", source.Dump(p0), destination.Dump(p0))
					}
					err = m.Stop(within, "orders")
					must(t, err)
					if at, err := destination.Produce(p0, memory.Values("local")...); err != nil || at != 20 {
						t.Errorf("after the stop: %d, %v", at, err)
					}
				}
				cancel()
				must(t, <-ended)
			})
		})
	}
}
