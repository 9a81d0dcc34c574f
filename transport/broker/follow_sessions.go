package broker

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/wire"
)

// The codes of fetch sessions.
const (
	codeSessionNotFound = wire.Code(70)  // FETCH_SESSION_ID_NOT_FOUND
	codeSessionEpoch    = wire.Code(71)  // INVALID_FETCH_SESSION_EPOCH
	codeSessionTopicID  = wire.Code(106) // FETCH_SESSION_TOPIC_ID_ERROR
)

const (
	maxSessions = 200
	maxFollowed = 500_000 // partitions of all sessions together
	// idleSession: a follower fetches again at once, so one that has not for so long
	// has gone, or begun a new session.
	idleSession = 30 * time.Second
)

// fetchSessions are the sessions of all followers. A session is found again over any
// connection, as its number alone says which one is meant. It is safe for concurrent
// use.
type fetchSessions struct {
	mu       sync.Mutex
	all      map[int32]*fetchSession
	followed int
	owners   map[owned]*fetchSession
	swept    time.Time
}

// owned is a partition of a follower. One session at most may speak for it: the one
// that he began last.
type owned struct {
	replica int32
	fetchKey
}

func newFetchSessions() *fetchSessions {
	return &fetchSessions{all: make(map[int32]*fetchSession), owners: make(map[owned]*fetchSession)}
}

// begin gives the session of a request, with what the request names taken in, to one
// user until end: a new one for a full fetch, or the one that is named. A code is the
// answer when there is none.
func (s *fetchSessions) begin(req *kmsg.FetchRequest, replica int32, now time.Time) (*fetchSession, wire.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	byName := req.Version < 13
	if req.SessionEpoch == 0 || req.SessionEpoch == -1 {
		s.drop(s.all[req.SessionID])
		session := newFetchSession(replica, byName)
		if req.SessionEpoch == 0 && len(s.all) < maxSessions && s.followed < maxFollowed {
			session.id, session.epoch = s.number(), 1
			s.all[session.id] = session
		}
		session.full = true
		s.use(session, req, now)
		return session, 0
	}
	session := s.all[req.SessionID]
	switch {
	case session == nil || session.replica != replica:
		return nil, codeSessionNotFound
	case session.byName != byName:
		return nil, codeSessionTopicID
	case session.busy || session.epoch != req.SessionEpoch:
		return nil, codeSessionEpoch
	}
	session.full = false
	session.epoch = max(1, session.epoch+1) // behind the largest number comes 1
	before := session.counted
	s.use(session, req, now)
	if session.counted > before && s.followed > maxFollowed {
		session.busy = false
		s.drop(session)
		return nil, codeSessionNotFound
	}
	if len(session.parts) == 0 {
		delete(s.all, session.id)
		session.id = 0
	}
	return session, 0
}

// use needs mu.
func (s *fetchSessions) use(session *fetchSession, req *kmsg.FetchRequest, now time.Time) {
	session.busy, session.used = true, now
	session.watcher.Beat(now)
	added, gone := session.update(req)
	for _, k := range added {
		key := owned{session.replica, k}
		if old := s.owners[key]; old != session {
			s.drop(old)
		}
		s.owners[key] = session
	}
	for _, k := range gone { // also one that was named in the same request
		s.disown(session, k)
	}
	s.followed += len(session.parts) - session.counted
	session.counted = len(session.parts)
}

func (s *fetchSessions) disown(session *fetchSession, k fetchKey) {
	if key := (owned{session.replica, k}); s.owners[key] == session {
		delete(s.owners, key)
	}
}

// number finds a free one; it needs mu.
func (s *fetchSessions) number() int32 {
	for {
		id := rand.Int32()
		if id != 0 && s.all[id] == nil {
			return id
		}
	}
}

// end gives a session back.
func (s *fetchSessions) end(session *fetchSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session.busy = false
	if session.dropped {
		s.close(session)
	} else if session.id == 0 {
		s.drop(session)
	}
}

// drop forgets a session. One that is in use is told and ends with its request.
func (s *fetchSessions) drop(session *fetchSession) {
	if session == nil || session.dropped {
		return
	}
	if session.dropped = true; s.all[session.id] == session {
		delete(s.all, session.id)
	}
	for k := range session.parts {
		s.disown(session, k)
	}
	session.retire()
	if !session.busy {
		s.close(session)
	}
}

func (s *fetchSessions) close(session *fetchSession) {
	s.followed -= session.counted
	session.counted = 0
	session.close()
}

// sweep drops, now and then, what nobody has used for long; it needs mu. Where there
// is no room for more, the oldest goes after a third of that.
func (s *fetchSessions) sweep(now time.Time) {
	crowded := len(s.all) >= maxSessions || s.followed >= maxFollowed
	if !crowded && now.Sub(s.swept) < time.Second {
		return
	}
	s.swept = now
	var idle []*fetchSession
	for _, session := range s.all {
		switch unused := now.Sub(session.used); {
		case session.busy:
		case unused > idleSession:
			s.drop(session)
		case crowded && unused > idleSession/3:
			idle = append(idle, session)
		}
	}
	slices.SortFunc(idle, func(a, b *fetchSession) int { return cmp.Compare(a.used.UnixNano(), b.used.UnixNano()) })
	for _, session := range idle {
		if len(s.all) < maxSessions && s.followed < maxFollowed {
			break
		}
		s.drop(session)
	}
}

// clear drops all of them.
func (s *fetchSessions) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.all {
		s.drop(session)
	}
}
