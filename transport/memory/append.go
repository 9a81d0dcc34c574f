package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// lane is what one client has under way to one partition.
type lane struct {
	cl       *Client
	p        cluster.Partition
	topic    cluster.TopicID
	gen      int64 // of the stretch; 0: Ends has not begun one
	end      int64 // log end as far as this client knows
	handed   int64 // end of what it was handed
	refusing bool  // after an error, until Ends
	unknown  int64 // below it may land what was forgotten (see forget)
	runs     []*run
}

// run is one call of Append.
type run struct {
	lane     *lane
	gen      int64
	from     int64 // where the log has to end: what was handed over before has landed
	batches  []cluster.Batch
	free     func()               // nil when it was called, or there is none
	done     func(fetcher.Result) // nil when it was forgotten
	held     bool                 // is not carried out yet: a fault, or Step
	silent   bool                 // is not answered yet: a fault
	err      error                // the answer is lost: this instead
	lost     bool                 // is never carried out
	finished bool                 // was carried out
	result   fetcher.Result
}

// lane is the client's for a partition. The lock is held.
func (cl *Client) lane(p cluster.Partition) *lane {
	if l := cl.lanes[p]; l != nil {
		return l
	}
	if cl.lanes == nil {
		cl.lanes = map[cluster.Partition]*lane{}
		cl.c.users = append(cl.c.users, cl)
	}
	l := &lane{cl: cl, p: p}
	cl.lanes[p] = l
	return l
}

// order are the client's lanes by partition.
func (cl *Client) order() []*lane {
	all := make([]*lane, 0, len(cl.lanes))
	for _, l := range cl.lanes {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *lane) int { return a.p.Compare(b.p) })
	return all
}

// Append queues consecutive batches of a partition. They land only while the log
// ends where this client knows it to end, and nothing else of them lands ever.
func (cl *Client) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	c := cl.c
	f := cl.judgeAppend(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := cl.lane(p)
	r := &run{lane: l, gen: l.gen, from: l.handed, batches: batches, free: free, done: done}
	if n := len(batches); n > 0 {
		l.handed = batches[n-1].Next
	}
	if err := cl.reach(); err != nil {
		l.refusing = true
		r.giveBack()
		c.tell(done, fetcher.Result{Partition: p, Next: l.end, Err: err})
		return
	}
	switch f.Kind {
	case LoseRequest:
		r.lost, r.err = true, f.err()
	case LoseAnswer:
		r.err = f.err()
	case CrashAfter:
		r.err, r.silent = f.err(), true
	case DelayRequest, DelayAnswer:
		r.held, r.silent = f.Kind == DelayRequest, true
		go r.wake(f)
	}
	l.runs = append(l.runs, r)
	if c.options.Stepped && !r.held && !r.lost {
		r.held = true
		c.steps = append(c.steps, r)
	}
	l.pump()
	if f.Kind == CrashAfter {
		cl.crash()
	}
}

// giveBack lets the caller have the bytes: they are not looked at any more. That is
// as soon as the run was carried out, however late it is answered.
func (r *run) giveBack() {
	if r.free != nil {
		free := r.free
		r.free = nil
		r.lane.cl.c.tell(func(fetcher.Result) { free() }, fetcher.Result{})
	}
}

// judgeAppend asks the fault function, if there is one.
func (cl *Client) judgeAppend(p cluster.Partition) Fault {
	c := cl.c
	c.mu.Lock()
	if c.fault == nil {
		c.mu.Unlock()
		return Fault{}
	}
	op := Op{Call: CallAppend, Broker: -1, Partitions: []cluster.Partition{p}}
	if part, err := c.find(p); err == nil {
		op.Broker = part.leads().Broker
	}
	c.mu.Unlock()
	return cl.judge(op)
}

// wake lets go of a run when its fault does. One that was forgotten meanwhile is
// carried out all the same: it was on its way.
func (r *run) wake(f Fault) {
	c := r.lane.cl.c
	over := f.wait(context.Background(), c.quit)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !over && r.held {
		r.lost, r.err = true, fmt.Errorf("%w: the cluster is closed", cluster.ErrUnreachable)
	}
	r.held, r.silent = false, false
	if r.done == nil {
		r.carryOut()
		return
	}
	r.lane.pump()
}

// pump carries out and answers what can be, in order.
func (l *lane) pump() {
	frozen := false
	if p, err := l.cl.c.find(l.p); err == nil {
		frozen = p.frozen
	}
	for _, r := range l.runs {
		if r.held || frozen {
			break
		}
		r.carryOut()
	}
	n := 0
	for n < len(l.runs) && l.runs[n].finished && !l.runs[n].silent {
		l.runs[n].answer()
		n++
	}
	l.runs = slices.Delete(l.runs, 0, n)
}

// carryOut lands a run, once.
func (r *run) carryOut() {
	if r.finished {
		return
	}
	r.finished = true
	l := r.lane
	r.result = fetcher.Result{Partition: l.p, Next: l.end}
	switch {
	case r.lost:
		r.result.Err = r.err
	case r.done != nil && l.refusing:
		r.result.Err = fmt.Errorf("%v: %w: the log end has to be read again first", l.p, cluster.ErrOutOfOrder)
	default:
		r.land()
	}
	r.giveBack()
	if r.done != nil {
		l.refusing = l.refusing || r.result.Err != nil || r.err != nil
	}
}

// answer tells how the run ended.
func (r *run) answer() {
	if r.err != nil && !r.lost { // it was carried out, but nobody learns how
		r.result = fetcher.Result{Partition: r.lane.p, Next: min(r.from, r.lane.end), Err: r.err}
	}
	r.lane.cl.c.tell(r.done, r.result)
	r.done, r.batches = nil, nil
}

// forget answers everything that is under way with an error. What a fault delays may
// still be carried out, from bytes of its own.
func (l *lane) forget(err error) {
	for _, r := range l.runs {
		done := r.done
		r.done = nil
		if r.silent && !r.finished { // on its way: Step will not carry out what is forgotten
			r.batches = slices.Clone(r.batches)
			for i := range r.batches {
				r.batches[i].Bytes = slices.Clone(r.batches[i].Bytes)
				l.unknown = max(l.unknown, r.batches[i].Next)
			}
		}
		r.giveBack()
		l.cl.c.tell(done, fetcher.Result{Partition: l.p, Next: l.end, Err: err})
	}
	l.runs = nil
	l.refusing = true
	l.cl.c.steps = slices.DeleteFunc(l.cl.c.steps, func(r *run) bool { return r.lane == l })
}

// Pending is how many appends wait for Step.
func (c *Cluster) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.steps)
}

// Step carries out and answers the next append that waits (Options.Stepped), and
// reports whether there was one.
func (c *Cluster) Step() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.steps) == 0 {
		return false
	}
	r := c.steps[0]
	c.steps = slices.Delete(c.steps, 0, 1)
	r.held = false
	r.lane.pump()
	return true
}

// dropSteps answers what waits for Step: nobody will.
func (c *Cluster) dropSteps() {
	for _, r := range slices.Clone(c.steps) {
		r.lane.forget(fmt.Errorf("%w: the cluster is closed", cluster.ErrUnreachable))
	}
}

// pumpAll carries on with what waits at a partition.
func (c *Cluster) pumpAll(p cluster.Partition) {
	for _, cl := range c.users {
		if l := cl.lanes[p]; l != nil {
			l.pump()
		}
	}
}
