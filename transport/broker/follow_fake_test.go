package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/lead"
)

// replica is a log as a real follower keeps it.
type replica struct {
	start, end, mark int64
	batches          [][]byte
	epoch            int32 // of the leader it follows
	delayed          time.Time
	changed          bool // its position, since the last request
}

// cutTo takes away the tail from an offset on, and whole batches at that.
func (r *replica) cutTo(offset int64) {
	for len(r.batches) > 0 {
		last := batch.Header(r.batches[len(r.batches)-1])
		if last.Next() <= offset {
			break
		}
		r.batches = r.batches[:len(r.batches)-1]
		r.end = last.Base()
	}
	r.end, r.mark, r.changed = min(r.end, offset), min(r.mark, offset), true
}

func (r *replica) lastEpoch() int32 {
	if len(r.batches) == 0 {
		return -1
	}
	return batch.Header(r.batches[len(r.batches)-1]).LeaderEpoch()
}

// copier does what a broker's fetcher does, in short (AbstractFetcherThread,
// FetchSessionHandler): incremental sessions, truncation, starting elsewhere.
type copier struct {
	id      int32
	addr    string
	version int16
	topic   cluster.TopicID
	name    string

	mu             sync.Mutex
	logs           map[int32]*replica
	fetches        int
	session, epoch int32
	known          map[int32]bool // partitions of the session
	refused        error
}

func (f *copier) log(n int32) *replica {
	if f.logs[n] == nil {
		f.logs[n] = &replica{}
	}
	return f.logs[n]
}

// run fetches until ctx ends, over connections that are opened again when lost.
func (f *copier) run(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", f.addr)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		for err = nil; err == nil; {
			err = f.turn(conn)
		}
		f.mu.Lock()
		f.epoch, f.known = 0, nil
		if ctx.Err() == nil && f.refused == nil && !errors.Is(err, net.ErrClosed) {
			f.refused = err
		}
		f.mu.Unlock()
		stop()
		conn.Close()
	}
}

func (f *copier) ask(conn net.Conn, req kmsg.Request, version int16) (kmsg.Response, error) {
	req.SetVersion(version)
	var b []byte
	if req.IsFlexible() {
		b = []byte{0}
	}
	if err := writeFrame(conn, frameOf(req.Key(), version, 7, req.AppendTo(b)...)); err != nil {
		return nil, err
	}
	got, err := readRequest(context.Background(), conn, 1<<26, newBudget(1<<26))
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	body := got.bytes[4:]
	if resp.IsFlexible() {
		body = body[1:]
	}
	if binary.BigEndian.Uint32(got.bytes) != 7 {
		return nil, errNoAnswer
	}
	return resp, resp.ReadFrom(body)
}

// request names what has changed since the last one.
func (f *copier) request() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 10<<20
	req.SessionID, req.SessionEpoch = f.session, f.epoch
	req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = f.id, f.id, 1
	topic := kmsg.NewFetchRequestTopic()
	forgotten := kmsg.NewFetchRequestForgottenTopic()
	topic.Topic, topic.TopicID, forgotten.Topic, forgotten.TopicID = f.name, f.topic, f.name, f.topic
	if f.known == nil {
		f.known = make(map[int32]bool)
	}
	for n, log := range f.logs {
		if time.Now().Before(log.delayed) {
			if f.known[n] {
				forgotten.Partitions = append(forgotten.Partitions, n)
				delete(f.known, n)
			}
			continue
		}
		if f.known[n] && !log.changed {
			continue
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch = n, log.epoch, log.end, log.lastEpoch()
		p.LogStartOffset, p.PartitionMaxBytes = log.start, 1<<20
		topic.Partitions = append(topic.Partitions, p)
		f.known[n], log.changed = true, false
	}
	if len(topic.Partitions) > 0 {
		req.Topics = append(req.Topics, topic)
	}
	if len(forgotten.Partitions) > 0 {
		req.ForgottenTopics = append(req.ForgottenTopics, forgotten)
	}
	return req
}

func (f *copier) turn(conn net.Conn) error {
	f.mu.Lock()
	req := f.request()
	f.mu.Unlock()
	answer, err := f.ask(conn, req, f.version)
	if err != nil {
		return err
	}
	resp := answer.(*kmsg.FetchResponse)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fetches++
	if resp.ErrorCode != 0 {
		f.session, f.epoch, f.known = 0, 0, nil
		return nil
	}
	if f.epoch == 0 && f.version >= 13 && len(resp.Topics) == 0 && len(req.Topics) > 0 {
		return errors.New("a full answer without partitions")
	}
	if f.session, f.epoch = resp.SessionID, f.epoch+1; f.session == 0 {
		f.epoch, f.known = 0, nil
	}
	for _, topic := range resp.Topics {
		if f.version < 13 && topic.Topic != f.name || f.version >= 13 && topic.TopicID != f.topic {
			return fmt.Errorf("topic %q %v", topic.Topic, topic.TopicID)
		}
		for i := range topic.Partitions {
			if err := f.take(conn, &topic.Partitions[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// take does what an answer says of a partition.
func (f *copier) take(conn net.Conn, p *kmsg.FetchResponseTopicPartition) error {
	log := f.logs[p.Partition]
	switch {
	case log == nil || !f.known[p.Partition] && f.session != 0:
		return fmt.Errorf("partition %d, which was not asked for", p.Partition)
	case p.ErrorCode == lead.OffsetOutOfRange:
		return f.begin(conn, p.Partition, log)
	case p.ErrorCode != 0:
		log.delayed = time.Now().Add(10 * time.Millisecond)
		return nil
	case p.DivergingEpoch.Epoch >= 0:
		log.cutTo(p.DivergingEpoch.EndOffset)
		return nil
	case p.RecordBatches == nil:
		return errors.New("records that are null")
	}
	walk := batch.Walk(p.RecordBatches)
	for walk.Next() {
		h := walk.Header()
		if h.Base() < log.end || h.LeaderEpoch() > log.epoch {
			return fmt.Errorf("batch at %d of epoch %d, where the log ends at %d in epoch %d", h.Base(), h.LeaderEpoch(), log.end, log.epoch)
		}
		if err := h.Check(); err != nil {
			return err
		}
		log.batches = append(log.batches, bytes.Clone(h))
		log.end, log.changed = h.Next(), true
	}
	if len(walk.Rest()) > 0 {
		return fmt.Errorf("%d bytes that are no batch", len(walk.Rest()))
	}
	log.mark = min(p.HighWatermark, log.end)
	if p.LogStartOffset > log.start {
		log.start, log.changed = p.LogStartOffset, true
	}
	return nil
}

// begin is what is done when the leader's log is elsewhere.
func (f *copier) begin(conn net.Conn, n int32, log *replica) error {
	var ends [2]int64
	for i, when := range []int64{latestOffset, earliestLocal} {
		req := kmsg.NewPtrListOffsetsRequest()
		topic, part := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp, part.CurrentLeaderEpoch = n, when, log.epoch
		topic.Topic, topic.Partitions = f.name, append(topic.Partitions, part)
		req.ReplicaID, req.Topics = f.id, append(req.Topics, topic)
		resp, err := f.ask(conn, req, 10)
		if err != nil {
			return err
		}
		got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if got.ErrorCode != 0 {
			log.delayed = time.Now().Add(10 * time.Millisecond)
			return nil
		}
		ends[i] = got.Offset
	}
	switch latest, earliest := ends[0], ends[1]; {
	case latest < log.end:
		log.cutTo(latest)
	case earliest > log.end:
		*log = replica{start: earliest, end: earliest, mark: earliest, epoch: log.epoch, changed: true}
	}
	return nil
}

// followTest is a server that leads partitions, and followers of it.
type followTest struct {
	*testing.T
	server    *Server
	addr      string
	topic     cluster.TopicID
	followers []*copier
}

func startFollow(t *testing.T, version int16, followers int) *followTest {
	server, addr := serveTest(t, startReal(t), ServerConfig{BrokerListener: "CLIENT"})
	s := &followTest{T: t, server: server, addr: addr, topic: cluster.TopicID{7}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for n := range followers {
		f := &copier{id: int32(n + 1), addr: addr, version: version, topic: s.topic, name: "led", logs: make(map[int32]*replica)}
		s.followers = append(s.followers, f)
		running.Go(func() { f.run(ctx) })
	}
	return s
}

// lead makes us leader of partitions, and them followers.
func (s *followTest) lead(partitions int32, change func(*lead.Config)) (all []*lead.Partition) {
	for n := range partitions {
		cfg := lead.Config{Topic: s.topic, Partition: cluster.Partition{Topic: "led", Partition: n}, Epoch: 4, Quorum: len(s.followers), Window: 1 << 20, Stamp: true}
		for _, f := range s.followers {
			cfg.Followers = append(cfg.Followers, f.id)
		}
		if change != nil {
			change(&cfg)
		}
		all = append(all, lead.New(cfg))
		s.server.led.add(all[n])
		for _, f := range s.followers {
			f.mu.Lock()
			f.log(n).epoch = cfg.Epoch
			f.mu.Unlock()
		}
	}
	if len(s.followers) == 0 { // the test is one itself
		return all
	}
	s.leads(all...)
	return all
}

// leads waits until the followers' ends are known.
func (s *followTest) leads(all ...*lead.Partition) {
	s.Helper()
	s.within("leading", func() error {
		for _, p := range all {
			if state := p.State(); state.Phase != lead.Leading {
				return fmt.Errorf("%+v", state)
			}
		}
		return nil
	})
}

func (s *followTest) within(what string, ok func() error) {
	s.Helper()
	kafkatest.Eventually(s, 20*time.Second, func(context.Context) error {
		for _, f := range s.followers {
			f.mu.Lock()
			refused := f.refused
			f.mu.Unlock()
			if refused != nil {
				s.Fatalf("%s: follower %d: %v", what, f.id, refused)
			}
		}
		if err := ok(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// add appends batches of n records with a gap of one offset between them, and gives
// their bytes as they should be stored.
func (s *followTest) add(p *lead.Partition, base int64, batches int) [][]byte {
	s.Helper()
	var run []cluster.Batch
	var want [][]byte
	for range batches {
		b := batchAt(base, 3, 1)
		run = append(run, cluster.Batch{Base: base, Next: base + 3, Epoch: 1, Bytes: b})
		stored := bytes.Clone(b)
		binary.BigEndian.PutUint32(stored[12:], uint32(p.State().Epoch)) // stamped
		want = append(want, stored)
		base += 4
	}
	failed := make(chan error, 1)
	p.Append(run, nil, func(_ int64, _ int, err error) { failed <- err })
	select {
	case err := <-failed:
		if err != nil {
			s.Fatalf("append: %v", err)
		}
	case <-time.After(20 * time.Second):
		s.Fatalf("append at %d is not held: %+v", base, p.State())
	}
	return want
}

// holds waits until all followers hold exactly this, in a log of these bounds, and
// know that all of it is below the high watermark.
func (s *followTest) holds(n int32, start, end int64, want ...[]byte) {
	s.Helper()
	s.within("the logs", func() error {
		for _, f := range s.followers {
			f.mu.Lock()
			log := *f.log(n)
			f.mu.Unlock()
			if log.start != start || log.mark != end || log.end != end || !bytes.Equal(bytes.Join(log.batches, nil), bytes.Join(want, nil)) {
				return fmt.Errorf("follower %d holds [%d,%d), %d batches, high watermark %d, want [%d,%d)", f.id, log.start, log.end, len(log.batches), log.mark, start, end)
			}
		}
		return nil
	})
}
