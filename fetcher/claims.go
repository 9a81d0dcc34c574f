package fetcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// A claim is a new epoch that the source's log shows at the position. It is stored,
// and its first batches appended, when the epoch before it is known to reach as far as
// what was mirrored of it: a source that lost its tail and grew past the position
// again shows it nowhere else.
type claim struct {
	t     *tracker
	gen   uint32
	last  int32 // the epoch before
	epoch int32
	start int64
}

// stands reports whether the run that the claim is about is still held.
func (s *session) stands(c claim) bool {
	return c.t.held != nil && c.t.gen == c.gen && c.t.lastEpoch == c.epoch && s.mine(c.t)
}

// store has the epoch stored (I7).
func (s *session) store(c claim) {
	s.f.report.Epoch(c.t.partition, c.epoch, c.start, func(err error) {
		s.box.put(message{epoch: &acked{t: c.t, gen: c.gen, epoch: c.epoch, err: err}})
	})
}

// proven is what the source said of claims.
type proven struct {
	claims  []claim
	answers []EpochAnswer
	err     error
}

// prove asks the source about all claims of this round in one call.
func (s *session) prove(ctx context.Context) {
	if len(s.claims) == 0 {
		return
	}
	asked := &proven{claims: s.claims}
	s.claims = nil
	queries := make([]EpochQuery, len(asked.claims))
	for i, c := range asked.claims {
		queries[i] = EpochQuery{Partition: c.t.partition, Current: c.t.leader.Epoch, Epoch: c.last}
	}
	s.f.spawn(func() {
		asked.answers, asked.err = s.f.source.EpochEnds(ctx, queries)
		s.box.put(message{proof: asked})
	})
}

func (s *session) onProven(p *proven) {
	for i, c := range p.claims {
		if !s.stands(c) {
			continue
		}
		a, err := EpochAnswer{}, p.err
		if err == nil {
			a, err = p.answers[i], p.answers[i].Err
		}
		t := c.t
		switch {
		case errors.Is(err, errors.ErrUnsupported), err == nil && a.EndOffset < 0: // nobody knows
			s.store(c)
		case err != nil:
			s.unproven(c, fmt.Errorf("end of epoch %d: %w", c.last, err))
		case a.EndOffset < c.start, a.Epoch >= 0 && a.Epoch < c.last:
			s.fail(t, &cluster.OffsetError{
				Partition: t.partition, Span: cluster.Span{From: min(a.EndOffset, c.start), To: c.start}, Err: cluster.ErrTruncated,
				Detail: fmt.Sprintf("source's epoch %d ends at %d", a.Epoch, a.EndOffset),
			})
		default:
			s.store(c)
		}
	}
}

// unproven gives up what was held; it is fetched and asked about again.
func (s *session) unproven(c claim, err error) {
	t := c.t
	switch {
	case !cluster.Retriable(err), errors.Is(err, cluster.ErrAuthorization):
		s.fail(t, err)
	case errors.Is(err, cluster.ErrNotLeader), errors.Is(err, cluster.ErrLeaderEpoch), errors.Is(err, cluster.ErrUnknownTopic):
		s.move(t, cluster.Leader{Broker: -1}, err)
	default:
		s.dropHeld(t)
		t.reset(c.start)
		s.pause(t, err)
	}
}
