package main

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// sample is a mirror in which most has happened.
func sample() described {
	now := at(3600)
	newest, retry := now.Add(-90*time.Second), now.Add(7*time.Second)
	partition := func(n int32, state coordinator.State, end, lag int64) mirror.PartitionStatus {
		return mirror.PartitionStatus{Partition: cluster.Partition{Topic: "orders", Partition: n}, State: state, SourceEnd: end, DestinationEnd: end - lag, Lag: lag}
	}
	gone, again, late, stopped := partition(3, coordinator.StateFailed, -1, 0), partition(1, coordinator.StateFailed, 90, 10), partition(0, coordinator.StateMirroring, 120, 20), partition(2, coordinator.StateStopped, -1, 0)
	gone.Reason, gone.DestinationEnd, gone.Attempts = "source topic is deleted", 50, 1
	again.Reason, again.Retriable, again.Attempts, again.RetryAt, again.Truncated = "broker\tunreachable", true, 4, &retry, 6
	late.NewestRecord, late.Skipped = &newest, 5
	stopped.Position, stopped.DestinationEnd = &cluster.Position{Epoch: 3, Offset: 70}, 71
	def := coordinator.Definition{Name: "a-to-b", Revision: 4, Source: map[string]string{"bootstrap.servers": "a:9092", "sasl.jaas.config": "secret"},
		Destination: map[string]string{"gap.fill": "phantoms"}, Config: map[string]string{"retry.max": "1m"}, Include: []string{"ord.*", "none"}, Exclude: []string{"orders.test"},
		SourceID: "A", DestinationID: "B"}
	hideSecrets(&def)
	states := map[coordinator.State]int{coordinator.StateFailed: 2, coordinator.StateMirroring: 1, coordinator.StateStopped: 1}
	return described{Live: true, Description: mirror.Description{
		Overview: mirror.Overview{Name: "a-to-b", SourceID: "A", DestinationID: "B", Running: true, Revision: 4, States: states}, Definition: def,
		Status: mirror.Status{Time: now, Topics: 1, States: states, Health: "failed", Lag: 30, Skipped: 5, Truncated: 6, Missing: []string{"none"},
			Refused: map[string]string{"orders.x": "too few partitions"}, Worst: []mirror.PartitionStatus{gone, again, late, stopped}},
	}}
}

func TestDescribePrints(t *testing.T) {
	var out strings.Builder
	d := sample()
	if err := d.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `Mirror:      a-to-b
Source:      a:9092, cluster id A
Destination: cluster id B
Topics:      ord.*,none
Excluded:    orders.test
Settings:    gap.fill=phantoms retry.max=1m source.sasl.jaas.config=(hidden)
State:       failed, 30 records behind
Partitions:  1 topic, 2 FAILED, 1 MIRRORING, 1 STOPPED | 5 skipped | 6 truncated
Note:        orders.x refused: too few partitions
Note:        none: not at the source

TOPIC   PARTITION  STATE      ATTEMPTS   SOURCE-END  END  LAG  BEHIND  POSITION  SKIPPED  TRUNCATED  REASON
orders  3          FAILED     not again  -           50   -    -       -         0        0          source topic is deleted
orders  1          FAILED     4          90          80   10   -       -         0        6          broker unreachable
orders  0          MIRRORING  -          120         100  20   1m30s   -         5        0          -
orders  2          STOPPED    -          -           71   -    -       3/70      0        0          -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	d.keepFailed()
	if len(d.Status.Worst) != 2 {
		t.Errorf("failed are %+v", d.Status.Worst)
	}
}

// TestHideSecrets: what another program has stored in a definition is not shown.
func TestHideSecrets(t *testing.T) {
	const jaas = `PlainLoginModule required username="${env:USER}" password=`
	for value, hidden := range map[string]bool{
		"${file:/a:b}": false, jaas + `"${env:PASSWORD}";`: false, jaas + `"s3cret";`: true, "s3cret": true, "s3cret ${env:PASSWORD}": true,
	} {
		def := coordinator.Definition{Source: map[string]string{"sasl.jaas.config": value, "client.id": "s"}}
		hideSecrets(&def)
		if got := def.Source["sasl.jaas.config"]; (got == "(hidden)") != hidden || got != value && !hidden || def.Source["client.id"] != "s" {
			t.Errorf("%s is shown as %s", value, got)
		}
	}
}

// TestJSONKeys: the keys of --json that the page for operators lists, which scripts rely on, are there.
func TestJSONKeys(t *testing.T) {
	tags, seen := map[string]bool{}, map[reflect.Type]bool{}
	var collect func(reflect.Type)
	collect = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			collect(of.Elem())
		case reflect.Struct:
			if seen[of] {
				return
			}
			seen[of] = true
			for i := range of.NumField() {
				f := of.Field(i)
				if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "-" {
					tags[tag] = true
					collect(f.Type)
				}
			}
		}
	}
	collect(reflect.TypeFor[listed]())
	collect(reflect.TypeFor[described]())
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ = bytes.Cut(page, []byte("| key of an overview |"))
	keys := 0
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		named := cells[1]
		if !strings.Contains(cells[2], "failed") { // whose words are values
			named += cells[2]
		}
		for _, m := range regexp.MustCompile("`([a-zA-Z.]+)(\\[\\])?`").FindAllStringSubmatch(named, -1) {
			for key := range strings.SplitSeq(m[1], ".") {
				if keys++; !tags[key] {
					t.Errorf("%s, of the page, is not in the JSON", m[1])
				}
			}
		}
	}
	if keys < 40 {
		t.Errorf("the page lists %d keys", keys)
	}
}
