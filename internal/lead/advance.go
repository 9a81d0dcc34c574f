package lead

import "slices"

// advance draws the conclusions from what is known of the followers. It is called after
// each change, and costs nothing per record that did not move.
func (p *Partition) advance() {
	if p.phase == Closed {
		return
	}
	p.gather()
	if p.phase == Leading {
		sure := min(quorumEnd(p.followers, p.need()), inSyncEnd(p.followers))
		if sure > p.high {
			p.high, p.changed = sure, true
		}
		p.land()
		p.raiseStart()
		all := slowest(p.followers, p.then())
		p.free(p.window.drop(sure, all, p.limit, nil))
	}
	p.settle()
}

// land answers the runs that the quorum holds.
func (p *Partition) land() {
	n := 0
	for n < len(p.runs) && (p.runs[n].end <= p.high || p.runs[n].err != nil) {
		p.tell(p.runs[n], p.runs[n].end, p.runs[n].batches, nil)
		n++
	}
	if n > 0 {
		p.runs = slices.Delete(p.runs, 0, n)
	}
}

// raiseStart moves the log start to where it was asked to, or to where it is at every
// follower by now (each has a retention of its own), but not over the high watermark:
// followers refuse that.
func (p *Partition) raiseStart() {
	to := max(p.trimTo, everyStart(p.followers))
	if to = min(to, p.high); to > p.start {
		p.start, p.changed = to, true
		p.history = p.history.TrimTo(to)
	}
}

// everyStart is the least log start of all followers, -1 when one is not known.
func everyStart(followers []follower) int64 {
	least := int64(-1)
	for i := range followers {
		f := &followers[i]
		switch {
		case f.holds < 0:
			return -1
		case least < 0 || f.logStart < least:
			least = f.logStart
		}
	}
	return least
}

// settle answers cuts and trims that are done.
func (p *Partition) settle() {
	if len(p.cuts) > 0 && everywhere(p.followers, p.need(), p.then(), func(f *follower) bool { return f.owes < 0 && f.holds >= 0 }) {
		for _, done := range p.cuts {
			p.call(func() { done(nil) })
		}
		p.cuts = nil
	}
	p.trims = slices.DeleteFunc(p.trims, func(t trim) bool {
		if p.start < t.offset || !everywhere(p.followers, p.need(), p.then(), func(f *follower) bool { return f.logStart >= t.offset }) {
			return false
		}
		p.call(func() { t.done(nil) })
		return true
	})
}
