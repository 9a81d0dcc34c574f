// Command groups copies committed offsets of consumer groups, and nothing else, between two
// clusters whose records something else copies at their offsets.
//
//	groups -from a:9092 -to b:9092 -state /var/lib/groups -groups 'billing,web-.*'
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/store/file"
	"github.com/clustermirror/mirror/transport/kafka"
)

func main() {
	from := flag.String("from", "", "addresses of the cluster that groups read from, with commas between them")
	to := flag.String("to", "", "addresses of the other one")
	state := flag.String("state", "groups-state", "folder that remembers what was committed")
	groups := flag.String("groups", "", "groups, by name or pattern, with commas between them; all without it")
	every := flag.Duration("every", time.Minute, "time between two copies")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, split(*from), split(*to), split(*groups), *state, *every); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func split(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
}

func run(ctx context.Context, out io.Writer, from, to, groups []string, state string, every time.Duration) error {
	source, err := kafka.New(kafka.Config{Bootstrap: from})
	if err != nil {
		return fmt.Errorf("-from: %w", err)
	}
	defer source.Close()
	destination, err := kafka.New(kafka.Config{Bootstrap: to})
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	defer destination.Close()
	filter, err := offsets.NewFilter(groups, nil)
	if err != nil {
		return err
	}
	store, err := file.Open(state, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	copier := offsets.Copier{
		Source: source, Destination: destination, Filter: filter, Ledger: offsets.NewLedger(store, "groups"), Logs: logs(destination),
	}
	for ctx.Err() == nil {
		report, err := copier.Copy(ctx)
		show(out, report, err)
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
	return nil
}

// logs are the partitions that the destination has: no group is moved beyond what is there.
func logs(destination *kafka.Cluster) func(context.Context, []cluster.Partition) (map[cluster.Partition]offsets.Log, error) {
	return func(ctx context.Context, ps []cluster.Partition) (map[cluster.Partition]offsets.Log, error) {
		answers, err := destination.Offsets(ctx, ps)
		there := map[cluster.Partition]offsets.Log{}
		for i, a := range answers {
			if a.Err == nil {
				there[ps[i]] = offsets.Log{Offsets: a.Offsets}
			}
		}
		return there, err
	}
}

func show(out io.Writer, r offsets.Report, err error) {
	fmt.Fprintf(out, "%d groups matched, %d offsets of %d groups written, %d wait for records; %d groups have members, %d have moved by themselves\n",
		r.Matched, r.Offsets, r.Groups, offsets.Count(r.Clamped), len(r.Active), len(r.Held))
	for _, err := range r.Failed {
		fmt.Fprintln(out, err)
	}
	if err != nil {
		fmt.Fprintln(out, err)
	}
}
