package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

// sums are checksums as they stand in a file. A comparison of two clusters prints the
// same fields, and more.
type sums struct {
	Equal      bool     `json:"equal"`
	Sample     *sampled `json:"sample,omitempty"`
	Partitions []sum    `json:"partitions"`
}

// sum is the checksum of one partition, and what it is compared with.
type sum struct {
	Partition cluster.Partition `json:"partition"`
	Sum       *verify.Checksum  `json:"sourceSum,omitempty"`
	Against   *verify.Checksum  `json:"against,omitempty"`
	Equal     bool              `json:"equal"`
	Error     string            `json:"error,omitempty"`
	err       error
}

// total works out the checksums of one cluster, and compares them with a file's if
// there is one.
func (f *verifyFlags) total(ctx context.Context, s streams, source *kafka.Cluster, filter *topics.Filter, o verify.Options) error {
	var all sums
	if f.against != "" {
		if f.since != "" || f.sample != "" {
			return errors.New("--against: the file says which offsets are compared, --since and --sample cannot")
		}
		var err error
		if all, err = readSums(f.against, filter, len(f.include) > 0); err != nil {
			return fmt.Errorf("--against: %s: %w", f.against, err)
		}
		if all.Sample != nil {
			o.Sample = &verify.Sample{Fraction: all.Sample.Fraction, Seed: all.Sample.Seed}
		}
	} else {
		ps, err := partitionsToCompare(ctx, source, filter)
		if err != nil {
			return failed(err)
		}
		all.Sample = sampledOf(o.Sample)
		for _, p := range ps {
			all.Partitions = append(all.Partitions, sum{Partition: p})
		}
	}
	shown := newVerifyScreen(s, len(all.Partitions))
	o.Progress = shown.progress
	all.workOut(ctx, fetching{source, source}, o)
	shown.end()
	err := all.print(s.out, f.json)
	if err != nil {
		return failed(err)
	}
	shown.summary()
	return all.verdict()
}

// readSums reads what a run with checksums printed.
func readSums(file string, filter *topics.Filter, filtered bool) (sums, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		var at *os.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return sums{}, err
	}
	var read sums
	if err := json.Unmarshal(text, &read); err != nil {
		return sums{}, fmt.Errorf("is not what --checksums --json prints: %w", err)
	}
	all := sums{Sample: read.Sample}
	for _, one := range read.Partitions {
		if one.Sum != nil && (!filtered || filter.Matches(one.Partition.Topic)) {
			all.Partitions = append(all.Partitions, sum{Partition: one.Partition, Against: one.Sum})
		}
	}
	if len(all.Partitions) == 0 {
		return sums{}, errors.New("has no checksum of a topic that is compared")
	}
	return all, nil
}

// workOut fills the partitions in, some at a time.
func (all *sums) workOut(ctx context.Context, r verify.Reader, o verify.Options) {
	var taken atomic.Int64
	var workers sync.WaitGroup
	for range min(o.Parallelism, len(all.Partitions)) {
		workers.Go(func() {
			for i := taken.Add(1) - 1; i < int64(len(all.Partitions)); i = taken.Add(1) - 1 {
				all.Partitions[i].workOut(ctx, r, o)
			}
		})
	}
	workers.Wait()
	all.Equal = true
	for _, one := range all.Partitions {
		all.Equal = all.Equal && one.Equal
	}
}

func (s *sum) workOut(ctx context.Context, r verify.Reader, o verify.Options) {
	if s.Against != nil {
		o.Span = func(context.Context, cluster.Partition) (cluster.Span, error) { return s.Against.Span, nil }
	}
	got, err := verify.Total(ctx, r, s.Partition, &o)
	if err == nil {
		s.Sum = &got
		err = s.comparable()
	}
	if s.err = err; err != nil {
		s.Error = err.Error()
		return
	}
	s.Equal = s.Against == nil || *s.Sum == *s.Against
}

// comparable says why two checksums cannot tell anything.
func (s *sum) comparable() error {
	switch {
	case s.Against == nil:
	case s.Sum.Span != s.Against.Span:
		return fmt.Errorf("%v: only %v is here of %v", s.Partition, s.Sum.Span, s.Against.Span)
	case s.Sum.Undecided > 0 || s.Against.Undecided > 0:
		return fmt.Errorf("%v: transactions are open: compare again when they have ended", s.Partition)
	}
	return nil
}

func (s *sum) result() string {
	switch {
	case s.err != nil:
		return "NOT COMPARED: " + s.Error
	case !s.Equal:
		return "DIFFERENT"
	case s.Against != nil:
		return "equal"
	case s.Sum.Undecided > 0:
		return plural(s.Sum.Undecided, "record") + " of open transactions left out"
	}
	return ""
}

func (all *sums) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return encode(out, all)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tOFFSETS\tRECORDS\tCHECKSUM\tRESULT")
	for i := range all.Partitions {
		one := &all.Partitions[i]
		span, records, text := "-", "-", "-"
		if one.Sum != nil {
			span, records, text = one.Sum.Span.String(), thousands(one.Sum.Records), one.Sum.Sum.String()
		}
		fmt.Fprintf(w, "%v\t%s\t%s\t%s\t%s\n", one.Partition, span, records, text, printable(one.result()))
	}
	return w.Flush()
}

func (all *sums) verdict() error {
	n := 0
	var errs []error
	for _, one := range all.Partitions {
		if one.err != nil {
			errs = append(errs, one.err)
		} else if !one.Equal {
			n++
		}
	}
	err := errors.Join(errs...)
	if n > 0 {
		return &outcome{exitDifferent, errors.Join(fmt.Errorf("%d of %s different", n, plural(int64(len(all.Partitions)), "partition")), err)}
	}
	if err != nil {
		return failed(err)
	}
	return nil
}
