package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// lookFlags are the flags of list and describe.
type lookFlags struct {
	operator operatorFlags
	mirror   string
	topics   []string
	failed   bool
	json     bool
	alone    bool // no daemon has answered
}

// jsonHelp is the part of the help about --json.
const jsonHelp = `With --json one document is printed, whose keys do not change their meaning; new ones may
be added. docs/operations.md lists them.`

func newList(s streams) *cobra.Command {
	f := &lookFlags{}
	c := &cobra.Command{
		Use:   "list",
		Short: "List the mirrors of a cluster",
		Long: `List the mirrors into the destination cluster, a line each: the two cluster ids, whether
the daemon runs it, and how many partitions are in each state.

` + jsonHelp + "\n\n" + codesHelp,
		Example: `  kafka-mirrors list --bootstrap-server b:9092`,
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.operator.bounded(c.Context(), s, f.list)
		},
	}
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	f.operator.register(c, 30*time.Second)
	return c
}

// listed is the JSON of list.
type listed struct {
	Live    bool              `json:"live"` // a daemon has answered
	Mirrors []mirror.Overview `json:"mirrors"`
}

func (f *lookFlags) list(ctx context.Context, d *desk) error {
	out := listed{}
	all, err := d.c.List(ctx)
	if err != nil {
		return err
	}
	out.Mirrors = all
	if len(all) > 0 {
		a, err := once(ctx, d.store, question{Ask: askMirrors})
		if err == nil {
			out.Live, out.Mirrors = true, a.Mirrors
		} else if !errors.Is(err, errNoDaemon) {
			return err
		}
	}
	if f.json {
		return document(d.out, out)
	}
	if len(all) == 0 {
		fmt.Fprintln(d.out, "no mirror is defined")
		return nil
	}
	table := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MIRROR\tSOURCE\tDESTINATION\tRUNS\tPARTITIONS")
	for _, o := range out.Mirrors {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", o.Name, or(o.SourceID, "not known"), or(o.DestinationID, "not known"), runs(o, out.Live),
			or(countsOf(o.States), "none"))
	}
	return table.Flush()
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return printable(text)
}

// runs says whether a mirror runs.
func runs(o mirror.Overview, live bool) string {
	switch {
	case !live:
		return "no daemon answers"
	case o.Running:
		return "yes"
	case o.Reason != "":
		return "no: " + printable(o.Reason)
	}
	return "no"
}

func newDescribe(s streams) *cobra.Command {
	f := &lookFlags{}
	c := &cobra.Command{
		Use:   "describe",
		Short: "Show how mirrors fare, partition by partition",
		Long: `Show one mirror, or all: what it is made of, how it fares as a whole, and the hundred
partitions that need looking at most: the failed ones, those in trouble, then by lag.
--topics shows all partitions of some topics instead. Where no daemon answers, what is
stored is shown: states and reasons, no offsets.

  SOURCE-END  the source's high watermark       LAG       offsets still to be copied
  END         the destination's log end         BEHIND    how old the newest record is, where there is a lag
  POSITION    where it stopped: epoch/offset    ATTEMPTS  failures in a row
  SKIPPED, TRUNCATED  offsets that the source deleted too early, and that were cut, by this daemon

` + jsonHelp + "\n\n" + codesHelp,
		Example: `  kafka-mirrors describe --bootstrap-server b:9092 --mirror a-to-b

  # what has failed, of all mirrors
  kafka-mirrors describe --bootstrap-server b:9092 --failed`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := topics.NewFilter(f.topics, nil)
			return f.operator.bounded(c.Context(), s, f.describe, err)
		},
	}
	c.Flags().StringVar(&f.mirror, "mirror", "", "`name` of the mirror (default: all)")
	c.Flags().StringSliceVar(&f.topics, "topics", nil, "topics whose partitions are all shown, `name|regexp[,...]`")
	c.Flags().BoolVar(&f.failed, "failed", false, "show only partitions that have failed")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	f.operator.register(c, 30*time.Second)
	return c
}

// described is the JSON of one mirror.
type described struct {
	mirror.Description
	Live   bool           `json:"live"` // a daemon has answered
	Topics []mirror.Topic `json:"topics,omitempty"`
}

func (f *lookFlags) describe(ctx context.Context, d *desk) error {
	names := []string{f.mirror}
	if f.mirror == "" {
		all, err := d.c.List(ctx)
		if err != nil {
			return err
		}
		names = nil
		for _, o := range all {
			names = append(names, o.Name)
		}
	}
	out := []described{}
	for _, name := range names {
		one, err := f.one(ctx, d, name)
		if err != nil {
			return err
		}
		out = append(out, one)
	}
	if f.json {
		return document(d.out, struct {
			Mirrors []described `json:"mirrors"`
		}{out})
	}
	if len(out) == 0 {
		fmt.Fprintln(d.out, "no mirror is defined")
	}
	for i, one := range out {
		if i > 0 {
			fmt.Fprintln(d.out)
		}
		if err := one.print(d.out); err != nil {
			return err
		}
	}
	return nil
}

// one is what is known of a mirror, by the daemon or else by what is stored.
func (f *lookFlags) one(ctx context.Context, d *desk, name string) (described, error) {
	stored, err := d.c.Describe(ctx, name)
	if err != nil {
		return described{}, err
	}
	out := described{Description: stored}
	if !f.alone {
		a, err := once(ctx, d.store, question{Ask: askDescribe, Mirror: name, Topics: f.topics})
		switch f.alone = errors.Is(err, errNoDaemon); {
		case err == nil:
			out = described{Description: *a.Description, Live: true, Topics: a.Topics}
		case !f.alone:
			return described{}, err
		}
	}
	if f.alone && len(f.topics) > 0 {
		if out.Topics, err = d.c.Topics(ctx, name); err != nil {
			return described{}, err
		}
		filter, _ := topics.NewFilter(f.topics, nil) // was looked at
		out.Topics = slices.DeleteFunc(out.Topics, func(t mirror.Topic) bool { return !filter.Matches(t.Name) })
	}
	hideSecrets(&out.Definition)
	if f.failed {
		out.keepFailed()
	}
	return out, nil
}

// hideSecrets takes out what should never have been stored.
func hideSecrets(def *coordinator.Definition) {
	def.Source = maps.Clone(def.Source)
	for _, key := range []string{"sasl.jaas.config", "ssl.keystore.key"} {
		value, ok := def.Source[key]
		if l, err := parseJAAS(value); ok && !isReference(value) && (err != nil || !isReference(l.options["password"])) {
			def.Source[key] = "(hidden)"
		}
	}
}

func (d *described) keepFailed() {
	healthy := func(p mirror.PartitionStatus) bool { return p.State != coordinator.StateFailed }
	d.Status.Worst = slices.DeleteFunc(slices.Clone(d.Status.Worst), healthy)
	for i := range d.Topics {
		d.Topics[i].Partitions = slices.DeleteFunc(slices.Clone(d.Topics[i].Partitions), healthy)
	}
}

func document(out io.Writer, what any) error {
	text, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// print prints a mirror for people.
func (d *described) print(out io.Writer) error {
	def := d.Definition
	state := runs(d.Overview, d.Live)
	if d.Live && d.Running {
		state = d.Status.Health + ", " + plural(d.Status.Lag, "record") + " behind"
	}
	head := [][2]string{
		{"Mirror", def.Name},
		{"Source", or(def.Source["bootstrap.servers"], "not known") + ", cluster id " + or(def.SourceID, "not known yet")},
		{"Destination", "cluster id " + or(def.DestinationID, "not known yet")},
		{"Topics", or(strings.Join(def.Include, ","), "none")},
		{"Excluded", strings.Join(def.Exclude, ",")},
		{"Settings", settingsOf(def)},
		{"State", state},
		{"Partitions", states(d.Status) + stamped(d.Status) + losses(d.Status)},
	}
	for _, line := range head {
		if line[1] != "" {
			fmt.Fprintf(out, "%-12s %s\n", line[0]+":", printable(line[1]))
		}
	}
	for _, line := range notes(d.Status) {
		fmt.Fprintf(out, "%-12s %s\n", "Note:", printable(line))
	}
	ps := d.Status.Worst
	if d.Topics != nil {
		ps = nil
		for _, t := range d.Topics {
			ps = append(ps, t.Partitions...)
		}
	}
	return partitions(out, ps, d.Status.Time)
}

// settingsOf are all keys of a definition but the source's address.
func settingsOf(def coordinator.Definition) string {
	var all []string
	for key, value := range def.Source {
		if key != "bootstrap.servers" {
			all = append(all, "source."+key+"="+value)
		}
	}
	for _, part := range []map[string]string{def.Destination, def.Config} {
		for key, value := range part {
			all = append(all, key+"="+value)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// notes are what else an operator should know of a mirror.
func notes(s mirror.Status) (lines []string) {
	for _, k := range s.Syncs {
		if k.Error != "" {
			lines = append(lines, k.Kind+": "+k.Error)
		}
		lines = append(lines, k.Notes...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Refused)) {
		lines = append(lines, name+" refused: "+s.Refused[name])
	}
	for _, name := range s.Missing {
		lines = append(lines, name+": not at the source")
	}
	return lines
}

// partitions prints a table, which has only the columns that say something.
func partitions(out io.Writer, all []mirror.PartitionStatus, now time.Time) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TOPIC\tPARTITION\tSTATE\tATTEMPTS\tSOURCE-END\tEND\tLAG\tBEHIND\tPOSITION\tSKIPPED\tTRUNCATED\tREASON")
	for _, p := range all {
		position := "-"
		if p.Position != nil {
			position = fmt.Sprintf("%d/%d", p.Position.Epoch, p.Position.Offset)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", printable(p.Topic), p.Partition.Partition, p.State, attempts(p), offset(p.SourceEnd),
			offset(p.DestinationEnd), lagOf(p), behind(p, now), position, p.Skipped, p.Truncated, or(p.Reason, "-"))
	}
	return table.Flush()
}

// attempts counts failures, and says of one that is final that it is.
func attempts(p mirror.PartitionStatus) string {
	switch {
	case p.State != coordinator.StateFailed:
		return "-"
	case !p.Retriable:
		return "not again"
	}
	return strconv.Itoa(p.Attempts)
}

func offset(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func lagOf(p mirror.PartitionStatus) string {
	if p.SourceEnd < 0 {
		return "-"
	}
	return strconv.FormatInt(p.Lag, 10)
}

// behind is how old the newest record is that was copied, where there are newer ones.
func behind(p mirror.PartitionStatus, now time.Time) string {
	if p.Lag == 0 || p.NewestRecord == nil {
		return "-"
	}
	return now.Sub(*p.NewestRecord).Round(time.Second).String()
}
