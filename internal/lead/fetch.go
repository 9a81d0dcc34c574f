package lead

import (
	"math"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// nothing is Answer.Release without records.
func nothing() {}

// Fetch answers a follower. Where it stands is believed at once: of the fetches of one
// follower only the latest may be asked with. One that was parked may be asked again, but
// not when its connection has ended: it would say where the follower is no more.
//
// A leader epoch above ours proves that the controller has elected us again (only then
// does a broker fetch from us with it), and is taken as Lead.
func (p *Partition) Fetch(f Fetch) Answer {
	p.mu.Lock()
	defer p.unlock()
	p.clock(f.Now)
	who := p.follower(f.Replica)
	if who != nil {
		p.lead(f.CurrentEpoch)
	}
	switch {
	case p.phase == Closed:
		return p.answer(NotLeader)
	case f.CurrentEpoch >= 0 && f.CurrentEpoch < p.epoch:
		return p.answer(FencedLeaderEpoch)
	case who == nil: // the metadata log has not told us of it yet
		return p.answer(UnknownLeaderEpoch)
	}
	p.hear(who, f)
	b := p.bounds(who)
	if !p.found { // nobody may go by an end that is not known: out of range is judged later
		b.end = math.MaxInt64
	}
	code, diverging := judge(b, f)
	switch {
	case code != 0 && !p.found: // below the log start: as good as an empty log
		code, who.holds = 0, f.Offset
	case code != 0 && p.phase == Gathering: // it asks for the log's ends next, of a leader
		who.holds = min(f.Offset, p.start)
	case code != 0 || diverging.Epoch >= 0:
		who.holds = -1
		diverging.EndOffset = min(diverging.EndOffset, f.Offset)
	default:
		who.holds = p.across(f.Offset)
	}
	gathering := p.phase == Gathering
	p.advance()
	if gathering && p.phase == Leading { // the end is known now, and the history may be
		code, diverging = judge(p.bounds(who), f)
	}
	a := p.answer(code)
	if a.Diverging = diverging; diverging.Epoch >= 0 { // all else in it the follower passes over
		a.HighWatermark, a.LastStable, a.LogStart = -1, -1, -1
	}
	if p.phase == Gathering {
		a.Hold = code == 0 && diverging.Epoch < 0
	} else if code == 0 && diverging.Epoch < 0 {
		p.read(&a, who, f)
	}
	return a
}

// answer is one without records.
func (p *Partition) answer(code int16) Answer {
	return Answer{
		Code: code, HighWatermark: p.high, LastStable: p.open.lastStable(p.high), LogStart: p.start,
		Diverging: noEpochEnd, Release: nothing, Elsewhere: -1, End: p.end, cuts: p.cutCount,
	}
}

func (p *Partition) bounds(f *follower) bounds {
	return bounds{history: p.history, proven: p.proven, ceiling: p.ceiling, start: p.start, end: p.end, owes: f.owes}
}

// hear takes down where a follower is.
func (p *Partition) hear(who *follower, f Fetch) {
	who.heard, who.seen, who.via = true, p.now, f.Via
	who.offset, who.sent, who.last, who.logStart = f.Offset, f.Offset, f.LastEpoch, f.LogStart
	if who.owes >= f.Offset {
		who.owes = -1
	}
}

// read puts records into an answer, or says where they are.
func (p *Partition) read(a *Answer, who *follower, f Fetch) {
	if base, sure := p.window.base(f.Offset); f.Offset == p.start && f.LogStart < p.start && (base < f.Offset || !sure) {
		// The first batch may begin before the log does. Only an empty log takes it, which the
		// follower has once it has moved its log start, as it does on this answer.
		return
	}
	if p.high < p.window.low {
		// What stood there before we led, and the quorum lacks, can be read from those who have
		// it only, and they give what is below the high watermark that they know.
		a.HighWatermark = max(p.high, min(f.Offset, p.window.low))
	}
	if f.Offset < p.window.low {
		a.Elsewhere = f.Offset
		for i := range p.followers {
			if o := &p.followers[i]; o.awaited(p.then()) && o.holds > p.across(f.Offset) {
				a.Holders = append(a.Holders, Holder{Replica: o.id, End: o.holds})
			}
		}
		who.sent = p.end
		return
	}
	records, size, runs := p.window.read(f.Offset, int(f.MaxBytes), f.Strict)
	if len(records) == 0 {
		return
	}
	a.Records, a.Size = records, size
	who.sent = p.window.after(f.Offset, len(records))
	held := runs // taken apart, so that an answer without records allocates nothing
	a.Release = func() {
		for _, r := range held {
			r.release()
		}
		held = nil
	}
}

// Gap says that a holder has no record from one offset up to another, where its log ends
// or goes on (an answer with Elsewhere has led there). Else a follower that stands before
// such a hole would be sent there for ever.
func (p *Partition) Gap(from, to int64) {
	p.mu.Lock()
	defer p.unlock()
	if from >= p.window.low || p.window.low > to {
		return
	}
	p.gap = cluster.Span{From: from, To: p.window.low}
	p.window.low, p.changed = from, true
	for i := range p.followers {
		f := &p.followers[i]
		f.holds = p.across(f.holds)
	}
	p.advance()
}

// Current reports whether what was read elsewhere for an answer, before this call, is still
// the log's: nothing was cut since it was given. What is cut after this call the follower
// is told at its next fetch.
func (p *Partition) Current(a *Answer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phase == Leading && a.cuts == p.cutCount
}

// across is what a follower holds whose log ends at offset: with it also the gap behind.
func (p *Partition) across(offset int64) int64 {
	if p.gap.From <= offset && offset < p.gap.To {
		return p.gap.To
	}
	return offset
}

// gather ends the gathering when enough is known of the followers.
func (p *Partition) gather() {
	if p.phase != Gathering || !gathered(p.followers, p.need(), p.now.Add(-min(p.idle, GatherFor))) {
		return
	}
	if !p.found && !p.proven && disputed(p.followers, p.start) {
		return
	}
	p.phase, p.changed = Leading, true
	if !p.found {
		p.found = true
		if p.startless {
			p.start = max(p.start, earliest(p.followers))
			p.high = max(p.high, p.start)
		}
		p.end, p.history = longest(p.followers, p.history)
		p.end = max(p.end, p.start)
		if latest, ok := p.history.Latest(); ok && !p.proven {
			p.ceiling = latest.Epoch
		}
		p.proven = p.proven || p.end == p.start
		p.high = min(p.high, p.end)
		p.window.low = p.end
		p.oblige()
	}
}

// earliest is the least log start of the followers that are known, 0 when none is.
func earliest(followers []follower) int64 {
	least := int64(-1)
	for i := range followers {
		if f := &followers[i]; f.counts() >= 0 && (least < 0 || f.logStart < least) {
			least = f.logStart
		}
	}
	return max(least, 0)
}

// disputed reports whether followers end in different epochs.
func disputed(followers []follower, start int64) bool {
	last, some := int32(0), false
	for i := range followers {
		if f := &followers[i]; f.counts() > start {
			if some && f.last != last {
				return true
			}
			last, some = f.last, true
		}
	}
	return false
}

// oblige has the followers that were not waited for cut at the end that was found: what
// they have behind it was never below the high watermark, and may be written differently
// by the time they come back, in the same epoch even.
func (p *Partition) oblige() {
	for i := range p.followers {
		if f := &p.followers[i]; f.holds < 0 && (f.owes < 0 || p.end < f.owes) {
			f.owes = p.end
		}
	}
}

// longest is the end of the log that a leader without one goes on from, and its history:
// as far as the followers that are known hold what the history says. Where none is stored
// they agree on the last epoch, and that becomes the history.
func longest(followers []follower, stored epoch.History) (int64, epoch.History) {
	var best *follower
	for i := range followers {
		f := &followers[i]
		if f.counts() < 0 {
			continue
		}
		if best == nil || f.holds > best.holds {
			best = f
		}
	}
	if len(stored) > 0 {
		return best.holds, stored.TruncateFrom(best.holds)
	}
	from := best.holds
	for i := range followers { // the epoch is known where any of them ends in it
		if f := &followers[i]; f.counts() > 0 && f.last == best.last {
			from = min(from, f.holds)
		}
	}
	return best.holds, stored.Assign(best.last, from-1)
}
