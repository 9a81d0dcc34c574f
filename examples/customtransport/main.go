// Customtransport shows a host that has a storage of its own: record batches in
// plain files. What the host has to write is the destination in destination.go and
// partition.go; the engine does the rest, and the suite of package transporttest says
// whether the destination keeps its promises.
//
// It mirrors from a Kafka cluster in memory (with transactions and with holes that
// compaction has left), closes everything, opens the files again, goes on, and proves
// that the files hold the source's bytes. It exits with 0 only if that is so.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/clustermirror/mirror/verify"
)

const topic = "orders"

var partitions = []cluster.Partition{{Topic: topic, Partition: 0}, {Topic: topic, Partition: 1}}

func main() {
	dir, err := os.MkdirTemp("", "platform-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = run(context.Background(), os.Stdout, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "customtransport:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	source := memory.New(memory.Options{ID: "kafka"})
	defer source.Close()
	if err := source.CreateTopic(cluster.NewTopic{Name: topic, Partitions: int32(len(partitions))}); err != nil {
		return err
	}
	for round := range 2 {
		if err := fill(source, round); err != nil {
			return fmt.Errorf("fill the source: %w", err)
		}
		if err := copyTo(ctx, out, source, dir); err != nil {
			return err
		}
	}
	return nil
}

// fill writes plain records, a committed and an aborted transaction, and then lets
// compaction leave holes.
func fill(c *memory.Cluster, round int) error {
	var errs []error
	for _, p := range partitions {
		at, err := c.Produce(p, memory.Values("a", "b", "c")...)
		errs = append(errs, err)
		for _, end := range []func(*memory.Producer) error{(*memory.Producer).Commit, (*memory.Producer).Abort} {
			producer := c.Producer()
			producer.Begin()
			_, err := producer.Send(p, memory.Values(fmt.Sprint("in round ", round))...)
			errs = append(errs, err, end(producer))
		}
		if round == 0 {
			errs = append(errs, c.Compact(p, at, at+3, at+5))
		}
	}
	return errors.Join(errs...)
}

// copyTo opens the platform, mirrors all there is, proves it, and closes again.
func copyTo(ctx context.Context, out io.Writer, source *memory.Cluster, dir string) error {
	p, err := openPlatform(dir, "platform")
	if err != nil {
		return err
	}
	defer p.Close()
	before := len(p.topics())
	destination := newDestination(p)
	m, err := mirror.New("example", source, destination, nil)
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	go func() { ran <- m.Run(running) }()
	if err := m.Start(ctx, topic); err != nil {
		return err
	}
	fmt.Fprintf(out, "platform opened with %d topics\n", before)
	for _, at := range partitions {
		o, err := source.LogOffsets(ctx, at)
		if err != nil {
			return err
		}
		if err := m.WaitMirrored(ctx, at, o.HighWatermark-1); err != nil {
			return err
		}
		if err := prove(ctx, out, source, destination, at); err != nil {
			return err
		}
	}
	end()
	return <-ran
}

// prove compares record by record, and byte by byte.
func prove(ctx context.Context, out io.Writer, source *memory.Cluster, d *destination, p cluster.Partition) error {
	report, err := verify.Partition(ctx, source, d, p, nil)
	if err != nil {
		return err
	}
	theirs := source.Log(p)
	ours, err := d.Read(ctx, p, report.Destination.LogStart, 1<<30)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%v; %d bytes\n", report, len(ours))
	if !report.Equal || !report.EndsEqual || !bytes.Equal(theirs, ours) {
		return fmt.Errorf("%v: the files do not hold the source's log", p)
	}
	return nil
}
