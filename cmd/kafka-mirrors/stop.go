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

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// stopFlags are the flags of stop.
type stopFlags struct{ operateFlags }

func newStop(s streams) *cobra.Command {
	f := &stopFlags{operateFlags{operation: operation{name: "stop", done: "stopped", want: coordinator.StateStopped, do: (*mirror.Controller).Stop}}}
	c := &cobra.Command{
		Use:   "stop",
		Short: "Fail over: make topics ordinary ones",
		Long: `Have topics leave the mirror and become ordinary ones, which can be written to: the
failover. The source may be dead. This command stores that it is wanted; the daemon does
it, or the run of the mirror with --state kafka, wherever that is; the command waits until
it is done. A stopped topic stays stopped, over restarts too, until it is started again.
Without --topics everything is stopped that the mirror has, and its patterns are excluded,
so that nothing is found any more.

Where nothing runs the wish stays stored, and what runs next begins with it. Topics that a
mirror with run --join led, and that nobody is to lead any more, are a matter of leave.

` + topicsHelp + "\n\n" + connectionHelp + "\n\n" + codesHelp,
		Example: `  # everything that this mirror has
  kafka-mirrors stop --bootstrap-server b:9092 --mirror a-to-b

  # some topics
  kafka-mirrors stop --bootstrap-server b:9092 --mirror a-to-b --topics 'orders.*'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.mirror == "" && c.Flags().Changed("destination") {
				f.mirror = "mirror" // as of a run without a name
			}
			return f.operator.bounded(c.Context(), s, f.run, needMirror(f.mirror), f.check())
		},
	}
	f.register(c, f.done)
	// What the flags were called when only run had mirrors.
	c.Flags().StringVar(&f.mirror, "name", "", "`name` of the mirror")
	c.Flags().StringSliceVar(&f.operator.destination.bootstrap, "destination", nil, "as --bootstrap-server")
	c.Flags().StringVar(&f.operator.destination.file, "destination-config", "", "as --command-config")
	for _, old := range []string{"name", "destination", "destination-config"} {
		c.Flags().Lookup(old).Hidden = true
	}
	return c
}

// run stops a mirror that is defined, or one of a run, which is only on record.
func (f *stopFlags) run(ctx context.Context, d *desk) error {
	err := f.operateFlags.run(ctx, d)
	if !errors.Is(err, mirror.ErrUnknownMirror) || f.dryRun {
		return err
	}
	include := f.include
	if len(include) == 0 {
		include = []string{".*"}
	}
	filter, err := topics.NewFilter(include, f.exclude)
	if err != nil {
		return err
	}
	records, err := d.store.Load(ctx, f.mirror)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return fmt.Errorf("mirror %q: %w: it is not defined, and no run has stored anything of it", f.mirror, mirror.ErrUnknownMirror)
	}
	return f.stop(ctx, d.store, filter, d.out)
}

// stop stores the wish, and waits for it to be followed.
func (f *stopFlags) stop(ctx context.Context, store coordinator.Store, filter *topics.Filter, out io.Writer) error {
	records, err := store.Load(ctx, f.mirror)
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
		return fmt.Errorf("nothing of mirror %q is on record that --topics means", f.mirror)
	}
	var wishes []coordinator.Intent
	for _, topic := range slices.Sorted(maps.Keys(parts)) {
		wishes = append(wishes, coordinator.Intent{Topic: topic, Desired: coordinator.WantStopped})
	}
	if _, err := store.SaveIntents(ctx, f.mirror, wishes); err != nil {
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
		now, err := store.Load(ctx, f.mirror)
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
