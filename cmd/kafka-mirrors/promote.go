package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

func newPromote(s streams) *cobra.Command {
	f := &operateFlags{operation: operation{name: "promote", done: "promoted", want: coordinator.StateStopped, do: (*mirror.Controller).Stop}}
	c := &cobra.Command{
		Use:   "promote",
		Short: "Stop topics once all of the source is copied: a planned failover",
		Long: `Stop topics as stop does, but first wait until the destination has all that the source
has, committed offsets of groups included. Stop the producers before, and end their
transactions. Where that does not come about within --timeout nothing is stopped, and what
remains is said. It is the daemon that does it: one has to run, and the source has to
answer.

` + topicsHelp + "\n\n" + codesHelp,
		Example: `  kafka-mirrors promote --bootstrap-server b:9092 --mirror a-to-b --timeout 10m`,
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.operator.bounded(c.Context(), s, f.promote, needMirror(f.mirror), f.check())
		},
	}
	f.register(c, f.done)
	return c
}

func (f *operateFlags) promote(ctx context.Context, d *desk) error {
	before, err := d.c.Describe(ctx, f.mirror)
	if err != nil {
		return err
	}
	entries, err := f.entries(ctx, d, before.Definition)
	if err != nil {
		return err
	}
	if f.dryRun {
		on, err := d.rehearsal(ctx)
		if err != nil {
			return err
		}
		results, err := f.do(on, ctx, f.mirror, entries...)
		names, refused := good(results)
		if err != nil && refused == nil {
			return err
		}
		return errors.Join(refused, f.would(ctx, d, names))
	}
	a, err := ask(ctx, d.store, question{Ask: askPromote, Mirror: f.mirror, Topics: entries})
	if err != nil {
		return err
	}
	defer a.withdraw()
	shown := &progress{streams: d.streams, what: "promote " + f.mirror}
	defer shown.end()
	tick := time.NewTicker(post.look)
	defer tick.Stop()
	for {
		now, err := a.look(ctx)
		switch {
		case err != nil:
			return err
		case now == nil:
		case now.Done:
			shown.end()
			return f.promoted(d, now)
		case now.Fares != nil:
			shown.lag(now.Fares.Lag)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the daemon has not said what came of it: %w", ctx.Err())
		}
	}
}

// promoted says what came of it.
func (f *operateFlags) promoted(d *desk, a *answer) error {
	var errs []error
	for _, r := range a.Results {
		if r.Error != "" {
			errs = append(errs, &outcome{r.Code, errors.New(r.Error)})
			continue
		}
		fmt.Fprintf(d.out, "%s: promoted\n", printable(r.Topic))
	}
	if a.Error != "" && len(errs) == 0 {
		return a.err()
	}
	if len(a.Results) == 0 {
		fmt.Fprintln(d.out, "0 topics matched")
	}
	slices.SortFunc(errs, func(x, y error) int { return codeOf(x) - codeOf(y) })
	return errors.Join(errs...)
}
