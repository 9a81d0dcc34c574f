package broker

import (
	"cmp"
	"maps"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Trace is what there is of one broker id of ours.
type Trace struct {
	Broker int32
	// Registered: the cluster knows such a broker. Alive: its session has not ended.
	Registered, Alive bool
	// Kept: the Identities have it, with the Name of its process. Ended: that process said
	// that it ended.
	Kept  bool
	Name  string
	Ended bool
	// Replicas is how many partitions have it in their replica list, Leads how many it
	// leads, Leaderless how many nobody leads.
	Replicas, Leads, Leaderless int
	// Behind: so many have it behind a real broker, as no mirror does. Is it a real broker?
	Behind int

	id Identity
}

// traces gives what there is of ids of ours, in their order.
func traces(image metalog.Image, ids IDs, all []Kept) []Trace {
	found := make(map[int32]*Trace)
	at := func(id int32) *Trace {
		if found[id] == nil {
			found[id] = &Trace{Broker: id}
		}
		return found[id]
	}
	us := party{ids: ids}
	for b := range image.Brokers() {
		if us.own(b.ID) {
			t := at(b.ID)
			t.Registered, t.Alive, t.id = true, !b.Fenced, Identity{Broker: b.ID, Incarnation: b.Incarnation}
			if len(b.Directories) > 0 {
				t.id.Directory = b.Directories[0]
			}
		}
	}
	for _, p := range image.Partitions() {
		us.trace(p, at)
	}
	for _, k := range all {
		b, registered := image.Broker(k.Broker)
		if !us.own(k.Broker) || registered && !k.is(b) {
			continue // not of ours, or the id is somebody else's by now
		}
		t := at(k.Broker)
		t.Kept, t.Name, t.Ended, t.id = true, k.Name, k.Holder == "", k.Identity
	}
	out := make([]Trace, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[id])
	}
	return out
}

// trace counts a partition.
func (p party) trace(part *metalog.Partition, at func(int32) *Trace) {
	real := false
	for n, r := range part.Replicas {
		if p.real(r) {
			real = true
			continue
		}
		t := at(r)
		t.Replicas++
		if real {
			t.Behind++
		}
		if part.Leader == r {
			t.Leads++
		}
		if part.Leader < 0 {
			t.Leaderless++
		}
		if !t.Registered && t.id.Directory == (metalog.UUID{}) && n < len(part.Directories) {
			t.id.Directory = part.Directories[n]
		}
	}
}

// mirrorTopics are the topics that look like ours in the log: one of some ids stands first
// in a replica list, and either nobody real is in sync there or the topic has the settings
// of a mirrored one.
func mirrorTopics(image metalog.Image, us party, brokers []int32) []string {
	topics := make(map[string]bool)
	for id, p := range image.Partitions() {
		if len(p.Replicas) == 0 || !slices.Contains(brokers, p.Replicas[0]) {
			continue
		}
		name := topicName(image, id)
		if len(us.reals(p.ISR)) == 0 || len(toMirrored(topicConfig(image, name))) == 0 {
			topics[name] = true
		}
	}
	return slices.Sorted(maps.Keys(topics))
}

// touchedBy are all topics with a replica on one of some brokers.
func touchedBy(image metalog.Image, brokers []int32) []string {
	topics := make(map[cluster.TopicID]bool)
	for id, p := range image.Partitions() {
		if slices.ContainsFunc(p.Replicas, func(r int32) bool { return slices.Contains(brokers, r) }) {
			topics[id.Topic] = true
		}
	}
	var names []string
	for id := range topics {
		names = append(names, topicName(image, metalog.PartitionID{Topic: id}))
	}
	slices.Sort(names)
	return names
}

// order has those first that may lead what they are a replica of: it comes back with them.
func order(image metalog.Image, brokers []int32) []int32 {
	may := make(map[int32]int)
	for _, p := range image.Partitions() {
		for _, r := range slices.Concat(p.ISR, p.ELR) {
			may[r]++
		}
	}
	return slices.SortedFunc(slices.Values(brokers), func(a, b int32) int { return cmp.Or(cmp.Compare(may[b], may[a]), cmp.Compare(a, b)) })
}
