package fetcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
)

// grown is batches of ten records from offset 0, of the epochs given; values are v and
// the offset.
func grown(v string, from int64, epochs ...int32) (out [][]byte) {
	for i, e := range epochs {
		rs := make([]batch.Record, 10)
		base := from + 10*int64(i)
		for k := range rs {
			rs[k] = batch.Record{Offset: base + int64(k), Timestamp: 1_700_000_000_000 + base + int64(k), Value: []byte(v)}
		}
		out = append(out, batch.Encode(batch.Spec{Base: base, LeaderEpoch: e, Records: rs}))
	}
	return out
}

// TestAlignARunningStretch: the source has lost what was mirrored (C10.3, E4).
func TestAlignARunningStretch(t *testing.T) {
	h := func(starts ...epoch.Start) epoch.History { return starts }
	e1, e3, e5 := epoch.Start{Epoch: 1, Start: 0}, epoch.Start{Epoch: 3, Start: 20}, epoch.Start{Epoch: 5, Start: 40}
	ours := slices.Concat(grown("a", 0, 1, 1), grown("a", 20, 3, 3), grown("a", 40, 5, 5))
	for _, c := range []struct {
		name     string
		theirs   [][]byte
		epochs   epoch.History
		unproven bool
		gaps     bool
		start    int64 // of ours
		cut      int64
		last     int32
		want     epoch.History
		asked    []int32
		how      string
	}{
		{name: "a prefix", theirs: slices.Concat(ours, grown("a", 60, 5, 6)), epochs: h(e1, e3, e5), cut: -1, last: 5, want: h(e1, e3, e5), asked: []int32{5}, how: "epochs agree"},
		{name: "shorter, and a new epoch (C10.3)", theirs: slices.Concat(ours[:5], grown("b", 50, 6, 6)), epochs: h(e1, e3, e5), cut: 50, last: 5, want: h(e1, e3, e5), asked: []int32{5}, how: "source's epoch 5 ends at 50"},
		{name: "E4 the epoch is gone", theirs: slices.Concat(ours[:3], grown("b", 30, 6, 6, 6, 6)), epochs: h(e1, e3, e5), cut: 30, last: 3, want: h(e1, e3), asked: []int32{5}},
		{name: "an epoch that we never saw", theirs: slices.Concat(ours[:1], grown("b", 10, 2, 2, 4, 4, 9)), epochs: h(e1, e3, e5), cut: 10, last: 1, want: h(e1), asked: []int32{5, 3, 1}},
		{name: "shorter than the destination", theirs: ours[:3], epochs: h(e1, e3, e5), cut: 30, last: 3, want: h(e1, e3), asked: []int32{5}},
		{name: "nothing in common", theirs: grown("b", 0, 0, 0, 9), epochs: h(e1, e3, e5), cut: 0, last: -1, asked: []int32{5}},
		{name: "the history has run out", theirs: slices.Concat(ours[:1], grown("b", 10, 2, 2, 2)), epochs: h(e3, e5), cut: 10, last: 1, want: h(epoch.Start{Epoch: 1, Start: 9}), asked: []int32{5}},
		{name: "grew past our end", theirs: slices.Concat(ours[:4], grown("b", 40, 7, 7, 7, 7, 7)), epochs: h(e1, e3, e5), cut: 40, last: 3, want: h(e1, e3), asked: []int32{5}},
		{name: "made anew with the same epochs (C2.3)", theirs: grown("b", 0, 1, 1, 3, 3, 5, 5, 5), epochs: h(e1, e3, e5), cut: 0, last: -1, asked: []int32{5}, how: "records differ"},
		{name: "unproven, a prefix", theirs: ours, epochs: h(epoch.Start{Epoch: 5, Start: 59}), unproven: true, cut: -1, last: 5, want: h(epoch.Start{Epoch: 5, Start: 59})},
		{name: "unproven, wrong, a prefix", theirs: ours, epochs: h(epoch.Start{Epoch: 4, Start: 59}), unproven: true, cut: -1, last: 5, want: h(epoch.Start{Epoch: 5, Start: 59})},
		{name: "unproven, parted", theirs: slices.Concat(ours[:3], grown("b", 30, 6, 6, 6, 6)), epochs: h(epoch.Start{Epoch: 4, Start: 59}), unproven: true, cut: 30, last: 3, want: h(epoch.Start{Epoch: 3, Start: 29}), how: "records differ"},
		{name: "history lost, parted", theirs: slices.Concat(ours[:2], grown("b", 20, 6)), cut: 20, last: 1, want: h(epoch.Start{Epoch: 1, Start: 19})},
		{name: "nothing of ours is left", theirs: ours[:1], epochs: h(e1, e3, e5), start: 40, cut: 10, last: 1, want: h(e1), asked: []int32{5}},
		{name: "compacted at the source", theirs: slices.Concat(ours[:2], ours[4:]), epochs: h(e1, e3, e5), gaps: true, cut: -1, last: 5, want: h(e1, e3, e5), asked: []int32{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(unclean bool) (Aligned, *sourceLog) {
				src, dst := logs(t, c.theirs, ours)
				l := src.logs[part(0)]
				l.leader.Epoch = max(batch.Header(c.theirs[len(c.theirs)-1]).LeaderEpoch(), 5)
				dst.traits.Gaps = c.gaps
				dst.with(part(0), func(l *destinationLog) { l.start = c.start })
				return aligned(t.Context(), src, dst, dst, []Target{{
					Stretch: Stretch{Partition: part(0)}, Aligned: true, Epochs: c.epochs, Unproven: c.unproven, Policy: Policy{Unclean: unclean},
				}})[0], l
			}
			got, src := run(true)
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			if got.Cut != c.cut || got.LastEpoch != c.last || got.Unproven || !strings.Contains(got.How, c.how) {
				t.Errorf("cut %d, epoch %d, unproven %v, how %q; want %d, %d, %q", got.Cut, got.LastEpoch, got.Unproven, got.How, c.cut, c.last, c.how)
			}
			if diff := cmp.Diff(c.want, got.Epochs); diff != "" && len(c.want)+len(got.Epochs) > 0 {
				t.Errorf("epochs (-want +got):\n%s", diff)
			}
			asked := slices.DeleteFunc(src.epochAsked, func(e int32) bool { return e == src.leader.Epoch && !slices.Contains(c.asked, e) })
			if c.asked != nil && !slices.Equal(slices.Compact(asked), c.asked) {
				t.Errorf("asked for epochs %v, want %v", asked, c.asked)
			}
			if c.cut < 0 {
				return
			}
			kind := cluster.ErrTruncated
			if c.how == "records differ" { // nothing shows that the source has lost anything
				kind = cluster.ErrDiverged
			}
			refused, _ := run(false)
			var off *cluster.OffsetError
			if !errors.As(refused.Err, &off) || !errors.Is(off, kind) || off.Span != (cluster.Span{From: c.cut, To: 60}) ||
				!strings.Contains(off.Detail, "UncleanRecovery") || refused.Cut != -1 {
				t.Errorf("without UncleanRecovery: cut %d, %v", refused.Cut, refused.Err)
			}
		})
	}
}

func TestAlignNeverCutsBehindAForeignStop(t *testing.T) {
	for _, aligned := range []bool{true, false} {
		src, dst := logs(t, slices.Concat(tens(20, 1), grown("b", 20, 1)), tens(40, 1))
		dst.with(part(0), func(l *destinationLog) { l.stopped, l.ours = true, true })
		target := Target{Stretch: Stretch{Partition: part(0)}, Aligned: aligned, Policy: Policy{Unclean: true}}
		out := make(chan Aligned, 1)
		Align(t.Context(), src, dst, dst, []Target{target}, func(_ int, a Aligned) { out <- a })
		if got := <-out; got.Err == nil || got.Cut != -1 {
			t.Errorf("aligned before: %v: cut %d, %v", aligned, got.Cut, got.Err)
		}
	}
}

func TestAlignWaitsForTheSourcesEpochs(t *testing.T) {
	target := Target{Stretch: Stretch{Partition: part(0)}, Aligned: true, Epochs: epoch.History{{Epoch: 1, Start: 0}}}
	t.Run("a leader that moves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src, dst := logs(t, tens(20, 1), tens(20, 1))
			l := src.logs[part(0)]
			l.leader.Epoch, l.epochErrs = 4, []error{cluster.ErrNotLeader, cluster.ErrUnavailable, cluster.ErrUnreachable}
			src.staleLeader[part(0)] = cluster.Leader{Broker: 1, Epoch: 3}
			time.AfterFunc(time.Second, func() { src.update(func() { clear(src.staleLeader) }) })
			if got := aligned(t.Context(), src, dst, dst, []Target{target})[0]; got.Err != nil || got.Cut != -1 {
				t.Errorf("cut %d, %v", got.Cut, got.Err)
			}
		})
	})
	t.Run("says what it waits for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src, dst := logs(t, tens(20, 1), tens(20, 1))
			src.logs[part(0)].epochErrs = slices.Repeat([]error{cluster.ErrUnavailable}, 1000)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			got := aligned(ctx, src, dst, dst, []Target{target})[0]
			if !errors.Is(got.Err, cluster.ErrUnavailable) || !strings.Contains(got.Err.Error(), "source has not said where epoch 1 ends") {
				t.Errorf("error %v", got.Err)
			}
			if n := len(src.logs[part(0)].epochAsked); n > 310 {
				t.Errorf("asked %d times in five minutes", n)
			}
		})
	})
	t.Run("what no look mends", func(t *testing.T) {
		src, dst := logs(t, tens(20, 1), tens(20, 1))
		src.logs[part(0)].epochErrs = []error{cluster.ErrAuthorization}
		if got := aligned(t.Context(), src, dst, dst, []Target{target})[0]; !errors.Is(got.Err, cluster.ErrAuthorization) {
			t.Errorf("error %v", got.Err)
		}
	})
	t.Run("a source that cannot tell", func(t *testing.T) {
		src, dst := logs(t, slices.Concat(tens(10, 1), grown("b", 10, 1)), tens(20, 1))
		src.logs[part(0)].epochErrs = []error{errors.ErrUnsupported}
		got := aligned(t.Context(), src, dst, dst, []Target{target})[0]
		if !errors.Is(got.Err, cluster.ErrDiverged) {
			t.Errorf("records were not compared: %v", got.Err)
		}
	})
}

// A high watermark that is behind the log end is no truncation.
func TestAlignWaitsForTheSourcesHighWatermark(t *testing.T) {
	for _, known := range []epoch.History{{{Epoch: 1, Start: 0}}, nil} {
		for _, comes := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				src, dst := logs(t, tens(40, 1), tens(40, 1))
				l := src.logs[part(0)]
				l.highWatermark, l.leader.Epoch = 20, 1
				if comes {
					time.AfterFunc(10*time.Second, func() { src.update(func() { l.highWatermark = -1 }) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				got := aligned(ctx, src, dst, dst, []Target{{
					Stretch: Stretch{Partition: part(0)}, Aligned: true, Epochs: known, Policy: Policy{Unclean: true},
				}})[0]
				switch {
				case comes && (got.Err != nil || got.Cut != -1 || got.Source.HighWatermark != 40):
					t.Errorf("cut %d, %v, source %v", got.Cut, got.Err, got.Source)
				case !comes && (!errors.Is(got.Err, cluster.ErrUnavailable) || !strings.Contains(got.Err.Error(), "20 stays below 40")):
					t.Errorf("error %v", got.Err)
				}
			})
		}
	}
}

// TestAlignFindsWhereLogsPart makes logs by dice that share a beginning, cut into
// batches in other ways, and compares with where they part by construction. The
// history is right, has lost its beginning, is wrong, or is gone.
func TestAlignFindsWhereLogsPart(t *testing.T) {
	for seed := range uint64(1500) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var theirs, ours [][]byte
		var h epoch.History
		e, next := int32(rnd.IntN(3)), int64(0)
		same := rnd.IntN(30)
		for range same {
			if rnd.IntN(5) == 0 {
				e += 1 + int32(rnd.IntN(2))
			}
			b := plain(next, 1+rnd.IntN(5), 5, e)
			h = h.Assign(e, next)
			theirs, ours = append(theirs, b), append(ours, b)
			next = batch.Header(b).Next()
		}
		common, lastCommon := next, int32(-1)
		if same > 0 {
			lastCommon = e
		}
		tail := func(log [][]byte, v string, n int, e int32, note bool) [][]byte {
			at := common
			for range n {
				if rnd.IntN(3) == 0 {
					e += 2
				}
				b := grown(v, at, e)[0]
				if note {
					h = h.Assign(e, at)
				}
				log, at = append(log, b), at+10
			}
			return log
		}
		mine, yours := rnd.IntN(4), rnd.IntN(6)
		ours = tail(ours, "ours", mine, e, true) // goes on in the last common epoch
		theirs = tail(theirs, "theirs", yours, e+1, false)
		known := Target{Stretch: Stretch{Partition: part(0)}, Aligned: true, Epochs: h, Policy: Policy{Unclean: true}}
		switch rnd.IntN(4) {
		case 0:
			known.Epochs = h[min(len(h), 1):]
		case 1:
			known.Epochs, known.Unproven = epoch.History{{Epoch: 1, Start: 0}}, true
		case 2:
			known.Epochs = nil
		}
		if len(ours) == 0 {
			continue
		}
		src, dst := logs(t, theirs, ours)
		l := src.logs[part(0)]
		l.leader.Epoch = 1000
		got := aligned(t.Context(), src, dst, dst, []Target{known})[0]
		want := int64(-1)
		if mine > 0 {
			want = common
		}
		if got.Err != nil || got.Cut != want || got.LastEpoch != lastCommon || got.Unproven {
			t.Fatalf("seed %d: cut %d, epoch %d, %v (%s); want %d and %d", seed, got.Cut, got.LastEpoch, got.Err, got.How, want, lastCommon)
		}
		if l.reads > 24 {
			t.Fatalf("seed %d: %d reads to compare %d batches", seed, l.reads, len(ours))
		}
	}
}
