package lead

import (
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// Truncate cuts the tail from offset on, and the whole batch that holds offset; where
// that batch has left the window offset must be where it begins (Base). The log ends where
// the batch before it does. What lies there already is no error. done is called when every
// follower that is waited for has cut, and a quorum; the others owe it, and cut at their
// next fetch, however far the log has grown by then. Runs that reach behind the cut fail,
// and later ones are refused until Forget.
func (p *Partition) Truncate(offset int64, done func(error)) {
	p.mu.Lock()
	defer p.unlock()
	if err := p.refuses(); err != nil {
		p.call(func() { done(err) })
		return
	}
	if at := max(p.window.before(offset), p.start); at < p.end {
		p.cut(at)
	}
	p.cuts = append(p.cuts, done)
	p.advance()
}

// refuses says why the log cannot be changed now, nil when it can.
func (p *Partition) refuses() error {
	switch {
	case p.phase == Closed:
		return p.closed()
	case !p.found:
		return p.early()
	}
	return nil
}

func (p *Partition) cut(at int64) {
	p.changed, p.cutHere = true, true
	p.cutCount++
	p.high = min(p.high, at)
	p.fail(at, fmt.Errorf("%v: %w: the log was cut at offset %d", p.partition, cluster.ErrOutOfOrder, at))
	p.free(p.window.cut(at, nil))
	p.gap.To = min(p.gap.To, at)
	p.history = p.history.TruncateFrom(at)
	p.open.cut(at)
	p.end = at
	for i := range p.followers {
		f := &p.followers[i]
		f.holds = min(f.holds, at) // what lies below is ours as before
		if f.heard && max(f.offset, f.sent) <= at {
			continue
		}
		if f.owes < 0 || at < f.owes {
			f.owes = at
		}
	}
}

// Owing gives the cuts that followers have not made, by replica, to be stored: a later
// Config.Owed. Until Served says that a follower's is forgotten there, it does not count for
// the high watermark: what it has behind the cut a New partition would have it drop.
func (p *Partition) Owing() map[int32]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[int32]int64)
	for i := range p.followers {
		if f := &p.followers[i]; f.owes >= 0 {
			f.noted = true
			out[f.id] = f.owes
		}
	}
	return out
}

// Cut reports of the followers given that they owe nothing any more, or are none.
func (p *Partition) Cut(replicas []int32) (done []int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range replicas {
		if f := p.follower(id); f == nil || f.owes < 0 {
			done = append(done, id)
		}
	}
	return done
}

// Served says that cuts are forgotten where they were stored, all but those of replicas.
func (p *Partition) Served(but []int32) {
	p.mu.Lock()
	defer p.unlock()
	for i := range p.followers {
		f := &p.followers[i]
		f.noted = f.noted && slices.Contains(but, f.id)
	}
	p.advance()
}

// Trim raises the log start, not over the log end, and never takes it back; it waits for
// the high watermark. done is called when every follower that is waited for has done it,
// and a quorum.
func (p *Partition) Trim(offset int64, done func(error)) {
	p.mu.Lock()
	defer p.unlock()
	if err := p.refuses(); err != nil {
		p.call(func() { done(err) })
		return
	}
	offset = min(offset, p.end)
	p.trimTo = max(p.trimTo, offset)
	p.trims = append(p.trims, trim{offset, done})
	p.advance()
}

// StartAt lets an empty log begin at offset. Followers go there by themselves: what they
// ask for is out of range.
func (p *Partition) StartAt(offset int64) error {
	p.mu.Lock()
	defer p.unlock()
	switch {
	case p.phase == Closed:
		return p.closed()
	case !p.found:
		return p.early()
	case p.end == offset && p.start == offset:
		return nil
	case p.end > p.start:
		return fmt.Errorf("%v: %w: a log with records at %v cannot start at %d", p.partition, cluster.ErrOutOfOrder,
			cluster.Span{From: p.start, To: p.end}, offset)
	}
	p.start, p.end, p.high, p.trimTo, p.window.low = offset, offset, offset, offset, offset
	p.history, p.proven, p.ceiling, p.changed = nil, true, -1, true
	p.open = newTransactions(nil)
	for i := range p.followers {
		p.followers[i].holds = -1
	}
	p.advance()
	return nil
}
