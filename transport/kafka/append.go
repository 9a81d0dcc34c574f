package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// lane is the partition's, made when it is first asked for.
func (c *Cluster) lane(p cluster.Partition) *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[p]
	if l == nil {
		l = &lane{p: p, seen: -1, fills: c.cfg.GapFill != GapFail}
		c.lanes[p] = l
	}
	return l
}

// Append queues consecutive batches of one partition.
func (c *Cluster) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	l := c.lane(p)
	l.mu.Lock()
	err := l.push(batches, free, done)
	end := l.end
	l.mu.Unlock()
	if err != nil || len(batches) == 0 {
		out := delivery{free, done, fetcher.Result{Partition: p, Next: end, Err: err}}
		c.generation().spawn(func(context.Context) { out.hand() })
		return
	}
	c.wake(l)
}

// wake puts the lane into the list of the pipe that has to send its next batch,
// if it has one to send and stands in no list.
func (c *Cluster) wake(l *lane) {
	now := time.Now()
	l.mu.Lock()
	r, b, acks := l.next(now)
	if r == nil || l.queued != nil {
		l.mu.Unlock()
		return
	}
	if aside := c.aside(l, r, b, now); aside != nil {
		l.looking = true
		l.mu.Unlock()
		c.generation().spawn(aside)
		return
	}
	p := c.generation().pipe(pipeKey{l.broker, acks})
	l.queued = p
	l.mu.Unlock()
	if p == nil || !p.enqueue(l) {
		c.refuse(l, errClosed)
	}
}

// aside is what has to be done before the lane's next batch can be sent, away from
// the lane's lock; nil when nothing has to.
func (c *Cluster) aside(l *lane, r *run, b *cluster.Batch, now time.Time) func(context.Context) {
	broker := l.broker
	switch {
	case b == nil:
		p := *r.prep
		return func(ctx context.Context) { c.prepare(ctx, l, r, p) }
	case l.resting(now):
		return func(ctx context.Context) { c.glance(ctx, l, broker) }
	case b.Hole():
		m := l.marking(*b)
		return func(ctx context.Context) { c.mark(ctx, l, r, m) }
	}
	return nil
}

var errClosed = fmt.Errorf("%w: closed", cluster.ErrUnreachable)

// refuse fails a lane before its next batch was sent.
func (c *Cluster) refuse(l *lane, err error) {
	l.mu.Lock()
	l.queued = nil
	if l.unsent < len(l.runs) {
		r := l.runs[l.unsent]
		l.fail(r, r.at(), err)
	}
	c.release(l)
}

// complete notes what became of a batch, answers the caller and goes on.
func (c *Cluster) complete(l *lane, r *run, base, next int64, o outcome) {
	l.mu.Lock()
	l.settle(r, base, next, o)
	c.release(l)
}

// release hands out results and unlocks the lane. A result is out before the next
// batch of another connection is sent, so results stay in order.
func (c *Cluster) release(l *lane) {
	var few [4]delivery
	out := l.deliver(few[:0])
	if len(out) == 0 {
		l.idle()
		l.mu.Unlock()
		c.wake(l)
		return
	}
	l.mu.Unlock()
	for i := range out {
		out[i].hand()
	}
	l.mu.Lock()
	l.delivering--
	l.idle()
	l.mu.Unlock()
	c.wake(l)
}

// halt stops a lane and waits until all its runs have been answered.
func (c *Cluster) halt(ctx context.Context, l *lane) error {
	l.mu.Lock()
	if l.err == nil {
		l.err = errHalted
	}
	wait := make(chan struct{})
	l.waiters = append(l.waiters, wait)
	c.release(l)
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errHalted = fmt.Errorf("%w: the log end is being read", cluster.ErrOutOfOrder)
