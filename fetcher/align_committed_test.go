package fetcher

import (
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// scripted is the log of a script.
func scripted(t *testing.T, script string) (out [][]byte) {
	t.Helper()
	s := newSource(t)
	s.create(part(0), 1)
	s.script(part(0), script)
	for _, b := range s.logs[part(0)].batches {
		out = append(out, b.bytes)
	}
	return out
}

// copied is a log as a destination that fills gaps holds it: at hidden offsets fillers,
// elsewhere the batch without its producer.
func copied(log [][]byte, hidden ...int64) (out [][]byte) {
	for _, b := range log {
		h := batch.Header(slices.Clone(b))
		if slices.Contains(hidden, h.Base()) {
			out = append(out, filler(h.Base(), h.Next()))
			continue
		}
		h.Patch(batch.Patch{Base: h.Base(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, ClearAttributes: batch.AttrTransactional | batch.AttrControl})
		out = append(out, h)
	}
	return out
}

// What readers of committed records see decides: not what the logs hold (I1, I2).
func TestAlignComparesCommittedRecords_I2(t *testing.T) {
	const script = "paAapbCbp" // 0-1 plain, 2 aborted, 3 abort, 4-5 plain, 6 committed, 7 commit, 8-9 plain
	theirs := scripted(t, script)
	phantom := func(at int64) []byte { return phantoms(at, 1) }
	with := func(log [][]byte, at int64, b []byte) [][]byte {
		i := slices.IndexFunc(log, func(b []byte) bool { return batch.Header(b).Base() == at })
		return slices.Replace(slices.Clone(log), i, i+1, b)
	}
	for _, c := range []struct {
		name         string
		theirs, ours [][]byte
		at           int64 // of the difference; -1: none
	}{
		{"fillers where nothing is to be seen", theirs, copied(theirs, 2, 3, 7), -1},
		{"a part of it", theirs, copied(theirs, 2, 3, 7)[:4], -1},
		{"phantoms where nothing is to be seen", theirs, with(with(copied(theirs, 2, 3, 7), 2, phantom(2)), 7, phantom(7)), -1},
		{"a filler where another replica of the source still has a record", theirs, copied(theirs, 2, 3, 6, 7), -1},
		{"aborted records as they stand in the source's log", theirs[:3], copied(theirs[:3], 3), 2},
		{"a record where the source has a marker", theirs[:3], with(copied(theirs[:3], 2, 3), 3, plain(3, 1, 5, 0)), 3},
		{"a phantom where the source has a committed record", theirs, with(copied(theirs, 2, 3, 7), 6, phantom(6))[:6], 6},
		{"what is not decided at the source", scripted(t, "pa"), copied(scripted(t, "pa")), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := logs(t, c.theirs, c.ours)
			dst.traits = Traits{Gaps: true, Fills: true}
			dst.with(part(0), func(l *destinationLog) { l.ours = true })
			got := aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}}})[0]
			var at *cluster.OffsetError
			switch {
			case c.at == -1 && got.Err != nil:
				t.Errorf("%v, want no difference", got.Err)
			case c.at >= 0 && (!errors.As(got.Err, &at) || at.Span.From != c.at):
				t.Errorf("%v, want a difference at %d", got.Err, c.at)
			}
		})
	}
}

// A source that cannot say what was aborted: its transactional records neither agree nor
// disagree with anything.
func TestAlignWithoutCommittedReader(t *testing.T) {
	theirs := scripted(t, "paAap")
	src, dst := logs(t, theirs, copied(theirs[:3], 2, 3))
	dst.traits = Traits{Gaps: true, Fills: true}
	dst.with(part(0), func(l *destinationLog) { l.ours = true })
	mute := struct{ Source }{src}
	if got := aligned(t.Context(), mute, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}}})[0]; got.Err != nil {
		t.Error(got.Err)
	}
	src, dst = logs(t, theirs[1:3], copied(theirs[1:3])) // nothing else to compare
	dst.traits = Traits{Gaps: true, Fills: true}
	dst.with(part(0), func(l *destinationLog) { l.start = 2 })
	mute.Source = src
	if got := aligned(t.Context(), mute, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}}})[0]; !errors.Is(got.Err, cluster.ErrDiverged) && !errors.Is(got.Err, cluster.ErrNoPosition) {
		t.Errorf("aborted records were taken for evidence: %v", got.Err)
	}
}

// A destination that was stopped between two pieces of a batch is no reason to cut.
func TestAlignInsideABatchThatIsFilled(t *testing.T) {
	src, dst := logs(t, [][]byte{plain(0, 10, 5, 0)}, [][]byte{plain(0, 4, 5, 0)})
	dst.traits = Traits{Gaps: true, Fills: true}
	dst.with(part(0), func(l *destinationLog) { l.ours = true })
	if got := aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}, Aligned: true}})[0]; got.Err != nil || got.Cut != -1 || got.Next != 4 {
		t.Errorf("%+v", got)
	}
	dst.with(part(0), func(l *destinationLog) { l.start, l.batches = 4, nil })
	if got := aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}, Aligned: true}})[0]; got.Err != nil || got.Cut != -1 || got.Next != 4 {
		t.Errorf("emptied: %+v", got)
	}
}
