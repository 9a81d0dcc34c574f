package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestRun is what a reader of the example sees: a line for each partition, the
// failover, and the end within seconds.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, &out, false); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	text := out.String()
	row := regexp.MustCompile(`(?m)^(orders|payments|audit\.events)-[01] +\[0,(\d+)\) +\[0,(\d+)\) +(\d+)  equal$`)
	rows := row.FindAllStringSubmatch(text, -1)
	if len(rows) != partitions*len(topicNames) {
		t.Fatalf("%d equal partitions, want %d:\n%s", len(rows), partitions*len(topicNames), text)
	}
	for _, r := range rows {
		if r[2] != r[3] || r[3] != r[4] || len(r[2]) < 4 {
			t.Errorf("partition's figures differ: %s", r[0])
		}
	}
	for _, want := range []string{
		"source       127.0.0.1:", "destination  127.0.0.1:", "9000 records in 3 topics at the source",
		`failover: group "billing" read 2000 records of orders at the source, which is gone now`,
		"none missed, none twice", "the destination is writable", "proven in ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	if strings.Contains(text, "DIFFERENT") {
		t.Errorf("clusters differ:\n%s", text)
	}
}

// TestContiguous: the proof notices what is missing, doubled or moved.
func TestContiguous(t *testing.T) {
	read := func(partition int32, from, to int64, total int) reading {
		r := reading{seen: map[at]int{}, first: map[int32]int64{partition: from}, next: map[int32]int64{partition: to}, total: total}
		for o := from; o < to; o++ {
			r.seen[at{partition, o}]++
		}
		return r
	}
	double := read(0, 5, 10, 10)
	double.seen[at{0, 7}]++
	for _, tc := range []struct {
		name          string
		first, second reading
		ok            bool
	}{
		{"all, once", read(0, 0, 5, 10), read(0, 5, 10, 10), true},
		{"gap between", read(0, 0, 5, 10), read(0, 6, 10, 10), false},
		{"read twice", read(0, 0, 5, 10), read(0, 4, 10, 10), false},
		{"one is doubled", read(0, 0, 5, 10), double, false},
		{"end is missing", read(0, 0, 5, 10), read(0, 5, 9, 10), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := contiguous(tc.first, tc.second); (err == nil) != tc.ok {
				t.Errorf("contiguous: %v", err)
			}
		})
	}
}
