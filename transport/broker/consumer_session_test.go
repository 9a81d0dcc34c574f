package broker

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestConsumerSession goes through the life of fetch sessions (KIP-227).
func TestConsumerSession(t *testing.T) {
	memory := newBudget(100 * wantedCost)
	s := newConsumer()
	wants := func() string {
		text := ""
		for _, w := range s.wanted {
			text += fmt.Sprint(w.name, " ", w.ask.FetchOffset, "; ")
		}
		return text
	}
	step := func(name string, req *kmsg.FetchRequest, id, epoch int32, code int16, want string) {
		t.Helper()
		req.SessionID, req.SessionEpoch = id, epoch
		got, err := s.take(req, memory)
		if err != nil || got != code || wants() != want {
			t.Errorf("%s: error %d %v, wants %q; want error %d, %q", name, got, err, wants(), code, want)
		}
		if memory.left != memory.size-int64(len(s.wanted))*wantedCost {
			t.Errorf("%s: %d bytes are left with %d partitions", name, memory.left, len(s.wanted))
		}
	}
	full := func() *kmsg.FetchRequest { return fetches(12, map[string]int64{"a": 1, "b": 2, "c": 3}) }
	step("without a session", full(), 0, -1, 0, "a 1; b 2; c 3; ")
	if s.id != 0 {
		t.Error("a session that nobody wanted")
	}
	step("none yet", fetches(12, nil), 5, 1, 70, "a 1; b 2; c 3; ")
	step("full", full(), 0, 0, 0, "a 1; b 2; c 3; ")
	id := s.id
	step("another one's", fetches(12, nil), id+1, 1, 70, "a 1; b 2; c 3; ")
	step("too early", fetches(12, nil), id, 2, 71, "a 1; b 2; c 3; ")
	step("by id", fetches(13, nil), id, 1, 106, "a 1; b 2; c 3; ")
	step("nothing new", fetches(12, nil), id, 1, 0, "a 1; b 2; c 3; ")
	step("again", fetches(12, nil), id, 1, 71, "a 1; b 2; c 3; ")
	step("further and more", fetches(12, map[string]int64{"b": 20, "d": 4}), id, 2, 0, "a 1; b 20; c 3; d 4; ")
	less := fetches(12, map[string]int64{"c": 30})
	less.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "a", Partitions: []int32{0, 7}}, {Topic: "none", Partitions: []int32{0}}}
	step("forgotten", less, id, 3, 0, "b 20; c 30; d 4; ")
	s.epoch = math.MaxInt32
	step("the last epoch", fetches(12, nil), id, math.MaxInt32, 0, "b 20; c 30; d 4; ")
	step("and around", fetches(12, map[string]int64{"d": 40}), id, 1, 0, "b 20; c 30; d 40; ")
	step("a new one in its place", full(), id, 0, 0, "a 1; b 2; c 3; ")
	if s.id == id || s.id <= 0 {
		t.Errorf("session %d after %d", s.id, id)
	}
	step("ended", fetches(12, nil), s.id, -1, 0, "")
	step("the old one", fetches(12, nil), id, 1, 70, "")

	many := fetches(12, nil)
	for n := range int32(101) {
		topic := kmsg.NewFetchRequestTopic()
		topic.Partitions = []kmsg.FetchRequestTopicPartition{{Partition: n}}
		many.Topics = append(many.Topics, topic)
	}
	if _, err := s.take(many, memory); !errors.Is(err, errConsumers) {
		t.Errorf("more than there is memory for: %v", err)
	}
	s.hangUp(memory)
	if memory.left != memory.size {
		t.Errorf("%d bytes are lost", memory.size-memory.left)
	}
}

// TestTurns: each partition is asked for first in its turn, and none is left out.
func TestTurns(t *testing.T) {
	s := newConsumer()
	if got := s.turn(); len(got) != 0 {
		t.Errorf("of nothing %v", got)
	}
	if _, err := s.take(fetches(12, map[string]int64{"a": 1, "b": 2, "c": 3}), newBudget(1<<20)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		order := ""
		for _, w := range s.turn() {
			order += w.name
		}
		got = append(got, order)
	}
	if diff := cmp.Diff([]string{"bca", "cab", "abc", "bca"}, got); diff != "" {
		t.Error(diff)
	}
}
