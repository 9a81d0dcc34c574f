package metalog

import (
	"maps"

	"github.com/clustermirror/mirror/cluster"
)

// Delta says what may differ between two images: never less than what does.
// Nothing is said of features, producer ids and credentials.
type Delta struct {
	// All: anything may differ, the sets say nothing. After a snapshot, and for
	// who has not looked for long.
	All        bool
	Brokers    map[int32]struct{}
	Topics     map[cluster.TopicID]struct{} // made, removed, or with more partitions
	Partitions map[PartitionID]struct{}     // those of removed topics as well
	Configs    map[Resource]struct{}
}

// Empty reports that nothing in the delta's sets differs.
func (d *Delta) Empty() bool { return !d.All && d.size() == 0 }

func (d *Delta) size() int {
	return len(d.Brokers) + len(d.Topics) + len(d.Partitions) + len(d.Configs)
}

func put[K comparable](set *map[K]struct{}, key K) {
	if *set == nil {
		*set = make(map[K]struct{})
	}
	(*set)[key] = struct{}{}
}

func join[K comparable](set *map[K]struct{}, more map[K]struct{}) {
	if *set == nil && len(more) > 0 {
		*set = make(map[K]struct{}, len(more))
	}
	maps.Copy(*set, more)
}

// merge adds what another delta says; the other one is not kept.
func (d *Delta) merge(more *Delta) {
	if d.All = d.All || more.All; d.All {
		*d = Delta{All: true}
		return
	}
	join(&d.Brokers, more.Brokers)
	join(&d.Topics, more.Topics)
	join(&d.Partitions, more.Partitions)
	join(&d.Configs, more.Configs)
}
