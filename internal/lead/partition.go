package lead

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// Partition is one partition that we lead. It is safe for concurrent use. The functions
// it is given are called in order and without its lock, by whoever calls it: also before
// the call that they were given with returns, and when another call is busy calling them,
// some time after. They must not block.
type Partition struct {
	topic     cluster.TopicID
	partition cluster.Partition
	limit     int64 // Config.Window
	stamp     bool
	idle      time.Duration

	mu     sync.Mutex
	phase  Phase
	err    error // of Close
	epoch  int32
	quorum int // as configured
	now    time.Time

	followers []follower
	// found: the log end is known, so that records are taken and cut. It stays true
	// when another epoch has us gather again.
	found     bool
	proven    bool // the history is all there is, also when it is empty
	ceiling   int32
	history   epoch.History
	start     int64        // of the log; at most high
	startless bool         // start is not known until the log end is found
	trimTo    int64        // where the log start is to move when the high watermark lets it
	high      int64        // the high watermark: only a cut takes it back
	end       int64        // offset of the next append
	gap       cluster.Span // the last one that was told of; none of it lies behind the log end
	window    window
	open      transactions
	refusing  bool   // after an append with an error, until Forget
	runs      []*run // not answered, in order
	cuts      []func(error)
	cutCount  int  // of cuts, and of epochs
	cutHere   bool // State.Cut
	trims     []trim
	watchers  []*Watcher
	changed   bool
	calls     []func()
	isCalling bool
}

// trim is a Trim that is not done.
type trim struct {
	offset int64
	done   func(error)
}

// New begins to lead a partition, by gathering what its followers hold.
func New(c Config) *Partition {
	p := &Partition{
		topic: c.Topic, partition: c.Partition, limit: c.Window, stamp: c.Stamp, idle: cmp.Or(c.Idle, 2*time.Second),
		epoch: c.Epoch, quorum: c.Quorum, history: epoch.History(slices.Clone(c.History)),
		proven:  c.Proven || len(c.History) > 0,
		ceiling: -1, start: max(c.LogStart, 0), trimTo: max(c.LogStart, 0), high: max(c.HighWatermark, c.LogStart, 0), open: newTransactions(c.Open),
		startless: c.LogStart < 0,
	}
	for _, id := range c.Followers {
		p.followers = append(p.followers, newFollower(id))
	}
	for i := range p.followers {
		if at, ok := c.Owed[p.followers[i].id]; ok {
			p.followers[i].owes, p.followers[i].noted = at, true
		}
		p.followers[i].synced = slices.Contains(c.InSync, p.followers[i].id)
	}
	return p
}

// ID is which partition it is.
func (p *Partition) ID() (cluster.TopicID, cluster.Partition) { return p.topic, p.partition }

// unlock tells and calls what came up.
func (p *Partition) unlock() {
	if p.changed {
		p.changed = false
		for _, w := range p.watchers {
			w.tell(p)
		}
	}
	if p.isCalling {
		p.mu.Unlock()
		return
	}
	p.isCalling = true
	for len(p.calls) > 0 {
		calls := p.calls
		p.calls = nil
		p.mu.Unlock()
		for _, f := range calls {
			f()
		}
		p.mu.Lock()
	}
	p.isCalling = false
	p.mu.Unlock()
}

// call has a function called at unlock.
func (p *Partition) call(f func()) { p.calls = append(p.calls, f) }

// clock takes the time of a call.
func (p *Partition) clock(now time.Time) {
	if p.now.IsZero() { // from here on followers are waited for
		for i := range p.followers {
			p.followers[i].seen = now
		}
	}
	if now.After(p.now) {
		p.now = now
	}
}

// then is since when a follower must have fetched to be waited for.
func (p *Partition) then() time.Time { return p.now.Add(-p.idle) }

// need is how many followers make a quorum.
func (p *Partition) need() int { return max(1, min(p.quorum, len(p.followers))) }

// Observe has w told when a fetch may have a new answer.
func (p *Partition) Observe(w *Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.watchers, w) {
		p.watchers = append(p.watchers, w)
	}
}

// Ignore ends Observe. What w was told before it may still hold.
func (p *Partition) Ignore(w *Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers = slices.DeleteFunc(p.watchers, func(o *Watcher) bool { return o == w })
	for i := range p.followers {
		if f := &p.followers[i]; f.via == w {
			f.leave()
		}
	}
}

// Tick advances what depends on time: followers that fetch no more.
func (p *Partition) Tick(now time.Time) {
	p.mu.Lock()
	defer p.unlock()
	p.clock(now)
	p.advance()
}

// Lead says that our leader epoch was raised: the followers' ends are gathered again. What
// is in the window stays, and what followers have got elsewhere meanwhile is cut; where
// somebody else may have written rightly, a New partition has to look. A lower epoch is
// no news.
func (p *Partition) Lead(epoch int32) {
	p.mu.Lock()
	defer p.unlock()
	p.lead(epoch)
}

func (p *Partition) lead(epoch int32) {
	if epoch <= p.epoch || p.phase == Closed {
		return
	}
	p.epoch, p.phase, p.changed = epoch, Gathering, true
	p.cutHere = false
	p.cutCount++
	for i := range p.followers {
		p.followers[i].forget()
		p.followers[i].seen = p.now
	}
}

// Know gives the history that was not known, or disputed, when leading began. Once the log
// end is found it comes too late.
func (p *Partition) Know(history []EpochStart) {
	p.mu.Lock()
	defer p.unlock()
	if p.found {
		return
	}
	p.history, p.proven, p.changed = epoch.History(slices.Clone(history)), true, true
	for i := range p.followers { // what they said is judged when they say it again
		p.followers[i].holds = -1
	}
}

// Live says which real replicas are alive by the metadata log. Of one that comes back
// nothing is believed until it has fetched.
func (p *Partition) Live(replicas []int32) {
	p.mu.Lock()
	defer p.unlock()
	for i := range p.followers {
		f := &p.followers[i]
		live := slices.Contains(replicas, f.id)
		if live && !f.live {
			f.forget()
			f.seen = p.now
		}
		f.live = live
	}
	p.advance()
}

// Follow replaces the set of real replicas. Those that stay keep what is known of them;
// a new one is taken to be alive.
func (p *Partition) Follow(replicas []int32) {
	p.mu.Lock()
	defer p.unlock()
	next := make([]follower, 0, len(replicas))
	for _, id := range replicas {
		f := newFollower(id)
		f.seen = p.now
		if old := p.follower(id); old != nil {
			f = *old
		}
		next = append(next, f)
	}
	p.followers = next
	p.advance()
}

func (p *Partition) follower(id int32) *follower {
	for i := range p.followers {
		if p.followers[i].id == id {
			return &p.followers[i]
		}
	}
	return nil
}

// Close ends leading. What is under way fails with err.
func (p *Partition) Close(err error) {
	p.mu.Lock()
	defer p.unlock()
	if p.phase == Closed {
		return
	}
	p.phase, p.err, p.changed = Closed, err, true
	p.fail(p.high, err)
	for _, done := range p.cuts {
		p.call(func() { done(err) })
	}
	for _, t := range p.trims {
		p.call(func() { t.done(err) })
	}
	p.cuts, p.trims = nil, nil
	p.free(p.window.cut(-1, nil))
}

// closed is what calls on a closed partition answer.
func (p *Partition) closed() error {
	return fmt.Errorf("%v: %w: leading has ended: %w", p.partition, cluster.ErrNotLeader, p.err)
}

// early is what calls answer before the followers' ends are known.
func (p *Partition) early() error {
	return fmt.Errorf("%v: %w: the ends of the followers are not known yet", p.partition, cluster.ErrUnavailable)
}
