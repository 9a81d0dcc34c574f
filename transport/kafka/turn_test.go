package kafka

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

// beginner is a worker that fills a long gap.
type beginner struct {
	lane  lane
	owner int32
	at    marking
	ready bool // has looked, and goes on from there
}

// look is what Ends does: the log end, and a turn of one's own.
func (f *beginner) look(m *brokerModel) {
	id, known := m.evidence().turn()
	f.lane.marks = m.marks
	f.lane.takeTurn(id, known, f.owner)
	f.lane.doubtful = 0
	f.at = f.lane.marking(cluster.Batch{Base: m.end, Next: m.end + 1000})
	f.ready = true
}

// Any number of workers look and write in any order, also long after they have looked:
// every marker that a broker takes stands where it belongs (I4), as long as no two workers
// have picked the same in front of the same end.
func TestTurnsInAnyOrder(t *testing.T) {
	wrote, fenced := 0, 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := newBrokerModel([]int64{0, 1<<markBits - 3, lowBits - 7, 5_000_000_000}[r.IntN(4)])
		workers := make([]beginner, 2+r.IntN(3))
		for i := range workers {
			workers[i].owner = int32(i+1) * (1 - int32(r.IntN(2))*int32(seed%2)) // some do not know theirs
		}
		var story []string
		for range 30 {
			i := r.IntN(len(workers))
			w := &workers[i]
			if !w.ready || r.IntN(5) == 0 {
				if w.look(m); !distinct(workers, i) {
					w.ready = false
					continue
				}
				story = append(story, fmt.Sprintf("%d looks at %d: %+v", i, m.end, w.at.turn))
				continue
			}
			before, fits := m.end, w.at.next == m.end
			ok := m.round(&w.at, 1+r.Int64N(3))
			story = append(story, fmt.Sprintf("%d to %d: %v", i, m.end, w.at.err))
			switch {
			case m.end > before && !fits:
				t.Fatalf("seed %d: a marker that belongs at %d was taken at %d:\n%v", seed, w.at.next, before, story)
			case ok:
				wrote++
				w.lane.turn = w.at.turn
			default:
				fenced++
				w.ready, w.lane.doubtful = false, 1
			}
		}
	}
	if wrote < 100_000 || fenced < 10_000 {
		t.Errorf("%d rounds were written and %d refused: too few to tell", wrote, fenced)
	}
}

// distinct: nobody else has picked what this one did, whose next marker could be the first
// with the same id.
func distinct(workers []beginner, i int) bool {
	for k := range workers {
		a, b := workers[i].at.turn, workers[k].at.turn
		if k != i && workers[k].ready && a.pick == b.pick && (a.id != b.id || !a.held && !b.held) {
			return false
		}
	}
	return true
}

func TestTakeTurn(t *testing.T) {
	const id, other = 8, 9
	begun := turn{id: id, pick: 6, epoch: 20, held: true}
	for name, c := range map[string]struct {
		before   turn
		doubtful int64
		id       int64
		known    int32
		goes     bool // the turn before goes on
		least    int32
	}{
		"the first":             {turn{}, 0, id, -1, false, 0},
		"it is still the last":  {begun, 0, id, 20, true, 20},
		"something is doubtful": {begun, 3, id, 20, false, 21},
		"somebody came after":   {begun, 0, id, 25, false, 26},
		"another id":            {begun, 0, other, -1, false, 0},
		"it does not stand":     {turn{id: id, pick: 6, epoch: 20}, 0, id, 13, false, 14},
		"no more turns":         {begun, 0, id, turns, false, turns},
	} {
		seen := map[int32]bool{}
		for range 200 {
			l := lane{turn: c.before, doubtful: c.doubtful}
			l.takeTurn(c.id, c.known, 0)
			seen[l.turn.pick] = true
			if goes := l.turn == c.before; goes != c.goes || l.turn.epoch < c.least || l.turn.epoch > min(c.least+picks-1, turns) {
				t.Fatalf("%s: %+v", name, l.turn)
			}
			if !c.goes && (l.turn.held || l.turn.id != c.id || c.before.id != 0 && l.turn.pick == c.before.pick) {
				t.Fatalf("%s: %+v", name, l.turn)
			}
		}
		if !c.goes && len(seen) < picks-1 {
			t.Errorf("%s: picks %v", name, seen)
		}
	}
	for a := range int32(8) { // neighbouring owners never pick the same
		for range 100 {
			la, lb := lane{}, lane{}
			la.takeTurn(id, 3, a+1)
			lb.takeTurn(id, 3, a+2)
			if la.turn.pick == lb.turn.pick || la.turn.pick < 0 || la.turn.pick >= picks {
				t.Fatalf("owners %d and %d: %+v, %+v", a+1, a+2, la.turn, lb.turn)
			}
		}
	}
}

// The first marker of a turn goes out alone, no round has two ids, and every marker says
// where it belongs.
func TestRoundsOfAGap(t *testing.T) {
	m := newBrokerModel(1<<markBits - 100)
	l := lane{marks: m.marks}
	id, known := m.evidence().turn()
	l.takeTurn(id, known, 0)
	k := l.marking(cluster.Batch{Base: m.end, Next: m.end + 300})
	var sent []int64
	for k.next < k.to {
		at := k.next
		if !m.round(&k, 60) {
			t.Fatal(k.err)
		}
		sent = append(sent, k.next-at)
		if first := sent[len(sent)-1] == 1; (m.tail.coordinator&ordinary == ordinary) == first {
			t.Errorf("up to %d: rank %d", k.next, m.tail.coordinator&ordinary)
		}
		if b := m.marks.belongs(m.tail.producerID, m.tail.coordinator); b != k.next-1 {
			t.Errorf("the marker at %d says it belongs at %d", k.next-1, b)
		}
	}
	if want := []int64{1, 60, 39, 1, 60, 60, 60, 19}; fmt.Sprint(sent) != fmt.Sprint(want) {
		t.Errorf("rounds of %v, want %v", sent, want)
	}
	if len(m.states) != 2 {
		t.Errorf("%d ids", len(m.states))
	}
}
