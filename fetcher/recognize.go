package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// A source without topic ids (before Kafka 2.8), or without them in the fetch (before 3.1),
// does not say that a topic was deleted and created again: the new one is fetched from where the old one was left, if it is as
// long. So whenever such a partition has been out of a broker's sight, the destination's
// last record is compared with the source's before more is fetched (C2.3), as alignment
// does. A topic that
// is made anew and grows past the position between two fetches is not noticed.

// outOfSight is how long a partition may be left out of the fetch without being
// compared: about as long as a broker holds a fetch.
const outOfSight = 500 * time.Millisecond

// mostRecognized bounds the comparisons under way.
const mostRecognized = 16

// strange reports whether the partition has to be recognized before it is fetched.
func (s *session) strange(t *tracker, now time.Time) bool {
	if !t.topicID.IsZero() && s.f.byID.Load() || t.phase != fetching || t.member && s.asking {
		return false
	}
	seen := t.seen
	if t.member && s.answered.After(seen) {
		seen = s.answered
	}
	return t.lost || !seen.IsZero() && now.Sub(seen) > outOfSight
}

func (t *tracker) recognize(now time.Time) { t.lost, t.seen = false, now }

// recognized is what comparing has shown; err is nil when the records are the same, or
// nothing is left to compare.
type recognized struct {
	t   *tracker
	gen uint32
	err error
}

// recognize compares those that wait to be fetched and are strange. While the broker is
// out of reach it would be too early.
func (s *session) recognize(ctx context.Context, now time.Time) {
	if now.Before(s.retryAt) {
		return
	}
	for _, t := range s.queue {
		if !s.mine(t) || !s.strange(t, now) {
			continue
		}
		ours, ok := s.f.log.(Reader)
		if !ok || t.landed == 0 {
			t.recognize(now)
			continue
		}
		t.phase = classifying
		r := &recognized{t: t, gen: t.gen}
		p, leader, end := t.partition, t.leader.Epoch, t.landed
		s.f.spawn(func() {
			select {
			case s.f.recognizing <- struct{}{}:
				r.err = s.f.alike(ctx, ours, p, leader, end)
				<-s.f.recognizing
			case <-ctx.Done():
				r.err = ctx.Err()
			}
			s.box.put(message{known: r})
		})
	}
}

func (s *session) onRecognized(r *recognized) {
	t, err := r.t, r.err
	if !s.mine(t) || t.gen != r.gen || t.phase != classifying {
		return
	}
	t.phase = fetching
	switch {
	case err == nil:
		t.recognize(time.Now())
		s.look(t)
	case errors.Is(err, cluster.ErrNotLeader), errors.Is(err, cluster.ErrLeaderEpoch), errors.Is(err, cluster.ErrUnknownTopic):
		s.move(t, cluster.Leader{Broker: -1}, err)
	case cluster.Retriable(err) && !errors.Is(err, cluster.ErrAuthorization):
		s.pause(t, err)
	default:
		s.fail(t, err)
	}
}

// alike compares the last record of the destination's log, which ends at end.
func (f *Fetcher) alike(ctx context.Context, ours Reader, p cluster.Partition, leader int32, end int64) error {
	answers, err := f.source.Offsets(ctx, []cluster.Partition{p})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return err
	}
	at := answers[0].Offsets
	switch {
	case at.LogStart >= end: // nothing of what was mirrored is left; the fetch says what that means
		return nil
	case at.HighWatermark < end:
		return f.behind(ctx, p, leader, end, at)
	}
	if err := replicated(ctx, ours, p, end); err != nil {
		return fmt.Errorf("destination at offset %d: %w", end-1, err)
	}
	j := alignment{aligner: &aligner{from: f.source, log: f.log, destination: ours}, p: p, source: at, end: End{LogEnd: end}}
	seen, _, err := j.last(ctx, cluster.Span{From: at.LogStart, To: end}, likeness{control: f.traits.ControlBatches, holes: f.traits.Gaps})
	switch {
	case errors.Is(err, cluster.ErrOutOfRange): // retention has deleted all that could be compared
		return nil
	case err == nil && seen.first >= 0:
		if now, err := f.source.Offsets(ctx, []cluster.Partition{p}); err != nil || now[0].Err != nil || now[0].HighWatermark < end {
			return fmt.Errorf("%w: the source's high watermark moves", cluster.ErrUnavailable) // a new leader: nothing was there to be read
		}
		err = &cluster.OffsetError{Partition: p, Span: cluster.Span{From: seen.first, To: end}, Err: cluster.ErrDiverged,
			Detail: fmt.Sprintf("offset %d: %s; the source's fetch knows no topic ids, it may be another topic now", seen.first, seen.what)}
	}
	return err
}

// behind tells a source that has lost what was mirrored from a new leader that does not
// know its high watermark yet.
func (f *Fetcher) behind(ctx context.Context, p cluster.Partition, leader int32, end int64, at cluster.Offsets) error {
	answers, err := f.source.EpochEnds(ctx, []EpochQuery{{Partition: p, Current: leader, Epoch: leader}})
	if err == nil {
		err = answers[0].Err
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported), err == nil && answers[0].EndOffset < end:
		return outOfRange(p, end, at)
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: source's high watermark %d is below the destination's end %d", cluster.ErrUnavailable, at.HighWatermark, end)
}

// replicated waits until the destination's last batch can be read: it may not have
// reached all replicas. What its retention has deleted is not waited for.
func replicated(ctx context.Context, ours Reader, p cluster.Partition, end int64) error {
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		b, err := ours.Read(ctx, p, end-1, 1)
		switch {
		case errors.Is(err, cluster.ErrOutOfRange):
			return nil
		case err != nil || len(b) > 0:
			return err
		case wait > time.Second:
			return fmt.Errorf("%w: not replicated", cluster.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
