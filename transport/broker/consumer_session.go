package broker

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/wire"
)

// consumer is what the connection of a client keeps of its fetches, from the first
// one on that comes while we lead something. Its fetch session (KIP-227) is with us
// then, and a real broker is asked without one: so any partition of it can be asked
// of any broker at any time.
type consumer struct {
	id, epoch int32 // of the session, and of the next request in it; id 0 for none
	byID      bool  // topics are named by id
	wanted    []wanted
	index     map[fetchKey]int // in wanted
	first     int              // in wanted: who is asked for first
	held      int64            // of the server's memory
	rack      string           // the client's own, as it said last

	away   map[fetchKey]time.Time // no replica at this connection's real broker, as it said then
	sides  map[int32]*wire.Conn   // to followers, as ourselves
	failed map[int32]time.Time    // followers that could not be asked
}

// wanted is one partition of a fetch.
type wanted struct {
	fetchKey
	ask kmsg.FetchRequestTopicPartition
}

// wantedCost is what a session holds for each partition.
const wantedCost = 256

// errConsumers: so many partitions are fetched by so many clients that there is no
// memory left to know them.
var errConsumers = errors.New("no memory for the partitions of a consumer")

// take brings in a request. A code other than 0 is the whole answer. It is
// FetchManager.newContext in short.
func (s *consumer) take(req *kmsg.FetchRequest, memory *budget) (code int16, err error) {
	byID := req.Version >= 13
	switch {
	case req.SessionEpoch <= 0:
		s.close(memory)
		s.byID = byID
		s.add(req)
		if req.SessionEpoch == 0 && len(s.wanted) > 0 {
			s.id, s.epoch = 1+rand.Int32N(math.MaxInt32), 1
		}
		return 0, s.hold(memory)
	case s.id == 0 || req.SessionID != s.id:
		return int16(codeSessionNotFound), nil
	case req.SessionEpoch != s.epoch:
		return int16(codeSessionEpoch), nil
	case byID != s.byID:
		return int16(codeSessionTopicID), nil
	}
	s.add(req)
	s.forget(req)
	s.epoch = max(s.epoch+1, 1) // it wraps around to 1
	return 0, s.hold(memory)
}

func (s *consumer) add(req *kmsg.FetchRequest) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			p.UnknownTags = kmsg.Tags{}
			w := wanted{fetchKey{t.TopicID, t.Topic, p.Partition}, p}
			if at, ok := s.index[w.fetchKey]; ok {
				s.wanted[at] = w
				continue
			}
			s.index[w.fetchKey] = len(s.wanted)
			s.wanted = append(s.wanted, w)
		}
	}
}

func (s *consumer) forget(req *kmsg.FetchRequest) {
	gone := 0
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			name := fetchKey{t.TopicID, t.Topic, p}
			if _, ok := s.index[name]; ok {
				delete(s.index, name)
				delete(s.away, name)
				gone++
			}
		}
	}
	if gone == 0 {
		return
	}
	s.wanted = slices.DeleteFunc(s.wanted, func(w wanted) bool { _, ok := s.index[w.fetchKey]; return !ok })
	for at, w := range s.wanted {
		s.index[w.fetchKey] = at
	}
}

// hold takes memory for the partitions as they are.
func (s *consumer) hold(memory *budget) error {
	need := int64(len(s.wanted)) * wantedCost
	if more := need - s.held; more > 0 && !memory.try(more) {
		return fmt.Errorf("%w: %d partitions", errConsumers, len(s.wanted))
	} else if more < 0 {
		memory.give(-more)
	}
	s.held = need
	return nil
}

// close ends the session. What is known of brokers stays.
func (s *consumer) close(memory *budget) {
	memory.give(s.held)
	s.id, s.epoch, s.held, s.wanted, s.first = 0, 0, 0, nil, 0
	clear(s.index)
}

// hangUp ends everything, with the client's connection.
func (s *consumer) hangUp(memory *budget) {
	s.close(memory)
	for _, conn := range s.sides {
		conn.Close()
	}
}

// turn gives all partitions, beginning with another one each time, so that in an
// answer with too little room for all no partition is always the last.
func (s *consumer) turn() []wanted {
	if len(s.wanted) == 0 {
		return nil
	}
	s.first = (s.first + 1) % len(s.wanted)
	return slices.Concat(s.wanted[s.first:], s.wanted[:s.first])
}

func newConsumer() *consumer {
	return &consumer{index: make(map[fetchKey]int), away: make(map[fetchKey]time.Time), sides: make(map[int32]*wire.Conn), failed: make(map[int32]time.Time)}
}

// fetchRequest asks for partitions in a client's words, without a session.
func fetchRequest(from *kmsg.FetchRequest, version int16, parts []wanted) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID = version, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel, req.Rack = from.MaxWaitMillis, from.MinBytes, from.MaxBytes, from.IsolationLevel, from.Rack
	for _, w := range parts {
		last := len(req.Topics) - 1
		if last < 0 || req.Topics[last].Topic != w.name || req.Topics[last].TopicID != w.topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = w.name, w.topic
			req.Topics = append(req.Topics, t)
			last++
		}
		req.Topics[last].Partitions = append(req.Topics[last].Partitions, w.ask)
	}
	return req
}
