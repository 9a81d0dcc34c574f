package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// Markers are not compare-and-append: a broker writes each one at the end of the log,
// and again when the request comes twice. So that offsets stay exact all the same
//
//   - nothing else of the partition is under way meanwhile, and the log end is known to
//     be where the gap begins: not older than trust, or looked at;
//   - behind the markers the log end is looked at, on the same connection;
//   - what is not known to have landed is never sent again: Ends looks first, and once
//     more after a moment;
//   - a worker that begins has a turn of its own, and writes its first marker alone. When
//     it stands, the broker refuses all that earlier ones may still have on the way
//     (INVALID_PRODUCER_EPOCH), and it refuses in any case markers that belong before the
//     last one (TRANSACTION_COORDINATOR_FENCED).
//
// Every other outcome stops the lane, and what Ends finds decides.

// marking is a gap that is being filled with markers.
type marking struct {
	p      cluster.Partition
	broker int32
	marks  markIDs
	turn   turn
	next   int64
	to     int64

	began time.Time // of the last round
	sent  int64     // markers that went out in it
	code  int16
	end   int64 // the log end behind it
	err   error // of the round
}

// marking is what fills a hole, begun by a lane that is idle.
func (l *lane) marking(hole cluster.Batch) marking {
	return marking{p: l.p, broker: l.broker, marks: l.marks, turn: l.turn, next: hole.Base, to: hole.Next}
}

// begin begins a round in which there is room for some markers. The first one of a turn
// goes out alone, and no two ids together.
func (m *marking) begin(room int64) {
	m.began, m.code, m.end, m.err = time.Now(), 0, -1, nil
	m.turn = m.turn.with(m.marks.at(m.next))
	m.sent = min(room, m.to-m.next, m.marks.end(m.next)-m.next)
	if !m.turn.held {
		m.sent = 1
	}
}

// mark fills a hole. The lane is not idle meanwhile, and stops between two rounds when
// it is halted.
func (c *Cluster) mark(ctx context.Context, l *lane, r *run, m marking) {
	hole := cluster.Span{From: m.next, To: m.to}
	for m.next < m.to && m.err == nil && !l.stopping() {
		c.generation().scribe(m.broker).round(ctx, &m)
		m.judge()
		l.marked(&m)
	}
	l.mu.Lock()
	l.looking = false
	switch {
	case m.err != nil:
		if !errors.Is(m.err, cluster.ErrGap) {
			c.stale(l.p)
		}
		l.fail(r, hole.From, at(l.p, m.err))
	case m.next == m.to:
		r.sent++
		r.landed++
		if free := l.advance(r); free != nil {
			defer free()
		}
	}
	c.release(l)
}

func (l *lane) stopping() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err != nil
}

// marked notes what a round has brought.
func (l *lane) marked(m *marking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.err != nil {
		// None of them has landed when the broker said no to all.
		if !errors.Is(m.err, cluster.ErrGap) {
			l.unknownTo = max(l.unknownTo, m.next+m.sent)
			l.doubtful += m.sent
		}
		return
	}
	if l.sequenced {
		l.shift += m.next - l.end
	}
	l.filled.add(l.end, m.next, m.began, time.Now())
	l.end, l.looked, l.turn = m.next, m.began, m.turn
}

// judge decides about a round.
func (m *marking) judge() {
	span := cluster.Span{From: m.next, To: m.next + m.sent}
	wrong := func(err error, format string, args ...any) {
		m.err = &cluster.OffsetError{Partition: m.p, Span: span, Err: err, Detail: fmt.Sprintf(format, args...)}
	}
	switch m.code {
	case 0:
	case clusterAuthorizationFailed:
		span.To = m.to
		wrong(fmt.Errorf("%w: %w", cluster.ErrGap, cluster.ErrAuthorization),
			"the destination permits no transaction markers: grant ALTER (before Kafka 3.8 CLUSTER_ACTION) on the cluster, or choose gap fill %v or %v", GapPhantoms, GapFail)
	case transactionCoordinatorFenced, invalidProducerEpoch:
		wrong(cluster.ErrFenced, "another worker fills gaps: %v", wire.Code(m.code))
	default:
		if m.err == nil {
			m.err = wire.CodeError(m.code)
		}
	}
	switch span.To = m.next + m.sent; {
	case m.err != nil:
	case m.end != span.To:
		wrong(cluster.ErrOutOfOrder, "behind %d markers the log ends at %d", m.sent, m.end)
	default:
		m.next, m.turn.held = span.To, true
	}
}

// Kafka's error codes that markers are refused with.
const (
	clusterAuthorizationFailed   = int16(31)
	invalidProducerEpoch         = int16(47)
	transactionCoordinatorFenced = int16(52)
)
