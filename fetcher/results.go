package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// onResult handles the destination's answer to a run.
func (s *session) onResult(ctx context.Context, r *run) {
	t, res := r.t, r.result
	t.runs--
	t.inflight -= r.bytes
	defer r.recycle()
	if res.Err == nil {
		now := time.Now()
		t.board.landed(r, res.Next, now)
		if !s.mine(t) {
			return
		}
		if !t.settled {
			s.f.report.Landed(t.partition)
		}
		t.landed(now)
		s.look(t)
	} else if !s.mine(t) {
		return
	}
	switch {
	case res.Err != nil && decisive(res.Err):
		s.fail(t, res.Err)
		return
	case res.Err != nil && t.phase != draining:
		s.doubt(t, res.Err)
	}
	if t.phase == draining && t.runs == 0 {
		s.settle(ctx, t)
	}
}

// decisive errors are not mended by looking at the log end again: another worker,
// foreign records, a limit, a refusal.
func decisive(err error) bool {
	return !cluster.Retriable(err) || errors.Is(err, cluster.ErrFenced) || errors.Is(err, cluster.ErrTooLarge) ||
		errors.Is(err, cluster.ErrAuthorization) || errors.Is(err, cluster.ErrRefused) || errors.Is(err, cluster.ErrCorrupt)
}

// doubt stops the partition until the destination has told the truth about it.
func (s *session) doubt(t *tracker, err error) {
	if !errors.Is(err, cluster.ErrOutOfOrder) || t.board.Trouble() == nil {
		t.board.setTrouble(err)
	}
	if t.held != nil {
		t.held.drop()
		t.held = nil
	}
	t.gen++
	t.phase = draining
	t.settled = false
	s.look(t)
}

// settle asks the destination at once the first time, with a growing delay after
// further errors in a row.
func (s *session) settle(ctx context.Context, t *tracker) {
	if t.attempts == 0 {
		t.attempts, t.failedAt = 1, time.Now()
		s.learn(ctx, []*tracker{t})
		return
	}
	t.unsure = true
	s.pause(t, t.board.Trouble())
}

// onEnds sets positions to what the destination says.
func (s *session) onEnds(l *learnt) {
	for i, t := range l.trackers {
		if !s.mine(t) || t.phase != learning {
			continue
		}
		err := l.err
		if err == nil {
			err = l.ends[i].Err
		}
		if err == nil && l.ends[i].Stopped {
			err = fmt.Errorf("%w: the mirror was stopped", cluster.ErrFenced)
		}
		switch {
		case err != nil && decisive(err):
			s.fail(t, err)
		case err != nil:
			s.pause(t, err)
		default:
			t.unsure = false
			t.phase = fetching
			t.reset(l.ends[i].LogEnd)
			t.board.LogEnd.Store(t.next)
			s.look(t)
		}
	}
}

// trim moves the destination's log start up to the source's, as far as the
// destination has records.
func (s *session) trim(ctx context.Context, t *tracker, to int64) {
	if to <= t.trimmed || t.trimming || t.board.LogEnd.Load() < to || time.Now().Before(t.trimAfter) {
		return
	}
	t.trimming = true
	p := t.partition
	s.f.spawn(func() {
		err := s.f.log.Trim(ctx, []Cut{{Partition: p, Offset: to}})[0]
		s.box.put(message{trim: &trimmed{t: t, to: to, err: err}})
	})
}

func (s *session) onTrimmed(d *trimmed) {
	d.t.trimming = false
	if d.err != nil {
		s.f.opts.Logger.Warn("trim failed", "partition", d.t.partition, "offset", d.to, "err", d.err)
		d.t.trimAfter = time.Now().Add(s.f.opts.StallAfter)
		return
	}
	d.t.trimmed = d.to
	s.f.report.Trimmed(d.t.partition, d.to)
}

// lookForStalls reports partitions that stand still though the source has more
// and nobody has named an error.
func (s *session) lookForStalls(now time.Time) {
	after := s.f.opts.StallAfter
	if now.Sub(s.checked) < after/2 {
		return
	}
	s.checked = now
	for p, t := range s.trackers {
		more := t.board.Source.Load() > t.board.LogEnd.Load()
		switch still := now.Sub(t.movedAt); {
		case !more:
			t.movedAt, t.stalled = now, false
		case still >= after && !t.stalled:
			t.stalled = true
			s.f.report.Stalled(p, still)
		}
	}
}

// move gives up a partition that this broker does not lead any more. Whoever
// takes it over reads its position from the destination again.
func (s *session) move(t *tracker, to cluster.Leader, err error) {
	now := time.Now()
	if t.attempts == 0 {
		t.failedAt = now
	}
	if now.Sub(t.failedAt) > s.f.opts.RetryBudget {
		s.fail(t, err)
		return
	}
	t.attempts++
	s.leave(t)
	t.board.setTrouble(err)
	s.f.box.put(command{moved: &moved{t: t, from: s, to: to}})
}
