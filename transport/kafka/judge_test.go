package kafka

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

// brokerModel is what a broker knows and checks of one partition, as ProducerStateManager
// and ProducerAppendInfo do.
type brokerModel struct {
	own              ownIDs
	marks            markIDs
	start, end       int64
	states           map[int64]producerState
	tail             *tail
	story            []string
	strange, stopped bool // others have written since, the stretch was fenced
}

func newBrokerModel(from int64) *brokerModel {
	topic := cluster.TopicID{7}
	return &brokerModel{own: idsOf("m", topic, 0), marks: marksOf("m", topic, 0), start: from, end: from, states: map[int64]producerState{}}
}

func (m *brokerModel) evidence() evidence {
	l := look{evidence: evidence{own: m.own, marks: m.marks, logStart: m.start, logEnd: m.end}}
	for _, s := range m.states {
		l.states = append(l.states, s)
	}
	l.keepOwn()
	if m.end > m.start {
		l.last = m.tail
	}
	return l.evidence
}

func (m *brokerModel) add(n int64, t tail) {
	t.base, t.next = m.end, m.end+n
	if !t.control {
		t.coordinator = -1
	}
	m.tail, m.end = &t, m.end+n
}

// data appends as a worker would that goes by a verdict, and reports whether the broker
// takes it.
func (m *brokerModel) data(v verdict, n int64, epoch int16, seq int32) bool {
	s, known := m.states[v.id]
	switch {
	case known && int32(epoch) < s.epoch, known && int32(epoch) > s.epoch && seq != 0:
		return false
	case known && int32(epoch) == s.epoch && seq != sequence(int64(s.lastSeq)+1):
		return false
	}
	m.states[v.id] = producerState{id: v.id, epoch: int32(epoch), lastSeq: sequence(int64(seq) + n - 1), stamp: 5, coordinator: -1}
	m.add(n, tail{producerID: v.id, epoch: epoch, baseSequence: seq, maxTimestamp: 5})
	return true
}

// marker appends one, and reports whether the broker takes it.
func (m *brokerModel) marker(id int64, epoch, coordinator int32) bool {
	if s, known := m.states[id]; known && (epoch < s.epoch || coordinator < s.coordinator) {
		return false
	}
	m.states[id] = producerState{id: id, epoch: epoch, lastSeq: -1, coordinator: coordinator}
	m.add(1, tail{producerID: id, epoch: int16(epoch), baseSequence: -1, control: true, coordinator: coordinator})
	return true
}

// markers appends some as a worker does that has just begun, or goes on in its turn.
func (m *brokerModel) markers(n int64, r *rand.Rand) (ok bool) {
	l := lane{marks: m.marks}
	id, known := m.evidence().turn()
	if l.takeTurn(id, known, r.Int32N(5)); known >= 0 && r.IntN(2) == 0 {
		l.turn.epoch, l.turn.held = known, true
	}
	ok = true
	for k, to := l.marking(cluster.Batch{Base: m.end, Next: m.end + n}), m.end+n; k.next < to && ok; {
		ok = m.round(&k, n)
	}
	return ok
}

// round carries out one round of a gap, and reports whether the broker takes all of it.
func (m *brokerModel) round(k *marking, room int64) bool {
	k.begin(room)
	for n := range k.sent {
		if at := k.marker(k.next + n); !m.marker(at.ProducerID, int32(at.ProducerEpoch), at.CoordinatorEpoch) {
			k.code = transactionCoordinatorFenced
		}
	}
	k.end = m.end
	k.judge()
	return k.err == nil
}

// step does something at random with the log; it reports whether the broker took it.
func (m *brokerModel) step(r *rand.Rand, v verdict, strangers bool) bool {
	n := r.Int64N(5) + 1
	what, ok := "data", true
	switch k := r.IntN(10); {
	case k < 5:
		ok = m.data(v, n, 0, sequence(m.end-v.shift))
	case k < 8:
		what = "markers"
		ok = m.markers(n, r)
	case k == 8 && strangers:
		what, m.strange = "others", true
		m.add(n, tail{producerID: -1, epoch: -1, baseSequence: -1})
	case k == 9:
		what, n, m.stopped = "fence", 1, true
		ok = m.data(v, 1, 1, 0)
	}
	m.story = append(m.story, fmt.Sprintf("%s to %d", what, m.end))
	return ok
}

// Whatever a log ends with: a worker that knows nothing but the log goes on with an id
// and a sequence that the broker takes, from the end of the log, as long as only we have
// written; and it never goes on behind others, or behind a fence (I4).
func TestJudgeAnyEnding(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		from := []int64{0, 100, lowBits - 7, 1<<markBits - 7, 3 << 31, 5_000_000_000}[r.IntN(6)]
		m := newBrokerModel(from)
		for range 12 {
			if r.IntN(8) == 0 && !m.strange && !m.stopped { // the age of the records, or the head is trimmed
				m.forget(r)
			}
			v := judge(m.evidence(), false)
			switch {
			case m.strange:
				if v.foreign == nil && !v.stopped || v.foreign != nil && (v.foreign.To != m.end || v.foreign.From >= m.end) {
					t.Fatalf("seed %d: %v: others have written: %+v", seed, m.story, v)
				}
			case m.stopped:
				if !v.stopped {
					t.Fatalf("seed %d: %v: it was stopped: %+v", seed, m.story, v)
				}
			case v.foreign != nil || v.stopped || v.id == 0:
				t.Fatalf("seed %d: %v: only we have written: %+v", seed, m.story, v)
			}
			if m.strange || m.stopped {
				break
			}
			if !m.step(r, v, m.remembered()) {
				t.Fatalf("seed %d: %v: the broker refuses what follows from %+v", seed, m.story, v)
			}
		}
	}
}

// remembered: the broker would tell that others have written.
func (m *brokerModel) remembered() bool {
	e := m.evidence()
	_, ok := e.lastOwn()
	return ok
}

// forget has the broker forget the data's ids, and sometimes the markers', which carry
// its own time, too; or the head goes.
func (m *brokerModel) forget(r *rand.Rand) {
	all := r.IntN(3) == 0
	if m.end > m.start && r.IntN(3) == 0 {
		m.start = m.end
		m.story = append(m.story, "trimmed")
		return
	}
	// Markers that are forgotten while data of the stretch behind them is there are found
	// by narrow, which is not part of judge.
	if all && m.tail != nil && !m.tail.control && m.tail.shift() != 0 {
		all = false
	}
	for id := range m.states {
		if all || m.own.has(id) {
			delete(m.states, id)
		}
	}
	m.story = append(m.story, fmt.Sprintf("forgotten (all: %v)", all))
}
