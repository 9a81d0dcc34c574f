package fetcher

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// TestTakesOldFormats: what was written before format 2 came goes on in the same bytes to
// a destination that takes it, and only there.
func TestTakesOldFormats(t *testing.T) {
	all := Traits{OldFormats: true, Gaps: true, LogAppendTime: true}
	single := func(o int64) []byte { return zoo.OldMessage(1, aged(o, 1, nil)[0], false) }
	spoilt := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)-1] ^= 1
		return b
	}
	for name, c := range map[string]struct {
		next, logStart int64
		epoch          int32
		leap           bool
		traits         Traits
		in             [][]byte
		want           string
		how            outcome
		err            error
		skip           cluster.Span
	}{
		"single ones and wrappers": {in: [][]byte{single(0), single(1), wrapped(2, 10), wrapped(12, 5)}, want: "[0,1) [1,2) [2,12) [12,17)"},
		"then an epoch":            {in: [][]byte{single(0), plain(1, 3, 5, 0)}, want: "[0,1)", how: newEpoch},
		"behind an epoch":          {epoch: 3, in: [][]byte{single(0)}, how: oldFormat},
		"not taken there":          {traits: Traits{Gaps: true, LogAppendTime: true}, in: [][]byte{single(0)}, how: oldFormat},
		"a gap":                    {in: [][]byte{single(3), single(9)}, want: "[3,4) [9,10)"},
		"a gap before a wrapper":   {next: 2, in: [][]byte{wrapped(5, 3)}, want: "[5,8)"},
		"not decompressed again":   {in: [][]byte{wrapped(0, 5), wrapped(7, 3)}, want: "[0,5) [5,10)"}, // and a gap
		"what is there already":    {next: 12, in: [][]byte{single(0), wrapped(2, 10), wrapped(12, 5)}, want: "[12,17)"},
		"inside of a wrapper":      {next: 5, in: [][]byte{wrapped(2, 10)}, how: bad, err: cluster.ErrDiverged},
		"spoilt":                   {in: [][]byte{single(0), spoilt(single(1))}, want: "[0,1)", how: bad, err: cluster.ErrCorrupt},
		"a wrapper is spoilt":      {in: [][]byte{spoilt(wrapped(0, 5))}, how: bad, err: cluster.ErrCorrupt},
		"deleted meanwhile":        {logStart: 6, in: [][]byte{wrapped(6, 2)}, how: bad, err: cluster.ErrRetention},
		"deleted, and gone over":   {logStart: 6, leap: true, in: [][]byte{wrapped(6, 2)}, want: "[6,8)", skip: cluster.Span{To: 6}},
	} {
		if c.traits == (Traits{}) {
			c.traits = all
		}
		if c.epoch == 0 {
			c.epoch = cluster.NoEpoch
		}
		tr := newTracker(Assignment{Stretch: Stretch{Partition: part(0)}, Next: c.next, LastEpoch: c.epoch}, 1<<20)
		tr.board.LogStart.Store(c.logStart)
		tr.board.Ceiling.Store(100)
		tr.leader.Epoch, tr.leap = 5, c.leap
		w := batch.Walk(slices.Concat(c.in...))
		got, how, err := tr.take(&w, nil, c.traits, new(visibility))
		spans, sent := "", []byte(nil)
		for _, b := range got {
			spans += fmt.Sprintf(" [%d,%d)", b.Base, b.Next)
			sent = append(sent, b.Bytes...)
			if b.Epoch != cluster.NoEpoch || b.MaxTimestamp != 1_700_000_000_000+b.Next-1 {
				t.Errorf("%s: %+v", name, b)
			}
		}
		if len(spans) > 0 {
			spans = spans[1:]
		}
		if spans != c.want || how != c.how || !errors.Is(err, c.err) || tr.skip != c.skip || !bytes.Contains(slices.Concat(c.in...), sent) {
			t.Errorf("%s: took %q, want %q; outcome %d, want %d; %v; skipped %v", name, spans, c.want, how, c.how, err, tr.skip)
		}
	}
}

// TestOldFormatsAreCopied: a log that has lived through the formats is the same afterwards.
func TestOldFormatsAreCopied(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.f.traits = Traits{OldFormats: true, Gaps: true, LogAppendTime: true}
		w.dst.traits = w.f.traits
		w.src.create(p, 1)
		w.src.update(func() { oldLog(w.src.logs[p]) })
		w.assign(1, p)
		w.within(time.Minute, "all copied", func() bool { return w.dst.end(p) == 23 })
		w.same(time.Second, p)
	})
}
