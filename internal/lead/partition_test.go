package lead

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

var start = time.Unix(1e9, 0)

// led is a partition that followers 1, 2, 3 follow from offset at on, two of which are a
// quorum.
func led(t testing.TB, at int64, change func(*Config)) *Partition {
	t.Helper()
	c := Config{
		Partition: cluster.Partition{Topic: "t"}, Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, LogStart: at,
		Window: 1 << 10, Proven: true,
	}
	if change != nil {
		change(&c)
	}
	p := New(c)
	for _, id := range c.Followers {
		ask(p, id, at, -1)
	}
	if s := p.State(); s.Phase != Leading || s.Next != at {
		t.Fatalf("%+v", s)
	}
	return p
}

// ask fetches as a follower does that ends at offset in epoch last.
func ask(p *Partition, id int32, offset int64, last int32) Answer {
	return p.Fetch(Fetch{
		Replica: id, CurrentEpoch: p.State().Epoch, Offset: offset, LastEpoch: last, LogStart: p.State().LogStart, MaxBytes: 1 << 20, Now: p.State().at(),
	})
}

// at is the time of the latest fetch, or the start.
func (s State) at() time.Time {
	now := start
	for _, f := range s.Followers {
		if f.LastSeen.After(now) {
			now = f.LastSeen
		}
	}
	return now
}

// outcome is what Append was answered.
type outcome struct {
	next   int64
	landed int
	err    error
}

func appendTo(p *Partition, into *[]outcome, batches ...cluster.Batch) {
	p.Append(batches, nil, func(next int64, landed int, err error) { *into = append(*into, outcome{next, landed, err}) })
}

func few(from int64, n int, epoch int32) (out []cluster.Batch) {
	for range n {
		out = append(out, newBatch(from, 1, epoch, 10))
		from++
	}
	return out
}

func TestWhoMayFetch(t *testing.T) {
	for _, c := range []struct {
		name    string
		replica int32
		epoch   int32
		want    int16
	}{
		{"a follower", 1, 7, 0},
		{"one that does not say what it believes", 1, -1, 0},
		{"one that believes in an epoch before", 1, 6, FencedLeaderEpoch},
		{"one that is no replica", 9, 7, UnknownLeaderEpoch},
		{"one that is no replica, of a later epoch", 9, 99, UnknownLeaderEpoch},
	} {
		p := led(t, 0, nil)
		a := p.Fetch(Fetch{Replica: c.replica, CurrentEpoch: c.epoch, LastEpoch: -1, Now: start})
		if a.Code != c.want || p.State().Epoch != 7 {
			t.Errorf("%s: code %d in epoch %d", c.name, a.Code, p.State().Epoch)
		}
	}
	p := led(t, 0, nil)
	p.Close(errors.New("over"))
	if a := ask(p, 1, 0, -1); a.Code != NotLeader {
		t.Errorf("closed: code %d", a.Code)
	}
	if err := p.StartAt(5); !errors.Is(err, cluster.ErrNotLeader) {
		t.Errorf("closed: StartAt: %v", err)
	}
}

// A fetch with a later epoch proves that we lead it: all followers are asked again.
func TestALaterEpochIsBelieved(t *testing.T) {
	p := led(t, 0, nil)
	a := p.Fetch(Fetch{Replica: 1, CurrentEpoch: 9, LastEpoch: -1, Now: start})
	if s := p.State(); s.Epoch != 9 || s.Phase != Gathering || a.Code != 0 || !a.Hold {
		t.Fatalf("%+v, %+v", a, s)
	}
	if e := p.EpochEnd(7); e != noEpochEnd {
		t.Errorf("an epoch's end is told too early: %+v", e)
	}
	ask(p, 2, 0, -1)
	if a := ask(p, 3, 0, -1); p.State().Phase != Leading || a.Hold {
		t.Errorf("%+v, %+v", a, p.State())
	}
	p.Lead(8)
	if p.State().Epoch != 9 {
		t.Error("the epoch went back")
	}
}

// While the end is not known nobody is sent away: the next question would be for it.
func TestNobodyIsOutOfRangeWhileGathering(t *testing.T) {
	p := New(Config{Epoch: 7, Quorum: 2, Followers: []int32{1, 2, 3}, LogStart: 100, Proven: true})
	if a := ask(p, 1, 40, 3); a.Code != 0 || !a.Hold || p.State().Phase != Gathering {
		t.Errorf("%+v", a)
	}
	ask(p, 2, 100, -1)
	ask(p, 3, 100, -1)
	if a := ask(p, 1, 40, 3); a.Code != OffsetOutOfRange || p.State().Next != 100 {
		t.Errorf("%+v, %+v", a, p.State())
	}
}

// What a follower held counts only after it was heard in its present life, and in the
// present epoch.
func TestWhatAFollowerHeldDoesNotCountForEver(t *testing.T) {
	for name, away := range map[string]func(*Partition){
		"dead":                func(p *Partition) { p.Live([]int32{1, 3}) },
		"dead and back":       func(p *Partition) { p.Live([]int32{1, 3}); p.Live([]int32{1, 2, 3}) },
		"in another epoch":    func(p *Partition) { p.Lead(8); ask(p, 1, 0, -1); ask(p, 3, 0, -1) },
		"not a replica":       func(p *Partition) { p.Follow([]int32{1, 3, 4}) },
		"still there (check)": nil,
	} {
		p := led(t, 0, nil)
		var got []outcome
		appendTo(p, &got, few(0, 3, 2)...)
		p.mu.Lock()
		p.follower(2).holds = 3
		p.mu.Unlock()
		if away != nil {
			away(p)
		}
		ask(p, 1, 3, 2)
		if high := p.State().HighWatermark; (high == 3) != (away == nil) {
			t.Errorf("%s: the high watermark is %d", name, high)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	hole := cluster.Batch{Base: 5, Next: 7}
	for _, c := range []struct {
		name    string
		batches []cluster.Batch
		stamp   bool
		want    error
	}{
		{"below the end", few(4, 1, 2), false, cluster.ErrOutOfOrder},
		{"twice in a run", append(few(5, 2, 2), few(6, 1, 2)...), false, cluster.ErrOutOfOrder},
		{"across the end", []cluster.Batch{newBatch(4, 3, 2, 1)}, false, cluster.ErrOutOfOrder},
		{"a hole", []cluster.Batch{hole}, false, errors.ErrUnsupported},
		{"of an epoch above ours", few(5, 1, 8), false, cluster.ErrLeaderEpoch},
		{"of an epoch above ours, stamped", few(5, 1, 8), true, nil},
		{"of our epoch", few(5, 1, 7), false, nil},
		{"of an epoch before the last", few(5, 1, 1), false, cluster.ErrDiverged},
		{"of an epoch before the one before it", append(few(5, 1, 4), few(6, 1, 3)...), false, cluster.ErrDiverged},
		{"behind a gap", few(9, 1, 2), false, nil},
	} {
		p := led(t, 0, func(cfg *Config) { cfg.Stamp = c.stamp })
		var got []outcome
		appendTo(p, &got, few(0, 5, 2)...)
		ask(p, 1, 5, -1)
		ask(p, 2, 5, -1)
		freed := 0
		p.Append(c.batches, func() { freed++ }, func(next int64, landed int, err error) { got = append(got, outcome{next, landed, err}) })
		switch {
		case c.want == nil && (len(got) != 1 || p.State().Next == 5):
			t.Errorf("%s: %+v", c.name, got)
		case c.want != nil && (len(got) != 2 || !errors.Is(got[1].err, c.want) || got[1].landed != 0 || got[1].next != 5 || freed != 1 || p.State().Next != 5):
			t.Errorf("%s: %+v, freed %d", c.name, got, freed)
		}
	}
	early := New(Config{Epoch: 7, Quorum: 1, Followers: []int32{1}})
	var got []outcome
	appendTo(early, &got, few(0, 1, 2)...)
	if len(got) != 1 || !errors.Is(got[0].err, cluster.ErrUnavailable) {
		t.Errorf("before the end is known: %+v", got)
	}
}

// Runs are answered in their order, also one that was refused; after it none is taken
// until Forget.
func TestAnswersComeInOrder(t *testing.T) {
	p := led(t, 0, nil)
	var got []outcome
	appendTo(p, &got, few(0, 2, 2)...)
	appendTo(p, &got, few(0, 1, 2)...)
	appendTo(p, &got, few(2, 1, 2)...)
	if len(got) != 0 {
		t.Fatalf("answered out of order: %+v", got)
	}
	ask(p, 1, 2, 2)
	ask(p, 2, 2, 2)
	if len(got) != 3 || got[0] != (outcome{2, 2, nil}) || !errors.Is(got[1].err, cluster.ErrOutOfOrder) || !errors.Is(got[2].err, cluster.ErrOutOfOrder) {
		t.Fatalf("%+v", got)
	}
	p.Forget(errors.New("forgotten"))
	appendTo(p, &got, few(2, 1, 2)...)
	appendTo(p, &got, few(3, 3, 2)...)
	ask(p, 1, 4, 2)
	ask(p, 2, 4, 2)
	p.Forget(errors.New("forgotten"))
	if len(got) != 5 || got[3] != (outcome{3, 1, nil}) || got[4].landed != 1 || got[4].err == nil || p.State().Next != 6 {
		t.Errorf("%+v, %+v", got, p.State())
	}
}

// Functions may call the partition again: its lock is not held while they run.
func TestCallsMayCallBack(t *testing.T) {
	p := led(t, 0, nil)
	over := make(chan int64)
	go func() {
		p.Append(few(0, 1, 2), func() { p.State() }, func(int64, int, error) {
			p.Append(few(1, 1, 2), nil, func(next int64, _ int, _ error) { over <- next })
			ask(p, 1, 2, 2)
			ask(p, 2, 2, 2)
		})
		ask(p, 1, 1, 2)
		ask(p, 2, 1, 2)
	}()
	select {
	case next := <-over:
		if next != 2 {
			t.Errorf("the second run landed up to %d", next)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a function that calls back waits for ever")
	}
}

// A cut in the middle of a run: what is below it has landed.
func TestCutThroughARun(t *testing.T) {
	p := led(t, 0, nil)
	var got []outcome
	var cut []error
	appendTo(p, &got, newBatch(0, 5, 2, 1), newBatch(5, 5, 2, 1), newBatch(10, 5, 2, 1))
	ask(p, 1, 10, 2)
	ask(p, 2, 10, 2)
	ask(p, 3, 0, -1).Release() // on its way to it, behind the cut as well
	p.Truncate(7, func(err error) { cut = append(cut, err) })
	if len(got) != 1 || got[0].err == nil || got[0].landed != 1 || got[0].next != 5 {
		t.Errorf("the run: %+v", got)
	}
	if s := p.State(); s.Next != 5 || s.HighWatermark != 5 || len(cut) != 0 {
		t.Errorf("%+v, %v", s, cut)
	}
	for id := range int32(2) {
		if a := ask(p, id+1, 10, 2); a.Diverging != (cluster.EpochEnd{Epoch: 2, EndOffset: 5}) {
			t.Errorf("%+v", a)
		}
		ask(p, id+1, 5, 2)
	}
	if len(cut) != 0 {
		t.Fatal("a cut is done before the third follower has answered")
	}
	p.Tick(start.Add(3 * time.Second)) // the third one is not waited for any longer
	if len(cut) != 1 || cut[0] != nil || p.State().Followers[2].Owes != 5 {
		t.Fatalf("%v, %+v", cut, p.State())
	}
}

// TestStampAndKeep: the epoch in a batch is ours, or the source's, and the checksum is
// right either way.
func TestStampAndKeep(t *testing.T) {
	for _, stamp := range []bool{true, false} {
		p := led(t, 0, func(c *Config) { c.Stamp = stamp })
		var got []outcome
		appendTo(p, &got, few(0, 2, 2)...)
		want := int32(2)
		if stamp {
			want = 7
		}
		a := ask(p, 1, 0, -1)
		for _, r := range a.Records {
			if h := batch.Header(r); h.LeaderEpoch() != want || h.Check() != nil {
				t.Errorf("stamp %v: epoch %d, %v", stamp, h.LeaderEpoch(), h.Check())
			}
		}
		if e := p.EpochEnd(7); len(a.Records) != 2 || e != (cluster.EpochEnd{Epoch: want, EndOffset: 2}) {
			t.Errorf("stamp %v: %d records, %+v", stamp, len(a.Records), e)
		}
		if e := p.EpochEnd(8); e != noEpochEnd {
			t.Errorf("an epoch that is none yet ends at %+v", e)
		}
		a.Release()
	}
}

func TestEmptyLogEndsItsOwnEpoch(t *testing.T) {
	p := led(t, 5, nil)
	if e := p.EpochEnd(7); e != (cluster.EpochEnd{Epoch: 7, EndOffset: 5}) {
		t.Errorf("%+v", e)
	}
}

func TestStrictAnswers(t *testing.T) {
	p := led(t, 0, nil)
	var got []outcome
	appendTo(p, &got, few(0, 3, 2)...)
	size := len(few(0, 1, 2)[0].Bytes)
	for _, c := range []struct {
		max    int
		strict bool
		want   int
	}{{1, true, 0}, {1, false, 1}, {2 * size, true, 2}, {3*size - 1, false, 2}, {9 * size, true, 3}, {0, false, 0}} {
		a := p.Fetch(Fetch{Replica: 1, CurrentEpoch: 7, LastEpoch: -1, MaxBytes: int32(c.max), Strict: c.strict, Now: start})
		if len(a.Records) != c.want || a.Size != c.want*size {
			t.Errorf("%d bytes, strict %v: %d batches, %d bytes", c.max, c.strict, len(a.Records), a.Size)
		}
		a.Release()
	}
}

func TestWatcher(t *testing.T) {
	p, quiet := led(t, 0, nil), led(t, 0, nil)
	w := NewWatcher()
	p.Observe(w)
	p.Observe(w)
	quiet.Observe(w)
	news := func() bool {
		got := w.Take(nil)
		if len(got) > 1 || len(got) == 1 && got[0] != p {
			t.Fatalf("told of %d partitions", len(got))
		}
		return len(got) == 1
	}
	var outcomes []outcome
	for _, c := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"a fetch", func() { ask(p, 1, 0, -1) }, false},
		{"an append", func() { appendTo(p, &outcomes, few(0, 2, 2)...) }, true},
		{"one follower has it", func() { ask(p, 1, 2, 2) }, false},
		{"the high watermark", func() { ask(p, 2, 2, 2) }, true},
		{"the log start", func() { p.Trim(1, func(error) {}) }, true},
		{"time", func() { p.Tick(start.Add(time.Second)) }, false},
		{"a cut", func() { p.Truncate(1, func(error) {}) }, true},
		{"an epoch", func() { p.Lead(9) }, true},
		{"ignored", func() { p.Ignore(w); p.Lead(10) }, false},
		{"the end", func() { p.Observe(w); p.Close(errors.New("over")) }, true},
	} {
		c.do()
		woken := false
		select {
		case <-w.Wake():
			woken = true
		default:
		}
		if got := news(); got != c.want || woken != c.want {
			t.Errorf("%s: told %v, woken %v, want %v", c.name, got, woken, c.want)
		}
	}
}

func TestStateOfFollowers(t *testing.T) {
	p := led(t, 0, func(c *Config) { c.Owed = map[int32]int64{3: 0} })
	var got []outcome
	appendTo(p, &got, few(0, 4, 2)...)
	ask(p, 1, 4, 2)
	ask(p, 2, 3, 2)
	p.Live([]int32{1, 2})
	want := []Follower{
		{Replica: 1, Live: true, Known: true, Offset: 4, LastEpoch: 2, Holds: 4, LastSeen: start, CaughtUp: true, Owes: -1},
		{Replica: 2, Live: true, Known: true, Offset: 3, LastEpoch: 2, Holds: 3, LastSeen: start, CaughtUp: true, Owes: -1},
		{Replica: 3, Known: true, LastEpoch: -1, LastSeen: start, Owes: -1},
	}
	s := p.State()
	if diff := cmp.Diff(want, s.Followers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.LogEnd != 4 || s.Next != 4 || s.HighWatermark != 3 || !slices.Equal(s.History, []EpochStart{{Epoch: 2, Start: 0}}) {
		t.Errorf("%+v", s)
	}
}
