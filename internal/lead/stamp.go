package lead

import (
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// Stamp has our leader epoch written into batches from now on, instead of the source's.
func (p *Partition) Stamp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stamp = true
}

// StampAbove reports whether the log has a later epoch than one of batches, which would be
// refused with the source's: then they have to be stamped (done). Where ours is above
// all that is in the log they are from now on.
func (p *Partition) StampAbove(batches []cluster.Batch) (above, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	latest, ok := p.history.Latest()
	if p.stamp || !ok || !slices.ContainsFunc(batches, func(b cluster.Batch) bool { return b.Epoch >= 0 && b.Epoch < latest.Epoch }) {
		return false, false
	}
	p.stamp = p.epoch > latest.Epoch
	return true, p.stamp
}
