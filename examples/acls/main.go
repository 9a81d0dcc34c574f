// Command acls copies access rules, and nothing else, from one cluster to another.
//
//	acls -from a:9092 -to b:9092 -user admin -password … -state /var/lib/acls -rules 'resource=TOPIC; principal=User:app'
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/store/file"
	"github.com/clustermirror/mirror/transport/kafka"
)

// settings are what the flags say.
type settings struct {
	from, to, user, password, state, rules string
	remove                                 bool
	every                                  time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.from, "from", "", "addresses of the cluster that has the rules, with commas between them")
	flag.StringVar(&s.to, "to", "", "addresses of the other one")
	flag.StringVar(&s.user, "user", "", "name to log in with at both, by PLAIN; nobody without it")
	flag.StringVar(&s.password, "password", "", "its password")
	flag.StringVar(&s.state, "state", "acls-state", "folder that remembers which rules were created")
	flag.StringVar(&s.rules, "rules", "all", "which rules, with semicolons between them")
	flag.BoolVar(&s.remove, "delete", false, "delete those that were created here and are gone at the source")
	flag.DurationVar(&s.every, "every", time.Minute, "time between two looks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, s settings) error {
	source, err := s.open(s.from)
	if err != nil {
		return fmt.Errorf("-from: %w", err)
	}
	defer source.Close()
	destination, err := s.open(s.to)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	defer destination.Close()
	rules, err := acl.ParseRules(s.rules)
	if err != nil {
		return fmt.Errorf("-rules: %w", err)
	}
	filter, err := acl.NewFilter(rules, nil)
	if err != nil {
		return fmt.Errorf("-rules: %w", err)
	}
	store, err := file.Open(s.state, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	for ctx.Err() == nil {
		id, err := destination.ID(ctx)
		var report acl.Report
		if err == nil {
			report, err = acl.Syncer{
				Source: source, Destination: destination, Filter: filter, Delete: s.remove,
				Ledger: acl.Ledger{Notes: store, Cluster: id, Mirror: "acls"},
			}.Sync(ctx)
		}
		show(out, report, err)
		select {
		case <-ctx.Done():
		case <-time.After(s.every):
		}
	}
	return nil
}

func (s settings) open(addresses string) (*kafka.Cluster, error) {
	cfg := kafka.Config{Bootstrap: slices.DeleteFunc(strings.Split(addresses, ","), func(a string) bool { return a == "" })}
	if s.user != "" {
		cfg.SASL = plain.Mechanism{Username: s.user, Password: s.password}
	}
	return kafka.New(cfg)
}

func show(out io.Writer, r acl.Report, err error) {
	fmt.Fprintf(out, "%d rules matched, %d created, %d deleted; %d are of this program, %d of those no longer at the source\n",
		r.Matched, r.Created, r.Deleted, r.Owned, r.Left)
	for _, rule := range slices.Sorted(maps.Keys(r.Refused)) {
		fmt.Fprintln(out, r.Refused[rule])
	}
	if err != nil {
		fmt.Fprintln(out, err)
	}
}
