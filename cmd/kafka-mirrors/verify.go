package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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
	prefix              string
	since, sample       string
	seed                uint64
	strict, sums        bool
	against             string
	parallel            int
	json                bool
}

func newVerify(s streams) *cobra.Command {
	f := &verifyFlags{source: connectionFlags{side: "source"}, destination: connectionFlags{side: "destination"}}
	c := &cobra.Command{
		Use:   "verify",
		Short: "Compare topics of two clusters record by record",
		Long: `Compare topics of two clusters record by record and offset by offset: timestamp,
key, value and headers, as readers of committed records see them. What both clusters
hold is compared: from the later log start to the lower high watermark. It can run
while a mirror runs; what is not copied yet is then not compared. A partition of
which the source has records and both clusters have nothing in common counts as
different. Batches, compression and message formats may differ, and what fills the
offsets of aborted records; --strict tells of those, too.

Checksums. --checksums works out a number for each partition and span of offsets: of
the same records it is the same, on any cluster and at any time. Without --destination
the source's are printed. --against compares a cluster with a file that --checksums
--json printed, elsewhere or before.

` + connectionHelp + `

Exit codes: 0 all that was compared is equal; 3 something is different, whatever
else happened; 1 something could not be compared; 2 the command line or a
configuration file is wrong.`,
		Example: `  kafka-mirrors verify --source a:9092 --destination b:9092 --topics 'orders.*'

  # a hundredth of what was written since yesterday
  kafka-mirrors verify --source a:9092 --destination b:9092 --topics '.*' --since 24h --sample 1%

  # two sites that cannot reach each other
  kafka-mirrors verify --source a:9092 --topics '.*' --checksums --json >a.json
  kafka-mirrors verify --source b:9092 --against a.json

  # which partitions differ, for a script
  kafka-mirrors verify --source a:9092 --destination b:9092 --topics '.*' --json |
      jq -r '.partitions[] | select(.equal | not) | "\(.partition.topic)-\(.partition.partition)"'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), s) },
	}
	f.register(c)
	return c
}

func (f *verifyFlags) register(c *cobra.Command) {
	f.source.register(c)
	f.destination.register(c)
	registerTopics(c, &f.include, &f.exclude, "compared")
	c.Flags().StringVar(&f.prefix, "destination-prefix", "", "`text` before the topics' names at the destination, as MirrorMaker puts it there")
	c.Flags().StringVar(&f.since, "since", "", "leave out what is older, by the source's timestamps: a `time` as in 2026-05-01T12:00:00Z,\nor how long ago, as in 24h")
	c.Flags().StringVar(&f.sample, "sample", "", "compare a `part` of the offsets, as in 1% or 0.01, the same ones on both sides")
	c.Flags().Uint64Var(&f.seed, "sample-seed", 0, "another `number` takes another sample")
	c.Flags().BoolVar(&f.strict, "strict", false, "count as different also log ends, batch bounds, codecs, timestamp types and aborted\nrecords that are not there")
	c.Flags().BoolVar(&f.sums, "checksums", false, "work out checksums")
	c.Flags().StringVar(&f.against, "against", "", "`file` with checksums to compare the source with")
	c.Flags().IntVar(&f.parallel, "parallel", 2, "`number` of partitions that are read at once")
	c.Flags().BoolVar(&f.json, "json", false, "print a JSON object instead of a table")
	c.Flags().SortFlags = false
}

// alone: one cluster is looked at.
func (f *verifyFlags) alone() bool {
	return len(f.destination.bootstrap) == 0 && f.destination.file == "" && (f.sums || f.against != "")
}

func (f *verifyFlags) run(ctx context.Context, s streams) error {
	source, sourceErr := f.source.open(slog.New(slog.DiscardHandler))
	defer source.Close()
	options, optionsErr := f.options(source)
	filter, err := topics.NewFilter(f.include, f.exclude)
	if len(f.include) == 0 && f.against == "" {
		err = errors.Join(err, errors.New("--topics: is needed"))
	}
	err = errors.Join(optionsErr, err)
	if f.alone() {
		if err := errors.Join(sourceErr, err); err != nil {
			return err
		}
		return f.total(ctx, s, source, filter, options)
	}
	if f.against != "" {
		err = errors.Join(err, errors.New("--against: the file stands for the destination"))
	}
	destination, destinationErr := f.destination.open(slog.New(slog.DiscardHandler))
	defer destination.Close()
	if err := errors.Join(sourceErr, destinationErr, err); err != nil {
		return err
	}
	return f.compare(ctx, s, source, destination, filter, options)
}

func (f *verifyFlags) compare(ctx context.Context, s streams, source, destination *kafka.Cluster, filter *topics.Filter, o verify.Options) error {
	ps, err := partitionsToCompare(ctx, source, filter)
	if err != nil {
		return failed(err)
	}
	shown := newVerifyScreen(s, len(ps))
	o.Progress = shown.progress
	began := time.Now()
	reports, compareErr := verify.Topics(ctx, fetching{source, source}, prefixed{fetching{destination, destination}, f.prefix}, ps, &o)
	shown.end()
	if f.json {
		err = printJSON(s.out, reports, o.Sample, time.Since(began))
	} else {
		err = printTable(s.out, reports, f.sums)
	}
	if err != nil {
		return failed(err)
	}
	shown.summary()
	if compareErr != nil && f.prefix == "" {
		compareErr = errors.Join(compareErr, renamed(ctx, destination, ps))
	}
	return verdict(reports, compareErr)
}

// options are what the flags say, all but the progress.
func (f *verifyFlags) options(source *kafka.Cluster) (verify.Options, error) {
	o := verify.Options{Strict: f.strict, Checksums: f.sums, Parallelism: f.parallel}
	var errs []error
	if f.parallel < 1 {
		errs = append(errs, errors.New("--parallel: is below 1"))
	}
	if f.since != "" {
		since, err := parseSince(f.since, time.Now())
		if err != nil {
			errs = append(errs, err)
		}
		o.Span = func(ctx context.Context, p cluster.Partition) (cluster.Span, error) {
			return spanSince(ctx, source, p, since)
		}
	}
	if f.sample != "" {
		fraction, err := parseFraction(f.sample)
		if err != nil {
			errs = append(errs, err)
		}
		o.Sample = &verify.Sample{Fraction: fraction, Seed: f.seed}
	}
	return o, errors.Join(errs...)
}

func parseSince(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Before(time.UnixMilli(0)) {
		return time.Time{}, fmt.Errorf("--since: %q is neither a time since 1970 as in 2026-05-01T12:00:00Z nor as in 24h", text)
	}
	return at, nil
}

// parseFraction reads 0.01 or 1%.
func parseFraction(text string) (float64, error) {
	digits, percent := strings.CutSuffix(text, "%")
	fraction, err := strconv.ParseFloat(digits, 64)
	if percent {
		fraction /= 100
	}
	if err != nil || !(fraction > 0 && fraction <= 1) {
		return 0, fmt.Errorf("--sample: %q is no part as in 1%% or 0.01", text)
	}
	return fraction, nil
}

// spanSince begins with the source's first record of a time.
func spanSince(ctx context.Context, source *kafka.Cluster, p cluster.Partition, since time.Time) (cluster.Span, error) {
	answers, err := source.OffsetsForTime(ctx, []cluster.Partition{p}, since.UnixMilli())
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return cluster.Span{}, fmt.Errorf("offset of %s: %w", since.Format(time.RFC3339), err)
	}
	if answers[0].Offset < 0 {
		return cluster.Span{From: math.MaxInt64, To: math.MaxInt64}, nil
	}
	return cluster.Span{From: answers[0].Offset, To: math.MaxInt64}, nil
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

// renamed tells of topics that the destination has under a name as MirrorMaker makes
// them: the source's, a dot, and the topic's own.
func renamed(ctx context.Context, destination *kafka.Cluster, ps []cluster.Partition) error {
	all, err := destination.Topics(ctx)
	if err != nil {
		return nil // the comparison has said so already
	}
	var errs []error
	for i, p := range ps {
		if i > 0 && ps[i-1].Topic == p.Topic || slices.ContainsFunc(all, func(t cluster.Topic) bool { return t.Name == p.Topic }) {
			continue
		}
		for _, t := range all {
			if prefix, ok := strings.CutSuffix(t.Name, "."+p.Topic); ok {
				errs = append(errs, fmt.Errorf("topic %s: the destination has %s instead, as MirrorMaker names copies; --destination-prefix %s. compares it", p.Topic, t.Name, prefix))
			}
		}
	}
	return errors.Join(errs...)
}
