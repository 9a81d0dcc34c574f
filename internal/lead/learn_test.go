package lead

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/internal/epoch"
)

// TestJoinedWith: what is read of a log completes what is known of its end, or is of another log.
func TestJoinedWith(t *testing.T) {
	for _, tt := range []struct {
		name            string
		h, before, want epoch.History
	}{
		{"the same epoch, from where it begins", epoch.History{{Epoch: 5, Start: 90}}, epoch.History{{Epoch: 2, Start: 10}, {Epoch: 5, Start: 40}}, epoch.History{{Epoch: 2, Start: 10}, {Epoch: 5, Start: 40}}},
		{"later ones stay", epoch.History{{Epoch: 5, Start: 90}, {Epoch: 7, Start: 95}}, epoch.History{{Epoch: 2, Start: 10}, {Epoch: 5, Start: 40}},
			epoch.History{{Epoch: 2, Start: 10}, {Epoch: 5, Start: 40}, {Epoch: 7, Start: 95}}},
		{"it was not read so far", epoch.History{{Epoch: 5, Start: 90}}, epoch.History{{Epoch: 2, Start: 10}}, epoch.History{{Epoch: 2, Start: 10}, {Epoch: 5, Start: 90}}},
		{"it has gone on to a later one", epoch.History{{Epoch: 2, Start: 90}}, epoch.History{{Epoch: 5, Start: 40}}, nil},
		{"another epoch stands there", epoch.History{{Epoch: 4, Start: 90}, {Epoch: 6, Start: 95}}, epoch.History{{Epoch: 2, Start: 10}, {Epoch: 5, Start: 40}}, nil},
		{"nothing was read", epoch.History{{Epoch: 4, Start: 90}}, nil, nil},
		{"a cut took what was known", nil, epoch.History{{Epoch: 4, Start: 90}}, epoch.History{{Epoch: 4, Start: 90}}},
		{"nothing at all", nil, nil, nil},
	} {
		if got := joinedWith(tt.h, tt.before); !cmp.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// inherit leads a log of which nothing is known: it begins and ends where the followers say.
func inherit(t *testing.T) *Partition {
	t.Helper()
	p := New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, LogStart: StartUnknown, Window: 1 << 10})
	for id, from := range map[int32]int64{1: 30, 2: 20, 3: 25} {
		p.Fetch(Fetch{Replica: id, CurrentEpoch: 7, Offset: 100, LastEpoch: 5, LogStart: from, MaxBytes: 1 << 20, Now: start})
	}
	return p
}

// TestStartUnknown: the log begins where the first does of the followers that are there.
func TestStartUnknown(t *testing.T) {
	if s := inherit(t).State(); s.Phase != Leading || s.LogStart != 20 || s.Next != 100 || s.HighWatermark != 100 {
		t.Errorf("%+v", s)
	}
	p := New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, LogStart: StartUnknown})
	for id, from := range map[int32]int64{1: 30, 3: 25} {
		p.Fetch(Fetch{Replica: id, CurrentEpoch: 7, Offset: 100, LastEpoch: 5, LogStart: from, MaxBytes: 1 << 20, Now: start})
	}
	if p.Tick(start.Add(GatherFor)); p.State().Phase != Leading || p.State().LogStart != 25 {
		t.Errorf("one is away: %+v", p.State())
	}
}

// TestLearn: what came before is answered once it is known, and what was read before a cut
// counts no more.
func TestLearn(t *testing.T) {
	before := epoch.History{{Epoch: 2, Start: 20}, {Epoch: 5, Start: 60}}
	p := inherit(t)
	if e := p.EpochEnd(2); e.EndOffset == 60 {
		t.Fatalf("known before: %v", e)
	}
	cuts := p.Cuts()
	p.Truncate(80, func(error) {})
	if p.Learn(cuts, before) {
		t.Error("the log was cut since it was read")
	}
	if !p.Learn(p.Cuts(), before) {
		t.Error("read after the cut")
	}
	if e := p.EpochEnd(2); e.Epoch != 2 || e.EndOffset != 60 {
		t.Errorf("%v", e)
	}
	p = New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, LogStart: StartUnknown})
	if p.Learn(p.Cuts(), before) {
		t.Error("before the end of the log is known")
	}
}

// TestGatheringGoesOn without one that says nothing, soon, when the others know all that counts.
func TestGatheringGoesOn(t *testing.T) {
	p := New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, Idle: time.Minute})
	p.Tick(start)
	say := func(id int32, after time.Duration, at int64) {
		p.Fetch(Fetch{Replica: id, CurrentEpoch: 7, Offset: at, LastEpoch: 5, MaxBytes: 1 << 20, Now: start.Add(after)})
	}
	say(1, 0, 100)
	if p.Tick(start.Add(GatherFor)); p.State().Phase != Gathering {
		t.Error("one of three does not know all")
	}
	p = New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, Idle: time.Minute})
	p.Tick(start)
	say(1, 0, 100)
	say(2, 0, 90)
	if p.Tick(start.Add(GatherFor - time.Millisecond)); p.State().Phase != Gathering {
		t.Error("the third is not waited for")
	}
	if p.Tick(start.Add(GatherFor)); p.State().Phase != Leading || p.State().Next != 100 {
		t.Errorf("%+v", p.State())
	}
	// What it has that nobody waited for goes.
	a := p.Fetch(Fetch{Replica: 3, CurrentEpoch: 7, Offset: 110, LastEpoch: 5, MaxBytes: 1 << 20, Now: start.Add(time.Second)})
	if a.Diverging.EndOffset != 100 {
		t.Errorf("%+v", a)
	}
}
