package lead

import (
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

func TestJudge(t *testing.T) {
	h := epoch.History{{Epoch: 3, Start: 10}, {Epoch: 6, Start: 20}}
	log := bounds{history: h, proven: true, ceiling: -1, start: 10, end: 30, owes: -1}
	with := func(change func(*bounds)) bounds {
		b := log
		change(&b)
		return b
	}
	unknown := with(func(b *bounds) { b.history, b.proven = nil, false })
	for _, c := range []struct {
		name      string
		b         bounds
		offset    int64
		last      int32
		code      int16
		diverging cluster.EpochEnd
	}{
		{"at the end", log, 30, 6, 0, noEpochEnd},
		{"behind", log, 25, 6, 0, noEpochEnd},
		{"at the end of an earlier epoch", log, 20, 3, 0, noEpochEnd},
		{"longer, in the same epoch", log, 31, 6, 0, cluster.EpochEnd{Epoch: 6, EndOffset: 30}},
		{"longer, in an earlier epoch", log, 25, 3, 0, cluster.EpochEnd{Epoch: 3, EndOffset: 20}},
		{"in an epoch between", log, 18, 5, 0, cluster.EpochEnd{Epoch: 3, EndOffset: 20}},
		{"in a later epoch", log, 30, 9, 0, cluster.EpochEnd{Epoch: 6, EndOffset: 30}},
		{"a later epoch without records", log, 20, 9, 0, cluster.EpochEnd{Epoch: 6, EndOffset: 30}},
		{"in an epoch before the first, behind it", log, 12, 1, 0, cluster.EpochEnd{Epoch: 1, EndOffset: 10}},
		{"in an epoch before the first, at the start", log, 10, 1, 0, noEpochEnd},
		{"empty, at the start", log, 10, -1, 0, noEpochEnd},
		{"below the start", log, 9, 3, OffsetOutOfRange, noEpochEnd},
		{"below the start in a later epoch", log, 9, 9, OffsetOutOfRange, noEpochEnd},
		{"behind the end without an epoch", log, 31, -1, OffsetOutOfRange, noEpochEnd},
		{"a cut", with(func(b *bounds) { b.owes = 15 }), 25, 6, 0, cluster.EpochEnd{Epoch: 6, EndOffset: 15}},
		{"a cut of a log without epochs", with(func(b *bounds) { b.owes = 15 }), 25, -1, 0, cluster.EpochEnd{Epoch: 0, EndOffset: 15}},
		{"a cut that is made", with(func(b *bounds) { b.owes = 15 }), 15, 3, 0, noEpochEnd},
		{"a cut below the start", with(func(b *bounds) { b.owes = 5 }), 9, 3, 0, cluster.EpochEnd{Epoch: 3, EndOffset: 5}},
		{"no history", unknown, 25, 4, 0, noEpochEnd},
		{"no history, too long", unknown, 31, 4, OffsetOutOfRange, noEpochEnd},
		{"no history, a ceiling", with(func(b *bounds) { b.history, b.proven, b.ceiling = nil, false, 4 }), 25, 5, 0, cluster.EpochEnd{Epoch: 4, EndOffset: 25}},
		{"no history, at the ceiling", with(func(b *bounds) { b.history, b.proven, b.ceiling = nil, false, 4 }), 25, 4, 0, noEpochEnd},
		{"above the ceiling, below the history", with(func(b *bounds) { b.ceiling = 1 }), 10, 2, 0, cluster.EpochEnd{Epoch: 1, EndOffset: 10}},
		{"known to be empty", with(func(b *bounds) { b.history, b.end = nil, 10 }), 25, 4, 0, cluster.EpochEnd{Epoch: 4, EndOffset: 10}},
		{"known to be empty, at the start", with(func(b *bounds) { b.history, b.end = nil, 10 }), 10, 4, 0, noEpochEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, diverging := judge(c.b, Fetch{Offset: c.offset, LastEpoch: c.last})
			if code != c.code || diverging != c.diverging {
				t.Errorf("got %d, %+v; want %d, %+v", code, diverging, c.code, c.diverging)
			}
		})
	}
}

// fellows are followers that hold so much, all alive and heard of now.
func fellows(now time.Time, holds ...int64) []follower {
	var out []follower
	for i, h := range holds {
		f := newFollower(int32(i + 1))
		f.heard, f.holds, f.offset, f.seen, f.last = h >= 0, h, h, now, 3
		out = append(out, f)
	}
	return out
}

func TestQuorumEnd(t *testing.T) {
	now := time.Now()
	dead := fellows(now, 30, 20, 10)
	dead[0].live = false
	for _, c := range []struct {
		name      string
		followers []follower
		quorum    int
		want      int64
	}{
		{"the longest", fellows(now, 10, 30, 20), 1, 30},
		{"two of three", fellows(now, 10, 30, 20), 2, 20},
		{"all", fellows(now, 10, 30, 20), 3, 10},
		{"one is not known", fellows(now, 10, -1, 20), 3, -1},
		{"one is dead", dead, 2, 10},
		{"nobody", nil, 1, -1},
		{"many", fellows(now, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 3, 8},
	} {
		if got := quorumEnd(c.followers, c.quorum); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestGathered(t *testing.T) {
	now := time.Now()
	then := now.Add(-time.Second)
	idle := func(n int, f []follower) []follower {
		f[n].seen = now.Add(-time.Minute)
		return f
	}
	dead := func(n int, f []follower) []follower {
		f[n].live = false
		return f
	}
	for _, c := range []struct {
		name      string
		followers []follower
		quorum    int
		want      bool
	}{
		{"all", fellows(now, 10, 20, 30), 2, true},
		{"one is waited for", fellows(now, 10, -1, 30), 2, false},
		{"one is idle", idle(1, fellows(now, 10, -1, 30)), 2, true},
		{"one is dead", dead(1, fellows(now, 10, -1, 30)), 2, true},
		{"one that answered is dead", dead(1, fellows(now, 10, 20, 30)), 2, true},
		{"a quorum may be among those away", idle(1, dead(0, fellows(now, -1, -1, 30))), 2, false},
		{"the only copy may be away", dead(1, fellows(now, 10, -1, 30)), 1, false},
		{"any one has all", idle(1, dead(0, fellows(now, -1, -1, 30))), 3, true},
		{"nobody there", nil, 1, false},
	} {
		if got := gathered(c.followers, c.quorum, then); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestEverywhere(t *testing.T) {
	now := time.Now()
	then := now.Add(-time.Second)
	for _, c := range []struct {
		name   string
		holds  []int64
		change func([]follower)
		want   bool
	}{
		{"all", []int64{5, 5, 5}, nil, true},
		{"one is not so", []int64{5, 6, 5}, nil, false},
		{"one that is not so is idle", []int64{5, 6, 5}, func(f []follower) { f[1].seen = then }, true},
		{"one that is not so is dead", []int64{5, 6, 5}, func(f []follower) { f[1].live = false }, true},
		{"one is not heard", []int64{5, 5, 5}, func(f []follower) { f[1].heard = false }, false},
		{"too few", []int64{5, 6, 6}, func(f []follower) { f[1].seen, f[2].live = then, false }, false},
		{"an idle one counts when it is so", []int64{5, 5, 6}, func(f []follower) { f[1].seen, f[2].live = then, false }, true},
		{"a dead one does not", []int64{5, 5, 6}, func(f []follower) { f[1].live, f[2].live = false, false }, false},
	} {
		f := fellows(now, c.holds...)
		if c.change != nil {
			c.change(f)
		}
		if got := everywhere(f, 2, then, func(f *follower) bool { return f.holds == 5 }); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLongest(t *testing.T) {
	now := time.Now()
	dead := fellows(now, 50, 20)
	dead[0].live = false
	stored := epoch.History{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 25}, {Epoch: 4, Start: 40}}
	for _, c := range []struct {
		name      string
		followers []follower
		stored    epoch.History
		end       int64
		want      epoch.History
	}{
		{"the longest", fellows(now, 20, 30, 10), stored, 30, stored[:2]},
		{"not a dead one", dead, stored, 20, stored[:1]},
		{"without a history", fellows(now, 30, 20, -1), nil, 30, epoch.History{{Epoch: 3, Start: 19}}},
		{"without a history, some are empty", fellows(now, 30, 0), nil, 30, epoch.History{{Epoch: 3, Start: 29}}},
		{"empty", fellows(now, 0, 0), nil, 0, nil},
	} {
		end, h := longest(c.followers, c.stored)
		if end != c.end || len(h) != len(c.want) || len(h) > 0 && h[len(h)-1] != c.want[len(h)-1] {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, end, h, c.end, c.want)
		}
	}
}

func TestDisputed(t *testing.T) {
	f := fellows(time.Now(), 10, 20, 30)
	if disputed(f, 0) {
		t.Error("all end in one epoch")
	}
	f[1].last = 4
	if !disputed(f, 0) {
		t.Error("two end in different epochs")
	}
	if disputed(f, 20) {
		t.Error("the one that differs has no record above the start")
	}
}
