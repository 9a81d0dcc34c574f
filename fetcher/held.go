package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Held says what keeps records of a source from readers of committed records, and so
// from being copied to a destination that fills gaps: a transaction that is open there.
// Nothing is wrong with the mirror. It goes on when the transaction ends; Kafka's
// coordinator ends it after transaction.timeout.ms, hanging ones
// kafka-transactions.sh does.
type Held struct {
	Offset   int64     `json:"offset"`         // the source's last stable offset
	Producer int64     `json:"producer"`       // whose transaction begins there; -1: not known
	Since    time.Time `json:"since,omitzero"` // timestamp of the transaction's first record; zero: not known
}

// String says it for people: "held by producer id 4711 since 2026-01-02T15:04:05Z, at
// offset 100".
func (h Held) String() string {
	s := "held"
	if h.Producer >= 0 {
		s += fmt.Sprintf(" by producer id %d", h.Producer)
	}
	if !h.Since.IsZero() {
		s += " since " + h.Since.UTC().Format(time.RFC3339)
	}
	return s + fmt.Sprintf(", at offset %d", h.Offset)
}

// readable is how far the source's log can be copied.
func (t *tracker) readable() int64 { return min(t.board.Source.Load(), t.stable) }

// onStable notes how far committed records go.
func (s *session) onStable(t *tracker, part *Fetched) {
	t.stable = part.HighWatermark
	if part.LastStable >= 0 {
		t.stable = min(t.stable, part.LastStable)
	}
	if t.heldAt >= 0 && t.heldAt != t.stable {
		t.letUp()
	}
}

func (t *tracker) letUp() {
	t.heldAt, t.heldTold = -1, false
	t.board.setHeld(nil)
}

// lookHeld finds out whether an open transaction holds the partition up. Transactions
// come and go: only one that is still there when it is looked at again counts, and only
// then the source is asked whose it is.
func (s *session) lookHeld(t *tracker, now time.Time) {
	held := t.stable < t.board.Source.Load() && t.next >= t.stable && t.phase == fetching
	switch {
	case !held:
		if t.heldAt >= 0 {
			t.letUp()
		}
	case t.heldAt < 0:
		t.heldAt, t.heldFrom = t.stable, now
	case t.board.Held() == nil:
		t.board.setHeld(&Held{Offset: t.stable, Producer: -1})
		s.holds = append(s.holds, t)
	case now.Sub(t.heldFrom) >= s.f.opts.StallAfter && !t.heldTold:
		t.heldTold = true
		s.f.report.Held(t.partition, *t.board.Held())
	}
}

// holder is who holds a partition up.
type holder struct {
	t    *tracker
	held Held
}

// askHolders asks the source whose transactions hold partitions up, one after the
// other: it is not urgent. The first record of a transaction names its producer, to
// everybody who may read and on brokers of any age, which DescribeProducers does not.
func (s *session) askHolders(ctx context.Context) {
	if len(s.holds) == 0 {
		return
	}
	asked := make([]*holder, len(s.holds))
	ps := make([]cluster.Partition, len(s.holds))
	for i, t := range s.holds {
		asked[i], ps[i] = &holder{t: t, held: *t.board.Held()}, t.partition
	}
	s.holds = nil
	s.f.spawn(func() {
		for i, h := range asked {
			b, err := s.f.source.Read(ctx, ps[i], h.held.Offset, 1)
			if err != nil || !h.held.by(b) {
				continue
			}
			s.box.put(message{holder: h})
		}
	})
}

// by takes the producer from the first batch at the offset, if its transaction begins
// there. It does not where retention has deleted the beginning.
func (h *Held) by(b []byte) bool {
	w := batch.Walk(b)
	if !w.Next() {
		return false
	}
	first := w.Header()
	if first.Magic() != 2 || first.Base() != h.Offset || first.Control() || !first.Transactional() {
		return false
	}
	at := first.BaseTimestamp()
	if first.LogAppendTime() {
		at = first.MaxTimestamp()
	}
	if h.Producer = first.ProducerID(); at > 0 && !first.DeleteHorizon() {
		h.Since = time.UnixMilli(at)
	}
	return true
}

func (s *session) onHolder(h *holder) {
	if s.mine(h.t) && h.t.heldAt == h.held.Offset && h.t.board.Held() != nil {
		h.t.board.setHeld(&h.held)
	}
}

// unsupported: the other side does not know the request.
func unsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
