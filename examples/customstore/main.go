// Customstore keeps the state of mirrors in a database of the host's own choice, here
// bbolt: a mirror is created, the process ends, and another one goes on with nothing
// but the file.
//
// It exits with 0 only if that was proven.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/clustermirror/mirror/verify"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "customstore")
	if err == nil {
		err = errors.Join(run(ctx, os.Stdout, filepath.Join(dir, "mirrors.db")), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "customstore:", err)
		os.Exit(1)
	}
}

var events = cluster.Partition{Topic: "events", Partition: 0}

func run(ctx context.Context, out io.Writer, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h := host{out: out, a: memory.New(memory.Options{ID: "a"}), b: memory.New(memory.Options{ID: "b"})}
	for _, t := range []string{"events", "paused"} {
		if err := h.a.CreateTopic(cluster.NewTopic{Name: t, Partitions: 1}); err != nil {
			return err
		}
	}
	err := h.process(ctx, path, func(ctx context.Context, c *mirror.Controller) error {
		fmt.Fprintln(out, "a first process defines a mirror and pauses one of its topics")
		if _, err := c.Create(ctx, coordinator.Definition{
			Name: "a-to-b", Include: []string{".*"},
			Source: map[string]string{"cluster": "a"}, Destination: map[string]string{"cluster": "b"},
		}); err != nil {
			return err
		}
		if _, err := c.Pause(ctx, "a-to-b", "paused"); err != nil {
			return err
		}
		return h.mirrors(ctx, c, 500)
	})
	if err != nil {
		return err
	}
	return h.process(ctx, path, func(ctx context.Context, c *mirror.Controller) error {
		fmt.Fprintln(out, "a second process opens the file, and is told nothing")
		if err := h.mirrors(ctx, c, 500); err != nil {
			return err
		}
		d, err := c.Describe(ctx, "a-to-b")
		if err != nil {
			return err
		}
		if d.States[coordinator.StatePaused] != 1 || d.Status.Records != 500 {
			return fmt.Errorf("not as it was: %+v, %d records copied", d.States, d.Status.Records)
		}
		fmt.Fprintln(out, "  what was paused is paused, and no record was copied twice\nproven")
		return nil
	})
}

// host is what an embedding program has: two clusters, and processes that run a
// controller for a while.
type host struct {
	out  io.Writer
	a, b *memory.Cluster
}

func (h host) open(_ context.Context, d coordinator.Definition) (mirror.Source, mirror.Destination, error) {
	return h.a.Client(d.Name), h.b.Client(d.Name), nil
}

func (h host) process(ctx context.Context, path string, work func(context.Context, *mirror.Controller) error) (err error) {
	store, err := Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	c, err := mirror.NewController(store, h.open, nil)
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- c.Run(running) }()
	err = work(ctx, c)
	end()
	return errors.Join(err, <-ran)
}

// mirrors writes n events, waits for the last, and compares both clusters.
func (h host) mirrors(ctx context.Context, c *mirror.Controller, n int) error {
	var last int64
	for i := range n {
		offset, err := h.a.Produce(events, memory.Values(fmt.Sprintf("event %d", i))...)
		if err != nil {
			return err
		}
		last = offset
	}
	if err := c.WaitMirrored(ctx, "a-to-b", events, last); err != nil {
		return err
	}
	reports, err := verify.Topics(ctx, h.a, h.b, []cluster.Partition{events}, nil)
	if err != nil {
		return err
	}
	if r := reports[0]; !r.Equal || !r.EndsEqual {
		return fmt.Errorf("the clusters differ: %v", r)
	}
	fmt.Fprintf(h.out, "  %d records are equal\n", reports[0].Records)
	return nil
}
