package lead

import (
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Partition is one partition that we lead. It is safe for concurrent use. Functions it
// is given are called in order, without a lock, by whoever calls into it; they must not
// block.
type Partition struct {
	mu     sync.Mutex
	config Config
	phase  Phase
}

// New begins to lead a partition, by gathering what its followers hold.
func New(c Config) *Partition { return &Partition{config: c} }

// ID is which partition it is.
func (p *Partition) ID() (cluster.TopicID, cluster.Partition) {
	return p.config.Topic, p.config.Partition
}

// Fetch answers a follower. Of the fetches of one follower only the latest may be asked
// with: an older one that was parked would say where the follower is no more.
func (p *Partition) Fetch(f Fetch) Answer {
	return Answer{Code: NotLeader, Release: func() {}, Elsewhere: -1, Diverging: cluster.EpochEnd{Epoch: -1, EndOffset: -1}}
}

// Observe has w told when a fetch may have a new answer.
func (p *Partition) Observe(w *Watcher) {}

// Ignore ends Observe.
func (p *Partition) Ignore(w *Watcher) {}

// Append hands over consecutive batches. Gaps between them are allowed. free is called
// when nobody reads the bytes any more, done when the quorum holds them, or never will.
func (p *Partition) Append(batches []cluster.Batch, free func(), done func(next int64, landed int, err error)) {
}

// State is how the partition stands.
func (p *Partition) State() State { return State{} }

// Truncate cuts the tail from offset on, and the whole batch that holds offset. done is
// called when every live follower has cut, and the quorum; the others owe it.
func (p *Partition) Truncate(offset int64, done func(error)) {}

// Trim raises the log start. done is called when every live follower has.
func (p *Partition) Trim(offset int64, done func(error)) {}

// StartAt lets an empty log begin at offset.
func (p *Partition) StartAt(offset int64) error { return nil }

// Lead says that our leader epoch has changed: gathers again.
func (p *Partition) Lead(epoch int32) {}

// Live says which real replicas are alive by the metadata log.
func (p *Partition) Live(replicas []int32) {}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch not above the one asked and
// its end, {-1, -1} when there is none.
func (p *Partition) EpochEnd(epoch int32) cluster.EpochEnd {
	return cluster.EpochEnd{Epoch: -1, EndOffset: -1}
}

// Open are the transactions without a marker, by first offset.
func (p *Partition) Open() []OpenTxn { return nil }

// Tick advances what depends on time.
func (p *Partition) Tick(now time.Time) {}

// Close ends leading. What is under way fails with err.
func (p *Partition) Close(err error) {}
