package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

const (
	largestPart   = 16 << 20 // bytes asked for of one partition at most
	largestAnswer = 64 << 20
)

// onAnswer handles what a broker answered to a request.
func (s *session) onAnswer(ctx context.Context, a *answer) {
	s.asking = false
	if a.err != nil {
		s.onLost(a.err)
		return
	}
	s.failures, s.compares = 0, a.resp.Compares
	held := newResponse(a.resp.Release, a.resp.Size)
	defer held.done()
	now, share, total := time.Now(), s.f.share(), 0
	s.answered = now
	s.f.byID.Store(a.resp.ByID)
	for i := range a.resp.Partitions {
		part := &a.resp.Partitions[i]
		total += len(part.Records)
		t := s.trackers[part.Partition]
		if t == nil {
			continue // it left
		}
		// It came back meanwhile, or its position was set anew since the request (C11.9).
		if !t.member || t.askedGen != t.gen {
			if part.Err == nil { // the broker will not say again where its log begins and ends
				t.board.Source.Store(part.HighWatermark)
				t.board.LogStart.Store(part.LogStart)
			}
			continue
		}
		s.onPart(ctx, t, part, a.resp.Checksums, held, now)
		if a.resp.RoundTrip >= longRound {
			t.grow(len(part.Records), share)
		}
		s.look(t)
	}
	if a.resp.RoundTrip >= longRound && int64(total) >= int64(s.respMax)*3/4 {
		s.respMax = max(s.respMax, int32(min(int64(s.respMax)*2, s.f.opts.BudgetBytes/4, largestAnswer)))
	}
	if total == 0 {
		s.probe(ctx)
	}
	s.recovered()
}

// onLost handles a broker that cannot be reached: all its partitions wait
// together, keep their state and show why; leaders may have moved. After the
// retry budget they have failed.
func (s *session) onLost(err error) {
	now := time.Now()
	if s.failures == 0 {
		s.lostSince = now
	}
	s.retryAt = now.Add(backoffAfter(s.failures, s.f.opts.BackoffMin, s.f.opts.BackoffMax))
	s.failures++
	s.opened, s.members = false, 0
	s.gone = s.gone[:0]
	lost := make([]cluster.Partition, 0, len(s.trackers))
	over := now.Sub(s.lostSince) > s.f.opts.RetryBudget
	for p, t := range s.trackers {
		t.member, t.dirty, t.lost, t.doubtful = false, true, true, t.next
		if over {
			s.fail(t, err)
			continue
		}
		s.trouble(t, err)
		s.look(t)
		lost = append(lost, p)
	}
	s.f.opts.Logger.Warn("source broker lost", "broker", s.broker, "partitions", len(lost), "err", err)
	s.f.box.put(command{lost: s, partitions: lost})
}

// onPart handles one partition's part of an answer.
func (s *session) onPart(ctx context.Context, t *tracker, part *Fetched, sums Checksums, held *response, now time.Time) {
	if part.Err != nil {
		s.onPartError(ctx, t, part)
		return
	}
	if t.readable() <= t.board.LogEnd.Load() { // until now it could not stand still
		t.movedAt, t.stalled = now, false
	}
	t.board.Source.Store(part.HighWatermark)
	t.board.LogStart.Store(part.LogStart)
	if t.asked > t.next && part.LogStart < t.asked { // asked for above a log start that has gone back since
		t.dirty = true
		return
	}
	if s.f.traits.Fills {
		s.seen.read(part)
		s.onStable(t, part)
	}
	if part.Diverging.EndOffset >= 0 {
		s.fail(t, &cluster.OffsetError{
			Partition: t.partition, Span: cluster.Span{From: min(part.Diverging.EndOffset, t.next), To: t.next}, Err: cluster.ErrTruncated,
			Detail: fmt.Sprintf("source's epoch %d ends at %d", part.Diverging.Epoch, part.Diverging.EndOffset),
		})
		return
	}
	if len(part.Records) > 0 {
		records, from := s.detach(part.Records, held)
		s.takeAll(ctx, t, batch.Walk(records).Summed(sums, part.At), from)
		from.done()
	} else if part.LogStart > t.next && part.HighWatermark <= part.LogStart {
		s.ahead(t, part.LogStart)
	}
	if s.mine(t) {
		if s.f.traits.Fills && len(part.Records) == 0 {
			s.suspect(t)
		}
		s.trim(ctx, t)
	}
}

// detach gives a part of an answer memory of its own when memory is tight and the
// rest of the answer would be kept for it. The caller has a reference to what it
// gets.
func (s *session) detach(records []byte, held *response) ([]byte, *response) {
	n := len(records)
	budget := s.f.budget
	if !budget.tight() || 4*n > held.size || !budget.extra(int64(n)) {
		held.refs.Add(1)
		return records, held
	}
	return append([]byte(nil), records...), newResponse(func() { budget.drop(int64(n)) }, n)
}

// takeAll hands the records of an answer on: a run ends where a new source epoch
// begins, and that one is held until its epoch is stored.
func (s *session) takeAll(ctx context.Context, t *tracker, w batch.Walker, from *response) {
	r := newRun(s, t, from)
	how, err := outcome(0), error(nil)
	r.batches, how, err = t.take(&w, r.batches, s.f.traits, &s.seen)
	s.tellSkipped(t)
	s.dispatch(t, r)
	switch how {
	case bad:
		s.onBad(t, err)
	case staleView:
		s.move(t, cluster.Leader{Broker: -1}, fmt.Errorf("%w: a batch has a later one than %d", cluster.ErrLeaderEpoch, t.leader.Epoch))
	case tooHigh:
		w.Next()
		s.raise(t, w.Header().LeaderEpoch())
	case newEpoch:
		s.hold(t, &w, from)
	case oldFormat:
		s.convert(ctx, t, w.Rest(), from)
	}
}

// hold takes the batches of a new epoch and keeps them until the epoch is stored.
// The epoch after that one is fetched again.
func (s *session) hold(t *tracker, w *batch.Walker, from *response) {
	before := *w
	if !w.Next() {
		return
	}
	last, epoch, start := t.lastEpoch, w.Header().LeaderEpoch(), t.next
	*w = before
	t.begin(epoch)
	r := newRun(s, t, from)
	r.batches, _, _ = t.take(w, r.batches, s.f.traits, &s.seen) // the first was found good before; what stops it then is found again
	s.tellSkipped(t)
	t.held = r
	c := claim{t: t, gen: t.gen, last: last, epoch: epoch, start: start}
	if last >= 0 && !s.compares {
		s.claims = append(s.claims, c)
		return
	}
	s.store(c)
}

func (s *session) onEpoch(a *acked) {
	t := a.t
	if t.held == nil || t.gen != a.gen || t.lastEpoch != a.epoch || !s.mine(t) {
		return // it left or was set anew meanwhile, and the run was dropped
	}
	if a.err != nil {
		s.fail(t, a.err)
		return
	}
	r := t.held
	t.held = nil
	s.dispatch(t, r)
	s.look(t)
}

// dispatch hands a run to the destination.
func (s *session) dispatch(t *tracker, r *run) {
	if len(r.batches) == 0 {
		r.drop()
		return
	}
	for i := range r.batches {
		r.bytes += int64(len(r.batches[i].Bytes))
	}
	if t.runs++; t.runs == 1 {
		s.f.busy.Add(1)
	}
	t.inflight += r.bytes
	s.f.log.Append(t.partition, r.batches, r.free, r.done)
}

// onBad handles a batch at the position that cannot be mirrored as it is. Wrong
// bytes are fetched again; all else is for the owner to decide.
func (s *session) onBad(t *tracker, err error) {
	if !errors.Is(err, cluster.ErrCorrupt) {
		s.fail(t, err)
		return
	}
	if tries := t.spoilt(t.next); tries >= s.f.opts.CorruptTries {
		s.fail(t, fmt.Errorf("%w (fetched %d times)", err, tries))
		return
	}
	s.pause(t, err)
}

// onPartError handles the code a broker gave for one partition.
func (s *session) onPartError(ctx context.Context, t *tracker, part *Fetched) {
	err := fmt.Errorf("fetch at offset %d: %w", t.next, part.Err)
	t.lost = true
	switch {
	case errors.Is(part.Err, cluster.ErrNotLeader), errors.Is(part.Err, cluster.ErrLeaderEpoch):
		s.move(t, part.Leader, err)
	case errors.Is(part.Err, cluster.ErrOutOfRange):
		s.judge(ctx, t)
	case errors.Is(part.Err, cluster.ErrAuthorization), !cluster.Retriable(part.Err):
		s.fail(t, err)
	case errors.Is(part.Err, cluster.ErrUnknownTopic):
		s.move(t, cluster.Leader{Broker: -1}, err)
	default:
		s.pause(t, err)
	}
}
