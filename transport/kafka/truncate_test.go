package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/google/go-cmp/cmp"
)

// truncater is one that does nothing but remember.
type truncater struct {
	asked []fetcher.Cut
	err   error
}

func (t *truncater) Truncate(_ context.Context, cuts []fetcher.Cut) []error {
	t.asked = append(t.asked, cuts...)
	errs := make([]error, len(cuts))
	errs[len(cuts)-1] = t.err
	return errs
}

// TestTruncateJoin: cuts are made by others, answered in their order, and nothing lands
// afterwards until Ends was asked.
func TestTruncateJoin(t *testing.T) {
	f := fake(t, 1, "t", 2)
	others := &truncater{err: cluster.ErrUnavailable}
	c := open(t, f.ListenAddrs(), func(cfg *Config) { cfg.Truncation, cfg.Truncater = Join, others })
	if got := c.Traits().Truncation; got != fetcher.TruncateExact {
		t.Errorf("the trait is %v", got)
	}
	other := cluster.Partition{Topic: "t", Partition: 1}
	for _, p := range []cluster.Partition{p0, other} {
		beginAt(t, c, stretchOf(p))
		mustAppend(t, c, p, batchesAt(0, 1, 5, now()))
	}
	cuts := []fetcher.Cut{{Partition: p0, Offset: 3, End: 5}, {Partition: other, Offset: 2, End: 5}}
	errs := c.Truncate(t.Context(), cuts)
	if errs[0] != nil || !errors.Is(errs[1], cluster.ErrUnavailable) {
		t.Errorf("the answers are %v", errs)
	}
	if diff := cmp.Diff(cuts, others.asked); diff != "" {
		t.Errorf("asked for was (-want +got):\n%s", diff)
	}
	for _, p := range []cluster.Partition{p0, other} {
		if r := appendRun(t, c, p, batchesAt(5, 1, 5, now())); !errors.Is(r.Err, cluster.ErrOutOfOrder) && !errors.Is(r.Err, errHalted) {
			t.Errorf("%v: after a cut, before Ends: %+v", p, r)
		}
		if e := beginAt(t, c, stretchOf(p)); e.LogEnd != 5 {
			t.Errorf("%v: the log ends at %d", p, e.LogEnd)
		}
		mustAppend(t, c, p, batchesAt(5, 1, 5, now()))
	}
}

// TestTruncaterGoesWithJoin: one without the other is refused.
func TestTruncaterGoesWithJoin(t *testing.T) {
	for name, cfg := range map[string]Config{
		"Join alone":      {Truncation: Join},
		"Truncater alone": {Truncater: &truncater{}},
		"with Rebuild":    {Truncater: &truncater{}, Truncation: Rebuild},
	} {
		cfg.Bootstrap = []string{"a:1"}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "Truncater: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
