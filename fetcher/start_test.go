package fetcher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// timesOf makes a source that finds records by time.
type timesOf struct {
	*sourceCluster
	offset int64
	err    error
	asked  []int64
}

func (s *timesOf) OffsetsForTime(_ context.Context, ps []cluster.Partition, ms int64) ([]TimeAnswer, error) {
	s.asked = append(s.asked, ms)
	return []TimeAnswer{{Offset: s.offset, Err: s.err}}, nil
}

func TestAlignStartOption_C1_5_C1_11(t *testing.T) {
	when := time.UnixMilli(1_700_000_000_042)
	for _, c := range []struct {
		name    string
		start   Start
		found   int64
		ours    [][]byte
		target  Target
		from    int64 // log start of the source
		next    int64
		started []int64
	}{
		{name: "earliest", next: 0},
		{name: "latest", start: Start{Latest: true}, next: 100, started: []int64{100}},
		{name: "at a time, inside a batch", start: Start{Time: when}, found: 42, next: 40, started: []int64{40}},
		{name: "past the end (C1.5)", start: Start{Time: when}, found: -1, next: 100, started: []int64{100}},
		{name: "before the log start", start: Start{Time: when}, found: 10, from: 30, next: 30, started: []int64{30}},
		{name: "set later: the log holds records (C1.11)", start: Start{Latest: true}, ours: tens(30, 0), next: 30},
		{name: "set later: the log was emptied since (C1.11)", start: Start{Latest: true}, target: Target{Aligned: true, Epochs: epoch.History{{Epoch: 0, Start: 0}}}, next: 0},
		{name: "set later: stopped before the first record", start: Start{Latest: true}, target: Target{Own: at(-1, 0)}, next: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := logs(t, tens(100, 0), c.ours)
			src.logs[part(0)].start = c.from
			times := &timesOf{sourceCluster: src, offset: c.found}
			c.target.Stretch.Partition, c.target.Policy.Start = part(0), c.start
			got := aligned(t.Context(), times, dst, dst, []Target{c.target})[0]
			if got.Err != nil || got.Next != c.next || got.Cut != -1 {
				t.Fatalf("next %d, cut %d, %v; want %d", got.Next, got.Cut, got.Err, c.next)
			}
			if diff := cmp.Diff(c.started, dst.started); diff != "" {
				t.Errorf("started at (-want +got):\n%s", diff)
			}
			if !c.start.Time.IsZero() && (len(times.asked) != 1 || times.asked[0] != 1_700_000_000_042) {
				t.Errorf("asked for times %v", times.asked)
			}
		})
	}
	for name, c := range map[string]struct {
		source func(*sourceCluster) Source
		want   error
	}{
		"a source that cannot": {func(s *sourceCluster) Source { return s }, errors.ErrUnsupported},
		"a source that fails":  {func(s *sourceCluster) Source { return &timesOf{sourceCluster: s, err: cluster.ErrTimeout} }, cluster.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := logs(t, tens(100, 0), nil)
			got := aligned(t.Context(), c.source(src), dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}, Policy: Policy{Start: Start{Time: when}}}})[0]
			if !errors.Is(got.Err, c.want) || dst.started != nil {
				t.Errorf("error %v, started %v", got.Err, dst.started)
			}
		})
	}
}
