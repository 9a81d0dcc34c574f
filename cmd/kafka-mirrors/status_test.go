package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

func at(seconds float64) time.Time {
	return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// healthy is a mirror that copied n records of 100 bytes.
func healthy(seconds float64, n int64) mirror.Status {
	synced := at(0)
	return mirror.Status{
		Synced: &synced, Mirror: "dr", Time: at(seconds), Running: true, Topics: 2, Partitions: 1200, Health: "ok", Lag: 1234567,
		States:  map[coordinator.State]int{coordinator.StateMirroring: 1199, coordinator.StatePaused: 1, coordinator.StateFailed: 0},
		Records: n, Bytes: n * 100,
	}
}

func failedPartition(n int32, reason string, retryIn time.Duration) mirror.PartitionStatus {
	p := mirror.PartitionStatus{
		Partition: cluster.Partition{Topic: "orders", Partition: n}, State: coordinator.StateFailed, Reason: reason, Attempts: 2,
	}
	if retryIn > 0 {
		when := at(10).Add(retryIn)
		p.Retriable, p.RetryAt = true, &when
	}
	return p
}

// sick has everything that can be wrong.
func sick() mirror.Status {
	s := healthy(10, 0)
	s.Health, s.Syncs = "failed", []mirror.SyncStatus{{Kind: mirror.SyncTopics, Error: "source topics: no broker answers"}}
	s.States = map[coordinator.State]int{coordinator.StateFailed: 2, coordinator.StateMirroring: 3}
	s.Worst = []mirror.PartitionStatus{
		failedPartition(0, "the log\nhas diverged\x1b[2J", 0), failedPartition(7, "timeout", 8*time.Second),
		{Partition: cluster.Partition{Topic: "orders", Partition: 3}, State: coordinator.StateMirroring, Reason: "no leader"},
		{Partition: cluster.Partition{Topic: "orders", Partition: 4}, State: coordinator.StateMirroring},
	}
	s.Refused = map[string]string{"payments": "has 3 partitions", "audit": "is not empty"}
	s.Missing = []string{"invoices"}
	return s
}

// filled has a partition whose log start is being filled.
func filled() mirror.Status {
	s := healthy(10, 0)
	s.Worst = []mirror.PartitionStatus{{
		Partition: cluster.Partition{Topic: "orders", Partition: 2}, State: coordinator.StateLogAlignment,
		Filling: &fetcher.Filling{To: 5_000_000_000, At: 1_250_000_000, Rate: 10_000_000, Measured: true},
	}}
	return s
}

func TestBlock(t *testing.T) {
	tests := []struct {
		name        string
		now, before mirror.Status
		width       int
		want        string
	}{
		{"first look", healthy(10, 500), mirror.Status{}, 200, `
dr: ok | lag 1,234,567 records | 0.00 MB/s, 0 records/s | 2 topics, 1,199 MIRRORING, 1 PAUSED`},
		{"nothing known", mirror.Status{Mirror: "dr", Health: "ok"}, mirror.Status{}, 200, `
dr: starting | lag 0 records | 0.00 MB/s, 0 records/s | 0 topics`},
		{"rates", healthy(12, 1_000_500), healthy(10, 500), 200, `
dr: ok | lag 1,234,567 records | 50.0 MB/s, 500,000 records/s | 2 topics, 1,199 MIRRORING, 1 PAUSED`},
		{"losses", lossy(10, 5, 1200), mirror.Status{}, 200, `
dr: ok | lag 1,234,567 records | 0.00 MB/s, 0 records/s | 2 topics, 1,199 MIRRORING, 1 PAUSED | 5 skipped | 1,200 truncated`},
		{"own epochs", ownEpochs(10, 1100), mirror.Status{}, 200, `
dr: ok | lag 1,234,567 records | 0.00 MB/s, 0 records/s | 2 topics, 1,199 MIRRORING, 1 PAUSED | 1,100 with own epochs`},
		{"cut to the width", healthy(12, 1_000_500), healthy(10, 500), 40, `
dr: ok | lag 1,234,567 records | 50.0 …`},
		{"problems", sick(), mirror.Status{}, 200, `
dr: failed | lag 1,234,567 records | 0.00 MB/s, 0 records/s | 2 topics, 2 FAILED, 3 MIRRORING
  topics: source topics: no broker answers
  orders-0 FAILED (not tried again): the log has diverged [2J
  orders-7 FAILED (try 3 in 8 s): timeout
  orders-3 MIRRORING: no leader
  audit refused: is not empty
  and 2 more`},
		{"a log start", filled(), mirror.Status{}, 200, `
dr: ok | lag 1,234,567 records | 0.00 MB/s, 0 records/s | 2 topics, 1,199 MIRRORING, 1 PAUSED
  orders-2 filled from 0 to 5000000000, at 1250000000 (25 %), 10000000 offsets a second, about 6m15s left`},
		{"problems cut", sick(), mirror.Status{}, 24, `
dr: failed | lag 1,234…
  topics: source topic…
  orders-0 FAILED (not…
  orders-7 FAILED (try…
  orders-3 MIRRORING: …
  audit refused: is no…
  and 2 more`},
		{"a sliver", healthy(10, 0), mirror.Status{}, 1, "\n…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := "\n" + strings.Join(block(tt.now, tt.before, tt.width), "\n")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestProblemsBeyondWorst: a thousand failed partitions of which Status details
// a hundred.
func TestProblemsBeyondWorst(t *testing.T) {
	s := healthy(10, 0)
	s.States = map[coordinator.State]int{coordinator.StateFailed: 1000}
	for i := range int32(100) {
		s.Worst = append(s.Worst, failedPartition(i, "x", 0))
	}
	if got := problems(filled(), false); len(got) != 0 {
		t.Errorf("what changes every moment is among what stays: %q", got)
	}
	got := problems(s, false)
	if len(got) != problemLines+1 || got[problemLines] != "and 995 more" {
		t.Errorf("got %q", got)
	}
}

// lossy has offsets that the destination lacks, and some that it has lost.
func lossy(seconds float64, skipped, truncated int64) mirror.Status {
	s := healthy(seconds, 0)
	s.Skipped, s.Truncated = skipped, truncated
	return s
}

// ownEpochs has partitions whose log does not get the source's leader epochs.
func ownEpochs(seconds float64, stamped int) mirror.Status {
	s := healthy(seconds, 0)
	s.Stamped = stamped
	return s
}

func TestTotals(t *testing.T) {
	if got := totals(lossy(1, 1200, 0), 0); !strings.HasSuffix(got, ", 1 PAUSED | 1,200 skipped") {
		t.Error(got)
	}
	got := totals(healthy(10, 1), 72*time.Second+400*time.Millisecond)
	want := "dr: stopped after 1m12s | 1 record, 0.00 MB copied | lag 1,234,567 records | 2 topics, 1,199 MIRRORING, 1 PAUSED"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 100200300: "100,200,300"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) is %s, want %s", n, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0.00", 12_345: "0.01", 9_990_000: "9.99", 12_340_000: "12.3", 1_234_000_000: "1,234"} {
		if got := megabytes(n); got != want {
			t.Errorf("megabytes(%v) is %s, want %s", n, got, want)
		}
	}
}

// TestPlain: outside a terminal a line comes when something changed, and after
// ten seconds.
func TestPlain(t *testing.T) {
	var out, errs output
	s := &screen{streams: streams{out: &out, err: &errs, width: func() int { return 0 }}}
	idle := func(from, to float64, n int64) {
		for i := from; i <= to; i++ {
			s.status(healthy(i, n))
		}
	}
	idle(0, 9, 0)    // one line, at 0
	idle(10, 12, 0)  // one, at 10
	idle(13, 14, 50) // one, at 13: records were copied
	bad := sick()
	bad.Time = at(15)
	s.status(bad) // one with its problems
	bad.Time = at(16)
	s.status(bad) // nothing: only the time until the retry is another
	s.end("done")
	want := `2026-05-01T12:00:00Z dr: ok | lag 1,234,567 records | 0.00 MB/s, 0 records/s | 2 topics, 1,199 MIRRORING, 1 PAUSED
2026-05-01T12:00:10Z dr: ok | lag 1,234,567 records | 0.00 MB/s, 0 records/s | 2 topics, 1,199 MIRRORING, 1 PAUSED
2026-05-01T12:00:13Z dr: ok | lag 1,234,567 records | 0.01 MB/s, 50 records/s | 2 topics, 1,199 MIRRORING, 1 PAUSED
2026-05-01T12:00:15Z dr: failed | lag 1,234,567 records | 0.00 MB/s, 0 records/s | 2 topics, 2 FAILED, 3 MIRRORING
2026-05-01T12:00:15Z topics: source topics: no broker answers
2026-05-01T12:00:15Z orders-0 FAILED: the log has diverged [2J
2026-05-01T12:00:15Z orders-7 FAILED: timeout
2026-05-01T12:00:15Z orders-3 MIRRORING: no leader
2026-05-01T12:00:15Z audit refused: is not empty
2026-05-01T12:00:15Z and 2 more
done
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestTerminal: what was drawn is taken back before anything else is written.
func TestTerminal(t *testing.T) {
	var out output
	width := 30
	s := &screen{streams: streams{out: &out, err: &out, width: func() int { return width }}}
	s.status(healthy(0, 0))
	two := healthy(1, 0)
	two.Missing = []string{"invoices"}
	s.status(two)
	s.Write([]byte("an event\n"))
	width = 10 // both lines take three rows now
	s.end("the end")
	line, gone := "dr: ok | lag 1,234,567 recor…", "\r\x1b[J"
	want := line + gone + line + "\n  invoices: not at the source" +
		"\r\x1b[1A\x1b[J" + "an event\n" + line + "\n  invoices: not at the source" + "\r\x1b[5A\x1b[J" + "the end\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestEventLines(t *testing.T) {
	p := cluster.Partition{Topic: "orders", Partition: 3}
	fire := func(e mirror.Events) {
		e.State(mirror.StateEvent{Partition: p, From: "MIRRORING", To: "FAILED", Offset: 17, Err: cluster.ErrDiverged})
		e.State(mirror.StateEvent{Partition: p, From: "FAILED", To: "LOG_ALIGNMENT", Offset: -1})
		e.State(mirror.StateEvent{Partition: p, From: "LOG_ALIGNMENT", To: "MIRRORING", Offset: -1})
		e.Stalled(mirror.StalledEvent{Partition: p, Since: 31200 * time.Millisecond})
		e.Trimmed(mirror.TrimmedEvent{Partition: p, LogStart: 9})
		e.Skipped(mirror.SkippedEvent{Partition: p, Span: cluster.Span{From: 4, To: 9}})
		e.Truncated(mirror.TruncatedEvent{Partition: p, Span: cluster.Span{From: 17, To: 20}, Why: "cut at 17: x"})
		e.Aborted(mirror.AbortedEvent{Partition: p, Producers: []int64{4001, 7}})
		e.Producers(mirror.ProducersEvent{From: 1_004_000})
		e.Topic(mirror.TopicEvent{Topic: "orders"})
		e.Topic(mirror.TopicEvent{Topic: "payments", Err: cluster.ErrAuthorization})
		e.Config(mirror.ConfigEvent{Topic: "orders", Changes: []topics.Altered{
			{Name: "retention.ms", To: &[]string{"5"}[0], Drift: true}, {Name: "segment.ms"},
		}})
		e.Sync(mirror.SyncEvent{Kind: mirror.SyncTopics, Notes: []string{"0 topics matched"}})
		places := []offsets.Place{{Partition: p, Source: 9, Destination: 7, Ours: 5}, {Partition: p, Source: 1, Destination: 2}}
		e.Group(mirror.GroupEvent{GroupLeft: mirror.GroupLeft{Group: "app", Why: mirror.LeftHeld, Places: places, Count: 2}})
		e.Group(mirror.GroupEvent{GroupLeft: mirror.GroupLeft{Group: "app", Why: mirror.LeftClamped, Places: places[:1], Count: 1}, Was: mirror.LeftHeld})
		e.Group(mirror.GroupEvent{GroupLeft: mirror.GroupLeft{Group: "app"}, Was: mirror.LeftClamped})
		e.Group(mirror.GroupEvent{GroupLeft: mirror.GroupLeft{Group: "web"}, Was: mirror.LeftActive})
		e.Groups(mirror.GroupsEvent{Report: offsets.Report{Groups: 2, Offsets: 3}})
		e.Groups(mirror.GroupsEvent{Last: true, Report: offsets.Report{Groups: 1, Offsets: 12,
			Clamped: map[string][]offsets.Place{"app": places}, Active: map[string][]offsets.Place{"web": places[:1]},
			Failed: map[string]error{"billing": cluster.ErrTimeout}}})
	}
	few := []string{
		"orders-3 MIRRORING -> FAILED at offset 17: " + cluster.ErrDiverged.Error(),
		"orders-3 FAILED -> LOG_ALIGNMENT",
		"orders-3 stalled: nothing copied for 31s though the source has more",
		"orders-3 skipped: the source deleted offsets [4,9) before they were copied",
		"orders-3 truncated: offsets [17,20) go: cut at 17: x",
		"orders-3 aborted: transactions that were open at the stop, of producer ids 4001, 7",
		"producers: ids from 1004000 on are others at the destination, those batches are not the source's byte for byte",
		"payments refused: " + cluster.ErrAuthorization.Error(),
		"orders: somebody has changed a setting here: put back to retention.ms=5", "0 topics matched",
		"group app left where it is: it has moved by itself (orders-3: 7, at the source 9; and 1 more)",
		"group web is where it is at the source",
		"groups: 12 offsets of 1 group copied, 2 lower than committed, 1 left, as the groups have members",
		"group billing not copied: " + cluster.ErrTimeout.Error(),
	}
	all := []string{few[0], few[1], "orders-3 LOG_ALIGNMENT -> MIRRORING", few[2],
		"orders-3 trimmed: begins at 9 now, as at the source", few[3], few[4], few[5], few[6], "orders created", few[7],
		few[8], "orders: segment.ms taken away", few[9], few[10], "group app is behind the source until its records are copied (orders-3: 7, at the source 9)",
		"group app is where it is at the source", few[11], "groups: 3 offsets of 2 groups copied", few[12], few[13]}
	for _, tt := range []struct {
		name string
		all  bool
		want []string
	}{{"those that need an eye", false, few}, {"all", true, all}} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			fire(events(func(line string) { got = append(got, line) }, tt.all))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
