package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// longRound is a round trip from which on asking for more at a time pays.
const longRound = 20 * time.Millisecond

// onAnswer handles what a broker answered to a request.
func (s *session) onAnswer(ctx context.Context, a *answer) {
	s.asking = false
	if a.err != nil {
		s.onLost(ctx, a.err)
		return
	}
	s.failures = 0
	held := &response{release: a.resp.Release}
	held.refs.Store(1)
	defer held.done()
	now, total := time.Now(), 0
	for i := range a.resp.Partitions {
		part := &a.resp.Partitions[i]
		total += len(part.Records)
		t := s.trackers[part.Partition]
		if t == nil || !t.member || t.askedGen != t.gen {
			continue // it left, or its position was set anew since the request
		}
		s.onPart(ctx, t, part, held, now)
		if long := a.took >= longRound; long && len(part.Records) > 0 && int64(len(part.Records)) >= int64(t.want)*3/4 {
			t.want = int32(min(int64(t.want)*2, s.f.share()/2, 16<<20))
			t.dirty = true
		}
		s.look(t)
	}
	if a.took >= longRound && int64(total) >= int64(s.respMax)*3/4 {
		s.respMax = int32(min(int64(s.respMax)*2, s.f.opts.BudgetBytes/4, 64<<20))
	}
}

// onLost handles a broker that cannot be reached: all its partitions wait
// together, keep their state and show why; leaders may have moved.
func (s *session) onLost(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	delay := min(s.f.opts.BackoffMin<<min(s.failures, 20), s.f.opts.BackoffMax)
	s.failures++
	s.retryAt = time.Now().Add(delay)
	s.members = 0
	s.gone = s.gone[:0]
	lost := make([]cluster.Partition, 0, len(s.trackers))
	for p, t := range s.trackers {
		t.board.setTrouble(err)
		t.member, t.dirty = false, true
		s.look(t)
		lost = append(lost, p)
	}
	s.f.opts.Logger.Warn("source broker lost", "broker", s.broker, "partitions", len(lost), "err", err)
	s.f.box.put(command{lost: s, partitions: lost})
}

// onPart handles one partition's part of an answer.
func (s *session) onPart(ctx context.Context, t *tracker, part *Fetched, held *response, now time.Time) {
	if part.Err != nil {
		s.onPartError(ctx, t, part)
		return
	}
	t.board.Source.Store(part.HighWatermark)
	t.board.LogStart.Store(part.LogStart)
	if part.Diverging.EndOffset >= 0 {
		s.fail(t, &cluster.OffsetError{
			Partition: t.partition, Span: cluster.Span{From: min(part.Diverging.EndOffset, t.next), To: t.next}, Err: cluster.ErrTruncated,
			Detail: fmt.Sprintf("source's epoch %d ends at %d", part.Diverging.Epoch, part.Diverging.EndOffset),
		})
		return
	}
	if len(part.Records) == 0 {
		if t.board.Trouble() != nil && t.runs == 0 && t.phase == fetching {
			t.attempts = 0
			t.board.setTrouble(nil)
		}
	} else {
		s.takeAll(t, part.Records, held)
	}
	s.trim(ctx, t, part.LogStart)
}

// takeAll hands the records of an answer on, run by run: a run ends where a new
// source epoch begins, and that one is held until its epoch is stored.
func (s *session) takeAll(t *tracker, records []byte, held *response) {
	w := batch.Walk(records)
	for {
		r := newRun(s, t, held)
		how, err := outcome(0), error(nil)
		r.batches, how, err = t.take(&w, r.batches, s.f.traits)
		s.dispatch(t, r)
		switch how {
		case tookAll:
			return
		case bad:
			s.onBad(t, err)
			return
		case staleView:
			s.move(t, cluster.Leader{Broker: -1}, fmt.Errorf("%w: a batch has a later one than %d", cluster.ErrLeaderEpoch, t.leader.Epoch))
			return
		case newEpoch:
			if t.held != nil {
				return // fetched again when the first one is stored
			}
			s.hold(t, &w, held)
			return
		}
	}
}

// hold takes the batches of a new epoch and keeps them until the epoch is stored.
func (s *session) hold(t *tracker, w *batch.Walker, held *response) {
	before := *w
	if !w.Next() {
		return
	}
	epoch := w.Header().LeaderEpoch()
	*w = before
	start := t.next
	t.begin(epoch)
	r := newRun(s, t, held)
	how, err := outcome(0), error(nil)
	r.batches, how, err = t.take(w, r.batches, s.f.traits)
	if len(r.batches) == 0 {
		r.drop()
		t.epochs = t.epochs[:len(t.epochs)-1]
		t.lastEpoch = t.epochs[len(t.epochs)-1].epoch
		if how == bad {
			s.onBad(t, err)
		}
		return
	}
	t.held = r
	gen := t.gen
	s.f.report.Epoch(t.partition, epoch, start, func(err error) {
		s.box.put(message{epoch: &acked{t: t, gen: gen, err: err}})
	})
}

func (s *session) onEpoch(a *acked) {
	t := a.t
	if t.held == nil || t.gen != a.gen || !s.mine(t) {
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
	t.inflight += r.bytes
	t.runs++
	s.f.log.Append(t.partition, r.batches, r.done)
}

// onBad handles a batch at the position that cannot be mirrored as it is. Wrong
// bytes are fetched again; all else is for the owner to decide.
func (s *session) onBad(t *tracker, err error) {
	if !s.mine(t) {
		return
	}
	if !errors.Is(err, cluster.ErrCorrupt) {
		s.fail(t, err)
		return
	}
	t.board.Corrupt.Add(1)
	t.corrupt++
	if t.corrupt >= s.f.opts.CorruptTries {
		s.fail(t, fmt.Errorf("%w (fetched %d times)", err, t.corrupt))
		return
	}
	if t.phase == fetching {
		s.pause(t, err)
	}
}

// onPartError handles the code a broker gave for one partition.
func (s *session) onPartError(ctx context.Context, t *tracker, part *Fetched) {
	err := fmt.Errorf("fetch at offset %d: %w", t.next, part.Err)
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
