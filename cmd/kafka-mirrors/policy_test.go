package main

import (
	"bytes"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/kafka"
)

// parted are two clusters after an unplanned failover from a to b: a has three
// records that b never got, b has four of its own.
func parted(t *testing.T) (a, b string) {
	a, b = newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
	part(t, a, b, "orders")
	return a, b
}

// part is that failover of a topic that a has.
func part(t *testing.T, a, b, topic string) {
	t.Helper()
	produce(t, a, topic, 0, 10, "first")
	c := start(t, 0, "run", "--name", "a-to-b", "--source", a, "--destination", b, "--topics", topic, "--state", "kafka")
	consume(t, b, topic, 0, 10)
	if _, err := stateAt(t, b, "").SaveIntents(t.Context(), "a-to-b", []coordinator.Intent{{Topic: topic, Desired: coordinator.WantStopped}}); err != nil {
		t.Fatal(err)
	}
	c.shows(t, "1 topic, 1 STOPPED")
	c.stop(t)
	produce(t, a, topic, 0, 3, "lost")
	produce(t, b, topic, 0, 4, "second")
}

// TestFailbackRebuilds: what the failover has lost is named and refused, then, where
// a rebuild is allowed, saved, told and cut.
func TestFailbackRebuilds(t *testing.T) {
	a, b := parted(t)
	back := []string{"run", "--name", "b-to-a", "--source", b, "--destination", a, "--topics", "orders", "--state", "kafka"}
	c := start(t, 0, back...)
	c.until(t, "refused", func() bool {
		return strings.Contains(c.err.String(), "orders-0 LOG_ALIGNMENT -> FAILED at offset 10: ") && strings.Contains(c.err.String(), "[10,13)")
	})
	c.stop(t)
	if got := consume(t, a, "orders", 0, 13); string(got[12].Value) != "lost-2" {
		t.Fatalf("a refused cut was made: %q", got[12].Value)
	}

	dir := filepath.Join(t.TempDir(), "salvage")
	c = start(t, 0, append(back, "--truncation", "rebuild", "--salvage", dir)...)
	c.until(t, "copied again", func() bool { return strings.Contains(c.out.String(), "1 topic, 1 MIRRORING | 3 truncated\n") })
	got, want := consume(t, a, "orders", 0, 14), consume(t, b, "orders", 0, 14)
	for i := range want {
		if got[i].Offset != want[i].Offset || string(got[i].Value) != string(want[i].Value) {
			t.Fatalf("record %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if last := c.stop(t); !strings.HasSuffix(last, "1 topic, 1 MIRRORING | 3 truncated") {
		t.Errorf("last line %q", last)
	}
	for _, line := range []string{
		" orders-0 salvaged: offsets [10,13) are in " + filepath.Join(dir, "b-to-a", "orders-0") + "\n",
		" orders-0 truncated: offsets [10,13) go: cut at 10: ",
	} {
		if !strings.Contains(c.err.String(), line) {
			t.Errorf("stderr lacks %q:\n%s", line, c.err.String())
		}
	}
	saved, err := os.ReadFile(filepath.Join(dir, "b-to-a", "orders-0", "00000000000000000010.log"))
	if err != nil || !bytes.Contains(saved, []byte("lost-0")) || !bytes.Contains(saved, []byte("lost-2")) {
		t.Errorf("%v: saved %q", err, saved)
	}
	equalTopics(t, b, a)
}

// TestSalvageHoldsUpACut: what cannot be saved is not cut.
func TestSalvageHoldsUpACut(t *testing.T) {
	a, b := parted(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "b-to-a"), nil, 0o600); err != nil { // where a folder would be made
		t.Fatal(err)
	}
	c := start(t, 0, "run", "--name", "b-to-a", "--source", b, "--destination", a, "--topics", "orders", "--state", "kafka",
		"--truncation", "rebuild", "--salvage", dir)
	c.until(t, "held up", func() bool { return strings.Contains(c.err.String(), "salvage of offsets [10,13): ") })
	c.stop(t)
	if got := consume(t, a, "orders", 0, 13); string(got[12].Value) != "lost-2" {
		t.Errorf("cut all the same: %q", got[12].Value)
	}
	if strings.Contains(c.err.String(), "truncated:") {
		t.Errorf("a cut is told that was not made:\n%s", c.err.String())
	}
}

func TestPolicyApplies(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	type result struct {
		Start            mirror.Start
		Gap              fetcher.RetentionGap
		Truncation       kafka.Truncation
		Fill             kafka.GapFill
		MaxStartFill     int64
		Unclean          []string
		Discard, Scratch bool
		Salvages         bool
	}
	tests := []struct {
		name string
		args []string
		want result
	}{
		{"defaults", nil, result{Salvages: true}},
		{"all", []string{"--start", "latest", "--retention-gap", "fail", "--truncation", "rebuild", "--unclean-recovery", "a,b.*",
			"--discard-local-writes", "--scratch", "--no-salvage", "--gap-fill", "phantoms", "--max-start-fill", "5000000000"},
			result{mirror.Start{Latest: true}, fetcher.RetentionFail, kafka.Rebuild, kafka.GapPhantoms, 5_000_000_000, []string{"a", "b.*"}, true, true, false}},
		{"cut by joining", []string{"--truncation", "join", "--unclean-recovery", "a"}, result{Truncation: kafka.Join, Unclean: []string{"a"}, Salvages: true}},
		{"a time", []string{"--start", "2026-05-01T14:00:00+02:00", "--retention-gap", "continue", "--truncation", "refuse"},
			result{Start: mirror.Start{Time: noon}, Salvages: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newRun(streams{})
			f := &policyFlags{}
			c.ResetFlags()
			f.register(c)
			if err := c.ParseFlags(tt.args); err != nil {
				t.Fatal(err)
			}
			var o mirror.Options
			var d kafka.Config
			if err := f.apply(&o, &d, tt.name == "cut by joining", nil); err != nil {
				t.Fatal(err)
			}
			got := result{o.Start, o.Fetch.RetentionGap, d.Truncation, d.GapFill, d.MaxStartFill, o.UncleanRecovery, o.DiscardLocalWrites, o.Scratch, o.Salvage != nil}
			if !got.Start.Time.IsZero() {
				got.Start.Time = got.Start.Time.UTC()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSalvager(t *testing.T) {
	dir := t.TempDir()
	var printed []string
	save, err := (&policyFlags{salvage: dir}).salvager(func(line string) { printed = append(printed, line) })
	if err != nil {
		t.Fatal(err)
	}
	tail := mirror.Tail{
		Mirror: "dr", Partition: cluster.Partition{Topic: "orders", Partition: 3}, Span: cluster.Span{From: 7, To: 9},
		Batches: func(yield func([]byte, error) bool) { yield([]byte("tail"), nil) },
	}
	if err := save(t.Context(), tail); err != nil {
		t.Fatal(err)
	}
	tail.Batches = iter.Seq2[[]byte, error](func(yield func([]byte, error) bool) { yield(nil, errors.New("gone")) })
	if err := save(t.Context(), tail); err == nil || err.Error() != "gone" {
		t.Errorf("a tail that cannot be read: %v", err)
	}
	want := []string{"orders-3 salvaged: offsets [7,9) are in " + filepath.Join(dir, "dr", "orders-3")}
	if diff := cmp.Diff(want, printed); diff != "" {
		t.Error(diff)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "dr", "orders-3", "00000000000000000007.log")); string(text) != "tail" {
		t.Errorf("%v: %q", err, text)
	}
}
