package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/verify"
)

// nothingShared: the source has records, and of none of them it is known whether
// the destination has the same.
func nothingShared(r verify.Report) bool {
	common := min(r.Source.HighWatermark, r.Destination.HighWatermark) - max(r.Source.LogStart, r.Destination.LogStart)
	return r.Error == "" && common <= 0 && r.Source.HighWatermark > r.Source.LogStart
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
	case r.Error != "" && r.Different == 0:
		return "NOT COMPARED: " + r.Error
	case r.Shift != nil && r.Different == 0:
		return fmt.Sprintf("DIFFERENT: %v", r.Shift)
	case r.Shift != nil:
		return fmt.Sprintf("DIFFERENT: %s; %v", plural(r.Different, "difference"), r.Shift)
	case r.Different > 0:
		return fmt.Sprintf("DIFFERENT: %s; %v", plural(r.Different, "difference"), r.Differences[0])
	case nothingShared(r):
		return "DIFFERENT: nothing in common"
	}
	text := "equal"
	if !r.EndsEqual {
		text = "equal where both have records"
	}
	if r.Sampled > 0 {
		text += fmt.Sprintf(", of %s looked at", plural(r.Sampled, "offset"))
	}
	return text
}

func printTable(out io.Writer, reports []verify.Report, sums bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "PARTITION\tSOURCE\tDESTINATION\tCOMPARED\tRECORDS\t"
	if sums {
		head += "CHECKSUM\t"
	}
	fmt.Fprintln(w, head+"RESULT")
	for _, r := range reports {
		sum := ""
		if sums {
			sum = sumOf(r) + "\t"
		}
		fmt.Fprintf(w, "%v\t%s\t%s\t%v\t%s\t%s%s\n", r.Partition, logOf(r.Source), logOf(r.Destination), r.Compared,
			thousands(r.Records), sum, printable(result(r)))
	}
	return w.Flush()
}

// sumOf is the checksum where both sides have the same.
func sumOf(r verify.Report) string {
	switch {
	case r.SourceSum == nil || r.DestinationSum == nil:
		return "-"
	case r.SourceSum.Sum != r.DestinationSum.Sum:
		return "not the same"
	}
	return r.SourceSum.Sum.String()
}

func logOf(o cluster.Offsets) string {
	return cluster.Span{From: o.LogStart, To: o.HighWatermark}.String()
}

// sampled is a sample as it stands in JSON.
type sampled struct {
	Fraction float64 `json:"fraction"`
	Seed     uint64  `json:"seed"`
}

func sampledOf(s *verify.Sample) *sampled {
	if s == nil {
		return nil
	}
	return &sampled{s.Fraction, s.Seed}
}

func printJSON(out io.Writer, reports []verify.Report, sample *verify.Sample, took time.Duration) error {
	type entry struct {
		verify.Report
		Equal bool `json:"equal"` // false also where nothing is in common
	}
	all := struct {
		Equal      bool     `json:"equal"`
		Seconds    float64  `json:"seconds"`
		Sample     *sampled `json:"sample,omitempty"`
		Partitions []entry  `json:"partitions"`
	}{Equal: true, Seconds: took.Seconds(), Sample: sampledOf(sample), Partitions: []entry{}}
	for _, r := range reports {
		all.Equal = all.Equal && equal(r)
		all.Partitions = append(all.Partitions, entry{r, equal(r)})
	}
	return encode(out, all)
}

func encode(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
