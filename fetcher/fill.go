package fetcher

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// fill is what take does with a batch for a destination that fills what is missing:
// holes before it, and in its place when readers of committed records see nothing of
// it. Holes that touch are one, across everything that one run holds.
func (t *tracker) fill(into []cluster.Batch, h batch.Header, seen *visibility) ([]cluster.Batch, error) {
	into = t.missing(into, h.Base())
	switch hidden := seen.hides(h); {
	case hidden || h.Count() == 0:
		return t.hole(into, h.Next(), h.MaxTimestamp(), false), nil
	case h.Base() < t.next:
		return t.rest(into, h)
	}
	return append(into, t.batch(h)), nil
}

func (t *tracker) batch(h batch.Header) cluster.Batch {
	return cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: h.LeaderEpoch(), MaxTimestamp: h.MaxTimestamp(), Bytes: h}
}

// missing are the holes up to an offset at which the source's log goes on, or begins.
func (t *tracker) missing(into []cluster.Batch, to int64) []cluster.Batch {
	if gone := min(to, t.board.LogStart.Load()); gone > t.next {
		t.skipTo(gone)
		into = t.hole(into, gone, -1, true)
	}
	if to > t.next {
		into = t.hole(into, to, -1, false)
	}
	return into
}

// hole moves the position up to an offset below which nothing is to be seen.
func (t *tracker) hole(into []cluster.Batch, to, timestamp int64, gone bool) []cluster.Batch {
	if n := len(into); n > 0 && into[n-1].Hole() && into[n-1].Gone == gone {
		into[n-1].Next, into[n-1].MaxTimestamp = to, max(into[n-1].MaxTimestamp, timestamp)
	} else {
		into = append(into, cluster.Batch{Base: t.next, Next: to, Epoch: t.lastEpoch, MaxTimestamp: timestamp, Gone: gone})
	}
	t.next, t.dirty = to, true
	return into
}

// rest are the records of a batch from the position on, which is inside of it: a
// destination that takes batches apart may have been stopped between two pieces.
func (t *tracker) rest(into []cluster.Batch, h batch.Header) ([]cluster.Batch, error) {
	b, err := batch.Tail(h, t.next)
	if err != nil {
		return into, t.err(h.Base(), h.Next(), cluster.ErrCorrupt, err.Error())
	}
	if batch.Header(b).Count() == 0 {
		return t.hole(into, h.Next(), h.MaxTimestamp(), false), nil
	}
	return append(into, t.batch(b)), nil
}

// fillTo has the destination filled from the position up to an offset, where the
// source's log has nothing at all.
func (s *session) fillTo(t *tracker, to int64) {
	from := newResponse(func() {}, 0)
	r := newRun(s, t, from)
	r.batches = t.missing(r.batches, to)
	s.tellSkipped(t)
	s.dispatch(t, r)
	from.done()
	s.look(t)
}

// A trailing hole is one with nothing behind it that an answer could show: compaction
// has removed the last records below the last stable offset. An answer without records
// does not prove it, for brokers leave partitions out of answers that are full, and there
// need not be one: nor do they say twice that nothing is new. So a partition that has not
// moved for a while, or had an empty answer, has the source asked for the place itself.

// suspect notes that a partition may stand before a trailing hole.
func (s *session) suspect(t *tracker) {
	if t.next >= t.readable() || t.suspected {
		return
	}
	t.suspected = true
	s.suspects = append(s.suspects, t)
}

// probed is what the source has at the position.
type probed struct {
	t     *tracker
	gen   uint32
	next  int64
	to    int64 // nothing is below it
	err   error
	moved bool // another leader answered, or may have
}

// probe asks about the suspects, each once. Those that went on meanwhile are none.
func (s *session) probe(ctx context.Context) {
	for _, t := range s.suspects {
		t.suspected = false
		if !s.mine(t) || t.phase != fetching || t.held != nil || t.probing || t.next >= t.readable() || t.next < t.board.LogStart.Load() {
			continue
		}
		t.probing = true
		found := &probed{t: t, gen: t.gen, next: t.next, to: t.readable()}
		p, leader := t.partition, t.leader
		s.f.spawn(func() {
			found.look(ctx, s.f.source, p, leader)
			s.box.put(message{probe: found})
		})
	}
	clear(s.suspects)
	s.suspects = s.suspects[:0]
}

// look finds where the source's log goes on. The leader's word counts only when its
// epoch is still the one that the last stable offset was told under.
func (d *probed) look(ctx context.Context, source Source, p cluster.Partition, leader cluster.Leader) {
	b, err := readAt(ctx, source, p, d.next)
	if err != nil {
		d.err = err
		return
	}
	if base, ok := firstBase(b); ok {
		d.to = min(d.to, base)
	}
	answers, err := source.EpochEnds(ctx, []EpochQuery{{Partition: p, Current: leader.Epoch, Epoch: leader.Epoch}})
	if err == nil {
		err = answers[0].Err
	}
	switch {
	case unsupported(err):
	case err != nil:
		d.err = fmt.Errorf("end of epoch %d: %w", leader.Epoch, err)
	case answers[0].EndOffset >= 0 && answers[0].EndOffset < d.to:
		d.moved = true
	}
}

func (s *session) onProbed(d *probed) {
	t := d.t
	t.probing = false
	if !s.mine(t) || t.gen != d.gen || t.next != d.next || t.phase != fetching || t.held != nil {
		return
	}
	if d.err != nil || d.moved {
		s.f.opts.Logger.Debug("nothing was found out about a hole", "partition", t.partition, "offset", d.next, "err", d.err)
		t.suspected = true // the next quiet moment
		s.suspects = append(s.suspects, t)
		return
	}
	if d.to > t.next {
		s.fillTo(t, d.to)
	}
}
