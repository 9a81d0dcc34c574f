package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/clustermirror/mirror/verify"
)

// A stream follows its partition to other leaders, and gives up on what stays.
func TestFetching(t *testing.T) {
	p := cluster.Partition{Topic: "t"}
	c := memory.New(memory.Options{Brokers: 3})
	defer c.Close()
	if err := c.CreateTopic(cluster.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 3}); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := c.Produce(p, memory.Values("a", "b", "c", "d")...); err != nil {
			t.Fatal(err)
		}
	}
	var reads atomic.Int64
	c.SetFault(func(op memory.Op) memory.Fault {
		if op.Call != memory.CallFetch {
			return memory.Fault{}
		}
		switch n := reads.Add(1); {
		case n%19 == 3:
			return memory.Fault{Kind: memory.LoseRequest}
		case n%19 == 11:
			return memory.Fault{Kind: memory.LoseAnswer}
		}
		return memory.Fault{}
	})
	moved := false
	f := fetching{c, c}
	r, err := verify.Partition(t.Context(), f, f, p, &verify.Options{ChunkBytes: 1, Progress: func(at verify.Progress) {
		if at.Offset > 60 && !moved {
			moved = true
			if s, err := c.State(p); err != nil || c.Elect(p, s.Leader.Broker%3+1) != nil {
				t.Errorf("no election: %v", err)
			}
		}
	}})
	if err != nil || !r.Equal || r.Records != 200 || !moved || reads.Load() < 100 {
		t.Errorf("%v: %v, moved %v, %d reads", r, err, moved, reads.Load())
	}

	s := f.Stream(p, 1)
	if _, _, err := s.Next(t.Context(), 1000); !errors.Is(err, cluster.ErrOutOfRange) {
		t.Errorf("behind the end: %v", err)
	}
	if _, _, err := f.Stream(cluster.Partition{Topic: "none"}, 1).Next(t.Context(), 0); !errors.Is(err, cluster.ErrUnknownTopic) {
		t.Errorf("no topic: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.Stream(p, 1).Next(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	b, release, err := s.Next(t.Context(), 200)
	if err != nil || len(b) != 0 {
		t.Errorf("at the end: %d bytes, %v", len(b), err)
	} else {
		release()
	}
	if err := s.Close(); err != nil || s.Close() != nil {
		t.Error(err)
	}
}
