package lead

import (
	"testing"
	"time"
)

// TestBeat: a session that is fetched in speaks for the partitions that it does not
// name, until it is over.
func TestBeat(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }
	p := New(Config{Quorum: 1, Followers: []int32{1, 2}, Idle: 2 * time.Second})
	w := NewWatcher()
	p.Observe(w)
	for replica := range int32(2) {
		f := Fetch{Replica: replica + 1, LastEpoch: -1, Now: at(0)}
		if replica == 0 {
			f.Via = w
		}
		p.Fetch(f)
	}
	live := func(when int) (out [2]bool) {
		p.Tick(at(when))
		for i, f := range p.State().Followers {
			out[i] = f.Live
		}
		return out
	}
	for when := range 10 {
		w.Beat(at(when))
		if got, want := live(when), ([2]bool{true, when < 2}); got != want {
			t.Errorf("after %d s: %v, want %v", when, got, want)
		}
	}
	p.Ignore(w)
	w.Beat(at(20)) // of a session that has it no more
	if got := live(10); got != [2]bool{true, false} {
		t.Errorf("just left: %v", got)
	}
	if got := live(20); got != [2]bool{} {
		t.Errorf("left long ago: %v", got)
	}
}
