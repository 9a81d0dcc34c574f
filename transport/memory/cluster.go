package memory

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// Options of a Cluster. The zero value is a cluster of three brokers that keeps
// all that a source can have.
type Options struct {
	// ID is the cluster id. Default: "memory".
	ID string
	// Brokers is how many there are; their ids are 1, 2, ... Default: 3.
	Brokers int
	// ReplicationFactor of topics that name none. Default: 3, at most Brokers.
	ReplicationFactor int
	// Manual leaves replication to Replicate. Default: followers have everything at
	// once.
	Manual bool
	// Stepped leaves carrying out and answering appends to Step. Default: at once, from
	// a goroutine of the cluster's.
	Stepped bool
	// Produce makes the destination one that is written to with produce requests, as
	// transport/kafka's: no gaps, no control batches, no epochs of the source, no
	// truncation; foreign writes are possible and are detected; a fence is a record
	// that no consumer sees; what a late worker sends lands where it belongs, or
	// displaced behind foreign records.
	Produce bool
	// Fills makes a destination of the produce kind fill the offsets that it is told are
	// without records, with markers of nobody's transaction, as transport/kafka does where
	// it is permitted: it takes holes, batches with fewer records than offsets, and those of
	// committed transactions.
	Fills bool
	// Traits are what the destination can do. Default: everything, or what Produce and
	// Fills say.
	Traits *fetcher.Traits
	// Defaults are the settings that the cluster knows, with what holds where a topic has
	// none of its own; others are refused. Default: it does not tell, and takes any.
	Defaults []cluster.TopicConfig
	// StrictEpochs refuses mirrored batches whose epoch is above the partition's own
	// leader epoch (cluster.ErrLeaderEpoch): invariant I5, enforced.
	StrictEpochs bool
}

// Cluster is a Kafka cluster in memory. All methods are safe for concurrent use. It
// is its own first Client.
type Cluster struct {
	*self
	options Options
	traits  fetcher.Traits

	mu      sync.Mutex
	brokers []broker // id-1
	running int      // brokers that are up
	topics  map[string]*topic
	created uint64    // topics so far
	nextID  int64     // of producers
	users   []*Client // those that have appended or asked Ends
	groups  map[string]*group
	acls    []cluster.Binding
	fault   func(Op) Fault
	waiting chan struct{} // closed at the next change; nil while nobody waits
	answers answers
	steps   []*run // appends that wait for Step
	gen     int64  // of stretches
	quit    chan struct{}
	closed  bool
}

// self lets a Cluster be a Client without a field of that name.
type self = Client

type broker struct {
	up   bool
	life int // starts so far: a session does not outlive its broker
}

// New makes a cluster. It starts no goroutine.
func New(o Options) *Cluster {
	o.ID = cmp.Or(o.ID, "memory")
	o.Brokers = cmp.Or(o.Brokers, 3)
	o.ReplicationFactor = min(cmp.Or(o.ReplicationFactor, 3), o.Brokers)
	c := &Cluster{
		options: o, traits: traitsOf(o), brokers: make([]broker, o.Brokers), running: o.Brokers,
		topics: map[string]*topic{}, groups: map[string]*group{}, quit: make(chan struct{}),
	}
	c.self = &Client{c: c}
	for i := range c.brokers {
		c.brokers[i] = broker{up: true, life: 1}
	}
	return c
}

func traitsOf(o Options) fetcher.Traits {
	switch {
	case o.Traits != nil:
		return *o.Traits
	case o.Produce:
		return fetcher.Traits{Gaps: o.Fills, Fills: o.Fills, Truncation: fetcher.TruncateNever}
	}
	return fetcher.Traits{
		Gaps: true, ControlBatches: true, LogAppendTime: true, KeepsEpochs: true, ReadOnly: true, Truncation: fetcher.TruncateExact,
	}
}

// Close lets go of everything that waits: delayed requests are lost, sessions end,
// and every later call fails. Logs can still be looked at.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.quit)
		c.dropSteps()
		c.changed()
	}
	return nil
}

// up reports whether a broker runs.
func (c *Cluster) up(id int32) bool {
	return id >= 1 && int(id) <= len(c.brokers) && c.brokers[id-1].up
}

// changed wakes everybody who waits for something to happen.
func (c *Cluster) changed() {
	if c.waiting != nil {
		close(c.waiting)
		c.waiting = nil
	}
}

// change is closed at the next change.
func (c *Cluster) change() <-chan struct{} {
	if c.waiting == nil {
		c.waiting = make(chan struct{})
	}
	return c.waiting
}

// topicID is the same for the same cluster and the same number of topics made.
func (c *Cluster) topicID() (id cluster.TopicID) {
	c.created++
	h := fnv.New64a()
	h.Write([]byte(c.options.ID))
	binary.BigEndian.PutUint64(id[:8], h.Sum64())
	binary.BigEndian.PutUint64(id[8:], c.created)
	return id
}

// StopBroker takes a broker away: others lead what it led where one of them is in
// sync, and its fetch sessions end. What is down already stays down.
func (c *Cluster) StopBroker(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopBroker(id)
}

func (c *Cluster) stopBroker(id int32) {
	if !c.up(id) {
		return
	}
	c.brokers[id-1].up = false
	c.running--
	c.each(func(p *partition) {
		if i := p.at(id); i >= 0 {
			c.left(p, i)
		}
	})
	c.changed()
}

// StartBroker brings a broker back with the logs it had: it carries out truncations
// that were asked for meanwhile, cuts what the leaders do not have, and follows. It
// leads what nobody else may.
func (c *Cluster) StartBroker(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id < 1 || int(id) > len(c.brokers) || c.brokers[id-1].up {
		return
	}
	c.brokers[id-1].up = true
	c.brokers[id-1].life++
	c.running++
	c.each(func(p *partition) {
		if i := p.at(id); i >= 0 {
			c.returned(p, i)
		}
	})
	c.changed()
}

// Elect makes a replica that runs and is in sync the leader: the next leader epoch
// begins. Where replication is manual, what it has not fetched yet is lost.
func (c *Cluster) Elect(p cluster.Partition, broker int32) error {
	return c.electAt(p, broker, true)
}

// ElectUnclean makes any replica that runs the leader: its log, which may be
// shorter, becomes the truth, and the others cut theirs as they follow.
func (c *Cluster) ElectUnclean(p cluster.Partition, broker int32) error {
	return c.electAt(p, broker, false)
}

func (c *Cluster) electAt(p cluster.Partition, broker int32, clean bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, err := c.find(p)
	if err != nil {
		return err
	}
	i := part.at(broker)
	switch {
	case i < 0:
		return fmt.Errorf("%v: %w: broker %d has no replica", p, cluster.ErrRefused, broker)
	case !c.up(broker):
		return fmt.Errorf("%v: %w: broker %d is down", p, cluster.ErrUnavailable, broker)
	case clean && !part.replicas[i].inSync:
		return fmt.Errorf("%v: %w: broker %d is not in sync", p, cluster.ErrRefused, broker)
	}
	c.elect(part, i, clean)
	return nil
}

// Lag holds a follower back, or lets it go on: while it lags it fetches nothing and
// is out of sync. Together with ElectUnclean it makes records get lost.
func (c *Cluster) Lag(p cluster.Partition, broker int32, on bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, err := c.find(p)
	if err != nil {
		return err
	}
	i := part.at(broker)
	if i < 0 || i == part.leader {
		return fmt.Errorf("%v: %w: broker %d is no follower", p, cluster.ErrRefused, broker)
	}
	part.replicas[i].lagging = on
	if on {
		part.replicas[i].inSync = false
	}
	if !c.options.Manual {
		c.catchUp(part)
	}
	c.advance(part)
	c.changed()
	return nil
}

// Replicate is one round of fetches by the followers of the partitions, or of all.
// As in Kafka a follower learns a new high watermark one round after the leader.
func (c *Cluster) Replicate(ps ...cluster.Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(ps) == 0 {
		c.each(c.replicate)
	}
	for _, p := range ps {
		if part, err := c.find(p); err == nil {
			c.replicate(part)
		}
	}
	c.changed()
}

// Freeze makes a partition answer nothing until Thaw: appends wait, fetches leave
// it out, everything else times out at once, followers do not follow.
func (c *Cluster) Freeze(p cluster.Partition) { c.setFrozen(p, true) }

// Thaw ends Freeze; what waited is carried out.
func (c *Cluster) Thaw(p cluster.Partition) { c.setFrozen(p, false) }

func (c *Cluster) setFrozen(p cluster.Partition, frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, err := c.find(p)
	if err != nil || part.frozen == frozen {
		return
	}
	part.frozen = frozen
	if !frozen {
		c.pumpAll(p)
		if !c.options.Manual {
			c.catchUp(part)
		}
	}
	c.changed()
}
