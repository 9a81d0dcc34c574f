package epoch

import (
	"math/rand/v2"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

func TestDivergeStep(t *testing.T) {
	h := History{{2, 10}, {5, 20}, {8, 30}}
	for _, c := range []struct {
		name   string
		h      History
		answer cluster.EpochEnd
		cut    int64
		ask    int32
		done   bool
	}{
		{"agrees", h, cluster.EpochEnd{Epoch: 8, EndOffset: 50}, 40, -1, true},
		{"latest ends earlier", h, cluster.EpochEnd{Epoch: 8, EndOffset: 35}, 35, -1, true},
		{"an earlier epoch, longer there", h, cluster.EpochEnd{Epoch: 5, EndOffset: 33}, 30, -1, true},
		{"an earlier epoch, shorter there", h, cluster.EpochEnd{Epoch: 5, EndOffset: 25}, 25, -1, true},
		{"one we do not have", h, cluster.EpochEnd{Epoch: 6, EndOffset: 28}, 30, 5, false},
		{"below the first", h, cluster.EpochEnd{Epoch: 1, EndOffset: 7}, 7, -1, false},
		{"below the first, longer there", h, cluster.EpochEnd{Epoch: 1, EndOffset: 12}, 10, -1, false},
		{"nothing known", h, cluster.EpochEnd{Epoch: -1, EndOffset: -1}, 40, -1, true},
		{"no epoch in the answer", h, cluster.EpochEnd{Epoch: -1, EndOffset: 33}, 33, -1, true},
		{"no history", nil, cluster.EpochEnd{Epoch: 3, EndOffset: 50}, 40, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cut, ask, done := c.h.Diverge(c.answer, 40)
			if cut != c.cut || ask != c.ask || done != c.done {
				t.Errorf("got %d, %d, %v; want %d, %d, %v", cut, ask, done, c.cut, c.ask, c.done)
			}
		})
	}
}

// A twin is a log as nothing but the epoch of each offset, from 0 on.
type twin []int32

func (l twin) history() (h History) {
	for o, e := range l {
		h = h.Assign(e, int64(o))
	}
	return h
}

// end is OffsetForLeaderEpoch by looking at every record: the leader's own epoch ends
// at its log end, even before it has a record.
func (l twin) end(asked, leader int32) cluster.EpochEnd {
	if asked > leader {
		return cluster.EpochEnd{Epoch: -1, EndOffset: -1}
	}
	if asked == leader {
		return cluster.EpochEnd{Epoch: asked, EndOffset: int64(len(l))}
	}
	out := cluster.EpochEnd{Epoch: asked}
	for _, e := range l {
		if e > asked {
			break
		}
		out.Epoch = e
		out.EndOffset++
	}
	return out
}

func (l twin) latest() int32 {
	if len(l) == 0 {
		return -1
	}
	return l[len(l)-1]
}

// pair makes two logs with a common prefix, after which they never share an epoch but
// the last of the prefix, which one of them may go on with: nobody but the leader of
// an epoch writes in it.
func pair(script []byte) (ours, theirs twin, common int) {
	var prefix twin
	at := func(i int) int {
		if len(script) == 0 {
			return 0
		}
		return int(script[i%len(script)])
	}
	e := int32(0)
	for i := range at(0) % 40 {
		if at(i+1)%4 == 0 {
			e += int32(at(i+2) % 3)
		}
		prefix = append(prefix, e)
	}
	tail := func(seed, n, odd int, goOn bool) (l twin) {
		e := e
		for i := range n {
			if !goOn || at(seed+i)%3 == 0 {
				e += int32(at(seed+i+1) % 3)
				for int(e)%2 != odd || e <= prefix.latest() {
					e++
				}
				goOn = false
			}
			if goOn = goOn || at(seed+i+2)%2 == 0; !goOn {
				e += 2
				goOn = true
			}
			l = append(l, e)
		}
		return l
	}
	who := at(1) % 3
	ours = append(ours, prefix...)
	ours = append(ours, tail(3, at(2)%20, 0, who == 0)...)
	theirs = append(theirs, prefix...)
	theirs = append(theirs, tail(17, at(3)%20, 1, who == 1)...)
	for common < len(ours) && common < len(theirs) && ours[common] == theirs[common] {
		common++
	}
	return ours, theirs, common
}

// TestDivergeFindsTheCommonPrefix runs what FuzzDiverge does on scripts by dice.
func TestDivergeFindsTheCommonPrefix(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	script := make([]byte, 64)
	for range 5000 {
		for i := range script {
			script[i] = byte(dice.IntN(256))
		}
		search(t, script, uint8(dice.IntN(256)))
	}
}

// FuzzDiverge runs the whole search against a leader that looks at every record, and
// compares with the common prefix found by force.
func FuzzDiverge(f *testing.F) {
	for _, s := range []string{"", "a", "abcdefgh", "\x27\x00\x05\x06zyx", "\x10\x01\x13\x02\x04\x08\x0c", "\x03\x02\x13\x13\x00\x00\x03"} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(7))
	}
	f.Fuzz(search)
}

func search(t *testing.T, script []byte, lost uint8) {
	ours, theirs, common := pair(script)
	h := ours.history()
	whole := int(lost)%4 != 1 || len(h) < 2
	if !whole {
		h = h[1:] // what came before the mirror's first record of its history
	}
	if !h.Valid() {
		t.Fatalf("history %v", h)
	}
	leader := max(theirs.latest(), ours.latest()) + 1
	latest, ok := h.Latest()
	if !ok {
		return
	}
	cut, ask, done := int64(len(ours)), latest.Epoch, false
	for rounds := 0; !done; rounds++ {
		if rounds > len(h) {
			t.Fatalf("no end after %d rounds", rounds)
		}
		a := theirs.end(ask, leader)
		if mine := theirs.history().Assign(leader, int64(len(theirs))).EndFor(ask, int64(len(theirs))); len(theirs) > 0 && mine != a {
			t.Fatalf("%v: EndFor(%d) = %v, by force %v", theirs, ask, mine, a)
		}
		next, lower, over := h.Diverge(a, cut)
		if next > cut || next < 0 || lower >= ask {
			t.Fatalf("%d to %d, then epoch %d after %d", cut, next, lower, ask)
		}
		cut, ask, done = next, lower, over
		if ask < 0 {
			break
		}
	}
	switch {
	case done && cut != int64(common):
		t.Errorf("ours %v\ntheirs %v\ncut at %d, common is %d", ours, theirs, cut, common)
	case !done && cut < int64(common):
		t.Errorf("ours %v\ntheirs %v\nran out at %d, though %d are common", ours, theirs, cut, common)
	case !done && whole && cut != 0:
		t.Errorf("ours %v\ntheirs %v\na whole history ran out at %d", ours, theirs, cut)
	}
}
