package simulation

import (
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// oracle knows what was written where, and what every log may hold because of it. It
// is told of writes, watches what processes do to stores and destinations, and looks
// at logs.
type oracle struct {
	w *world

	mu        sync.Mutex
	first     error          // the first promise that was broken
	homes     map[int64]home // of records, by their numbers
	trims     map[cluster.Partition]int64
	lately    map[place]fingerprint
	still     map[stretch]rest
	uncleanAt map[place]bool
	cutAt     map[place]bool              // logs that a mirror has cut: what reads from them sees epochs part
	fenced    map[stretch]cluster.TopicID // the topic whose writers were locked out last
	cuts      []removal
	gaps      []removal
}

// home is where a record was written.
type home struct {
	at                string
	p                 cluster.Partition
	offset, timestamp int64
}

// place is a partition of a cluster.
type place struct {
	at string
	p  cluster.Partition
}

// stretch is a partition of a mirror.
type stretch struct {
	mirror string
	p      cluster.Partition
}

// rest is a partition that nothing may be appended to by its mirror.
type rest struct {
	state coordinator.State
	topic cluster.TopicID
	end   int64
	// crowded: more than one process of the mirror was there meanwhile. A pause is no
	// fence: one that wakes up goes on until it learns that it has lost.
	crowded bool
}

// removal is a range that a destination lacks because of what a process did.
type removal struct {
	p    *process
	part cluster.Partition
	span cluster.Span
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, homes: map[int64]home{}, trims: map[cluster.Partition]int64{}, lately: map[place]fingerprint{},
		still: map[stretch]rest{}, uncleanAt: map[place]bool{}, cutAt: map[place]bool{},
		fenced: map[stretch]cluster.TopicID{},
	}
}

// verdict is the first promise that was broken.
func (o *oracle) verdict() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first
}

// found keeps the first promise that was broken, unless its rule is switched off.
func (o *oracle) found(rule, format string, args ...any) {
	if o.w.setup.off(rule) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == nil {
		o.first = broken(rule, format, args...)
	}
}

// unclean is told of elections that may lose records of a cluster.
func (o *oracle) unclean(at string, p cluster.Partition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.uncleanAt[place{at, p}] = true
}

func (o *oracle) wasUnclean(at string, p cluster.Partition) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.uncleanAt[place{at, p}]
}

// parts reports whether the epochs of a cluster's log may part from those of its copies
// where the records may be the same again.
func (o *oracle) parts(at string, p cluster.Partition) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.uncleanAt[place{at, p}] || o.cutAt[place{at, p}]
}

// reused reports whether a mirror has cut a log since, and written other records into the
// very offsets and epochs that were copied from there. It keeps the epochs of its source,
// which may be those that users had when they wrote what was cut: both clusters have
// numbered on by themselves, or a topic was made anew. Who reads from it cannot see that.
func (o *oracle) reused(at string, p cluster.Partition, now, copied view) bool {
	o.mu.Lock()
	cut := o.cutAt[place{at, p}] && o.w.setup.Kind == "keeps"
	o.mu.Unlock()
	if !cut {
		return false
	}
	for _, was := range copied.batches {
		for _, is := range now.batches {
			if is.Base() <= was.Base() && was.Base() < is.Next() && is.LeaderEpoch() == was.LeaderEpoch() && !same(is, was, true) {
				return true
			}
		}
	}
	return false
}

// trimmed is told of records that users have deleted.
func (o *oracle) trimmed(_ string, p cluster.Partition, to int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trims[p] = max(o.trims[p], to)
}

func (o *oracle) trimmedTo(p cluster.Partition) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.trims[p]
}

// produced is told of a batch that a cluster has accepted from a user, and registers
// its records. Where users cannot write into mirror topics, it has to be one no more:
// its position is stored (I6). guarded are the mirrors of which it was one before.
func (o *oracle) produced(at string, p cluster.Partition, base int64, guarded []string) error {
	_, views, err := o.w.look(at, p)
	if err != nil {
		return nil
	}
	all, err := cells(views[0].from(base), base)
	if err != nil {
		return broken("I1", "%s %v: %v", at, p, err)
	}
	o.mu.Lock()
	for _, c := range all {
		if _, known := o.homes[c.serial]; !known {
			o.homes[c.serial] = home{at, p, c.offset, c.timestamp}
		}
	}
	o.mu.Unlock()
	if o.w.setup.Kind == "produce" {
		return nil
	}
	held, err := cells(views[0].batches, 0)
	if err != nil {
		return broken("I1", "%s %v: %v", at, p, err)
	}
	mirrored := false
	for _, c := range held {
		mirrored = mirrored || c.at != at
	}
	for _, mirror := range guarded {
		rec, still := o.w.guarding(mirror, p)
		if still && mirrored {
			return broken("I6", "%s %v took a user's record at offset %d while %s is %s without a stored position", at, p, base, mirror, rec.State)
		}
	}
	return nil
}

// saved is told of a record that was just stored.
func (o *oracle) saved(p *process, before, after coordinator.Record) {
	from := before.State
	if before.StateEpoch == 0 {
		from = coordinator.StateUnknown
	}
	if !coordinator.Legal(from, after.State) {
		o.found("I7", "%s stored %s after %s for %v", p.name, after.State, from, after.Partition)
	}
	p.owns(after.Partition, after.OwnerEpoch)
	if from == after.State {
		return
	}
	st, views, err := o.w.look(p.destination(), after.Partition)
	o.mu.Lock()
	remade := o.fenced[stretch{p.mirror, after.Partition}] != st.TopicID // by users, while the stop was under way
	o.mu.Unlock()
	if raised := max(after.Position.Epoch, 0) + 10; err == nil && o.w.setup.Kind == "keeps" && after.Appended && !remade &&
		after.State == coordinator.StateStopped && st.Leader.Epoch < raised && after.HasPosition {
		o.found("I5", "%s stops %v at leader epoch %d, has mirrored up to epoch %d", p.name, after.Partition, st.Leader.Epoch, after.Position.Epoch)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.still, stretch{p.mirror, after.Partition})
	resting := after.State == coordinator.StateStopped || after.State == coordinator.StatePaused
	if resting && err == nil && after.Appended {
		o.still[stretch{p.mirror, after.Partition}] = rest{state: after.State, topic: st.TopicID, end: views[0].end}
	}
	if after.State == coordinator.StateStopped {
		return
	}
	for _, other := range clusterNames() { // another mirror into the cluster is at work
		if other != p.source() {
			delete(o.still, stretch{other + p.destination(), after.Partition})
		}
	}
}
