package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	source, destination connectionFlags
	include, exclude    []string
	json                bool
}

func newVerify(s streams) *cobra.Command {
	f := &verifyFlags{source: connectionFlags{side: "source"}, destination: connectionFlags{side: "destination"}}
	c := &cobra.Command{
		Use:   "verify",
		Short: "Compare topics of two clusters record by record",
		Long: `Compare topics of two clusters record by record and offset by offset: timestamp,
key, value and headers. What both clusters hold is compared: from the later log
start to the lower high watermark. It can run while a mirror runs; what is not
copied yet is then not compared. A partition of which the source has records and
both clusters have nothing in common counts as different.

` + connectionHelp + `

Exit codes: 0 all that was compared is equal; 3 something is different, whatever
else happened; 1 something could not be compared; 2 the command line or a
configuration file is wrong.`,
		Example: `  kafka-mirrors verify --source a:9092 --destination b:9092 --topics 'orders.*'

  # which partitions differ, for a script
  kafka-mirrors verify --source a:9092 --destination b:9092 --topics '.*' --json |
      jq -r '.partitions[] | select(.equal | not) | "\(.partition.topic)-\(.partition.partition)"'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), s.out) },
	}
	f.source.register(c)
	f.destination.register(c)
	registerTopics(c, &f.include, &f.exclude, "compared")
	c.Flags().BoolVar(&f.json, "json", false, "print a JSON object instead of a table")
	c.Flags().SortFlags = false
	return c
}

func (f *verifyFlags) run(ctx context.Context, out io.Writer) error {
	source, sourceErr := f.source.open(slog.New(slog.DiscardHandler))
	destination, destinationErr := f.destination.open(slog.New(slog.DiscardHandler))
	defer closeAll(source, destination)
	filter, err := topics.NewFilter(f.include, f.exclude)
	if len(f.include) == 0 {
		err = errors.Join(err, errors.New("--topics: is needed"))
	}
	if err := errors.Join(sourceErr, destinationErr, err); err != nil {
		return err
	}
	ps, err := partitionsToCompare(ctx, source, filter)
	if err != nil {
		return failed(err)
	}
	reports, compareErr := verify.Topics(ctx, source, destination, ps, nil)
	print := printTable
	if f.json {
		print = printJSON
	}
	if err := print(out, reports); err != nil {
		return failed(err)
	}
	return verdict(reports, compareErr)
}

// partitionsToCompare are those of the source that the filter names.
func partitionsToCompare(ctx context.Context, source *kafka.Cluster, filter *topics.Filter) ([]cluster.Partition, error) {
	all, err := source.Topics(ctx)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	var (
		ps    []cluster.Partition
		names []string
		errs  []error
	)
	for _, t := range all {
		names = append(names, t.Name)
		for p := int32(0); p < t.Partitions && filter.Matches(t.Name) && !t.Internal; p++ {
			ps = append(ps, cluster.Partition{Topic: t.Name, Partition: p})
		}
	}
	for _, name := range filter.Literals() {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("topic %s: not at the source", name))
		}
	}
	if len(ps) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no topic of the source matches --topics"))
	}
	slices.SortFunc(ps, cluster.Partition.Compare)
	return ps, errors.Join(errs...)
}

// nothingShared: the source has records, and of none of them it is known whether
// the destination has the same.
func nothingShared(r verify.Report) bool {
	return r.Error == "" && r.Compared.Len() == 0 && r.Source.HighWatermark > r.Source.LogStart
}

func different(r verify.Report) bool { return r.Different > 0 || nothingShared(r) }

func equal(r verify.Report) bool { return r.Error == "" && r.Equal && !different(r) }

// verdict is the outcome of all reports; nil when all are equal.
func verdict(reports []verify.Report, err error) error {
	n := 0
	for _, r := range reports {
		if different(r) {
			n++
		}
	}
	if n > 0 {
		return &outcome{exitDifferent, errors.Join(fmt.Errorf("%d of %s different", n, plural(int64(len(reports)), "partition")), err)}
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

func result(r verify.Report) string {
	switch {
	case r.Different > 0:
		return fmt.Sprintf("DIFFERENT: %s; %v", plural(r.Different, "difference"), r.Differences[0])
	case r.Error != "":
		return "NOT COMPARED: " + r.Error
	case nothingShared(r):
		return "DIFFERENT: nothing in common"
	case !r.EndsEqual:
		return "equal where both have records"
	}
	return "equal"
}

func printTable(out io.Writer, reports []verify.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tSOURCE\tDESTINATION\tCOMPARED\tRECORDS\tRESULT")
	for _, r := range reports {
		fmt.Fprintf(w, "%v\t%s\t%s\t%v\t%s\t%s\n", r.Partition, logOf(r.Source), logOf(r.Destination), r.Compared,
			thousands(r.Records), printable(result(r)))
	}
	return w.Flush()
}

func logOf(o cluster.Offsets) string {
	return cluster.Span{From: o.LogStart, To: o.HighWatermark}.String()
}

func printJSON(out io.Writer, reports []verify.Report) error {
	type entry struct {
		verify.Report
		Equal bool `json:"equal"` // false also where nothing is in common
	}
	all := struct {
		Equal      bool    `json:"equal"`
		Partitions []entry `json:"partitions"`
	}{Equal: true, Partitions: []entry{}}
	for _, r := range reports {
		all.Equal = all.Equal && equal(r)
		all.Partitions = append(all.Partitions, entry{r, equal(r)})
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(all)
}
