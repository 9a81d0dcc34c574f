package metalogtest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/batch"
)

// Quorum is a set of controllers with one Log.
type Quorum struct {
	*Log
	nodes   []*node
	running sync.WaitGroup

	setup    sync.Mutex
	versions map[int16]int16
	handle   Handler
}

// Handler answers a request that is not about the log, in the goroutine of its
// connection; nil closes the connection.
type Handler func(controller int, req kmsg.Request) kmsg.Response

// Handle sets who answers what is not about the log. Default: nobody.
func (q *Quorum) Handle(h Handler) {
	q.setup.Lock()
	defer q.setup.Unlock()
	q.handle = h
}

// Offer sets the newest version of a request, -1 for none at all. Default: as
// Kafka 4.4.
func (q *Quorum) Offer(key, version int16) {
	q.setup.Lock()
	defer q.setup.Unlock()
	q.versions[key] = version
}

type node struct {
	mu     sync.Mutex
	l      net.Listener
	conns  map[net.Conn]struct{}
	silent bool
}

// Start starts controllers, the first of which is active; they end with the test.
func Start(t testing.TB, controllers int) *Quorum {
	t.Helper()
	q := &Quorum{Log: newLog(), versions: map[int16]int16{1: 18, 18: 4, 55: 2, 59: 1, 62: 4, 63: 2, 64: 0, 70: 0}}
	for i := range controllers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n := &node{l: l, conns: make(map[net.Conn]struct{})}
		q.nodes = append(q.nodes, n)
		q.running.Go(func() { q.accept(i, n) })
	}
	t.Cleanup(func() {
		for i := range q.nodes {
			q.Kill(i)
		}
		q.running.Wait()
	})
	return q
}

// Addr is where a controller listens, "127.0.0.1:port".
func (q *Quorum) Addr(controller int) string { return q.nodes[controller].l.Addr().String() }

// Addrs are all addresses.
func (q *Quorum) Addrs() []string {
	var all []string
	for i := range q.nodes {
		all = append(all, q.Addr(i))
	}
	return all
}

// Kill ends a controller for good; nobody is elected by that.
func (q *Quorum) Kill(controller int) {
	n := q.nodes[controller]
	n.l.Close()
	n.cut()
}

// Freeze makes a controller silent, as SIGSTOP does.
func (q *Quorum) Freeze(controller int) {
	n := q.nodes[controller]
	n.mu.Lock()
	n.silent = true
	n.mu.Unlock()
}

func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Close()
	}
}

func (q *Quorum) accept(id int, n *node) {
	for {
		conn, err := n.l.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		n.conns[conn] = struct{}{}
		n.mu.Unlock()
		q.running.Go(func() {
			q.serve(id, n, conn)
			conn.Close()
			n.mu.Lock()
			delete(n.conns, conn)
			n.mu.Unlock()
		})
	}
}

func (q *Quorum) serve(id int, n *node, conn net.Conn) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, b); err != nil {
			return
		}
		n.mu.Lock()
		silent := n.silent
		n.mu.Unlock()
		if silent {
			continue
		}
		req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(b)))
		req.SetVersion(int16(binary.BigEndian.Uint16(b[2:])))
		body := b[10+int(binary.BigEndian.Uint16(b[8:])):]
		if req.IsFlexible() {
			body = body[1:]
		}
		if err := req.ReadFrom(body); err != nil {
			return
		}
		resp := q.answer(id, req)
		if resp == nil {
			return
		}
		resp.SetVersion(req.GetVersion())
		out := append(make([]byte, 4, 64), b[4:8]...)
		if resp.IsFlexible() && resp.Key() != 18 {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (q *Quorum) answer(id int, req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		resp := kmsg.NewPtrApiVersionsResponse()
		q.setup.Lock()
		defer q.setup.Unlock()
		for key, version := range q.versions {
			if version < 0 {
				continue
			}
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: version})
		}
		return resp
	case *kmsg.DescribeQuorumRequest:
		return q.describe(id)
	case *kmsg.FetchRequest:
		return q.fetch(id, req)
	case *kmsg.FetchSnapshotRequest:
		return q.piece(req)
	}
	q.setup.Lock()
	handle := q.handle
	q.setup.Unlock()
	if handle == nil {
		return nil
	}
	return handle(id, req)
}

const notLeader = 6

func (q *Quorum) describe(id int) kmsg.Response {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = int32(id), q.epoch, q.mark
	if id != q.leader {
		p.ErrorCode = notLeader
	}
	resp := kmsg.NewPtrDescribeQuorumResponse()
	resp.Topics = []kmsg.DescribeQuorumResponseTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumResponseTopicPartition{p}}}
	for i, n := range q.nodes {
		addr := n.l.Addr().(*net.TCPAddr)
		resp.Nodes = append(resp.Nodes, kmsg.DescribeQuorumResponseNode{NodeID: int32(i),
			Listeners: []kmsg.DescribeQuorumResponseNodeListener{{Name: "CONTROLLER", Host: "127.0.0.1", Port: uint16(addr.Port)}}})
	}
	return resp
}

// fetch answers as KafkaRaftClient does: at once when there is something to say.
func (q *Quorum) fetch(id int, req *kmsg.FetchRequest) kmsg.Response {
	asked := &req.Topics[0].Partitions[0]
	late := time.After(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	for first := true; ; first = false {
		q.mu.Lock()
		p, done := q.look(id, asked)
		if first {
			q.fetches++
		}
		moved := q.moved
		q.mu.Unlock()
		select {
		case <-late:
			done = true
		default:
		}
		if done {
			resp := kmsg.NewPtrFetchResponse()
			resp.Topics = []kmsg.FetchResponseTopic{{TopicID: req.Topics[0].TopicID, Partitions: []kmsg.FetchResponseTopicPartition{p}}}
			return resp
		}
		select {
		case <-moved:
		case <-late:
			late = time.After(0)
		}
	}
}

// look is one look at the log; done tells that there is something to say.
func (q *Quorum) look(id int, asked *kmsg.FetchRequestTopicPartition) (p kmsg.FetchResponseTopicPartition, done bool) {
	p = kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.RecordBatches = q.mark, []byte{}
	switch {
	case id != q.leader:
		p.ErrorCode = notLeader
		return p, true
	case asked.CurrentLeaderEpoch < q.epoch:
		p.ErrorCode = 74
		return p, true
	}
	at := batchEnd{asked.FetchOffset, asked.LastFetchedEpoch}
	if at != (batchEnd{}) || q.start > 0 {
		if at.offset < q.start {
			p.SnapshotID.EndOffset, p.SnapshotID.Epoch = q.snapAt.offset, q.snapAt.epoch
			return p, true
		}
		if end := q.endOf(at.epoch); end.epoch != at.epoch || end.offset < at.offset {
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = end.epoch, end.offset
			return p, true
		}
	}
	for _, b := range q.batches {
		if batch.Header(b).Next() > at.offset {
			p.RecordBatches = append(p.RecordBatches, b...)
		}
	}
	return p, len(p.RecordBatches) > 0 || asked.HighWatermark < q.mark
}

// piece serves a snapshot in small pieces, so that batches are cut.
func (q *Quorum) piece(req *kmsg.FetchSnapshotRequest) kmsg.Response {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := &req.Topics[0].Partitions[0]
	p := kmsg.NewFetchSnapshotResponseTopicPartition()
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = asked.SnapshotID.EndOffset, asked.SnapshotID.Epoch
	p.Position, p.Size = asked.Position, int64(len(q.snapshot))
	if (batchEnd{asked.SnapshotID.EndOffset, asked.SnapshotID.Epoch}) != q.snapAt {
		p.ErrorCode = 98
	} else {
		from := min(asked.Position, p.Size)
		p.Bytes = q.snapshot[from:min(from+100, p.Size)]
	}
	resp := kmsg.NewPtrFetchSnapshotResponse()
	resp.Topics = []kmsg.FetchSnapshotResponseTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.FetchSnapshotResponseTopicPartition{p}}}
	return resp
}
