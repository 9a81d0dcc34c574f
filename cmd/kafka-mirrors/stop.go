package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// stopFlags are the flags of stop.
type stopFlags struct {
	destination      connectionFlags
	name             string
	include, exclude []string
	timeout          time.Duration
	level            string
	state            stateFlags
}

func newStop(s streams) *cobra.Command {
	f := &stopFlags{destination: connectionFlags{side: "destination"}}
	c := &cobra.Command{
		Use:   "stop",
		Short: "Fail over: have a running mirror stop topics",
		Long: `Have topics leave the mirror and become ordinary ones, which can be written to: the
failover. It is the run of the mirror that does it, wherever that is, with --state kafka;
this command stores there that it is wanted, waits until it is done, and says so. The source
may be dead. A stopped topic stays stopped, over restarts too, until somebody stores that it
is mirrored again.

Where no run is alive the wish stays stored, and the next run begins with it. Topics that a
mirror with --join led, and that nobody is to lead any more, are a matter of leave.

` + connectionHelp + `

Exit codes: 0 all of it is stopped; 1 it is not, or not yet; 2 the command line or a
configuration file is wrong.`,
		Example: `  # everything that this mirror has
  kafka-mirrors stop --name a-to-b --destination b:9092

  # some topics
  kafka-mirrors stop --name a-to-b --destination b:9092 --topics 'orders.*'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), s) },
	}
	f.destination.register(c)
	c.Flags().StringVar(&f.name, "name", "mirror", "`name` of the mirror")
	registerTopics(c, &f.include, &f.exclude, "stopped")
	c.Flags().StringVar(&f.state.topic, "state-topic", "", "`name` of the topic that holds the state, as in run")
	c.Flags().DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait until all is stopped")
	c.Flags().StringVar(&f.level, "log-level", "off", "log to stderr: off, error, warn, info or debug")
	c.Flags().SortFlags = false
	f.state.state, f.state.peer = inKafka, nowhere
	return c
}

func (f *stopFlags) run(ctx context.Context, s streams) error {
	logger, err := newLogger(&screen{streams: s}, f.level)
	reached, reachErr := f.destination.orStandIn(logger)
	include := f.include
	if len(include) == 0 {
		include = []string{".*"}
	}
	filter, filterErr := topics.NewFilter(include, f.exclude)
	_, _, stateErr := f.state.places()
	errs := []error{err, reachErr, filterErr, stateErr}
	if f.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout: %v is not above 0", f.timeout))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	kept, err := f.state.open(reached, reached)
	if err != nil {
		return failed(err)
	}
	defer kept.Close()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := f.stop(ctx, kept.state, filter, s.out); err != nil {
		return failed(err)
	}
	return nil
}

// stop stores the wish, and waits for it to be followed.
func (f *stopFlags) stop(ctx context.Context, store coordinator.Store, filter *topics.Filter, out io.Writer) error {
	records, err := store.Load(ctx, f.name)
	if err != nil {
		return err
	}
	parts := make(map[string]int) // of topics that are meant
	for _, r := range records {
		if filter.Matches(r.Partition.Topic) {
			parts[r.Partition.Topic]++
		}
	}
	if len(parts) == 0 {
		return fmt.Errorf("nothing of mirror %q is on record that --topics means", f.name)
	}
	var wishes []coordinator.Intent
	for _, topic := range slices.Sorted(maps.Keys(parts)) {
		wishes = append(wishes, coordinator.Intent{Topic: topic, Desired: coordinator.WantStopped})
	}
	if _, err := store.SaveIntents(ctx, f.name, wishes); err != nil {
		return err
	}
	return f.await(ctx, store, records, parts, out)
}

// await waits until no partition of topics is anything but stopped. records are how they
// stood at first.
func (f *stopFlags) await(ctx context.Context, store coordinator.Store, records []coordinator.Record, parts map[string]int, out io.Writer) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	left := notStopped(records, parts)
	for told := make(map[string]bool); ; {
		now, err := store.Load(ctx, f.name)
		if err == nil {
			left = notStopped(now, parts)
			for _, topic := range slices.Sorted(maps.Keys(parts)) {
				if _, open := left[topic]; !open && !told[topic] {
					told[topic] = true
					fmt.Fprintf(out, "%s: stopped, %d partitions\n", printable(topic), parts[topic])
				}
			}
			if len(left) == 0 {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(append(unstopped(left), err, errors.New("the wish is stored: a run of the mirror with --state kafka goes on with it, now or later"))...)
		}
	}
}

// notStopped is one partition of each of the topics that are not stopped whole.
func notStopped(records []coordinator.Record, parts map[string]int) map[string]coordinator.Record {
	left := make(map[string]coordinator.Record)
	for _, r := range records {
		if r.State != coordinator.StateStopped && parts[r.Partition.Topic] > 0 {
			left[r.Partition.Topic] = r
		}
	}
	return left
}

// unstopped says how topics stand.
func unstopped(left map[string]coordinator.Record) (errs []error) {
	for _, topic := range slices.Sorted(maps.Keys(left)) {
		r := left[topic]
		why := ""
		if r.Reason != "" {
			why = ": " + r.Reason
		}
		errs = append(errs, fmt.Errorf("%v is %s%s", r.Partition, r.State, why))
	}
	return errs
}
