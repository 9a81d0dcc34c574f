package kafka

import (
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/google/go-cmp/cmp"
)

func TestProducerIDs(t *testing.T) {
	topic := cluster.TopicID{1, 2, 3}
	own := idsOf("m", topic, 4)
	for _, id := range []int64{own.stretch(0), own.stretch(1 << 40), own.filler()} {
		if id < 1<<62 || id < 0 {
			t.Errorf("%#x: not in the range no cluster hands out", id)
		}
		if !own.has(id) {
			t.Errorf("%#x is not recognised", id)
		}
		for name, other := range map[string]ownIDs{"mirror": idsOf("n", topic, 4), "topic": idsOf("m", cluster.TopicID{1}, 4), "partition": idsOf("m", topic, 5)} {
			if other.has(id) {
				t.Errorf("%#x is taken for one of another %s", id, name)
			}
		}
	}
	if own.stretches(own.filler()) || !own.stretches(own.stretch(fillerTag)) {
		t.Error("the fillers' id is not kept apart")
	}
	if own.stretch(100) == own.stretch(101) || own.stretch(100) != idsOf("m", topic, 4).stretch(100) {
		t.Error("an id must depend on the start offset and on nothing of the process")
	}
	if a, b := own.stretch(fillerTag-1), own.after(own.stretch(fillerTag-1)); a == b || !own.stretches(b) {
		t.Errorf("%#x after %#x", b, a)
	}
}

func TestContinues(t *testing.T) {
	for _, c := range []struct {
		last int32
		end  int64
		want bool
	}{
		{99, 100, true}, {99, 101, false}, {98, 100, false}, {-1, 0, false},
		{1<<31 - 1, 1 << 31, true}, {0, 1<<31 + 1, true}, {1<<31 - 1, 0, true}, {99, 100 + 1<<31, true},
	} {
		if got := continues(c.last, c.end); got != c.want {
			t.Errorf("continues(%d, %d) = %v", c.last, c.end, got)
		}
	}
}

func TestJudge(t *testing.T) {
	own := idsOf("m", cluster.TopicID{9}, 0)
	other := idsOf("other", cluster.TopicID{9}, 0)
	first, second := own.stretch(0), own.stretch(106)
	ours := func(base, next int64, seq int32) *tail {
		return &tail{base: base, next: next, producerID: first, baseSequence: seq}
	}
	foreign := func(base, next int64) *tail { return &tail{base: base, next: next, producerID: -1} }
	span := func(from, to int64) *cluster.Span { return &cluster.Span{From: from, To: to} }
	for _, c := range []struct {
		name  string
		e     evidence
		fresh bool
		want  verdict
	}{
		{"empty", evidence{}, false, verdict{id: first}},
		{"goes on", evidence{logEnd: 100, states: []producerState{{id: first, lastSeq: 99, stamp: 5}}}, false, verdict{id: first, known: true, stamp: 5}},
		{"newest of two", evidence{logEnd: 200, states: []producerState{{id: first, epoch: 1, lastSeq: 0}, {id: second, epoch: 0, lastSeq: 199}}}, false, verdict{id: second, known: true}},
		{"broker forgot", evidence{logEnd: 100, last: ours(90, 100, 90)}, false, verdict{id: first}},
		{"broker forgot, beyond 2^31", evidence{logEnd: 1<<31 + 100, last: ours(1<<31+90, 1<<31+100, 90)}, false, verdict{id: first}},
		{"fenced", evidence{logEnd: 101, states: []producerState{{id: first, epoch: 1, lastSeq: 0}}, last: &tail{base: 100, next: 101, producerID: first, epoch: 1}}, false, verdict{stopped: true, fenceAt: true}},
		{"fenced and forgotten", evidence{logEnd: 101, last: &tail{base: 100, next: 101, producerID: first, epoch: 1}}, false, verdict{stopped: true, fenceAt: true}},
		{"fenced, others after it", evidence{logEnd: 106, states: []producerState{{id: first, epoch: 1, lastSeq: 0}}, last: foreign(101, 106)}, false, verdict{stopped: true}},
		{"fenced, others after it, again", evidence{logEnd: 106, states: []producerState{{id: first, epoch: 1, lastSeq: 0}}, last: foreign(101, 106)}, true, verdict{id: second}},
		{"again with the tag in use", evidence{logEnd: 106, states: []producerState{{id: second, epoch: 1, lastSeq: 0}}}, true, verdict{id: own.after(second)}},
		{"foreign write", evidence{logEnd: 105, states: []producerState{{id: first, lastSeq: 99}}, last: foreign(100, 105)}, false, verdict{foreign: span(100, 105)}},
		{"ours displaced behind a foreign write", evidence{logEnd: 115, states: []producerState{{id: first, epoch: 0, lastSeq: 109}}, last: ours(105, 115, 100)}, false, verdict{foreign: span(100, 115)}},
		{"a prefix that is there already", evidence{logEnd: 50, last: foreign(40, 50)}, false, verdict{id: own.stretch(50)}},
		{"another mirror's", evidence{logEnd: 50, last: &tail{base: 40, next: 50, producerID: other.stretch(0), baseSequence: 40}}, false, verdict{id: own.stretch(50)}},
		{"fillers", evidence{logEnd: 1000, last: &tail{next: 1000, producerID: own.filler()}, states: []producerState{{id: own.filler(), epoch: 0, lastSeq: 999}}}, false, verdict{id: own.stretch(1000)}},
		{"trimmed to its end", evidence{logStart: 1000, logEnd: 1000}, false, verdict{id: own.stretch(1000)}},
		{"trimmed to its end, remembered", evidence{logStart: 1000, logEnd: 1000, states: []producerState{{id: first, epoch: 0, lastSeq: 999}}}, false, verdict{id: first, known: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.e.own = own
			if diff := cmp.Diff(c.want, judge(c.e, c.fresh), cmp.AllowUnexported(verdict{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
