package broker

import (
	"context"
	"fmt"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// holding is what the destination knows of one partition.
type holding struct {
	name cluster.Partition

	mu      sync.Mutex
	id      metalog.PartitionID
	led     *lead.Partition // nil: we do not lead, or not yet
	opening bool            // its log is being looked into
	fresh   bool            // it is being created by us: its log is empty
	ours    bool            // opened in this process as it was created
	// inherited: it came straight from another of our group. Which leader epochs are in its log
	// is looked for while it is led, until learning is closed.
	inherited bool
	learning  chan struct{}
	refilled  bool // a replica got records from the source, which was told of
	stretch   stretch
	stamp     stamping
	pending   int           // appends that are not answered
	idle      chan struct{} // closed when pending is 0, made by who waits
	fenced    fenced
}

// stretch is an uninterrupted run of mirroring, as far as this process knows.
type stretch struct {
	mirror  string
	begun   bool // Ends was asked since we lead: appends are taken
	acted   bool // something was appended, cut or begun
	stopped bool // nothing is appended any more
}

// stamping is whose leader epochs stand in the batches.
type stamping uint8

const (
	keeps     stamping = iota // the source's
	willStamp                 // ours from the next Ends on
	stamped                   // ours
)

// holding is the one of a partition, made when it is first asked for.
func (d *Destination) holding(p cluster.Partition) *holding {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.held[p]
	if h == nil {
		h = &holding{name: p}
		d.held[p] = h
	}
	return h
}

// known is the holding of a partition, nil when there is none.
func (d *Destination) known(p cluster.Partition) *holding {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held[p]
}

// lead is the partition as we lead it, or why we do not.
func (h *holding) lead() (*lead.Partition, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.led == nil {
		return nil, fmt.Errorf("%v: %w: we do not lead it", h.name, cluster.ErrNotLeader)
	}
	return h.led, nil
}

// mirrored reports that a stretch is at work.
func (h *holding) mirrored() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.led != nil && !h.stretch.stopped && (h.stretch.begun || h.stretch.acted)
}

// act notes that the stretch has changed something, and gives what is led.
func (h *holding) act() (*lead.Partition, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.led == nil:
		return nil, fmt.Errorf("%v: %w: we do not lead it", h.name, cluster.ErrNotLeader)
	case h.stretch.stopped:
		return nil, fmt.Errorf("%v: %w: the mirror was stopped", h.name, cluster.ErrFenced)
	}
	h.stretch.acted = true
	return h.led, nil
}

// Append queues consecutive batches of a partition that we lead. They land when a
// quorum of the real replicas has fetched them.
func (d *Destination) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	h := d.holding(p)
	led, err := h.take(batches)
	if err == nil {
		if err = d.mind(p, batches); err != nil {
			h.answered()
		}
	}
	var later func()
	if free != nil {
		later = func() { d.answers.put(free) }
	}
	if err != nil {
		if later != nil {
			later()
		}
		d.answers.put(func() { done(fetcher.Result{Partition: p, Err: err}) })
		return
	}
	led.Append(batches, later, func(next int64, landed int, err error) {
		d.answers.put(func() {
			done(fetcher.Result{Partition: p, Next: next, Batches: landed, Err: err})
			h.answered()
		})
	})
}

// take admits an append, which has to be answered then.
func (h *holding) take(batches []cluster.Batch) (*lead.Partition, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.led == nil:
		h.stretch.begun = false
		return nil, fmt.Errorf("%v: %w: we do not lead it", h.name, cluster.ErrOutOfOrder)
	case h.stretch.stopped:
		return nil, fmt.Errorf("%v: %w: the mirror was stopped", h.name, cluster.ErrFenced)
	case !h.stretch.begun:
		return nil, fmt.Errorf("%v: %w: the log end was not asked for", h.name, cluster.ErrOutOfOrder)
	}
	if h.stamp == keeps {
		switch above, done := h.led.StampAbove(batches); {
		case done:
			h.stamp = stamped
		case above: // batches of ours may stand there in our present epoch
			h.stamp, h.stretch.begun = willStamp, false
			return nil, fmt.Errorf("%v: %w: the log has later epochs than the source", h.name, cluster.ErrUnavailable)
		}
	}
	h.pending++
	h.stretch.acted = true
	return h.led, nil
}

func (h *holding) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending--; h.pending == 0 && h.idle != nil {
		close(h.idle)
		h.idle = nil
	}
}

// forget has what is under way answered, and waits until it is.
func (h *holding) forget(ctx context.Context, why error) error {
	h.mu.Lock()
	led := h.led
	h.mu.Unlock()
	if led != nil {
		led.Forget(why)
	}
	h.mu.Lock()
	if h.pending == 0 {
		h.mu.Unlock()
		return nil
	}
	if h.idle == nil {
		h.idle = make(chan struct{})
	}
	idle := h.idle
	h.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
