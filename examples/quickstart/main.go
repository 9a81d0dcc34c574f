// Quickstart mirrors three topics between two embedded Kafka clusters, proves
// that both hold the same records at the same offsets, and fails over.
//
// It speaks the real protocol over real ports and needs nothing installed. It
// exits with 0 only if everything was proven.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

func main() {
	keep := flag.Bool("keep", false, "leave both clusters up at the end, for a look with other tools, until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, keep bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	began := time.Now()
	a, b, err := startClusters()
	if err != nil {
		return err
	}
	defer a.Close()
	defer b.Close()
	fmt.Fprintf(out, "source       %s\ndestination  %s\n\n", address(a), address(b))

	written, err := fill(ctx, a)
	if err != nil {
		return fmt.Errorf("fill the source: %w", err)
	}
	fmt.Fprintf(out, "%d records in %d topics at the source; mirroring while more are written ...\n", written, len(topicNames))

	source, err := kafka.New(kafka.Config{Bootstrap: a.ListenAddrs()})
	if err != nil {
		return err
	}
	destination, err := kafka.New(kafka.Config{Bootstrap: b.ListenAddrs()})
	if err != nil {
		return err
	}
	defer source.Close()
	defer destination.Close()
	m, err := mirror.New("quickstart", source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: []string{"orders", "payments", "audit\\..*"}},
	})
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	go func() { ran <- m.Run(running) }()

	if err := prove(ctx, out, m, a, source, destination); err != nil {
		return err
	}
	if err := failOver(ctx, out, m, a, b, keep); err != nil {
		return err
	}
	end()
	if err := <-ran; err != nil {
		return err
	}
	fmt.Fprintf(out, "\nproven in %.1f s\n", time.Since(began).Seconds())
	if keep {
		fmt.Fprintf(out, "\nboth clusters stay up until interrupted:\n  kcat -b %s -C -t orders -e\n  kcat -b %s -C -t orders -e\n", address(a), address(b))
		<-ctx.Done()
	}
	return nil
}

// prove writes more while mirroring, waits until all of it is copied, and
// compares both clusters record by record.
func prove(ctx context.Context, out io.Writer, m *mirror.Mirror, a addresses, source, destination *kafka.Cluster) error {
	last, live, err := writeLive(ctx, a, 2*time.Second)
	if err != nil {
		return fmt.Errorf("write while mirroring: %w", err)
	}
	for p, offset := range last {
		if err := m.WaitMirrored(ctx, p, offset); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d more records were written and copied meanwhile\n\n", live)
	var ps []cluster.Partition
	for _, t := range m.Topics() {
		for _, p := range t.Partitions {
			ps = append(ps, p.Partition)
		}
	}
	reports, err := verify.Topics(ctx, source, destination, ps, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-14s %16s %16s %9s  %s\n", "partition", "source", "destination", "records", "result")
	equal := len(reports) == 6
	for _, r := range reports {
		result := "equal"
		if !r.Equal || !r.EndsEqual {
			equal, result = false, "DIFFERENT"
			if len(r.Differences) > 0 {
				result = r.Differences[0].String()
			}
		}
		fmt.Fprintf(out, "%-14v %16s %16s %9d  %s\n", r.Partition, span(r.Source), span(r.Destination), r.Records, result)
	}
	if !equal {
		return fmt.Errorf("the clusters differ")
	}
	return nil
}

func span(o cluster.Offsets) string { return fmt.Sprintf("[%d,%d)", o.LogStart, o.HighWatermark) }

// failOver has a group consume half of a topic at the source, stops the mirror,
// shuts the source down unless it is to be kept, and has the same group go on at
// the destination.
func failOver(ctx context.Context, out io.Writer, m *mirror.Mirror, a, b embedded, keep bool) error {
	first, err := consume(ctx, a, 2000)
	if err != nil {
		return fmt.Errorf("consume at the source: %w", err)
	}
	if err := m.Promote(ctx, topicNames...); err != nil {
		return err
	}
	fate := "which is gone now"
	if keep {
		fate = "which nobody asks any more"
	} else {
		a.Close()
	}
	fmt.Fprintf(out, "\nfailover: group %q read %d records of orders at the source, %s\n", group, len(first.seen), fate)
	second, err := consume(ctx, b, first.total-len(first.seen))
	if err != nil {
		return fmt.Errorf("consume at the destination: %w", err)
	}
	if err := contiguous(first, second); err != nil {
		return err
	}
	fmt.Fprintf(out, "the group went on at the destination %s and read the other %d: none missed, none twice\n",
		strings.Join(second.begins(), ", "), len(second.seen))
	offset, err := writeOne(ctx, b)
	if err != nil {
		return fmt.Errorf("write at the destination: %w", err)
	}
	fmt.Fprintf(out, "the destination is writable: a new record of orders-0 got offset %d\n", offset)
	return nil
}
