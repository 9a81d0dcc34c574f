package fetcher

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// TestAlignALogThatFell: somebody else has led it in the middle of a stretch, in epoch 9.
// What was written there, and what the source has lost, want a permission each.
func TestAlignALogThatFell(t *testing.T) {
	ours := slices.Concat(grown("a", 0, 1, 1), grown("a", 20, 3))
	written := slices.Concat(ours, grown("x", 30, 9))
	lost := slices.Concat(ours[:2], grown("b", 20, 5, 5)) // by the source
	for _, c := range []struct {
		name         string
		theirs, here [][]byte
		discard      bool
		unclean      bool
		cut          int64
		err          error
		option       string
	}{
		{name: "nothing was written", theirs: ours, here: ours, cut: -1},
		{name: "the source went on", theirs: slices.Concat(ours, grown("a", 30, 3)), here: ours, cut: -1},
		{name: "written behind the source's end", theirs: ours, here: written, unclean: true, err: cluster.ErrForeignWrite, option: "DiscardLocalWrites"},
		{name: "written, the source went on", theirs: slices.Concat(ours, grown("a", 30, 3, 3)), here: written, err: cluster.ErrForeignWrite, option: "DiscardLocalWrites"},
		{name: "written and given up", theirs: slices.Concat(ours, grown("a", 30, 3)), here: written, discard: true, cut: 30},
		{name: "the source has lost records", theirs: lost, here: ours, discard: true, err: cluster.ErrTruncated, option: "UncleanRecovery"},
		{name: "the source has lost records, allowed", theirs: lost, here: ours, unclean: true, cut: 20},
		{name: "lost and written", theirs: lost, here: written, unclean: true, err: cluster.ErrForeignWrite, option: "DiscardLocalWrites"},
		{name: "lost and written, one is given up", theirs: lost, here: written, discard: true, err: cluster.ErrTruncated, option: "UncleanRecovery"},
		{name: "lost and written, both are given up", theirs: lost, here: written, unclean: true, discard: true, cut: 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := logs(t, c.theirs, c.here)
			src.logs[part(0)].leader.Epoch = 5
			dst.traits.ReadOnly, dst.traits.KeepsEpochs = true, true
			dst.with(part(0), func(l *destinationLog) { l.stopped = true })
			got := aligned(t.Context(), src, dst, dst, []Target{{
				Stretch: Stretch{Partition: part(0)}, Aligned: true, Epochs: epoch.History{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 20}},
				Policy: Policy{Unclean: c.unclean, DiscardLocalWrites: c.discard},
			}})[0]
			var off *cluster.OffsetError
			switch {
			case c.err == nil && (got.Err != nil || got.Cut != c.cut):
				t.Errorf("cut %d, %v; want %d", got.Cut, got.Err, c.cut)
			case c.err == nil:
			case !errors.As(got.Err, &off) || !errors.Is(off, c.err) || !strings.Contains(off.Detail, c.option) || off.Span.To != int64(10*len(c.here)):
				t.Errorf("cut %d, %v; want %v, by %s", got.Cut, got.Err, c.err, c.option)
			}
		})
	}
}
