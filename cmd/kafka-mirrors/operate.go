package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// operation is a command on topics of a mirror.
type operation struct {
	name, short, long, example string
	done                       string // what is said of a topic: "stopped"
	want                       coordinator.State
	do                         func(*mirror.Controller, context.Context, string, ...string) ([]mirror.TopicResult, error)
}

var operations = []operation{
	{
		name: "start", done: "mirroring", want: coordinator.StateMirroring, do: (*mirror.Controller).Start,
		short: "Take topics into a mirror and copy them",
		long: `Take topics into a mirror, and wait until they are being copied. Names and patterns stay
with the mirror: topics that match later are found by the daemon. What is excluded, by
--exclude or by a stop, stays out until it is started in the same words, name or pattern.
Without --topics everything that the mirror has is started again. Matching nothing is no
failure.

A topic that was stopped begins anew: where nothing was written to it since then it goes on,
otherwise it fails, unless the mirror has local.writes=discard.`,
		example: `  kafka-mirrors start --bootstrap-server b:9092 --mirror a-to-b --topics 'orders.*',payments --exclude 'orders\.test.*'`,
	},
	{
		name: "pause", done: "paused", want: coordinator.StatePaused, do: (*mirror.Controller).Pause,
		short: "Stop copying topics, which stay mirror topics",
		long: `Stop copying topics, and wait until nothing more is appended to them. They stay the mirror's,
not to be written to, until they are resumed or stopped. Stopped topics are refused.`,
		example: `  kafka-mirrors pause --bootstrap-server b:9092 --mirror a-to-b --topics orders`,
	},
	{
		name: "resume", done: "mirroring", want: coordinator.StateMirroring, do: (*mirror.Controller).Resume,
		short:   "Go on with paused topics",
		long:    `Go on with paused topics, and wait until they are being copied. Stopped topics are refused: see start.`,
		example: `  kafka-mirrors resume --bootstrap-server b:9092 --mirror a-to-b --topics orders`,
	},
	{
		name: "recover", done: "mirroring", want: coordinator.StateMirroring, do: (*mirror.Controller).Recover,
		short: "Try failed partitions again now",
		long: `Try failed partitions again at once, those too that are not tried again by themselves, and
count their attempts anew; also a mirror that could not be opened. It waits until they are
being copied; what fails for good again is said, with the reason.`,
		example: `  kafka-mirrors recover --bootstrap-server b:9092 --mirror a-to-b`,
	},
}

// operateFlags are the flags of an operation.
type operateFlags struct {
	operation
	operator         operatorFlags
	mirror           string
	include, exclude []string
	dryRun           bool
}

func newOperations(s streams) (all []*cobra.Command) {
	for _, op := range operations {
		all = append(all, newOperation(s, op))
	}
	return all
}

func newOperation(s streams, op operation) *cobra.Command {
	f := &operateFlags{operation: op}
	c := &cobra.Command{
		Use:   op.name,
		Short: op.short,
		Long:  op.long + "\n\n" + topicsHelp + "\n\n" + codesHelp,
		Args:  noArguments, Example: op.example,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.operator.bounded(c.Context(), s, f.run, needMirror(f.mirror), f.check())
		},
	}
	f.register(c, op.done)
	return c
}

// topicsHelp is the part of the help about --topics.
const topicsHelp = `--topics and --exclude take names and regular expressions: an entry made only of
letters, digits, '.', '_' and '-' is one topic's name, any other is an RE2 expression that
must match the whole name ("orders.*").`

func (f *operateFlags) register(c *cobra.Command, done string) {
	c.Flags().StringVar(&f.mirror, "mirror", "", "`name` of the mirror")
	registerTopics(c, &f.include, &f.exclude, done)
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and change nothing")
	f.operator.register(c, 5*time.Minute)
}

func (f *operateFlags) check() error {
	_, err := topics.NewFilter(f.include, f.exclude)
	return err
}

func (f *operateFlags) run(ctx context.Context, d *desk) error {
	before, err := d.c.Describe(ctx, f.mirror)
	if err != nil {
		return err
	}
	entries, err := f.entries(ctx, d, before.Definition)
	if err != nil {
		return err
	}
	on := d.c
	if f.dryRun {
		if on, err = d.rehearsal(ctx); err != nil {
			return err
		}
	}
	if f.name == "start" && len(f.exclude) > 0 {
		if _, err := on.Alter(ctx, f.mirror, f.leaveOut); err != nil {
			return err
		}
	}
	results, err := f.do(on, ctx, f.mirror, entries...)
	names, refused := good(results)
	if err != nil && refused == nil {
		return err
	}
	if f.dryRun {
		return errors.Join(refused, f.would(ctx, d, names))
	}
	left := slices.DeleteFunc(slices.Clone(entries), func(e string) bool { return refusedAlone(results, e) })
	if len(left) == 0 && len(entries) > 0 {
		return refused
	}
	return errors.Join(refused, f.wait(ctx, d, names, left))
}

// refusedAlone: an entry is the name of a topic that was refused.
func refusedAlone(results []mirror.TopicResult, entry string) bool {
	return slices.ContainsFunc(results, func(r mirror.TopicResult) bool { return r.Topic == entry && r.Err != nil })
}

// leaveOut takes --exclude into a definition.
func (f *operateFlags) leaveOut(def *coordinator.Definition) error {
	for _, e := range f.exclude {
		if !slices.Contains(def.Exclude, e) {
			def.Exclude = append(def.Exclude, e)
		}
	}
	return nil
}

// entries are what the operation is asked for. A start keeps patterns, all else means topics that
// are known by now: none for all of them.
func (f *operateFlags) entries(ctx context.Context, d *desk, def coordinator.Definition) ([]string, error) {
	if f.name == "start" {
		if len(f.include)+len(def.Include) == 0 {
			return nil, &outcome{exitUsage, fmt.Errorf("--topics: is needed: mirror %q has no topics yet", f.mirror)}
		}
		return f.include, nil
	}
	if len(f.include)+len(f.exclude) == 0 {
		return nil, nil
	}
	known, err := f.known(ctx, d, def)
	if err != nil {
		return nil, err
	}
	include := f.include
	if len(include) == 0 {
		include = []string{".*"}
	}
	filter, err := topics.NewFilter(include, f.exclude)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range f.include {
		if topics.Literal(e) && !slices.Contains(known, e) {
			errs = append(errs, fmt.Errorf("mirror %q: topic %s: %w: the mirror does not have it", f.mirror, e, cluster.ErrUnknownTopic))
		}
	}
	meant := slices.DeleteFunc(known, func(name string) bool { return !filter.Matches(name) })
	if len(meant) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("mirror %q: it has no topic that --topics and --exclude mean", f.mirror))
	}
	return meant, errors.Join(errs...)
}

// known are the topics that are on record or named in the definition.
func (f *operateFlags) known(ctx context.Context, d *desk, def coordinator.Definition) ([]string, error) {
	all, err := d.c.Topics(ctx, f.mirror)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range all {
		names = append(names, t.Name)
	}
	for _, e := range def.Include {
		if topics.Literal(e) && !slices.Contains(names, e) {
			names = append(names, e)
		}
	}
	slices.Sort(names)
	return names, nil
}

// would says what a dry run has found.
func (f *operateFlags) would(ctx context.Context, d *desk, names []string) error {
	all, err := d.c.Topics(ctx, f.mirror)
	if err != nil {
		return err
	}
	for _, name := range names {
		is := "not copied yet"
		if i := slices.IndexFunc(all, func(t mirror.Topic) bool { return t.Name == name }); i >= 0 {
			counts := map[coordinator.State]int{}
			for _, p := range all[i].Partitions {
				counts[p.State]++
			}
			is = "now " + countsOf(counts)
		}
		fmt.Fprintf(d.out, "%s: would be %s (%s)\n", printable(name), f.done, is)
	}
	patterns := 0
	for _, e := range f.include {
		if f.name == "start" && !topics.Literal(e) {
			patterns++
			fmt.Fprintf(d.out, "%s: what matches at the source would be found\n", printable(e))
		}
	}
	if len(names)+patterns == 0 {
		fmt.Fprintln(d.out, "0 topics matched")
	}
	return nil
}

// wait waits until the topics are where they are wanted.
func (f *operateFlags) wait(ctx context.Context, d *desk, names, entries []string) error {
	since, err := sinceOf(ctx, d.store, f.mirror)
	if err != nil {
		return err
	}
	now, err := d.c.Describe(ctx, f.mirror)
	if err != nil {
		return err
	}
	w := &waiting{d: d, mirror: f.mirror, want: f.want, since: since, names: names, verb: f.done,
		shown: &progress{streams: d.streams, what: f.name + " " + f.mirror}}
	q := question{Ask: askFollow, Mirror: f.mirror, Since: now.Definition.Revision}
	if f.name == "start" {
		q.Ask, q.Topics = askStart, entries
	} else if len(names) == 0 {
		fmt.Fprintln(d.out, "0 topics matched")
		return nil
	}
	a, err := ask(ctx, d.store, q)
	if err != nil {
		return err
	}
	defer a.withdraw()
	return w.run(ctx, func(ctx context.Context) (bool, error) { return f.follow(ctx, a, w) })
}

// follow hears what the daemon says of a mirror while it is waited for.
func (f *operateFlags) follow(ctx context.Context, a *asked, w *waiting) (whole bool, err error) {
	now, err := a.look(ctx)
	switch {
	case err != nil:
		return false, err
	case now == nil:
		return f.name != "start", nil
	case now.Error != "":
		return false, now.err()
	}
	switch fares := now.Fares; {
	case fares.Reason != "":
		w.shown.remark("the mirror does not run: " + fares.Reason)
	case fares.Trouble != "":
		w.shown.remark(fares.Trouble)
	default:
		w.shown.remark("")
	}
	if f.name != "start" {
		return true, nil
	}
	return now.Fares.Looked, f.found(now.Fares, w)
}

// found takes up topics that the daemon has found, and what is wrong with some.
func (f *operateFlags) found(now *fares, w *waiting) error {
	if !now.Looked {
		return nil
	}
	for _, name := range now.Started {
		if !slices.Contains(w.names, name) {
			w.names = append(w.names, name)
		}
	}
	for _, name := range w.names {
		if why := now.Refused[name]; why != "" && !w.settled[name] {
			w.settled[name], w.failed[name] = true, fmt.Errorf("mirror %q: topic %s: %s", f.mirror, name, why)
		} else if slices.Contains(now.Missing, name) && !w.settled[name] {
			w.settled[name], w.failed[name] = true, fmt.Errorf("mirror %q: topic %s: is not at the source; it is copied when it is created there", f.mirror, name)
		}
	}
	if len(w.names) == 0 {
		w.shown.remark("0 topics matched")
	}
	return nil
}

// countsOf are partitions by state: "11 MIRRORING, 1 FAILED".
func countsOf(counts map[coordinator.State]int) string {
	var parts []string
	for _, state := range sortedKeys(counts) {
		if counts[state] > 0 {
			parts = append(parts, thousands(int64(counts[state]))+" "+string(state))
		}
	}
	return strings.Join(parts, ", ")
}
