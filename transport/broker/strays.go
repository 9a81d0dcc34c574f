package broker

import (
	"cmp"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/internal/metalog"
)

// stray is a partition that somebody has placed on us and that is not ours: the
// controller at a topic's creation (before 4.3, or between registration and the
// first heartbeat), an operator, a tool that spreads replicas. Its followers hang
// and its clients wait until it is off us.
type stray struct {
	want int     // replicas it had, ours included
	had  []int32 // the real ones of them
	born bool    // we have seen it made, on us
	sure bool    // and on us alone of ours: whoever makes a mirror topic is the first of its replicas
	stay bool    // we are not leaving: what goes too can be added again after us
}

// move is what brings a stray one step further. At most one of them is set.
type move struct {
	callOff  bool    // the reassignment that is under way
	replicas []int32 // the new assignment
	isr      []int32 // as its leader: the new in-sync set
}

// step decides what to do about a stray now; done when it is off us and whole.
// It is pure.
//
// First everything real stays and we go, which is done at once when all of that is in
// sync; only then the missing replica is added. The other way round the new replica would
// have to copy from us, who have nothing to give. While we lead, those that are not in
// sync go as well and are added again after us: nobody else can let them in.
//
// A replica that is still being added cannot be removed (4.4 waits for it to be in
// sync all the same): the reassignment that adds it is called off as a whole.
//
// A partition that has only us in sync was made on us, as we ask for a place in no other but
// ours. It is empty and stays so, as we take no writes; so as its leader we may let a real
// replica into the in-sync set, whose log is empty as well. One that has the settings of a mirror
// topic may be one that nobody remembers: unless we have seen it being made, or no real
// broker has it, it is left to the operator.
func (s stray) step(i metalog.Image, id metalog.PartitionID, self int32, avoid func(int32) bool) (m move, done bool) {
	p, ok := i.Partition(id)
	if !ok {
		return move{}, true
	}
	if !slices.Contains(p.Replicas, self) {
		return s.complete(i, p, id.Partition, avoid)
	}
	if slices.Contains(p.Adding, self) {
		return move{callOff: true}, false
	}
	leaving := slices.Contains(p.Removing, self)
	rest := slices.DeleteFunc(slices.Clone(p.Replicas), func(r int32) bool { return avoid(r) || slices.Contains(p.Removing, r) })
	alone := len(p.Replicas)-len(p.Adding) == 1 // those that come are not there yet
	empty := s.born || alone || !likeOurs(i, id)
	switch synced := only(rest, p.ISR); {
	case s.stay && p.Leader == self && len(synced) > 0 && len(synced) < len(rest):
		return move{replicas: synced}, false
	case leaving && (p.Leader != self || len(synced) > 0):
		return move{}, false
	case leaving && empty:
		isr := admit(i, p, avoid)
		return move{isr: isr, callOff: isr == nil}, false // who was to take it may have gone
	case leaving:
		return move{}, false
	case empty && p.Leader == self && len(synced) == 0 && !slices.ContainsFunc(rest, func(r int32) bool { return up(i, r) }):
		rest = nil // nobody could take it
	}
	if len(rest) == 0 {
		more, ok := place(i, []int32{self}, id.Partition, avoid)
		if !ok {
			return move{}, false
		}
		rest = []int32{more}
	}
	return move{replicas: rest}, false
}

// complete is step for a partition that is off us: it gets back what it had.
func (s stray) complete(i metalog.Image, p *metalog.Partition, spread int32, avoid func(int32) bool) (m move, done bool) {
	if len(p.Replicas) >= s.want || len(p.Adding)+len(p.Removing) > 0 {
		return move{}, len(p.Replicas) >= s.want
	}
	all := slices.Clone(p.Replicas)
	for _, r := range s.had { // also one that is down: it is waited for by the cluster
		if _, known := i.Broker(r); known && len(all) < s.want && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	if len(all) < s.want {
		more, ok := place(i, all, spread, avoid)
		if ok {
			all = append(all, more)
		}
	}
	if len(all) == len(p.Replicas) {
		return move{}, true // the cluster has no broker for it
	}
	return move{replicas: all}, false
}

// likeOurs reports that a topic has the settings of mirrored ones.
func likeOurs(i metalog.Image, id metalog.PartitionID) bool {
	has := topicConfig(i, topicName(i, id))
	for key, value := range mirrored {
		if has[key] != value {
			return false
		}
	}
	return true
}

// up reports that a broker may be elected, or let into an in-sync set.
func up(i metalog.Image, id int32) bool {
	b, ok := i.Broker(id)
	return ok && !b.Fenced && !b.InControlledShutdown
}

// only are those of a list that are in another one too.
func only(list, in []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(r int32) bool { return !slices.Contains(in, r) })
}

// admit is the in-sync set with the real replicas that are alive; nil when that is
// no change.
func admit(i metalog.Image, p *metalog.Partition, avoid func(int32) bool) []int32 {
	out := slices.Clone(p.ISR)
	for _, r := range p.Replicas {
		if up(i, r) && !avoid(r) && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	if len(out) == len(p.ISR) {
		return nil
	}
	return out
}

// place finds a broker for one more replica: alive, not cordoned, none of those
// to avoid, in a rack that has none yet if there is one, and otherwise spread by
// the partition's number.
func place(i metalog.Image, replicas []int32, spread int32, avoid func(int32) bool) (int32, bool) {
	racks := make(map[string]bool)
	for _, r := range replicas {
		if b, ok := i.Broker(r); ok && !avoid(r) {
			racks[b.Rack] = true
		}
	}
	var fit []*metalog.Broker
	for b := range i.Brokers() {
		cordoned := len(b.Cordoned) > 0 && len(b.Cordoned) >= len(b.Directories)
		if !b.Fenced && !b.InControlledShutdown && !cordoned && !avoid(b.ID) && !slices.Contains(replicas, b.ID) {
			fit = append(fit, b)
		}
	}
	if len(fit) == 0 {
		return -1, false
	}
	if other := slices.DeleteFunc(slices.Clone(fit), func(b *metalog.Broker) bool { return racks[b.Rack] }); len(other) > 0 {
		fit = other
	}
	slices.SortFunc(fit, func(a, b *metalog.Broker) int { return cmp.Compare(a.ID, b.ID) })
	return fit[int(spread)%len(fit)].ID, true
}

// find gives the partitions on us that a delta speaks of and that are not ours,
// and which of them were made since the image before.
func find(before, now metalog.Image, d metalog.Delta, self int32, own func(int32) bool, ours func(metalog.PartitionID) bool) map[metalog.PartitionID]stray {
	found := make(map[metalog.PartitionID]stray)
	look := func(id metalog.PartitionID) {
		p, ok := now.Partition(id)
		if !ok || !slices.Contains(p.Replicas, self) || ours(id) {
			return
		}
		_, was := before.Partition(id)
		coming := func(r int32) bool { return slices.Contains(p.Adding, r) }
		one := stray{want: len(p.Replicas) - len(p.Adding), had: slices.DeleteFunc(slices.Clone(p.Replicas), func(r int32) bool { return coming(r) || own(r) }), born: !d.All && !was}
		one.sure = one.born && !slices.ContainsFunc(p.Replicas, func(r int32) bool { return r != self && own(r) })
		found[id] = one
	}
	if d.All {
		for id := range now.Partitions() {
			look(id)
		}
	}
	for id := range d.Partitions {
		look(id)
	}
	return found
}

// urgent orders strays: internal topics first, as groups and transactions of
// everybody hang on them.
func urgent(i metalog.Image, ids []metalog.PartitionID) {
	rank := func(id metalog.PartitionID) (internal int, name string) {
		if t, ok := i.Topic(id.Topic); ok {
			name = t.Name
		}
		if !strings.HasPrefix(name, "__") {
			internal = 1
		}
		return internal, name
	}
	slices.SortFunc(ids, func(a, b metalog.PartitionID) int {
		x, nameX := rank(a)
		y, nameY := rank(b)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(nameX, nameY), cmp.Compare(a.Partition, b.Partition))
	})
}
