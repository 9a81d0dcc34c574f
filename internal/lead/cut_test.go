package lead

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

func TestStartAt(t *testing.T) {
	p := led(t, 0, nil)
	for range 2 {
		if err := p.StartAt(520); err != nil {
			t.Fatal(err)
		}
	}
	if a := ask(p, 1, 0, -1); a.Code != OffsetOutOfRange || a.LogStart != 520 {
		t.Errorf("a follower at 0: %+v", a)
	}
	var got []outcome
	appendTo(p, &got, newBatch(515, 10, 2, 1)) // begins before the log does
	if s := p.State(); s.Next != 525 || s.LogStart != 520 || s.LogEnd != 520 {
		t.Errorf("%+v", s)
	}
	trimming := Fetch{Replica: 1, CurrentEpoch: 7, Offset: 520, LastEpoch: -1, LogStart: 400, MaxBytes: 1000, Now: start}
	if a := p.Fetch(trimming); a.Code != 0 || a.Size > 0 || a.LogStart != 520 || a.HighWatermark != 520 {
		t.Errorf("a follower whose log is not empty: %+v", a)
	}
	trimming.LogStart = 520
	if a := p.Fetch(trimming); len(a.Records) != 1 {
		t.Errorf("a follower whose log is empty: %+v", a)
	}
	if err := p.StartAt(600); !errors.Is(err, cluster.ErrOutOfOrder) {
		t.Errorf("a log with records was started elsewhere: %v", err)
	}
	ask(p, 1, 525, 2)
	ask(p, 2, 525, 2)
	if len(got) != 1 || got[0] != (outcome{525, 1, nil}) || p.EpochEnd(2) != (cluster.EpochEnd{Epoch: 2, EndOffset: 525}) {
		t.Errorf("%+v, %+v", got, p.EpochEnd(2))
	}
	if err := New(Config{}).StartAt(5); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("before the end is known: %v", err)
	}
}

func TestTrim(t *testing.T) {
	p := led(t, 0, nil)
	var got []outcome
	var done []error
	appendTo(p, &got, few(0, 10, 2)...)
	trim := func(to int64) { p.Trim(to, func(err error) { done = append(done, err) }) }
	at := func(id int32, offset, logStart int64) Answer {
		return p.Fetch(Fetch{Replica: id, CurrentEpoch: 7, Offset: offset, LastEpoch: 2, LogStart: logStart, Now: start})
	}
	trim(4)
	if s := p.State(); s.LogStart != 0 {
		t.Fatalf("the log start is at %d with the high watermark at 0: followers would refuse", s.LogStart)
	}
	at(1, 6, 0)
	at(2, 6, 0)
	at(3, 5, 0)
	if s := p.State(); s.LogStart != 4 || len(done) > 0 {
		t.Fatalf("%+v, %v", s, done)
	}
	at(1, 6, 4)
	at(2, 6, 4)
	if len(done) > 0 {
		t.Fatal("done before the third follower has trimmed")
	}
	at(3, 5, 4)
	if len(done) != 1 || done[0] != nil {
		t.Fatalf("%v", done)
	}
	trim(2)
	if s := p.State(); s.LogStart != 4 || len(done) != 2 {
		t.Errorf("a log start went back: %+v, %v", s, done)
	}
	trim(99) // not over the log end
	at(1, 10, 4)
	at(2, 10, 4)
	at(3, 10, 10)
	at(1, 10, 10)
	at(2, 10, 10)
	if s := p.State(); s.LogStart != 10 || len(done) != 3 {
		t.Errorf("%+v, %v", s, done)
	}
}

// Retention of the followers moves the log start, when all of them have passed it.
func TestFollowersOwnRetention(t *testing.T) {
	p := led(t, 0, nil)
	var got []outcome
	appendTo(p, &got, few(0, 10, 2)...)
	for id, logStart := range []int64{5, 3, 9} {
		p.Fetch(Fetch{Replica: int32(id + 1), CurrentEpoch: 7, Offset: 10, LastEpoch: 2, LogStart: logStart, Now: start})
		if s := p.State(); (s.LogStart == 3) != (id == 2) {
			t.Errorf("after %d followers: %+v", id+1, s)
		}
	}
}

// A follower that was away cuts where it was to cut, and then takes what was written
// instead, in the same epoch even.
func TestACutIsOwed(t *testing.T) {
	p := led(t, 0, nil)
	var got []outcome
	var cuts []error
	appendTo(p, &got, few(0, 6, 2)...)
	for id := range int32(3) {
		ask(p, id+1, 6, 2)
	}
	p.Live([]int32{1, 2})
	p.Truncate(4, func(err error) { cuts = append(cuts, err) })
	ask(p, 1, 4, 2)
	ask(p, 2, 4, 2)
	if len(cuts) != 1 || cuts[0] != nil {
		t.Fatalf("%v", cuts)
	}
	if s := p.State(); !s.Cut {
		t.Errorf("readers are not known to stand behind the end: %+v", s)
	}
	appendTo(p, &got, few(4, 4, 2)...)
	ask(p, 1, 8, 2)
	ask(p, 2, 8, 2)
	p.Truncate(7, func(err error) { cuts = append(cuts, err) })
	ask(p, 1, 7, 2)
	ask(p, 2, 7, 2)
	owed := p.State().Followers[2].Owes
	next := New(Config{
		Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, History: []EpochStart{{Epoch: 2, Start: 0}}, Owed: map[int32]int64{3: owed},
	})
	for name, q := range map[string]*Partition{"": p, "restarted: ": next} {
		q.Live([]int32{1, 2, 3})
		ask(q, 1, 7, 2)
		ask(q, 2, 7, 2)
		if a := ask(q, 3, 6, 2); a.Diverging != (cluster.EpochEnd{Epoch: 2, EndOffset: 4}) || a.HighWatermark != -1 {
			t.Errorf("%sback after two cuts: %+v", name, a)
		}
		if a := ask(q, 3, 4, 2); a.Diverging != noEpochEnd || a.Code != 0 || q.State().Followers[2].Owes != -1 {
			t.Errorf("%safter its cut: %+v", name, a)
		}
	}
}

// A follower nobody waited for when the end was found may have more than that.
func TestWhoWasNotThereIsCutAtTheEndThatWasFound(t *testing.T) {
	p := New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, History: []EpochStart{{Epoch: 2, Start: 0}}, Idle: time.Second})
	ask(p, 1, 5, 2)
	ask(p, 2, 4, 2)
	if p.State().Phase != Gathering {
		t.Fatal("the third one was not waited for")
	}
	p.Tick(start.Add(2 * time.Second))
	if s := p.State(); s.Phase != Leading || s.Next != 5 || s.HighWatermark != 4 {
		t.Fatalf("%+v", s)
	}
	var got []outcome
	appendTo(p, &got, few(5, 5, 2)...)
	if a := ask(p, 3, 7, 2); a.Diverging.EndOffset != 5 {
		t.Errorf("%+v", a)
	}
}

// Without a history the followers are believed as long as they agree.
func TestDisputeNeedsAHistory(t *testing.T) {
	p := New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2}})
	ask(p, 1, 10, 4)
	if a := ask(p, 2, 6, 3); !a.Hold || !p.State().Disputed || p.State().Phase != Gathering {
		t.Fatalf("%+v, %+v", a, p.State())
	}
	p.Know([]EpochStart{{Epoch: 3, Start: 0}})
	if a := ask(p, 1, 10, 4); a.Diverging != (cluster.EpochEnd{Epoch: 3, EndOffset: 10}) {
		t.Errorf("%+v", a)
	}
	ask(p, 2, 6, 3)
	ask(p, 1, 7, 3)
	if s := p.State(); s.Phase != Leading || s.Next != 7 || s.Disputed {
		t.Errorf("%+v", s)
	}
}

// Where a log ends in a gap, those that end before it and behind it hold the same.
func TestGap(t *testing.T) {
	p := New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2}, History: []EpochStart{{Epoch: 2, Start: 0}}})
	ask(p, 1, 28, 2)
	a := ask(p, 2, 27, 2)
	if a.Elsewhere != 27 || len(a.Holders) != 1 || a.Holders[0] != (Holder{Replica: 1, End: 28}) {
		t.Fatalf("%+v", a)
	}
	p.Gap(27, 28)
	if s := p.State(); s.HighWatermark != 28 || !p.Current(&a) {
		t.Errorf("%+v", s)
	}
	var got []outcome
	appendTo(p, &got, few(30, 1, 2)...)
	if a := ask(p, 2, 27, 2); len(a.Records) != 1 {
		t.Errorf("%+v", a)
	}
	p.Truncate(28, func(error) {})
	if p.Current(&a) {
		t.Error("what was read before a cut may still be sent")
	}
}

// TestCutIsOverWithAnEpoch: readers behind the log end hear of the next epoch.
func TestCutIsOverWithAnEpoch(t *testing.T) {
	p := led(t, 0, nil)
	var got []outcome
	appendTo(p, &got, few(0, 6, 2)...)
	p.Truncate(6, func(error) {})
	if s := p.State(); s.Cut {
		t.Errorf("nothing was cut: %+v", s)
	}
	p.Truncate(4, func(error) {})
	if s := p.State(); !s.Cut {
		t.Errorf("%+v", s)
	}
	p.Lead(8)
	if s := p.State(); s.Cut {
		t.Errorf("the epoch is another one: %+v", s)
	}
}
