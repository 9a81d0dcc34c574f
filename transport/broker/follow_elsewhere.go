package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/wire"
)

// A follower that was away for long stands where our window no longer reaches. What
// it lacks is on other real replicas, and is read from one of them beside the
// session, so that its other partitions are answered meanwhile.

const (
	maxReads     = 8 // at once, of all followers
	maxPiece     = 1 << 20
	piecesMemory = 16 << 20 // apart from that of requests: those wait for it to be used up
	retryRead    = time.Second
)

// lackingPiece is a piece of a log that a follower has to be given.
type lackingPiece struct {
	topic         cluster.TopicID
	name          cluster.Partition
	offset, below int64 // batches from the one that holds offset on, and none behind below
	max           int32
	holders       []lead.Holder
}

// pieceReader reads a piece from a real replica: whole batches, and none when it has none.
type pieceReader func(ctx context.Context, replica int32, p lackingPiece) ([]byte, error)

// piece is what was read for one partition. Only the session uses it.
type piece struct {
	offset  int64
	records []byte
	give    func() // of the memory of records
	reading bool
	wanted  bool // not being read yet
	retry   time.Time
	failed  bool
}

// drop gives up what was read.
func (p *piece) drop() {
	if p.records != nil {
		p.give()
		p.records, p.give = nil, nil
	}
	p.wanted = false
}

// land takes in what was read.
func (p *piece) land(l landed) {
	p.drop()
	p.reading = false
	if p.failed = l.records == nil; p.failed {
		p.retry, p.wanted = l.at.Add(retryRead), true
		return
	}
	p.offset, p.records, p.give = l.offset, l.records, l.give
}

// landed is a read that has ended; without records it has failed.
type landed struct {
	of      *followed
	offset  int64
	records []byte
	give    func()
	at      time.Time
}

// landing is where reads end. It is safe for concurrent use.
type landing struct {
	wake   chan struct{} // capacity 1
	mu     sync.Mutex
	list   []landed
	closed bool
}

func (l *landing) put(one landed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		if one.give != nil {
			one.give()
		}
		return
	}
	l.list = append(l.list, one)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *landing) take() []landed {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.list
	l.list = nil
	return out
}

func (l *landing) close() {
	for _, one := range l.take() {
		if one.give != nil {
			one.give()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// elsewhere reads pieces, a bounded number at once and of bounded size.
type elsewhere struct {
	server *Server
	slots  chan struct{}
	memory *budget
}

func newElsewhere(s *Server) *elsewhere {
	return &elsewhere{server: s, slots: make(chan struct{}, maxReads), memory: newBudget(piecesMemory)}
}

// fill completes an entry whose records have left the window: with those that were
// read, or it begins to read. reads counts what runs until ctx ends.
func (w *elsewhere) fill(ctx context.Context, reads *sync.WaitGroup, s *fetchSession, f *followed, a *lead.Answer, e *entry, room int, first bool) {
	p := &f.piece
	if p.records != nil && p.offset != f.at.Offset {
		p.drop()
	}
	switch {
	case p.reading:
		return
	case p.records != nil && (len(p.records) <= room || first):
		e.records, e.size, e.release = [][]byte{p.records}, len(p.records), p.give
		p.records, p.give = nil, nil
		return
	case p.records != nil:
		return
	}
	p.wanted = true
	if f.at.Now.Before(p.retry) {
		return
	}
	select {
	case w.slots <- struct{}{}:
	default:
		return
	}
	p.wanted, p.reading = false, true
	topic, name := f.led.ID()
	lacks := lackingPiece{topic: topic, name: name, offset: f.at.Offset, below: a.End, max: min(max(f.at.MaxBytes, 1), maxPiece), holders: a.Holders}
	again := p.failed
	reads.Go(func() {
		defer func() { <-w.slots }()
		s.landed.put(w.read(ctx, f, lacks, again))
	})
}

// read tries the replicas that hold it one after the other, then the source. again
// says that the last read failed as well, which is not logged twice.
func (w *elsewhere) read(ctx context.Context, f *followed, p lackingPiece, again bool) landed {
	out := landed{of: f, offset: p.offset}
	held := int64(p.max)
	if err := w.memory.take(ctx, held); err == nil {
		out.records, err = w.find(ctx, p)
		if err != nil && !again && ctx.Err() == nil {
			w.server.cfg.Logger.Warn("a follower needs records that nobody gives", "topic", p.name.Topic, "partition", p.name.Partition,
				"offset", p.offset, "error", err)
		}
		if out.records == nil {
			w.memory.give(held)
		} else {
			out.give = func() { w.memory.give(held) }
		}
	}
	out.at = time.Now()
	return out
}

func (w *elsewhere) find(ctx context.Context, p lackingPiece) ([]byte, error) {
	errs := []error{fmt.Errorf("no replica of %v holds offset %d", p.name, p.offset)}
	for _, h := range p.holders {
		b, err := w.server.read(ctx, h.Replica, p)
		if b = whole(b, p.offset, min(p.below, h.End)); err == nil && b != nil {
			return b, nil
		}
		errs = append(errs, fmt.Errorf("replica %d: %w", h.Replica, cmp.Or(err, errNothing)))
	}
	if w.server.cfg.Refill != nil {
		b, err := w.server.cfg.Refill(ctx, p.topic, p.name.Partition, p.offset, p.max)
		if b = whole(b, p.offset, p.below); err == nil && b != nil {
			return b, nil
		}
		errs = append(errs, fmt.Errorf("source: %w", cmp.Or(err, errNothing)))
	}
	return nil, errors.Join(errs...)
}

var errNothing = errors.New("no records there")

// whole is the part of fetched bytes that is whole batches, begins with the one that
// holds offset, or the next one, and ends below an offset; nil when nothing is left.
func whole(b []byte, offset, below int64) []byte {
	walk, from, to := batch.Walk(b), -1, 0
	for walk.Next() {
		h := walk.Header()
		next := h.Base() + 1 // of old formats it is the last offset that stands there
		if h.Magic() >= 2 {
			next = h.Next()
		}
		if next > below {
			break
		}
		if from < 0 && next > offset {
			from = walk.Offset()
		}
		to = walk.Offset() + len(h)
	}
	if from < 0 {
		return nil
	}
	return b[from:to:to]
}

// readReplica reads as a consumer does, which replicas that do not lead answer from
// version 11 on (KIP-392), up to the high watermark they know.
func (m *Membership) readReplica(ctx context.Context, replica int32, p lackingPiece) ([]byte, error) {
	conn, err := m.brokers.Conn(ctx, replica, "replica")
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch = p.max, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = p.name.Topic, p.topic
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.name.Partition, p.offset, p.max
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := conn.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	answer := resp.(*kmsg.FetchResponse)
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return nil, err
	}
	for i := range answer.Topics {
		for _, got := range answer.Topics[i].Partitions {
			return got.RecordBatches, wire.CodeError(got.ErrorCode)
		}
	}
	return nil, errNothing
}
