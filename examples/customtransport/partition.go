package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// partition lets many use one journal: appends queue up and land one after the
// other, all else waits until they have.
type partition struct {
	at cluster.Partition
	id cluster.TopicID

	mu      sync.Mutex
	idle    *sync.Cond // the queue is empty and its goroutine gone
	queue   []appending
	working bool
	failed  bool // nothing lands until Ends was asked
	journal *journal
}

// appending is a run that waits for its turn.
type appending struct {
	owner   int64
	from    int64 // where the log has to end
	batches []cluster.Batch
	free    func() // may be nil
	done    func(fetcher.Result)
}

// answer gives the bytes back and tells the outcome.
func (a *appending) answer(r fetcher.Result) {
	if a.free != nil {
		a.free()
	}
	a.done(r)
}

func newPartition(at cluster.Partition, id cluster.TopicID, j *journal) *partition {
	p := &partition{at: at, id: id, journal: j}
	p.idle = sync.NewCond(&p.mu)
	return p
}

// enqueue has a run appended. One goroutine works as long as there is something.
func (p *partition) enqueue(a appending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, a)
	if !p.working {
		p.working = true
		go p.work()
	}
}

func (p *partition) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 {
		a := p.queue[0]
		p.queue = p.queue[1:]
		result := p.land(a)
		p.mu.Unlock()
		a.answer(result)
		p.mu.Lock()
	}
	p.working = false
	p.idle.Broadcast()
}

// land appends a run if the log ends where it has to: the compare of
// compare-and-append.
func (p *partition) land(a appending) fetcher.Result {
	r := fetcher.Result{Partition: p.at, Next: p.journal.end}
	switch {
	case p.journal.notes.Stopped || a.owner != p.journal.notes.Owner:
		r.Err = fmt.Errorf("%v: %w", p.at, cluster.ErrFenced)
	case p.failed || a.from != p.journal.end:
		r.Err = fmt.Errorf("%v: %w: the log ends at %d", p.at, cluster.ErrOutOfOrder, p.journal.end)
	}
	for i := 0; i < len(a.batches) && r.Err == nil; i++ {
		b := a.batches[i]
		if b.Base < p.journal.end {
			r.Err = fmt.Errorf("%v: %w: the log ends at %d, the batch begins at %d", p.at, cluster.ErrOutOfOrder, p.journal.end, b.Base)
		} else if r.Err = p.journal.append(b); r.Err == nil {
			r.Batches, r.Next = i+1, b.Next
		}
	}
	// What another worker sends is no reason to refuse the owner's.
	p.failed = p.failed || r.Err != nil && a.owner == p.journal.notes.Owner
	return r
}

// locked waits until nothing is queued and calls f alone.
func (p *partition) locked(f func(*journal) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.working {
		p.idle.Wait()
	}
	return f(p.journal)
}

// take gives the partition to a worker, if the stretch can go on.
func (p *partition) take(s fetcher.Stretch) (end fetcher.End, owner int64) {
	end.Err = p.locked(func(j *journal) error {
		n := &j.notes
		end.LogStart, end.LogEnd, end.HighWatermark = n.Start, j.end, j.end
		end.Ours = n.Mirror == s.Mirror && j.end > n.Start
		other := n.Mirror != "" && n.Mirror != s.Mirror
		if other && !n.Stopped {
			return fmt.Errorf("%v: %w: %s", p.at, cluster.ErrActive, n.Mirror)
		}
		if s.New || other {
			n.Stopped = false
		}
		if end.Stopped = n.Stopped; end.Stopped {
			return nil
		}
		n.Mirror = s.Mirror
		n.Owner++
		p.failed = false
		owner = n.Owner
		return j.save()
	})
	end.TopicID, end.LeaderEpoch = p.id, cluster.NoEpoch
	return end, owner
}

// fence ends the stretch: nobody's appends land from now on.
func (p *partition) fence(s fetcher.Stretch) fetcher.End {
	end := fetcher.End{TopicID: p.id, LeaderEpoch: cluster.NoEpoch, Stopped: true, Ours: true}
	end.Err = p.locked(func(j *journal) error {
		j.notes.Stopped, j.notes.Mirror = true, s.Mirror
		j.notes.Owner++
		end.LogStart, end.LogEnd, end.HighWatermark = j.notes.Start, j.end, j.end
		return j.save()
	})
	return end
}

var errNotEmpty = errors.New("the log is not empty")
