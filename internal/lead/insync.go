package lead

import "slices"

// InSync says which followers are in the in-sync set by the metadata log: each may be
// elected when we are gone, and then its log is the truth. So the high watermark does not
// pass what any of them holds.
func (p *Partition) InSync(replicas []int32) {
	p.mu.Lock()
	defer p.unlock()
	for i := range p.followers {
		f := &p.followers[i]
		if f.synced = slices.Contains(replicas, f.id); f.synced {
			f.admitted = false
		}
	}
	p.advance()
}

// Admit gives those of the replicas that may come into the in-sync set now: they are
// there, have nothing to cut, and hold all below the high watermark. It waits for them from
// now on, until InSync has them. What an earlier call gave and the set did not get is
// forgotten.
func (p *Partition) Admit(replicas []int32) (fit []int32) {
	p.mu.Lock()
	defer p.unlock()
	for i := range p.followers {
		f := &p.followers[i]
		f.admitted = p.phase == Leading && slices.Contains(replicas, f.id) && f.heard && f.awaited(p.then()) && f.owes < 0 && f.bears() >= p.high
		if f.admitted {
			fit = append(fit, f.id)
		}
	}
	p.advance()
	return fit
}
