package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

// fetchOf is a fetch of a follower that names partitions of one topic, at offset 0.
func fetchOf(session, epoch int32, partitions ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionID, req.SessionEpoch = 17, session, epoch
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID = cluster.TopicID{1}
	for _, n := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes, p.LogStartOffset = n, 1000, 0
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

func forgetting(req *kmsg.FetchRequest, partitions ...int32) *kmsg.FetchRequest {
	topic := kmsg.NewFetchRequestForgottenTopic()
	topic.TopicID, topic.Partitions = cluster.TopicID{1}, partitions
	req.ForgottenTopics = append(req.ForgottenTopics, topic)
	return req
}

// logs are partitions for a session to look at, by number.
type logs map[int32]*fakeLog

type fakeLog struct {
	size        int // of the next batch
	code        int16
	mark, start int64
	diverging   bool
	hold        bool
	looks       int
}

func (l logs) look(f *followed, room int, first bool) entry {
	log := l[f.partition]
	log.looks++
	e := entry{fetchKey: f.fetchKey, of: f, code: log.code, mark: log.mark, start: log.start, diverging: noCut, release: func() {}, hold: log.hold}
	if log.diverging {
		e.diverging = cluster.EpochEnd{Epoch: 1, EndOffset: 5}
	}
	if size := log.size; size > 0 && (size <= min(room, 1000) || first) {
		e.size, e.records = size, [][]byte{make([]byte, size)}
	}
	return e
}

// told is what an answer says, in short.
func told(g *gathering) string {
	var out []string
	for _, e := range g.entries {
		s := fmt.Sprint(e.partition)
		switch {
		case e.code != 0:
			s += fmt.Sprint("!", e.code)
		case e.diverges():
			s += "<"
		case e.size > 0:
			s += fmt.Sprint(":", e.size)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// conversation is one follower's session with those logs.
type conversation struct {
	t        *testing.T
	sessions *fetchSessions
	logs     logs
	id       int32
	epoch    int32
}

func converse(t *testing.T, partitions int) *conversation {
	c := &conversation{t: t, sessions: newFetchSessions(), logs: logs{}}
	for n := range int32(partitions) {
		c.logs[n] = &fakeLog{mark: 5}
	}
	return c
}

// ask is one fetch and its answer; a '~' at the end says that it would wait.
func (c *conversation) ask(limit int, req *kmsg.FetchRequest) string {
	c.t.Helper()
	req.SessionID, req.SessionEpoch = c.id, c.epoch
	s, code := c.sessions.begin(req, 1, time.Unix(1000, 0))
	if code != 0 {
		return fmt.Sprint("code ", int16(code))
	}
	defer c.sessions.end(s)
	c.id = s.id
	if c.epoch++; c.id == 0 {
		c.epoch = 0
	}
	g, err := s.gather(c.logs.look, limit)
	if err != nil {
		return err.Error()
	}
	g.told()
	out := told(&g)
	if !g.ready(1) {
		out += "~"
	}
	return out
}

// TestSession goes through a conversation, as KIP-227 has it.
func TestSession(t *testing.T) {
	c := converse(t, 4)
	c.logs[1].size = 100
	expect := func(what, want string, got string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("all at first", "0 1:100 2 3", c.ask(1000, fetchOf(0, 0, 0, 1, 2, 3)))
	looks := c.logs[0].looks
	expect("not named: stands where it stood", "1:100", c.ask(1000, fetchOf(0, 0)))
	c.logs[1].size = 0
	expect("named, and no news", "~", c.ask(1000, fetchOf(0, 0, 1)))
	expect("nothing named", "~", c.ask(1000, fetchOf(0, 0)))
	if c.logs[0].looks != looks {
		t.Error("a partition without news was looked at")
	}
	c.logs[2].mark = 6
	expect("high watermark", "2", c.ask(1000, fetchOf(0, 0, 2)))
	expect("once", "~", c.ask(1000, fetchOf(0, 0, 2)))
	c.logs[2].start = 3
	expect("log start", "2", c.ask(1000, fetchOf(0, 0, 2)))
	c.logs[3].code = 6
	expect("error", "3!6", c.ask(1000, fetchOf(0, 0, 3)))
	expect("error, again and again", "3!6", c.ask(1000, fetchOf(0, 0)))
	c.logs[3].code = 0
	expect("error gone", "3", c.ask(1000, fetchOf(0, 0)))
	c.logs[0].diverging = true
	expect("diverging", "0<", c.ask(1000, fetchOf(0, 0, 0)))
	expect("diverging until it is heard", "0<", c.ask(1000, fetchOf(0, 0)))
	expect("forgotten", "~", c.ask(1000, forgetting(fetchOf(0, 0), 0)))
	c.logs[0].diverging = false
	expect("new again", "0", c.ask(1000, fetchOf(0, 0, 0)))
	c.epoch = -1
	expect("closing", "1 3~", c.ask(1000, fetchOf(0, 0, 1, 3)))
	if len(c.sessions.all) != 0 || c.sessions.followed != 0 {
		t.Errorf("%d sessions and %d partitions are left", len(c.sessions.all), c.sessions.followed)
	}
}

// TestHeldPartitions: of what is not known yet nothing is said; a full answer, which
// has to name it, waits for it.
func TestHeldPartitions(t *testing.T) {
	c := converse(t, 3)
	c.logs[1].hold, c.logs[0].size = true, 100
	if got, want := c.ask(1000, fetchOf(0, 0, 0, 1)), "0:100 1!6~"; got != want {
		t.Errorf("a full answer: %q, want %q", got, want)
	}
	c.logs[0].size = 0
	if got, want := c.ask(1000, fetchOf(0, 0, 0, 1)), "~"; got != want {
		t.Errorf("an incremental one: %q, want %q", got, want)
	}
	if got, want := c.ask(1000, fetchOf(0, 0, 2, 1)), "2"; got != want {
		t.Errorf("with another one: %q, want %q", got, want)
	}
	c.logs[1].hold = false
	if got, want := c.ask(1000, fetchOf(0, 0, 1)), "1"; got != want {
		t.Errorf("known: %q, want %q", got, want)
	}
}

// TestBusyPartitionsTakeTurns: a full answer is shared by all that have records, and a
// batch that is larger than what is left comes first once.
func TestBusyPartitionsTakeTurns(t *testing.T) {
	c := converse(t, 6)
	for n, log := range c.logs {
		if log.size = 400; n == 4 {
			log.size = 5000
		}
	}
	got := make(map[string]int)
	c.ask(1000, fetchOf(0, 0, 0, 1, 2, 3, 4, 5))
	for range 30 {
		for _, one := range strings.Fields(c.ask(1000, fetchOf(0, 0))) {
			if strings.Contains(one, ":") {
				got[one]++
			}
		}
	}
	for n := range int32(6) {
		name := fmt.Sprint(n, ":", c.logs[n].size)
		if got[name] < 8 || got[name] > 14 {
			t.Errorf("partition %s was served %d times of 30: %v", name, got[name], got)
		}
	}
	c.logs[5].looks = 0
	for range 10 {
		c.ask(300, fetchOf(0, 0, 0)) // one has room, but who is named is heard
	}
	if c.logs[0].looks < 10 || c.logs[5].looks > 5 {
		t.Errorf("the named one was looked at %d times, another one %d times", c.logs[0].looks, c.logs[5].looks)
	}
}

// TestIdleBesideABusyOne: whatever their number, idle partitions are not looked at while
// a busy one is fetched.
func TestIdleBesideABusyOne(t *testing.T) {
	const idle, fetches = 1000, 50
	c := converse(t, idle+1)
	c.logs[0].size = 400
	var all []int32
	for n := range int32(idle + 1) {
		all = append(all, n)
	}
	c.ask(1000, fetchOf(0, 0, all...))
	for range 3 { // what was looked at behind the busy one may have had no room
		c.ask(1000, fetchOf(0, 0, 0))
	}
	for _, log := range c.logs {
		log.looks = 0
	}
	for range fetches {
		if got := c.ask(1000, fetchOf(0, 0, 0)); got != "0:400" {
			t.Fatalf("got %q", got)
		}
	}
	looks := 0
	for _, log := range c.logs {
		looks += log.looks
	}
	if looks > 2*fetches {
		t.Errorf("%d looks at partitions for %d fetches", looks, fetches)
	}
}

// TestSessionRefusals: what is asked of a session that is not there, or is not so far.
func TestSessionRefusals(t *testing.T) {
	now := time.Unix(1000, 0)
	begin := func(s *fetchSessions, req *kmsg.FetchRequest, replica int32) (*fetchSession, int16) {
		session, code := s.begin(req, replica, now)
		return session, int16(code)
	}
	s := newFetchSessions()
	first, _ := begin(s, fetchOf(0, 0, 1), 1)
	s.end(first)
	if first.id == 0 || !first.full {
		t.Fatalf("a full fetch got session %d", first.id)
	}
	old := fetchOf(first.id, 1)
	old.Version = 12
	for name, tt := range map[string]struct {
		req     *kmsg.FetchRequest
		replica int32
		want    int16
	}{
		"another number":    {fetchOf(first.id+1, 1), 1, 70},
		"no number":         {fetchOf(0, 1), 1, 70},
		"of another one":    {fetchOf(first.id, 1), 2, 70},
		"an epoch too late": {fetchOf(first.id, 2), 1, 71},
		"negative":          {fetchOf(first.id, -7), 1, 71},
		"by name":           {old, 1, 106},
	} {
		if got, code := begin(s, tt.req, tt.replica); code != tt.want || got != nil {
			t.Errorf("%s: %v, code %d, want %d", name, got, code, tt.want)
		}
	}
	inUse, _ := begin(s, fetchOf(first.id, 1), 1)
	if inUse != first {
		t.Fatal("the session is lost")
	}
	if _, code := begin(s, fetchOf(first.id, 2), 1); code != 71 {
		t.Errorf("in use: code %d", code)
	}
	again, _ := begin(s, fetchOf(first.id, 0, 1), 1) // the follower begins anew
	select {
	case <-first.gone:
	default:
		t.Error("the old session is not told")
	}
	if _, err := first.gather(nil, 1000); !errors.Is(err, errSuperseded) {
		t.Errorf("a look at the old session: %v", err)
	}
	s.end(first)
	other, _ := begin(s, fetchOf(0, 0, 1), 2) // of another one
	s.end(other)
	s.end(again)
	if _, code := begin(s, fetchOf(first.id, 2), 1); code != 70 || s.followed != 2 {
		t.Errorf("the old session: code %d, %d partitions", code, s.followed)
	}
	again.epoch = 1<<31 - 1
	last, _ := begin(s, fetchOf(again.id, 1<<31-1), 1)
	s.end(last)
	if last.epoch != 1 {
		t.Errorf("behind the last epoch comes %d", last.epoch)
	}
	last, code := begin(s, forgetting(fetchOf(again.id, 1), 1), 1)
	if code != 0 || last.id != 0 || len(s.all) != 1 {
		t.Errorf("nothing left: code %d, session %+v", code, last)
	}
	s.end(last)
	more, _ := begin(s, fetchOf(0, 0, 5, 1), 2) // without naming the old session
	s.end(more)
	if _, code := begin(s, fetchOf(other.id, 1), 2); code != 70 || len(s.all) != 1 || s.followed != 2 || len(s.owners) != 2 {
		t.Errorf("an older session of the same partitions: code %d, %d partitions", code, s.followed)
	}
}

// TestSessionsAreBounded: the ones that were not used for long make room, others do
// not, and what finds no room has none.
func TestSessionsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newFetchSessions()
	var ids []int32
	for n := range maxSessions {
		session, _ := s.begin(fetchOf(0, 0, int32(n)), 1, now.Add(time.Duration(n)*time.Millisecond))
		s.end(session)
		ids = append(ids, session.id)
	}
	now = now.Add(time.Second)
	more, _ := s.begin(fetchOf(0, 0, -1), 1, now)
	if s.end(more); more.id != 0 || len(s.all) != maxSessions {
		t.Errorf("session %d of %d", more.id, len(s.all))
	}
	now = now.Add(idleSession / 2)
	more, _ = s.begin(fetchOf(0, 0, -1), 1, now)
	if s.end(more); more.id == 0 || s.all[ids[0]] != nil || s.all[ids[1]] == nil {
		t.Error("not the oldest one made room")
	}
	now = now.Add(idleSession)
	if _, code := s.begin(fetchOf(ids[5], 1), 1, now); code != codeSessionNotFound || len(s.all) > 1 {
		t.Errorf("code %d, %d sessions after long", code, len(s.all))
	}
	s = newFetchSessions()
	s.followed = maxFollowed
	many, _ := s.begin(fetchOf(0, 0, slices.Repeat([]int32{1}, 3)...), 1, now)
	if s.end(many); many.id != 0 {
		t.Error("too many partitions, and a session")
	}
	s.followed = maxFollowed - 1
	many, _ = s.begin(fetchOf(0, 0, 1), 1, now)
	s.end(many)
	if _, code := s.begin(fetchOf(many.id, 1, 2), 1, now); code != codeSessionNotFound || len(s.all) != 0 {
		t.Errorf("one that grows: code %d, %d sessions", code, len(s.all))
	}
}
