package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFetch is the newest fetch version this package has been tried with; first of
// them with topic ids is byNameFetch+1.
const maxFetch = 18

// session is one incremental fetch session. What the broker has been told is kept
// in wanted, so that a session the broker forgot is started again inside Fetch.
type session struct {
	conn    *wire.Conn
	version int16 // newest both know
	broker  int32
	learn   func(cluster.Partition, cluster.Leader)
	leave   func()
	closed  atomic.Bool

	wanted map[cluster.Partition]fetcher.Want
	noID   int                        // wanted partitions without a topic id: above 0, ids cannot be used
	byID   map[cluster.TopicID]string // topics of wanted, and those that left it
	byName map[string]namedTopic

	id    int32 // 0: none
	epoch int32 // of the next request; 0 starts a session
	named bool  // the present session uses names, not ids

	req    kmsg.FetchRequest
	answer kmsg.FetchResponse
}

// namedTopic is found by a name that lies in a frame; its own outlives the frame.
type namedTopic struct {
	name string
	id   cluster.TopicID
}

// Open starts a fetch session with one broker, on a connection of its own.
func (c *Cluster) Open(ctx context.Context, broker int32) (fetcher.Session, error) {
	n := c.slots.take()
	conn, err := c.conn(ctx, broker, fmt.Sprintf("fetch-%d", n))
	if err != nil {
		c.slots.give(n)
		return nil, err
	}
	version := min(maxFetch, conn.MaxVersion(int16(kmsg.Fetch)))
	if version < 4 {
		conn.Close()
		c.slots.give(n)
		return nil, fmt.Errorf("%w: broker %d knows fetch up to version %d, record batches need 4", errors.ErrUnsupported, broker, version)
	}
	return &session{
		conn: conn, version: version, broker: broker, learn: c.client.Learn, leave: func() { c.slots.give(n) },
		wanted: map[cluster.Partition]fetcher.Want{},
		byID:   map[cluster.TopicID]string{}, byName: map[string]namedTopic{},
	}, nil
}

// Close ends a Fetch that waits.
func (s *session) Close() error {
	err := s.conn.Close()
	if !s.closed.Swap(true) {
		s.leave()
	}
	return err
}

// slotNumbers tell the connections of sessions apart. Numbers are used again, so
// that the client keeps no trace of sessions that are gone.
type slotNumbers struct {
	mu   sync.Mutex
	made int
	free []int
}

func (s *slotNumbers) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		last := s.free[n-1]
		s.free = s.free[:n-1]
		return last
	}
	s.made++
	return s.made
}

func (s *slotNumbers) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, n)
}

// sessionTries bounds how often one Fetch starts a forgotten session again.
const sessionTries = 3

// Fetch tells the broker what changed and waits for its answer.
func (s *session) Fetch(ctx context.Context, req *fetcher.FetchRequest) (*fetcher.FetchResponse, error) {
	s.note(req)
	full := s.restart()
	for range sessionTries {
		s.lay(req, full)
		frame, err := s.conn.DoFrame(ctx, &s.req, s.req.Version)
		if err != nil {
			return nil, err
		}
		s.answer.Version = s.req.Version
		if err := s.answer.UnsafeReadFrom(frame.Bytes()); err != nil {
			frame.Release()
			s.conn.Close()
			return nil, malformed("fetch", err)
		}
		err = wire.CodeError(s.answer.ErrorCode)
		if err == nil {
			s.advance()
			return s.hand(frame), nil
		}
		frame.Release()
		if !forgotten(s.answer.ErrorCode) {
			return nil, err
		}
		s.id, s.epoch, full = 0, 0, true
	}
	return nil, fmt.Errorf("%w: broker %d keeps losing the fetch session", cluster.ErrUnavailable, s.broker)
}

// forgotten are the codes after which a session starts again: the broker dropped
// it (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH), or the topic ids
// in it changed (FETCH_SESSION_TOPIC_ID_ERROR).
func forgotten(code int16) bool { return code == 70 || code == 71 || code == 106 }

// note brings wanted up to date.
func (s *session) note(req *fetcher.FetchRequest) {
	for _, p := range req.Forgotten {
		if w, ok := s.wanted[p]; ok {
			if w.TopicID.IsZero() {
				s.noID--
			}
			delete(s.wanted, p)
		}
	}
	for _, w := range req.Changed {
		if old, ok := s.wanted[w.Partition]; ok {
			if old.TopicID.IsZero() {
				s.noID--
			}
			if old.TopicID != w.TopicID {
				s.epoch = 0 // the session would go on with the topic that was replaced
			}
		}
		if w.TopicID.IsZero() {
			s.noID++
		}
		s.wanted[w.Partition] = w
		s.byName[w.Partition.Topic] = namedTopic{w.Partition.Topic, w.TopicID}
		s.byID[w.TopicID] = w.Partition.Topic
	}
}

// restart says whether the next request names every wanted partition: there is no
// session, or it spoke of topics in the other way. A session id with epoch 0 ends
// that session and starts another.
func (s *session) restart() bool {
	named := s.version <= byNameFetch || s.noID > 0
	if named != s.named {
		s.epoch, s.named = 0, named
	}
	return s.epoch == 0
}

// advance takes the session id of an answer and the next epoch (KIP-227: 1, 2, ...
// and 1 again after the largest). A broker without room for a session answers id
// 0: then every request is a full one.
func (s *session) advance() {
	switch s.id = s.answer.SessionID; {
	case s.id == 0:
		s.epoch = 0
	case s.epoch == math.MaxInt32:
		s.epoch = 1
	default:
		s.epoch++
	}
}
