package fetcher

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// An answer is what came of one request.
type answer struct {
	resp   *FetchResponse
	err    error
	took   time.Duration
	waited time.Duration // MaxWait of the request
}

// askLoop sends the session's requests, one after the other, over a connection
// that it opens when it is needed and drops after an error.
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
			a := &answer{waited: req.MaxWait}
			if open == nil {
				open, a.err = s.f.source.Open(ctx, s.broker)
			}
			if a.err == nil {
				began := time.Now()
				a.resp, a.err = s.fetch(ctx, open, req)
				a.took = time.Since(began)
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
func (s *session) fetch(ctx context.Context, open Session, req *FetchRequest) (*FetchResponse, error) {
	reserved := min(int64(req.MaxBytes), s.f.opts.BudgetBytes)
	if err := s.f.budget.Acquire(ctx, reserved); err != nil {
		return nil, err
	}
	resp, err := open.Fetch(ctx, req)
	if err != nil {
		s.f.budget.Release(reserved)
		return nil, err
	}
	if resp.Size == 0 {
		s.f.budget.Release(reserved)
		return resp, nil
	}
	held := min(int64(resp.Size), reserved)
	s.f.budget.Release(reserved - held)
	release := resp.Release
	resp.Release = func() {
		release()
		s.f.budget.Release(held)
	}
	return resp, nil
}

// learnt is what the destination said of partitions whose position was unsure.
type learnt struct {
	trackers []*tracker
	ends     []End
	err      error
}

// learn asks the destination for the truth about positions.
func (s *session) learn(ctx context.Context, ts []*tracker) {
	if len(ts) == 0 {
		return
	}
	stretches := make([]Stretch, len(ts))
	for i, t := range ts {
		t.phase, t.unsure = learning, true
		stretches[i] = t.stretch
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
	err error
}

// judge asks the source for its range: a position beyond the end is a truncation
// (C1.9), one before the start is retention that ran ahead of us.
func (s *session) judge(ctx context.Context, t *tracker) {
	t.phase = classifying
	p, next, gen := t.partition, t.next, t.gen
	s.f.spawn(func() {
		answers, err := s.f.source.Offsets(ctx, []cluster.Partition{p})
		if err == nil {
			err = answers[0].Err
		}
		if err == nil {
			err = outOfRange(p, next, answers[0].Offsets)
		}
		s.box.put(message{reason: &judged{t: t, gen: gen, err: err}})
	})
}

func outOfRange(p cluster.Partition, next int64, o cluster.Offsets) error {
	e := &cluster.OffsetError{Partition: p, Span: cluster.Span{From: next, To: next}}
	rng := fmt.Sprintf("source log is [%d,%d)", o.LogStart, o.HighWatermark)
	switch {
	case next > o.HighWatermark:
		e.Err, e.Detail = cluster.ErrTruncated, fmt.Sprintf("destination ends at %d, %s", next, rng)
	case next < o.LogStart:
		e.Span.To, e.Err, e.Detail = o.LogStart, cluster.ErrRetention, rng
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
	if cluster.Retriable(j.err) {
		s.pause(t, j.err)
		return
	}
	s.fail(t, j.err)
}
