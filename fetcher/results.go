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
	if t.runs--; t.runs == 0 {
		s.f.busy.Add(-1)
	}
	t.inflight -= r.bytes
	t.board.count(r)
	defer r.recycle()
	if !s.mine(t) {
		return // figures of a position that is not ours to tell any more
	}
	s.look(t)
	if res.Err == nil {
		s.onLanded(ctx, t, r)
	} else if err := s.verdict(t, res); err != nil {
		s.fail(t, err)
		return
	} else if t.phase != draining {
		s.doubt(t, res.Err)
	}
	if t.phase == draining && t.runs == 0 {
		s.settle(t)
	}
}

// onLanded notes a run that has landed. Only one that was fetched after the last
// error shows that the error is over.
func (s *session) onLanded(ctx context.Context, t *tracker, r *run) {
	t.landed = r.result.Next
	t.board.LogEnd.Store(t.shown())
	now := time.Now()
	t.movedAt, t.stalled = now, false
	if (t.phase == fetching || t.phase == converting) && r.gen == t.gen && r.batches[0].Base >= t.doubtful {
		t.attempts, t.refused = 0, false
		if t.board.Trouble() != nil {
			t.board.setTrouble(nil)
		}
		if !t.settled {
			t.settled = true
			s.f.report.Landed(t.partition)
		}
	}
	s.trim(ctx, t)
}

// verdict is why the partition has to leave for an append that failed, nil when
// it need not. The destination finds bits that flipped in our own memory.
func (s *session) verdict(t *tracker, res Result) error {
	if errors.Is(res.Err, cluster.ErrCorrupt) {
		if tries := t.spoilt(res.Next); tries >= s.f.opts.CorruptTries {
			return fmt.Errorf("%w (refused %d times)", res.Err, tries)
		}
		return nil
	}
	if decisive(res.Err) {
		return res.Err
	}
	return nil
}

// decisive errors are not mended by looking at the log end again: another worker,
// foreign records, a limit, a refusal.
func decisive(err error) bool {
	return !cluster.Retriable(err) || errors.Is(err, cluster.ErrFenced) || errors.Is(err, cluster.ErrTooLarge) ||
		errors.Is(err, cluster.ErrAuthorization) || errors.Is(err, cluster.ErrRefused)
}

// doubt stops the partition until the destination has told the truth about it.
func (s *session) doubt(t *tracker, err error) {
	s.trouble(t, err)
	s.dropHeld(t)
	t.gen++
	t.phase, t.why, t.refused = draining, err, true
	t.settled = false
}

// settle asks the destination at once the first time, with a growing delay after
// further errors in a row.
func (s *session) settle(t *tracker) {
	t.unsure = true
	if t.attempts == 0 {
		t.attempts, t.failedAt = 1, time.Now()
		t.phase = learning
		s.unsure = append(s.unsure, t)
		return
	}
	s.pause(t, t.why)
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
		if err == nil && t.another(l.ends[i].TopicID) {
			err = t.err(0, l.ends[i].LogEnd, cluster.ErrFenced, fmt.Sprintf("the destination's topic was deleted and created again: its id is %v, was %v", l.ends[i].TopicID, t.there))
		}
		if err == nil && l.ends[i].LogEnd > t.next {
			// What another worker appended has to be compared, and its epoch found out.
			err = t.err(t.next, l.ends[i].LogEnd, cluster.ErrFenced, "the log grew by records that this worker was not handed")
		}
		if landed := t.landed; err == nil && !l.ends[i].Ours && l.ends[i].LogEnd > landed {
			// It may be what we handed over, and it may be as much of somebody else's.
			err = t.err(landed, l.ends[i].LogEnd, cluster.ErrFenced, "nothing in the log shows whose records these are")
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
			t.trimmed = min(t.trimmed, l.ends[i].LogStart) // a destination's own election may take a trim back
			t.far = l.ends[i].RoundTrip >= longRound
			t.landed = t.next
			t.board.LogEnd.Store(t.shown())
			t.board.Ceiling.Store(l.ends[i].LeaderEpoch)
			s.look(t)
		}
	}
}

// trim moves the destination's log start up to the source's, as far as the
// destination has records.
func (s *session) trim(ctx context.Context, t *tracker) {
	to := t.board.LogStart.Load()
	if t.landed < to && t.landed >= t.next && t.told.To >= to {
		to = t.landed // nothing of what is here is left at the source
	}
	if to <= t.trimmed || t.trimming || t.landed < to || time.Now().Before(t.trimAfter) {
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
	if d.err == nil {
		s.f.report.Trimmed(d.t.partition, d.to)
	} else {
		s.f.opts.Logger.Warn("trim failed", "partition", d.t.partition, "offset", d.to, "err", d.err)
	}
	if !s.mine(d.t) {
		return // the router may be reading it
	}
	d.t.trimming = false
	if d.err != nil {
		d.t.trimAfter = time.Now().Add(s.f.opts.StallAfter)
		if errors.Is(d.err, cluster.ErrFenced) { // whose the partition is, is on record
			s.fail(d.t, d.err)
		}
		return
	}
	d.t.trimmed = d.to
}

// lookForStalls reports partitions that stand still though the source has more,
// or its broker has not answered for as long, and nobody has named an error. It
// also goes on with trims that had to wait.
func (s *session) lookForStalls(ctx context.Context, now time.Time) {
	after := s.f.opts.StallAfter
	if now.Sub(s.checked) < after/4 {
		return
	}
	s.checked = now
	silence := time.Duration(0)
	if s.asking {
		silence = now.Sub(s.askedAt) - s.f.opts.MaxWait
	}
	silent := silence >= after
	for p, t := range s.trackers {
		s.trim(ctx, t)
		if s.f.traits.Fills {
			s.lookHeld(t, now)
			if t.inflight == 0 && now.Sub(t.movedAt) >= after/4 {
				s.suspect(t)
			}
		}
		if now.Sub(t.movedAt) >= after/4 {
			s.filling(t, now)
		}
		more := t.readable() > t.board.LogEnd.Load()
		switch still := max(now.Sub(t.movedAt), silence); {
		case t.board.Trouble() != nil:
		case !more && !silent:
			t.movedAt, t.stalled = now, false
		case still >= after && !t.stalled:
			t.stalled = true
			s.f.report.Stalled(p, still)
		}
	}
	s.askHolders(ctx)
	s.probe(ctx)
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
