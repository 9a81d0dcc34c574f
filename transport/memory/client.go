package memory

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// Client is one user of a cluster: a Source and a Destination of its own. The
// cluster tells clients apart: a stretch belongs to the client that asked Ends last,
// and appends of any other fail.
type Client struct {
	c     *Cluster
	name  string
	dead  bool
	lanes map[cluster.Partition]*lane
}

// Client makes another user of the cluster. The name is for fault functions.
func (c *Cluster) Client(name string) *Client {
	return &Client{c: c, name: name}
}

// Crash makes the client dead: every call fails from now on, and what it had handed
// over and was not carried out yet is answered with an error. Requests that a fault
// function has delayed are still carried out: they are on their way.
func (cl *Client) Crash() {
	cl.c.mu.Lock()
	defer cl.c.mu.Unlock()
	cl.crash()
}

func (cl *Client) crash() {
	cl.dead = true
	for _, l := range cl.order() {
		l.forget(fmt.Errorf("%w: the client has crashed", cluster.ErrUnreachable))
	}
	cl.c.changed()
}

// ID is the cluster id.
func (cl *Client) ID(ctx context.Context) (string, error) {
	return call(ctx, cl, Op{Call: CallID, Broker: -1}, func() (string, error) { return cl.c.options.ID, nil })
}

// reach is why nothing can be asked, or nil. The lock is held.
func (cl *Client) reach() error {
	switch {
	case cl.dead:
		return fmt.Errorf("%w: the client has crashed", cluster.ErrUnreachable)
	case cl.c.closed:
		return fmt.Errorf("%w: the cluster is closed", cluster.ErrUnreachable)
	case cl.c.running == 0:
		return fmt.Errorf("%w: no broker is up", cluster.ErrUnreachable)
	}
	return nil
}

// judge asks the fault function and does what it says to the cluster. The lock is
// not held.
func (cl *Client) judge(op Op) Fault {
	c := cl.c
	c.mu.Lock()
	ask := c.fault
	c.mu.Unlock()
	if ask == nil {
		return Fault{}
	}
	op.Client = cl.name
	f := ask(op)
	switch f.Kind {
	case BreakBroker:
		c.StopBroker(op.Broker)
	case FreezeFirst:
		for _, p := range op.Partitions {
			c.Freeze(p)
		}
	case Crash:
		cl.Crash()
	}
	return f
}

// call carries a request out as the fault function has it. run holds the lock.
func call[T any](ctx context.Context, cl *Client, op Op, run func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	f := cl.judge(op)
	switch f.Kind {
	case LoseRequest:
		return none, f.err()
	case DelayRequest:
		return late(ctx, cl, f, run)
	}
	out, err := locked(cl, run)
	switch f.Kind {
	case LoseAnswer:
		return none, f.err()
	case DelayAnswer:
		if !f.wait(ctx, cl.c.quit) {
			return none, gone(ctx)
		}
	case CrashAfter:
		cl.Crash()
		return none, fmt.Errorf("%w: the client has crashed", cluster.ErrUnreachable)
	}
	return out, err
}

func locked[T any](cl *Client, run func() (T, error)) (out T, err error) {
	cl.c.mu.Lock()
	defer cl.c.mu.Unlock()
	if err := cl.reach(); err != nil {
		return out, err
	}
	return run()
}

// late has a request carried out when the fault lets go, whether or not its caller
// still waits.
func late[T any](ctx context.Context, cl *Client, f Fault, run func() (T, error)) (T, error) {
	type outcome struct {
		out T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		if !f.wait(context.Background(), cl.c.quit) {
			done <- outcome{err: gone(context.Background())}
			return
		}
		cl.c.mu.Lock()
		defer cl.c.mu.Unlock()
		o := outcome{}
		o.out, o.err = run()
		done <- o
	}()
	select {
	case o := <-done:
		return o.out, o.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// gone is why a wait ended early.
func gone(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: the cluster is closed", cluster.ErrUnreachable)
}

// callEach is call for requests that have an error for each of n parts.
func callEach(ctx context.Context, cl *Client, op Op, n int, run func(i int) error) []error {
	errs, err := call(ctx, cl, op, func() ([]error, error) {
		errs := make([]error, n)
		for i := range errs {
			errs[i] = run(i)
		}
		return errs, nil
	})
	if err != nil {
		errs = make([]error, n)
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}
