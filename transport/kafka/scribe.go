package kafka

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// slotMarkers is the connection that markers go over: a broker answers a request of them
// only when they are replicated.
const slotMarkers = "markers"

// The bounds of one round: one partition's long gap must not keep the others waiting.
const (
	roundMarkers   = 4000
	requestMarkers = 1000
	markersVersion = 1 // 3.9 knows 0 and 1, 4.2 and later 1 and 2
)

// scribe writes markers to the partitions that one broker leads: all gaps that wait, in
// rounds of a few requests. Every round begins with what waits then, so gaps of many
// partitions share requests and a long one has only its share of each.
type scribe struct {
	c      *Cluster
	broker int32

	mu      sync.Mutex
	waiting []*waiting
	busy    bool // a round is under way
}

// waiting is a gap that waits for its part of a round.
type waiting struct {
	m    *marking
	done chan struct{}
}

// round has some markers of m written, and returns when it is known what became of them.
// Whoever comes while no round is under way leads the next ones until nobody waits.
func (s *scribe) round(ctx context.Context, m *marking) {
	w := &waiting{m, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	lead := !s.busy
	s.busy = true
	s.mu.Unlock()
	if lead {
		s.lead(ctx)
	}
	<-w.done
}

// lead writes one round, and has another lead the next if somebody waits by then.
func (s *scribe) lead(ctx context.Context) {
	s.mu.Lock()
	all := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	ms := make([]*marking, len(all))
	for i, w := range all {
		ms[i] = w.m
	}
	s.write(ctx, ms)
	for _, w := range all {
		close(w.done)
	}
	s.mu.Lock()
	s.busy = len(s.waiting) > 0
	more := s.busy
	s.mu.Unlock()
	if more {
		s.c.generation().spawn(s.lead)
	}
}

// write sends one round: markers of every gap in turn, and behind them a look at the
// log ends. A broker carries out the requests of a connection one after the other.
func (s *scribe) write(ctx context.Context, ms []*marking) {
	share := int64(max(1, roundMarkers/len(ms)))
	for _, m := range ms {
		m.begin(share)
	}
	conn, err := s.c.conn(ctx, s.broker, slotMarkers)
	if err != nil {
		for _, m := range ms {
			m.err, m.sent = err, 0
		}
		return
	}
	calls := newCalls(conn, s.c.cfg.RequestTimeout)
	for _, req := range markerRequests(ms) {
		calls.add(req, func(answer kmsg.Response, err error) { markersAnswered(ms, answer, err) })
	}
	calls.add(endsRequest(ms), func(answer kmsg.Response, err error) { endsAnswered(ms, answer, err) })
	calls.do()
}

// markerRequests lays the round's markers out. An element names a partition once: a
// broker would wait for the second marker of one for ever.
func markerRequests(ms []*marking) []*kmsg.WriteTxnMarkersRequest {
	var all []*kmsg.WriteTxnMarkersRequest
	var req *kmsg.WriteTxnMarkersRequest
	for n, any := int64(0), true; any; n++ {
		any = false
		for _, m := range ms {
			if n >= m.sent {
				continue
			}
			any = true
			if req == nil || len(req.Markers) == requestMarkers {
				req = kmsg.NewPtrWriteTxnMarkersRequest()
				all = append(all, req)
			}
			req.Markers = append(req.Markers, m.marker(m.next+n))
		}
	}
	return all
}

// marker is the one that belongs at an offset: an abort, so that whoever shows markers
// takes nothing for committed.
func (m *marking) marker(offset int64) kmsg.WriteTxnMarkersRequestMarker {
	k := kmsg.NewWriteTxnMarkersRequestMarker()
	k.ProducerID, k.ProducerEpoch = m.turn.id, int16(m.turn.epoch)
	k.CoordinatorEpoch = m.marks.epoch(offset, m.turn.rank())
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = m.p.Topic, []int32{m.p.Partition}
	k.Topics = append(k.Topics, t)
	return k
}

// find is the gap of a partition; ms are few.
func find(ms []*marking, topic string, partition int32) *marking {
	for _, m := range ms {
		if m.p.Partition == partition && m.p.Topic == topic {
			return m
		}
	}
	return nil
}

// markersAnswered keeps the first thing that went wrong with each gap. A lost answer
// concerns them all.
func markersAnswered(ms []*marking, answer kmsg.Response, err error) {
	if err != nil {
		failAll(ms, err)
		return
	}
	for _, k := range answer.(*kmsg.WriteTxnMarkersResponse).Markers {
		for _, t := range k.Topics {
			for _, p := range t.Partitions {
				if m := find(ms, t.Topic, p.Partition); m != nil && m.code == 0 {
					m.code = p.ErrorCode
				}
			}
		}
	}
}

func endsRequest(ms []*marking) *kmsg.ListOffsetsRequest {
	partitions := make([]cluster.Partition, len(ms))
	idx := make([]int, len(ms))
	for i, m := range ms {
		partitions[i], idx[i] = m.p, i
	}
	return listOffsetsRequest(partitions, idx, latest, debugging)
}

func endsAnswered(ms []*marking, answer kmsg.Response, err error) {
	if err != nil {
		failAll(ms, err)
		return
	}
	for _, t := range answer.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			m := find(ms, t.Topic, p.Partition)
			if m == nil {
				continue
			}
			if m.end = p.Offset; m.err == nil {
				m.err = wire.CodeError(p.ErrorCode)
			}
		}
	}
}

func failAll(ms []*marking, err error) {
	for _, m := range ms {
		if m.err == nil {
			m.err = err
		}
	}
}

// calls are requests that are written together and answered in order.
type calls struct {
	conn    *wire.Conn
	timeout time.Duration
	all     []*wire.Call
	wg      sync.WaitGroup
	mu      sync.Mutex // of what the answers change
}

func newCalls(conn *wire.Conn, timeout time.Duration) *calls {
	return &calls{conn: conn, timeout: timeout}
}

// add has a request sent by do, and its answer handed to got. No two got are called at
// the same time.
func (c *calls) add(req kmsg.Request, got func(kmsg.Response, error)) {
	version := min(req.MaxVersion(), c.conn.MaxVersion(req.Key()))
	if req.Key() == int16(kmsg.WriteTxnMarkers) {
		version = min(version, markersVersion)
	}
	req.SetVersion(version)
	c.wg.Add(1)
	c.all = append(c.all, &wire.Call{Key: req.Key(), Version: version, Flexible: req.IsFlexible(), Timeout: c.timeout,
		Body: net.Buffers{req.AppendTo(nil)},
		Done: func(frame *wire.Frame, err error) {
			defer c.wg.Done()
			answer := req.ResponseKind()
			if err == nil {
				if err = answer.ReadFrom(bytes.Clone(frame.Bytes())); err != nil {
					err = malformed("markers", err)
				}
				frame.Release()
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			got(answer, err)
		}})
}

// do sends all and waits for the answers.
func (c *calls) do() {
	_ = c.conn.Send(c.all...) // every Done is called with the error
	c.wg.Wait()
}
