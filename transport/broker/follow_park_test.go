package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/lead"
)

// parked is a follower of one empty partition, whose fetch of a long wait is parked.
type parked struct {
	*testing.T
	server *Server
	addr   string
	conn   net.Conn
	p      *lead.Partition
	id     int32 // of the session
}

// frame is a fetch of replica 1 in version 17.
func fetchFrame(req *kmsg.FetchRequest, corr int32, wait time.Duration) []byte {
	req.ReplicaState.ID, req.MaxWaitMillis, req.MinBytes = 1, int32(wait.Milliseconds()), 1
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			req.Topics[i].Partitions[j].CurrentLeaderEpoch = 4
		}
	}
	return frameOf(1, 17, corr, req.AppendTo([]byte{0})...)
}

func startParked(t *testing.T) *parked {
	t.Helper()
	server, addr := serveTest(t, startReal(t), ServerConfig{BrokerListener: "CLIENT"})
	s := &parked{T: t, server: server, addr: addr, p: lead.New(lead.Config{
		Topic: cluster.TopicID{1}, Partition: cluster.Partition{Topic: "led"}, Epoch: 4, Quorum: 1, Followers: []int32{1}, Stamp: true})}
	server.led.add(s.p)
	s.conn = dialTest(t, addr)
	s.send(fetchFrame(fetchOf(0, 0, 0), 1, 0))
	resp := s.receive()
	if s.id = resp.SessionID; s.id == 0 || resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	s.send(fetchFrame(fetchOf(s.id, 1), 2, 25*time.Second))
	s.eventually(func() bool { return s.busy(2) })
	return s
}

func (s *parked) send(frame []byte) {
	s.Helper()
	if err := writeFrame(s.conn, frame); err != nil {
		s.Fatal(err)
	}
}

func (s *parked) receive() *kmsg.FetchResponse {
	s.Helper()
	got, err := readRequest(context.Background(), s.conn, 1<<20, newBudget(1<<20))
	if err != nil {
		s.Fatal(err)
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(17)
	if err := resp.ReadFrom(got.bytes[5:]); err != nil {
		s.Fatal(err)
	}
	return resp
}

// busy: the session's fetch of the epoch before this one is being answered.
func (s *parked) busy(epoch int32) bool {
	s.server.sessions.mu.Lock()
	defer s.server.sessions.mu.Unlock()
	session := s.server.sessions.all[s.id]
	return session != nil && session.busy && session.epoch == epoch
}

func (s *parked) eventually(ok func() bool) {
	s.Helper()
	kafkatest.Eventually(s, 10*time.Second, func(context.Context) error {
		if !ok() {
			return errors.New("it is not so")
		}
		return nil
	})
}

// add appends a batch, which only a fetch can bring to the follower.
func (s *parked) add() {
	s.Helper()
	s.p.Append([]cluster.Batch{{Base: 0, Next: 3, Epoch: 1, Bytes: batchAt(0, 3, 1)}}, nil, func(int64, int, error) {})
}

func TestParkedFetchIsWoken(t *testing.T) {
	s := startParked(t)
	s.add()
	if resp := s.receive(); len(resp.Topics) != 1 || len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Errorf("%+v", resp)
	}
}

// TestParkedFetchInHaste: a broker that is about to follow more partitions of ours is
// answered, with nothing, so that it can ask for them.
func TestParkedFetchInHaste(t *testing.T) {
	s := startParked(t)
	began := time.Now()
	s.server.haste.begin(time.Now())
	if resp := s.receive(); resp.ErrorCode != 0 || len(resp.Topics) != 0 || time.Since(began) > 10*time.Second {
		t.Errorf("%+v after %v", resp, time.Since(began))
	}
}

// TestParkedFetchEnds when the follower hangs up, begins another session, or the
// server ends; all that long before its time.
func TestParkedFetchEnds(t *testing.T) {
	t.Run("hung up", func(t *testing.T) {
		s := startParked(t)
		s.conn.Close()
		s.eventually(func() bool { return !s.busy(2) })
	})
	t.Run("begun anew", func(t *testing.T) {
		s := startParked(t)
		other := dialTest(t, s.addr)
		if err := writeFrame(other, fetchFrame(fetchOf(s.id, 0, 0), 1, 0)); err != nil {
			t.Fatal(err)
		}
		if n, err := s.conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
			t.Errorf("the old connection: %d bytes, %v", n, err)
		}
	})
	t.Run("the server ends", func(t *testing.T) {
		began := time.Now()
		t.Cleanup(func() {
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the server took %v to end", took)
			}
		})
		startParked(t)
	})
	t.Run("no more ours", func(t *testing.T) {
		s := startParked(t)
		s.server.led.remove(s.p)
		s.p.Close(cluster.ErrFenced)
		if resp := s.receive(); len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != codeUnknownTopicID {
			t.Errorf("%+v", resp)
		}
	})
}

// TestRequestBehindAParkedOne: it is answered behind it, and none of its bytes is lost.
func TestRequestBehindAParkedOne(t *testing.T) {
	s := startParked(t)
	for corr := int32(3); corr < 6; corr++ {
		s.send(fetchFrame(fetchOf(s.id, corr-1), corr, 0))
	}
	s.add()
	if resp := s.receive(); len(resp.Topics) != 1 {
		t.Errorf("the parked one: %+v", resp)
	}
	for range 3 {
		if resp := s.receive(); resp.ErrorCode != 0 || resp.SessionID != s.id || len(resp.Topics) != 1 {
			t.Errorf("one behind it: %+v", resp)
		}
	}
}

// TestAnswerHasRoomForOne: what does not fit comes with the next answer, and a first
// batch that is larger than the answer may be is given all the same.
func TestAnswerHasRoomForOne(t *testing.T) {
	s := startFollow(t, 17, 0)
	all := s.lead(3, func(c *lead.Config) { c.Followers, c.Quorum = []int32{1}, 1 })
	conn := dialTest(t, s.addr)
	session, corr := int32(0), int32(0)
	ask := func(most int32, offset int64, partitions ...int32) *kmsg.FetchResponse {
		req := fetchOf(session, corr, partitions...)
		req.Topics[0].TopicID, req.MaxBytes = s.topic, most
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].FetchOffset, req.Topics[0].Partitions[i].LastFetchedEpoch = offset, -1
		}
		got := exchange(t, conn, fetchFrame(req, corr, 0))
		resp := kmsg.NewPtrFetchResponse()
		resp.SetVersion(17)
		if err := resp.ReadFrom(got[5:]); err != nil || resp.ErrorCode != 0 {
			t.Fatalf("%+v: %v", resp, err)
		}
		session, corr = resp.SessionID, corr+1
		return resp
	}
	records := func(resp *kmsg.FetchResponse) (n, bytes int) {
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				if len(p.RecordBatches) > 0 {
					n, bytes = n+1, bytes+len(p.RecordBatches)
				}
			}
		}
		return n, bytes
	}
	ask(1000, 0, 0, 1, 2)
	one := batchAt(0, 10, 1)
	for _, p := range all {
		p.Append([]cluster.Batch{{Base: 0, Next: 10, Epoch: 1, Bytes: bytes.Clone(one)}}, nil, func(int64, int, error) {})
	}
	size := len(one)
	for _, tt := range []struct{ most, partitions int }{{3 * size, 3}, {3*size - 1, 2}, {size + 1, 1}, {size, 1}, {1, 1}, {0, 1}} {
		if n, got := records(ask(int32(tt.most), 0, 0, 1, 2)); n != tt.partitions || got != n*size {
			t.Errorf("%d bytes at most: %d of %d partitions", tt.most, n, got)
		}
	}
}

// TestFollowerAsksForOffsets: log start, log end and ends of epochs, for what we lead
// and the epoch we lead it in.
func TestFollowerAsksForOffsets(t *testing.T) {
	s := startParked(t)
	s.add()
	s.receive()
	other := dialTest(t, s.addr)
	list := func(partition int32, when int64, epoch int32) kmsg.ListOffsetsResponseTopicPartition {
		req := kmsg.NewPtrListOffsetsRequest()
		topic, part := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp, part.CurrentLeaderEpoch = partition, when, epoch
		topic.Topic, topic.Partitions = "led", append(topic.Partitions, part)
		req.ReplicaID, req.Topics = 1, append(req.Topics, topic)
		req.SetVersion(11)
		got := exchange(t, other, frameOf(2, 11, 1, req.AppendTo([]byte{0})...))
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.SetVersion(11)
		if err := resp.ReadFrom(got[5:]); err != nil {
			t.Fatal(err)
		}
		return resp.Topics[0].Partitions[0]
	}
	for name, tt := range map[string]struct {
		partition int32
		when      int64
		epoch     int32
		code      int16
		offset    int64
	}{
		"latest": {0, -1, 4, 0, 3}, "earliest": {0, -2, 4, 0, 0}, "earliest local": {0, -4, -1, 0, 0}, "in a tier": {0, -5, 4, 0, -1},
		"an older epoch": {0, -1, 3, 74, -1}, "a newer epoch": {0, -1, 5, 75, -1}, "by time": {0, 1000, 4, 42, -1}, "not ours": {1, -1, 4, 6, -1},
	} {
		if got := list(tt.partition, tt.when, tt.epoch); got.ErrorCode != tt.code || got.Offset != tt.offset {
			t.Errorf("%s: %+v", name, got)
		}
	}
	ends := func(partition, current, epoch int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		topic, part := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		part.Partition, part.CurrentLeaderEpoch, part.LeaderEpoch = partition, current, epoch
		topic.Topic, topic.Partitions = "led", append(topic.Partitions, part)
		req.ReplicaID, req.Topics = 1, append(req.Topics, topic)
		req.SetVersion(4)
		got := exchange(t, other, frameOf(23, 4, 1, req.AppendTo([]byte{0})...))
		resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
		resp.SetVersion(4)
		if err := resp.ReadFrom(got[5:]); err != nil {
			t.Fatal(err)
		}
		return resp.Topics[0].Partitions[0]
	}
	if got := ends(0, 4, 4); got.ErrorCode != 0 || got.LeaderEpoch != 4 || got.EndOffset != 3 {
		t.Errorf("end of our epoch: %+v", got)
	}
	if got := ends(0, 3, 4); got.ErrorCode != lead.FencedLeaderEpoch || got.EndOffset != -1 {
		t.Errorf("of an older leader: %+v", got)
	}
	if got := ends(9, 4, 4); got.ErrorCode != lead.NotLeader {
		t.Errorf("not ours: %+v", got)
	}
}

// TestHostileFollower: what is no fetch ends the connection it came on.
func TestHostileFollower(t *testing.T) {
	s := startParked(t)
	good := fetchOf(0, -1, 0)
	good.ReplicaState.ID = 1
	whole := good.AppendTo([]byte{0})
	for name, frame := range map[string][]byte{
		"cut short":             frameOf(1, 17, 1, whole[:len(whole)-8]...),
		"tagged header":         frameOf(1, 17, 1, append([]byte{1, 1, 1, 1}, whole...)...),
		"many topics":           frameOf(1, 17, 1, append(append([]byte{}, whole[:22]...), 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0)...),
		"ListOffsets cut short": frameOf(2, 10, 1, 0, 0, 0, 0, 1, 0),
		"OffsetForLeaderEpoch":  frameOf(23, 4, 1, 0, 0, 0, 0, 1, 0xff, 0xff),
	} {
		conn := dialTest(t, s.addr)
		if err := writeFrame(conn, frame); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, conn); n > 0 || err != nil {
			t.Errorf("%s: %d bytes and %v", name, n, err)
		}
	}
	s.add() // another follower hears of it
	if resp := s.receive(); len(resp.Topics) != 1 {
		t.Errorf("%+v", resp)
	}
}

// FuzzFollower: whatever follows a follower's header, nothing panics, and what was
// begun can be ended.
func FuzzFollower(f *testing.F) {
	req := fetchOf(0, 0, 0, 1)
	req.ReplicaState.ID = 1
	f.Add(int16(17), req.AppendTo([]byte{0}))
	req = forgetting(fetchOf(1, 1, 5), 0, 1)
	req.SetVersion(12)
	f.Add(int16(12), req.AppendTo([]byte{0}))
	server := newServer(ServerConfig{}, nil, nil, nil)
	server.led.add(lead.New(lead.Config{Topic: cluster.TopicID{1}, Partition: cluster.Partition{Topic: "led"}, Epoch: 4, Followers: []int32{1}}))
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		c := &client{server: server}
		req := kmsg.NewPtrFetchRequest()
		done, err := c.decode(t.Context(), header{key: 1, version: 12 + version&7%7, body: body}, req)
		if err != nil {
			return
		}
		done()
		server.sessions.mu.Lock()
		session := newFetchSession(1, false)
		server.sessions.all[1], session.id, session.epoch = session, 1, 1
		server.sessions.mu.Unlock()
		got, code := server.sessions.begin(req, 1, time.Now())
		if (got == nil) == (code == 0) {
			t.Fatalf("session %v and code %d", got, code)
		}
		if got != nil {
			g, err := got.gather(func(f *followed, room int, first bool) entry {
				return c.look(t.Context(), got, f, time.Now(), room, first)
			}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			new(fetchWriter).encode(1, &fetchAnswer{version: 17, entries: g.entries})
			g.release()
			server.sessions.end(got)
		}
		server.sessions.clear()
		if s := server.sessions; s.followed != 0 || len(s.owners) != 0 {
			t.Fatalf("%d partitions, %d owners are left", s.followed, len(s.owners))
		}
	})
}

// TestFetchOfWhatComesIsHeld: a follower that learns of an election before we do is answered
// when we lead, in a full fetch and in one that adds the partition to a session. One that
// comes in vain is sent away in the end.
func TestFetchOfWhatComesIsHeld(t *testing.T) {
	begin := func(t *testing.T) *parked {
		server, addr := serveTest(t, startReal(t), ServerConfig{BrokerListener: "CLIENT"})
		server.coming = func(k fetchKey) (bool, bool) { return k.topic == cluster.TopicID{1} && k.partition == 0, false }
		return &parked{T: t, server: server, addr: addr, conn: dialTest(t, addr)}
	}
	led := func(n int32) *lead.Partition {
		return lead.New(lead.Config{Topic: cluster.TopicID{1}, Partition: cluster.Partition{Topic: "led", Partition: n}, Epoch: 4, Quorum: 1, Followers: []int32{1}})
	}
	code := func(s *parked) (code int16, some bool) {
		resp := s.receive()
		s.id = resp.SessionID
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				if p.Partition == 0 {
					return p.ErrorCode, true
				}
			}
		}
		return 0, false
	}
	t.Run("full", func(t *testing.T) {
		s := begin(t)
		s.send(fetchFrame(fetchOf(0, 0, 0), 1, 0))
		s.eventually(func() bool { return s.sessions() > 0 })
		s.server.led.add(led(0))
		if code, some := code(s); code != 0 || !some {
			t.Errorf("code %d, %v", code, some)
		}
	})
	t.Run("added to a session", func(t *testing.T) {
		s := begin(t)
		s.server.led.add(led(1))
		s.send(fetchFrame(fetchOf(0, 0, 1), 1, 0))
		if _, some := code(s); some || s.id == 0 {
			t.Fatal("no session")
		}
		s.send(fetchFrame(fetchOf(s.id, 1, 0), 2, 25*time.Second))
		s.eventually(func() bool { return s.busy(2) })
		s.server.led.add(led(0))
		if code, some := code(s); code != 0 || !some {
			t.Errorf("code %d, %v", code, some)
		}
	})
	t.Run("in vain", func(t *testing.T) {
		s := begin(t)
		s.send(fetchFrame(fetchOf(0, 0, 0), 1, 0))
		if code, some := code(s); code != codeUnknownTopicID || !some {
			t.Errorf("code %d, %v", code, some)
		}
	})
}

func (s *parked) sessions() int {
	s.server.sessions.mu.Lock()
	defer s.server.sessions.mu.Unlock()
	return len(s.server.sessions.all)
}
