package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// fetchKey names a partition as a fetch does: by its topic's id, or before version
// 13 by its topic's name. The other one is empty.
type fetchKey struct {
	topic     cluster.TopicID
	name      string
	partition int32
}

// find is nil for what we do not lead.
func (r *registry) find(k fetchKey) *lead.Partition {
	if k.topic.IsZero() {
		return r.byName(cluster.Partition{Topic: k.name, Partition: k.partition})
	}
	return r.byID(k.topic, k.partition)
}

// followed is one partition of a fetch session.
type followed struct {
	fetchKey
	led         *lead.Partition // nil while we do not lead it
	at          lead.Fetch      // where the follower stands, as he said last
	awaited     time.Time       // since when it is one that we may lead soon
	mark, start int64           // high watermark and log start as he was told last
	queued      bool
	named       bool // in the request that is being answered
	piece       piece
}

var errSuperseded = errors.New("the follower has begun another session")

const (
	untold   = int64(-1) // what he knows is not known: he is told at the next occasion
	unlooked = int64(-2) // of a fetch without a session: told with the answer, whenever that comes
)

// fetchSession is what a follower's fetch does not say again (KIP-227): it names the
// partitions whose position has changed, and the answer those with news. So a fetch
// costs what has changed, however many partitions there are: the queue holds what
// has to be looked at, filled by the request and by the partitions themselves.
//
// What an answer has brought stays in the queue, as a partition that the next
// request does not name stands where it stood. It goes to the back, and what found
// no room stays in front, so that none starves beside a busy one.
//
// Whoever has it from fetchSessions.begin has it alone, until fetchSessions.end.
type fetchSession struct {
	id      int32 // 0: for one request only
	epoch   int32 // of the next request
	replica int32
	byName  bool
	full    bool // this answer has everything in it, changed or not
	parts   map[fetchKey]*followed
	led     map[*lead.Partition]*followed
	queue   []*followed
	spare   []*followed
	watcher *lead.Watcher
	taken   []*lead.Partition
	landed  landing
	retry   time.Time // when one of the last look wants to be looked at again; zero never

	gone chan struct{} // closed when the follower has begun anew

	looks   sync.Mutex // held by a gather
	retired bool       // no more looks: the follower may be elsewhere by now

	// Of fetchSessions, and guarded by its mu.
	busy, dropped bool
	used          time.Time
	counted       int // partitions
}

func newFetchSession(replica int32, byName bool) *fetchSession {
	return &fetchSession{
		replica: replica, byName: byName, parts: make(map[fetchKey]*followed), led: make(map[*lead.Partition]*followed),
		watcher: lead.NewWatcher(), landed: landing{wake: make(chan struct{}, 1)}, gone: make(chan struct{}),
	}
}

// update takes in what a request names, and says which partitions are new, and which
// are forgotten.
func (s *fetchSession) update(req *kmsg.FetchRequest) (added, gone []fetchKey) {
	first := untold
	if s.id == 0 {
		first = unlooked
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		key := fetchKey{topic: t.TopicID, name: t.Topic}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			key.partition = p.Partition
			f := s.parts[key]
			if f == nil {
				f = &followed{fetchKey: key, mark: first, start: first}
				s.parts[key] = f
				added = append(added, key)
			}
			f.at = lead.Fetch{Replica: s.replica, CurrentEpoch: p.CurrentLeaderEpoch, Offset: p.FetchOffset,
				LastEpoch: p.LastFetchedEpoch, LogStart: p.LogStartOffset, MaxBytes: p.PartitionMaxBytes}
			f.named = true
			s.enqueue(f)
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, n := range t.Partitions {
			key := fetchKey{t.TopicID, t.Topic, n}
			s.forget(key)
			gone = append(gone, key)
		}
	}
	return added, gone
}

func (s *fetchSession) enqueue(f *followed) {
	if f != nil && !f.queued && s.parts[f.fetchKey] == f {
		f.queued = true
		s.queue = append(s.queue, f)
	}
}

func (s *fetchSession) forget(k fetchKey) {
	f := s.parts[k]
	if f == nil {
		return
	}
	s.watch(f, nil)
	f.piece.drop()
	delete(s.parts, k)
}

// watch has the session told of a partition's news, and no more of the one that had
// its place.
func (s *fetchSession) watch(f *followed, p *lead.Partition) {
	if f.led == p {
		return
	}
	if f.led != nil {
		f.led.Ignore(s.watcher)
		delete(s.led, f.led)
	}
	if f.led = p; p != nil {
		s.led[p] = f
		p.Observe(s.watcher)
	}
}

// retire has no look begin any more, and waits for one that has. What the follower
// said in this session must not be told to a partition behind what he says in another.
func (s *fetchSession) retire() {
	close(s.gone)
	s.looks.Lock()
	defer s.looks.Unlock()
	s.retired = true
}

// close ends it for good.
func (s *fetchSession) close() {
	for k := range s.parts {
		s.forget(k)
	}
	s.landed.close()
}

// entry is what an answer says of a partition. Its records are valid until release.
type entry struct {
	fetchKey
	of                  *followed
	code                int16
	mark, stable, start int64
	diverging           cluster.EpochEnd
	records             [][]byte
	size                int
	release             func()
	hold                bool // nothing is to be said yet
	coming              bool // as we do not lead it yet
}

func (e *entry) diverges() bool { return e.diverging.Epoch >= 0 }

// news reports that the follower does not know this yet.
func (e *entry) news() bool {
	return !e.hold && (e.size > 0 || e.code != 0 || e.diverges() || e.mark != e.of.mark || e.start != e.of.start)
}

// waits reports that it may wait for more: there is no error, no cut, and no high
// watermark to be passed on, which others are waiting for.
func (e *entry) waits() bool {
	told := e.hold || e.of.mark == unlooked || e.mark == e.of.mark && e.start == e.of.start
	return e.code == 0 && !e.diverges() && told
}

// gathering is what a look at a session has found.
type gathering struct {
	entries []entry
	size    int  // of the records
	urgent  bool // not to be waited with
	held    bool // what has to be said of a partition is not known yet
	coming  bool // one is not led yet: it does not wake the session
}

// gather looks at what may have changed, and takes of the records what fits into
// limit, the first batch in any case. look says what there is of a partition in so
// many bytes; first allows it more for a batch that is larger. The error is that
// the session is retired.
func (s *fetchSession) gather(look func(f *followed, room int, first bool) entry, limit int) (g gathering, err error) {
	s.looks.Lock()
	defer s.looks.Unlock()
	if s.retired {
		return g, errSuperseded
	}
	s.collect()
	queue := s.queue
	s.queue, s.retry = s.spare[:0], time.Time{}
	var back []*followed
	for _, f := range queue {
		if s.parts[f.fetchKey] != f { // forgotten
			continue
		}
		f.queued = false
		room, first := limit-g.size, g.size == 0
		if room <= 0 && !first && !f.named && !s.full {
			s.enqueue(f)
			continue
		}
		f.named = false
		e := look(f, max(room, 1), first)
		if f.piece.wanted {
			if at := f.piece.due(f.at.Now); s.retry.IsZero() || at.Before(s.retry) {
				s.retry = at
			}
		}
		switch {
		case e.size > 0 || e.code != 0 || e.diverges():
			back = append(back, f)
		case e.coming, !first || f.piece.wanted: // there may be a batch that had no room
			s.enqueue(f)
		}
		g.urgent, g.held = g.urgent || !e.waits(), g.held || s.full && e.hold
		g.coming = g.coming || e.coming
		if s.full || e.news() {
			g.size += e.size
			g.entries = append(g.entries, e)
		} else {
			e.release()
		}
	}
	clear(queue)
	s.spare = queue[:0]
	for _, f := range back {
		s.enqueue(f)
	}
	return g, nil
}

// collect queues what has news.
func (s *fetchSession) collect() {
	s.taken = s.watcher.Take(s.taken[:0])
	for _, p := range s.taken {
		s.enqueue(s.led[p])
	}
	clear(s.taken)
	for _, l := range s.landed.take() {
		l.of.piece.land(l)
		s.enqueue(l.of)
	}
	if s.full {
		for _, f := range s.parts {
			s.enqueue(f)
		}
	}
}

// ready reports that it is worth an answer before the time is over.
func (g *gathering) ready(least int) bool { return !g.held && (g.urgent || g.size >= max(least, 1)) }

// told notes what the follower knows with this answer.
func (g *gathering) told() {
	for i := range g.entries {
		e := &g.entries[i]
		if e.hold { // only a full answer has it at all
			e.code = lead.NotLeader
		}
		if e.of.mark, e.of.start = e.mark, e.start; e.code != 0 {
			e.of.mark = untold // so that he is told when that is over
		}
	}
}

// passed gives up what was found and is not answered yet. From now on what is new to
// a fetch without a session is what differs from this.
func (g *gathering) passed() {
	for i := range g.entries {
		e := &g.entries[i]
		if e.release(); e.of.mark == unlooked && !e.hold {
			e.of.mark, e.of.start = e.mark, e.start
		}
	}
	g.entries, g.size = nil, 0
}

// release is for when the answer is written.
func (g *gathering) release() {
	for i := range g.entries {
		g.entries[i].release()
	}
	g.entries, g.size = nil, 0
}
