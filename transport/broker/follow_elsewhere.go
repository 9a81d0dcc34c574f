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
)

// A read that has failed is tried again, at first soon: a replica that has the records
// gives them to nobody before it has heard, with its next fetch, that they are committed.
const (
	retrySoon = 20 * time.Millisecond
	retryRead = time.Second
)

// longer is how long is waited after another failure.
func longer(wait time.Duration) time.Duration { return min(max(2*wait, retrySoon), retryRead) }

// lackingPiece is a piece of a log that a follower has to be given: from the batch
// that holds an offset on, or the next one.
type lackingPiece struct {
	topic  cluster.TopicID
	name   cluster.Partition
	offset int64
	max    int32
}

// pieceReader reads a piece from a real replica, and the high watermark that it knows,
// up to which it reads.
type pieceReader func(ctx context.Context, replica int32, p lackingPiece) (b []byte, mark int64, err error)

// piece is what was read for one partition. Only the session uses it.
type piece struct {
	offset  int64
	answer  lead.Answer // that has led there
	records []byte
	give    func() // of the memory of records
	reading bool
	wanted  bool // not being read yet
	retry   time.Time
	waited  time.Duration // before retry; 0 when the last read has not failed
}

// drop gives up what was read.
func (p *piece) drop() {
	if p.records != nil {
		p.give()
		p.records, p.give = nil, nil
	}
	p.wanted = false
}

// due is when a look would begin a read that is wanted: after a pause, or when others
// have ended.
func (p *piece) due(now time.Time) time.Time {
	if p.retry.After(now) {
		return p.retry
	}
	return now.Add(retrySoon)
}

// land takes in what was read.
func (p *piece) land(l landed) {
	p.drop()
	p.reading = false
	if l.records == nil {
		p.waited = longer(p.waited)
		p.retry, p.wanted = l.at.Add(p.waited), true
		return
	}
	p.waited = 0
	p.offset, p.answer, p.records, p.give = l.offset, l.answer, l.records, l.give
}

// landed is a read that has ended; without records it has failed.
type landed struct {
	of      *followed
	offset  int64
	answer  lead.Answer
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
	if p.records != nil && (p.offset != f.at.Offset || !f.led.Current(&p.answer)) {
		p.drop() // he is elsewhere, or the log was cut since
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
	r := reading{elsewhere: w, led: f.led, answer: *a, late: longer(p.waited) == retryRead && p.waited < retryRead,
		lackingPiece: lackingPiece{topic: topic, name: name, offset: f.at.Offset, max: min(max(f.at.MaxBytes, 1), maxPiece)}}
	reads.Go(func() {
		defer func() { <-w.slots }()
		one := r.read(ctx)
		one.of = f
		s.landed.put(one)
	})
}

// reading is one piece being read.
type reading struct {
	*elsewhere
	lackingPiece
	led    *lead.Partition
	answer lead.Answer
	late   bool // when it fails it has failed for long, which is said once
}

// read tries the replicas that hold it one after the other, then the source.
func (r *reading) read(ctx context.Context) landed {
	out := landed{offset: r.offset, answer: r.answer}
	held := int64(r.max)
	if err := r.memory.take(ctx, held); err == nil {
		out.records, err = r.find(ctx)
		if err != nil && r.late && ctx.Err() == nil {
			r.server.cfg.Logger.Warn("a follower needs records that nobody gives", "topic", r.name.Topic, "partition", r.name.Partition,
				"offset", r.offset, "error", err)
		}
		if out.records == nil {
			r.memory.give(held)
		} else {
			out.give = func() { r.memory.give(held) }
		}
	}
	out.at = time.Now()
	return out
}

func (r *reading) find(ctx context.Context) ([]byte, error) {
	errs := []error{fmt.Errorf("%v offset %d: not on any replica", r.name, r.offset)}
	for _, h := range r.answer.Holders {
		b, mark, err := r.server.read(ctx, h.Replica, r.lackingPiece)
		switch found := whole(b, r.offset, h.End); {
		case err == nil && found != nil:
			return found, nil
		case err == nil && len(b) == 0 && mark >= h.End && r.led.Current(&r.answer):
			r.led.Gap(r.offset, h.End) // there never was one
			return nil, nil
		}
		errs = append(errs, fmt.Errorf("replica %d: %w", h.Replica, cmp.Or(err, errNothing)))
	}
	if r.server.cfg.Refill != nil {
		b, err := r.server.cfg.Refill(ctx, r.topic, r.name.Partition, r.offset, r.max)
		if b = whole(b, r.offset, r.answer.End); err == nil && b != nil {
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
func (m *Membership) readReplica(ctx context.Context, replica int32, p lackingPiece) ([]byte, int64, error) {
	conn, err := m.brokers.Conn(ctx, replica, "replica")
	if err != nil {
		return nil, 0, err
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
		return nil, 0, err
	}
	answer := resp.(*kmsg.FetchResponse)
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return nil, 0, err
	}
	for i := range answer.Topics {
		for _, got := range answer.Topics[i].Partitions {
			return got.RecordBatches, got.HighWatermark, wire.CodeError(got.ErrorCode)
		}
	}
	return nil, 0, errNothing
}
