package broker

import (
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// registry is what this process leads, by topic id and by name. It is safe for
// concurrent use.
type registry struct {
	mu     sync.RWMutex
	ids    map[ledID]*lead.Partition
	names  map[cluster.Partition]*lead.Partition
	topics map[cluster.TopicID]int // partitions of each topic
}

type ledID struct {
	topic     cluster.TopicID
	partition int32
}

func newRegistry() *registry {
	return &registry{
		ids: make(map[ledID]*lead.Partition), names: make(map[cluster.Partition]*lead.Partition), topics: make(map[cluster.TopicID]int),
	}
}

// add takes the place of a partition with the same id, or the same name.
func (r *registry) add(p *lead.Partition) {
	topic, name := p.ID()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, old := range []*lead.Partition{r.ids[ledID{topic, name.Partition}], r.names[name]} {
		if old != nil {
			r.drop(old)
		}
	}
	r.ids[ledID{topic, name.Partition}], r.names[name] = p, p
	r.topics[topic]++
}

// remove does nothing when another one has taken p's place.
func (r *registry) remove(p *lead.Partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(p)
}

func (r *registry) drop(p *lead.Partition) {
	topic, name := p.ID()
	id := ledID{topic, name.Partition}
	if r.ids[id] != p {
		return
	}
	delete(r.ids, id)
	delete(r.names, name)
	if r.topics[topic]--; r.topics[topic] == 0 {
		delete(r.topics, topic)
	}
}

// byID is nil for what we do not lead.
func (r *registry) byID(topic cluster.TopicID, partition int32) *lead.Partition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ids[ledID{topic, partition}]
}

// byName is nil for what we do not lead.
func (r *registry) byName(p cluster.Partition) *lead.Partition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.names[p]
}

// knows reports that some partition of a topic is here.
func (r *registry) knows(topic cluster.TopicID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.topics[topic] > 0
}
