package memory

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// partition is one partition of a topic on all of its brokers.
type partition struct {
	id       cluster.Partition
	topic    *topic
	replicas []replica
	leader   int   // index of replicas; -1 when nobody leads
	epoch    int32 // leader epoch
	frozen   bool
	stretch  stretch
	writers  []writer // who wrote what, by where they began; markers and fences do not count
	guard    int64    // what producers wrote below it is no part of their sequences
	known    producers
}

// writer wrote from an offset on: a mirror, or clients (empty).
type writer struct {
	mirror string
	from   int64
}

// wrote notes who writes at an offset.
func (p *partition) wrote(mirror string, at int64) {
	if n := len(p.writers); n == 0 || p.writers[n-1].mirror != mirror {
		p.writers = append(p.writers, writer{mirror, at})
	}
}

// writtenBy reports whether the last records of the log are a mirror's.
func (p *partition) writtenBy(mirror string) bool {
	n := len(p.writers)
	return n > 0 && p.writers[n-1].mirror == mirror
}

// shortened is called when the leader's log may end earlier than it did.
func (p *partition) shortened(end int64) {
	p.known = producers{}
	p.stretch.lost(end)
	for n := len(p.writers); n > 0 && p.writers[n-1].from >= end; n = len(p.writers) {
		p.writers = p.writers[:n-1]
	}
}

// replica is a partition on one broker.
type replica struct {
	broker  int32
	inSync  bool
	lagging bool  // does not fetch, though its broker runs
	cut     int64 // truncation that it has to carry out before anything else (I8); -1: none
	high    int64 // high watermark as this replica knows it
	log     log
}

// lead is the leader's replica, nil when there is none.
func (p *partition) lead() *replica {
	if p.leader < 0 {
		return nil
	}
	return &p.replicas[p.leader]
}

// at finds the replica of a broker, -1 when it has none.
func (p *partition) at(broker int32) int {
	for i := range p.replicas {
		if p.replicas[i].broker == broker {
			return i
		}
	}
	return -1
}

// answers is the leader's replica, or why nobody answers for the partition.
func (p *partition) answers() (*replica, error) {
	switch {
	case p.frozen:
		return nil, fmt.Errorf("%v: %w: the partition does not answer", p.id, cluster.ErrTimeout)
	case p.leader < 0:
		return nil, fmt.Errorf("%v: %w: no leader", p.id, cluster.ErrUnavailable)
	}
	return &p.replicas[p.leader], nil
}

// find is a partition, or why there is none.
func (c *Cluster) find(p cluster.Partition) (*partition, error) {
	if t := c.topics[p.Topic]; t != nil && p.Partition >= 0 && int(p.Partition) < len(t.partitions) {
		return t.partitions[p.Partition], nil
	}
	return nil, fmt.Errorf("%v: %w", p, cluster.ErrUnknownTopic)
}

// leading is a partition with its leader's replica, or why nobody answers.
func (c *Cluster) leading(p cluster.Partition) (*partition, *replica, error) {
	part, err := c.find(p)
	if err != nil {
		return nil, nil, err
	}
	r, err := part.answers()
	return part, r, err
}

// follows reports whether a replica fetches from the leader.
func (c *Cluster) follows(p *partition, i int) bool {
	r := &p.replicas[i]
	return i != p.leader && !r.lagging && c.up(r.broker)
}

// grown is called after the leader's log has become longer.
func (c *Cluster) grown(p *partition) {
	if c.options.Manual {
		c.advance(p)
	} else {
		c.catchUp(p)
	}
	c.changed()
}

// catchUp replicates until nothing is left to be told.
func (c *Cluster) catchUp(p *partition) {
	c.replicate(p)
	if leader := p.lead(); leader != nil && !p.frozen {
		for i := range p.replicas {
			if c.follows(p, i) {
				p.replicas[i].high = min(leader.high, p.replicas[i].log.end)
			}
		}
	}
}

// replicate is one round of fetches by all followers. They learn the high
// watermark that the leader knew before; the leader learns how far they are.
func (c *Cluster) replicate(p *partition) {
	leader := p.lead()
	if leader == nil || p.frozen {
		return
	}
	for i := range p.replicas {
		if r := &p.replicas[i]; c.follows(p, i) {
			r.log.follow(&leader.log)
			r.high = min(leader.high, r.log.end)
		}
	}
	c.advance(p)
	for i := range p.replicas {
		if r := &p.replicas[i]; c.follows(p, i) && r.log.end >= leader.high {
			r.inSync = true
		}
	}
}

// advance moves the leader's high watermark to what all in-sync replicas have.
func (c *Cluster) advance(p *partition) {
	leader := p.lead()
	if leader == nil || p.frozen {
		return
	}
	high := leader.log.end
	for i := range p.replicas {
		if r := &p.replicas[i]; r.inSync && i != p.leader {
			// Records are counted as replicated only while the logs agree: one that was
			// the leader before and has not looked yet does not count.
			high = min(high, agreed(&r.log, &leader.log))
		}
	}
	leader.high = max(leader.high, high)
}

// agreed is how far a follower's log is known to be the leader's.
func agreed(follower, leader *log) int64 {
	latest := follower.epochs.latest()
	if latest < 0 {
		return follower.end
	}
	end := leader.epochs.endOf(latest, leader.end)
	if end.Epoch == latest && end.EndOffset >= follower.end {
		return follower.end
	}
	return leader.start
}

// elect makes a replica the leader.
func (c *Cluster) elect(p *partition, i int, clean bool) {
	p.leader = i
	p.epoch++
	p.known = producers{}
	if i >= 0 {
		r := &p.replicas[i]
		r.lagging = false
		r.high = min(r.high, r.log.end)
		if !clean {
			for k := range p.replicas {
				p.replicas[k].inSync = k == i
			}
		}
		if !p.mirrored() {
			r.log.epochs.assign(p.epoch, r.log.end)
		}
		p.shortened(r.log.end)
		if c.options.Manual {
			if p.alone() {
				c.advance(p)
			}
		} else {
			c.catchUp(p)
		}
	}
	c.changed()
}

// alone: no other replica is in sync.
func (p *partition) alone() bool {
	for i := range p.replicas {
		if p.replicas[i].inSync && i != p.leader {
			return false
		}
	}
	return true
}

// left takes a replica whose broker is gone out of the in-sync set, unless it is
// the last, and gives its leadership to the next one that is in sync.
func (c *Cluster) left(p *partition, i int) {
	r := &p.replicas[i]
	next := -1
	for k := range p.replicas {
		if k != i && p.replicas[k].inSync && c.up(p.replicas[k].broker) {
			next = k
			break
		}
	}
	if next >= 0 {
		r.inSync = false
	}
	if p.leader == i {
		c.elect(p, next, true)
	} else if !p.frozen {
		c.advance(p)
		c.changed()
	}
}

// returned is called when a replica's broker is back.
func (c *Cluster) returned(p *partition, i int) {
	r := &p.replicas[i]
	if r.cut >= 0 {
		r.log.truncate(r.cut)
		r.high = min(r.high, r.log.end)
		r.cut = -1
	}
	switch {
	case p.leader < 0 && r.inSync:
		c.elect(p, i, true)
	case p.leader >= 0 && !c.options.Manual:
		c.catchUp(p)
		c.changed()
	}
}
