package fetcher

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// An answer is what came of one request.
type answer struct {
	resp *FetchResponse
	err  error
}

// askLoop sends the session's requests, one after the other, over a connection
// that it opens when it is needed and drops after an error, or when it is told to
// by nil.
func (s *session) askLoop(ctx context.Context) error {
	var open Session
	defer func() {
		if open != nil {
			open.Close()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case req := <-s.asks:
			if req == nil {
				if open != nil {
					open.Close()
					open = nil
				}
				continue
			}
			a := &answer{}
			if open == nil {
				open, a.err = s.f.source.Open(ctx, s.broker)
			}
			if a.err == nil {
				a.err = s.fetch(ctx, open, req, a)
			}
			if a.err != nil && open != nil {
				open.Close()
				open = nil
			}
			if !s.box.put(message{answer: a}) && a.resp != nil {
				a.resp.Release()
			}
		}
	}
}

// fetch reserves the memory of the largest answer allowed, asks, and gives back
// what the answer did not need. What it holds is given back by Release.
func (s *session) fetch(ctx context.Context, open Session, req *FetchRequest, a *answer) error {
	budget, reserved := s.f.budget, int64(req.MaxBytes)
	if err := budget.reserve(ctx, reserved); err != nil {
		return err
	}
	resp, err := open.Fetch(ctx, req)
	if err != nil {
		budget.drop(budget.keep(reserved, 0))
		return err
	}
	held, release := budget.keep(reserved, int64(resp.Size)), resp.Release
	resp.Release = func() {
		release()
		budget.drop(held)
	}
	a.resp = resp
	return nil
}

// learnt is what the destination said of partitions whose position was unsure.
type learnt struct {
	trackers []*tracker
	ends     []End
	err      error
}

// learn asks the destination for the truth about the positions that are unsure,
// all of this round in one call.
func (s *session) learn(ctx context.Context) {
	if len(s.unsure) == 0 {
		return
	}
	ts := make([]*tracker, 0, len(s.unsure))
	stretches := make([]Stretch, 0, len(s.unsure))
	for _, t := range s.unsure {
		if s.mine(t) && t.phase == learning {
			ts, stretches = append(ts, t), append(stretches, t.stretch)
		}
	}
	clear(s.unsure)
	s.unsure = s.unsure[:0]
	if len(ts) == 0 {
		return
	}
	s.f.spawn(func() {
		ends, err := s.f.log.Ends(ctx, stretches)
		s.box.put(message{ends: &learnt{trackers: ts, ends: ends, err: err}})
	})
}

// judged is why the source says that an offset is out of its range.
type judged struct {
	t   *tracker
	gen uint32
	at  cluster.Offsets
	err error
}

// judge asks the source for its range: a position beyond the end is a truncation
// (C1.9), one before the start is retention that ran ahead of us.
func (s *session) judge(ctx context.Context, t *tracker) {
	t.phase = classifying
	p, next, gen := t.partition, t.next, t.gen
	s.f.spawn(func() {
		found := &judged{t: t, gen: gen}
		answers, err := s.f.source.Offsets(ctx, []cluster.Partition{p})
		if err == nil {
			err = answers[0].Err
		}
		if err == nil {
			found.at = answers[0].Offsets
			err = outOfRange(p, next, found.at)
		}
		found.err = err
		s.box.put(message{reason: found})
	})
}

func outOfRange(p cluster.Partition, next int64, o cluster.Offsets) error {
	e := &cluster.OffsetError{Partition: p}
	rng := fmt.Sprintf("source log is [%d,%d)", o.LogStart, o.HighWatermark)
	switch {
	case next > o.HighWatermark:
		e.Span = cluster.Span{From: o.HighWatermark, To: next} // what the source lost
		e.Err, e.Detail = cluster.ErrTruncated, fmt.Sprintf("destination ends at %d, %s", next, rng)
	case next < o.LogStart:
		e.Span = cluster.Span{From: next, To: o.LogStart} // what was never mirrored
		e.Err, e.Detail = cluster.ErrRetention, rng
	default: // the range moved meanwhile
		return cluster.ErrUnavailable
	}
	return e
}

func (s *session) onJudged(j *judged) {
	t := j.t
	if !s.mine(t) || t.gen != j.gen || t.phase != classifying {
		return
	}
	t.phase = fetching
	if j.at != (cluster.Offsets{}) {
		t.board.LogStart.Store(j.at.LogStart)
		t.board.Source.Store(j.at.HighWatermark)
	}
	if retention(j.err) && t.leap {
		s.leap(t, j.at)
		return
	}
	if cluster.Retriable(j.err) {
		s.pause(t, j.err)
		return
	}
	s.fail(t, j.err)
}
