package lead

import (
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// found is a partition that two followers, of whom both are a quorum, have told their ends.
func found(t *testing.T, history []EpochStart, ends ...int64) (p *Partition, ask func(replica int32, offset int64) Answer) {
	t.Helper()
	p = New(Config{Partition: cluster.Partition{Topic: "t"}, Epoch: 7, Quorum: 2, Followers: []int32{1, 2}, History: history})
	ask = func(replica int32, offset int64) Answer {
		a := p.Fetch(Fetch{Replica: replica, CurrentEpoch: 7, Offset: offset, LastEpoch: history[0].Epoch, MaxBytes: 1 << 20, Now: time.Unix(100, 0)})
		a.Release()
		return a
	}
	for i, end := range ends {
		ask(int32(i+1), end)
	}
	if s := p.State(); s.Phase != Leading {
		t.Fatalf("%+v", s)
	}
	return p, ask
}

// TestBehindTheQuorum: what was there before we led, and only one follower has, it is
// told to give; the high watermark is where it was.
func TestBehindTheQuorum(t *testing.T) {
	p, ask := found(t, []EpochStart{{Epoch: 5}}, 10, 4)
	if a := ask(1, 10); a.HighWatermark != 10 {
		t.Errorf("who has it is told %d, want 10", a.HighWatermark)
	}
	if a := ask(2, 4); a.HighWatermark != 4 || a.Elsewhere != 4 || len(a.Holders) != 1 || a.Holders[0] != (Holder{1, 10}) {
		t.Errorf("who lacks it is told %+v", a)
	}
	if s := p.State(); s.HighWatermark != 4 {
		t.Errorf("the high watermark is %d, want 4", s.HighWatermark)
	}
	ask(2, 10)
	if a := ask(1, 10); a.HighWatermark != 10 || p.State().HighWatermark != 10 {
		t.Errorf("when both have it: %+v", a)
	}
}

// TestStampAbove: batches of an earlier epoch than the log's are stamped where our own
// epoch is above all that stands there, and only then.
func TestStampAbove(t *testing.T) {
	at := func(epoch int32) []cluster.Batch { return []cluster.Batch{{Base: 10, Next: 11, Epoch: epoch}} }
	for _, c := range []struct {
		name        string
		log, batch  int32
		above, done bool
	}{
		{"the same", 5, 5, false, false},
		{"later", 5, 6, false, false},
		{"none", 5, -1, false, false},
		{"earlier", 5, 4, true, true},
		{"earlier, and the log has our epoch", 7, 4, true, false},
	} {
		p, _ := found(t, []EpochStart{{Epoch: c.log}}, 10, 10)
		if above, done := p.StampAbove(at(c.batch)); above != c.above || done != c.done {
			t.Errorf("%s: %v, %v", c.name, above, done)
		}
	}
}

// TestStartThenRaise: an empty log was told where to begin, and our epoch is raised before
// the followers have gone there: they ask where it begins, which only a leader says.
func TestStartThenRaise(t *testing.T) {
	p := New(Config{Partition: cluster.Partition{Topic: "t"}, Epoch: 7, Quorum: 2, Followers: []int32{1, 2}, Proven: true})
	ask := func(replica, epoch int32, offset int64) Answer {
		a := p.Fetch(Fetch{Replica: replica, CurrentEpoch: epoch, Offset: offset, LastEpoch: -1, LogStart: offset, MaxBytes: 1 << 20, Now: time.Unix(100, 0)})
		a.Release()
		return a
	}
	ask(1, 7, 0)
	ask(2, 7, 0)
	if err := p.StartAt(52); err != nil {
		t.Fatal(err)
	}
	p.Lead(10)
	for _, replica := range []int32{1, 2} {
		if a := ask(replica, 10, 0); a.Code != OffsetOutOfRange {
			t.Errorf("%d is answered %+v", replica, a)
		}
	}
	if s := p.State(); s.Phase != Leading || s.HighWatermark != 52 || s.Next != 52 {
		t.Fatalf("%+v", s)
	}
	ask(1, 10, 52)
	if a := ask(2, 10, 52); a.Code != 0 || p.State().HighWatermark != 52 {
		t.Errorf("%+v, %+v", a, p.State())
	}
}
