package lead

import "github.com/clustermirror/mirror/internal/epoch"

// Cuts counts what may have changed the log before its end, for Learn.
func (p *Partition) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cutCount
}

// Learn completes the history of a log that was led before all of it was known: with all
// epochs that begin below some offset, as they were read when Cuts gave that number. It reports
// whether that was of use; where the log was cut since, and before its end is known, it has to be
// read again.
func (p *Partition) Learn(cuts int, history []EpochStart) bool {
	p.mu.Lock()
	defer p.unlock()
	if p.phase == Closed || !p.found || cuts != p.cutCount {
		return false
	}
	if whole := joinedWith(p.history, history); whole != nil {
		p.history, p.proven, p.changed = whole.TruncateFrom(p.end).TrimTo(p.start), true, true
	}
	return p.proven
}

// joinedWith is a history with what came before its first epoch, nil where the two are not of one log.
// before has the beginnings of all epochs up to its last one. It is pure.
func joinedWith(h, before epoch.History) epoch.History {
	last, ok := before.Latest()
	latest, some := h.Latest()
	switch {
	case !some: // a cut has taken what was known
		return before
	case !ok || latest.Epoch < last.Epoch:
		return nil
	}
	whole := append(epoch.History(nil), before...)
	for _, e := range h {
		switch {
		case e.Epoch > last.Epoch:
			whole = append(whole, e)
		case before.At(e.Start) != e.Epoch:
			return nil
		}
	}
	if !whole.Valid() {
		return nil
	}
	return whole
}
