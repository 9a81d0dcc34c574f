package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

// Do sends one request in the newest version that both sides know and waits for
// its answer. It sets the request's version, so a request must not be shared by
// concurrent calls. The answer's memory is the caller's. The connection gives a
// request RequestTimeout, and on top what the request asks the broker to wait;
// a ctx that ends earlier ends only this call, and its late answer is dropped.
// Error codes inside the answer are the caller's to look at.
func (c *Conn) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	version, err := c.pick(req)
	if err != nil {
		return nil, err
	}
	return c.DoVersion(ctx, req, version)
}

// DoVersion is Do in a version of the caller's choice.
func (c *Conn) DoVersion(ctx context.Context, req kmsg.Request, version int16) (kmsg.Response, error) {
	frame, err := c.DoFrame(ctx, req, version)
	if err != nil {
		return nil, err
	}
	return c.parse(frame, req, version)
}

// DoFrame is DoVersion without reading the answer: the body after the response
// header, in a frame that the caller releases. Answers to Fetch are summed as they
// come in.
func (c *Conn) DoFrame(ctx context.Context, req kmsg.Request, version int16) (*Frame, error) {
	if err := c.acquire(ctx, req.Key()); err != nil {
		return nil, err
	}
	w, err := c.start(ctx, req, version)
	c.release()
	if err != nil {
		return nil, err
	}
	return w.wait(ctx)
}

// exchange is DoFrame for who holds the token already.
func (c *Conn) exchange(ctx context.Context, req kmsg.Request, version int16) (*Frame, error) {
	w, err := c.start(ctx, req, version)
	if err != nil {
		return nil, err
	}
	return w.wait(ctx)
}

// parse reads an answer and releases its frame. The bytes are copied, as parsed
// answers point into them.
func (c *Conn) parse(frame *Frame, req kmsg.Request, version int16) (kmsg.Response, error) {
	body := bytes.Clone(frame.Bytes())
	frame.Release()
	resp := req.ResponseKind()
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		return nil, &Error{Op: kmsg.NameForKey(req.Key()), Addr: c.addr, Cause: Protocol, Sent: true,
			Err: fmt.Errorf("answer in version %d: %w", version, err)}
	}
	return resp, nil
}

// start writes one request; the caller holds the token.
func (c *Conn) start(ctx context.Context, req kmsg.Request, version int16) (*waiter, error) {
	req.SetVersion(version)
	w := &waiter{conn: c, key: req.Key(), answer: make(chan answer, 1)}
	call := &Call{
		Key: req.Key(), Version: version, Flexible: req.IsFlexible(),
		Body:    net.Buffers{req.AppendTo(nil)},
		Timeout: c.cfg.RequestTimeout + brokerWait(req),
		Sum:     req.Key() == fetchKey,
		Done:    w.done,
	}
	calls := []*Call{call}
	uncut := c.cutWhenDone(ctx)
	entries, err := c.write(calls)
	uncut()
	if err != nil {
		// Done is our own here, so that holding the token does no harm.
		c.settle(calls, entries, err)
	}
	return w, nil
}

// writeGrace is how long a write may go on after its caller has given up. A
// connection that takes no bytes for so long is stuck; a request cut in the
// middle makes it useless, so it is closed.
const writeGrace = time.Second

// cutWhenDone bounds the write that follows by ctx. The function returned must
// be called after the write.
func (c *Conn) cutWhenDone(ctx context.Context) (uncut func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		c.cut.Store(true)
		c.nc.SetWriteDeadline(time.Now().Add(writeGrace))
	})
	return func() {
		if !stop() {
			<-ended // a later sender's own deadline must not be overwritten
			c.cut.Store(false)
		}
	}
}

// bound sets the deadline of a write that is about to begin, unless it has been
// cut already.
func (c *Conn) bound(deadline time.Time) {
	c.nc.SetWriteDeadline(deadline)
	if c.cut.Load() {
		c.nc.SetWriteDeadline(time.Now().Add(writeGrace))
	}
}

// brokerWait is how long a request asks the broker to wait before it answers.
func brokerWait(req kmsg.Request) time.Duration {
	millis := int32(0)
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		millis = r.MaxWaitMillis
	case *kmsg.ShareFetchRequest:
		millis = r.MaxWaitMillis
	case kmsg.TimeoutRequest:
		millis = r.Timeout()
	}
	return time.Duration(max(0, millis)) * time.Millisecond
}

type answer struct {
	frame *Frame
	err   error
}

// waiter hands one answer to one goroutine that may have gone.
type waiter struct {
	conn   *Conn
	key    int16
	claim  atomic.Bool // set by the first of done and a wait that gives up
	answer chan answer // capacity 1
}

func (w *waiter) done(frame *Frame, err error) {
	if w.claim.CompareAndSwap(false, true) {
		w.answer <- answer{frame, err}
		return
	}
	if frame != nil {
		frame.Release()
	}
}

func (w *waiter) wait(ctx context.Context) (*Frame, error) {
	select {
	case a := <-w.answer:
		return w.take(ctx, a)
	case <-ctx.Done():
	}
	if !w.claim.CompareAndSwap(false, true) { // the answer came at the same time
		return w.take(ctx, <-w.answer)
	}
	return nil, w.gaveUp(ctx, true)
}

// take gives the answer. A failure after ctx has ended is told as the end of ctx,
// which may be what cut the write.
func (w *waiter) take(ctx context.Context, a answer) (*Frame, error) {
	if a.err != nil && ctx.Err() != nil {
		return nil, w.gaveUp(ctx, errors.Is(a.err, cluster.ErrUnknownOutcome))
	}
	return a.frame, a.err
}

func (w *waiter) gaveUp(ctx context.Context, sent bool) error {
	err := w.conn.refuse(w.key, Canceled, ctx.Err())
	err.Sent = sent
	return err
}

var errNoVersion = errors.New("no version of the request that both sides know")
