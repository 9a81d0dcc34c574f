package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Conn is one connection to one broker: many requests in flight, answered in the
// order they were sent. It is safe for concurrent use. One goroutine reads; the
// sender writes. It is not reopened when lost: dial another.
type Conn struct {
	roundTrip time.Duration // of the first exchange; set before anybody else has the Conn
	cut       atomic.Bool   // the caller of the write under way has given up
	addr      Addr
	cfg       *Config
	nc        net.Conn
	raw       net.Conn               // under TLS; nc without it
	tcp       *net.TCPConn           // nc when it can take a vectored write, else nil
	versions  map[int16]versionRange // read-only once Dial has returned

	// token holds one value. Whoever has taken it may write, and owns corr, head
	// and vec. Re-authentication keeps it, so that no request comes in between.
	token chan struct{}
	corr  int32
	head  []byte
	vec   net.Buffers

	mu      sync.Mutex
	pending []*entry      // sent or being sent, not answered, in the order of the wire
	armed   time.Time     // the read deadline set, never later than the earliest of pending
	drained chan struct{} // closed and forgotten when pending becomes empty
	err     *Error        // why the connection ended; set once, before done is closed
	renew   *time.Timer   // the next re-authentication
	done    chan struct{}
}

// entry is a call on its way.
type entry struct {
	call     *Call
	corr     int32
	deadline time.Time
	// writing: the sender may still be reading the call's body, so only he may
	// complete it when the connection fails.
	writing bool
	unsent  bool // the broker cannot have a whole request
}

// Call is one request whose body the caller laid out himself. The header in
// front of it (client id, correlation id) is ours.
type Call struct {
	Key, Version int16
	Flexible     bool        // the version has the flexible request and response header (KIP-482)
	Body         net.Buffers // not changed by us; must not change until Done or the end of Send, after which it is not read
	// Sum has checksums of the answer's bytes taken as they come in, for Frame.Checksum.
	Sum bool
	// Timeout runs from the write to the whole answer. Default: Config.RequestTimeout.
	Timeout time.Duration
	// Done is called exactly once, with a frame the receiver releases or with an
	// error, from the reading goroutine or from the caller of Send or Close. It
	// must not block, and must not call Send or Do.
	Done func(*Frame, error)
}

// Addr is the address dialed.
func (c *Conn) Addr() Addr { return c.addr }

// Done is closed when the connection is lost or closed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why Done is closed; nil before.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return c.err
}

// Close ends the connection; requests in flight fail with ErrUnknownOutcome. It
// does not wait for the reading goroutine, so that it may be called from Done
// of a call. Always nil.
func (c *Conn) Close() error {
	c.fail(&Error{Op: "close", Addr: c.addr, Cause: Local, Err: net.ErrClosed})
	return nil
}

// fail ends the connection for the reason given, unless it has ended already,
// and completes what was in flight. Entries that are being written are left to
// their sender, who calls fail again.
func (c *Conn) fail(why *Error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = why
		if c.renew != nil {
			c.renew.Stop()
		}
	}
	var lost, kept []*entry
	for _, e := range c.pending {
		if e.writing {
			kept = append(kept, e)
		} else {
			lost = append(lost, e)
		}
	}
	c.pending = kept
	why = c.err
	c.mu.Unlock()

	if first {
		// The raw one: TLS would first try to say goodbye, for up to 5 s, to a
		// broker that may take no bytes. This wakes the reader and a sender.
		c.raw.Close()
		close(c.done)
	}
	now := time.Now()
	for _, e := range lost {
		e.call.Done(nil, c.lost(e, why, now))
	}
}

var errOtherExpired = errors.New("another request on the connection timed out")

// lost is the error of one call on a connection that ended because of why.
func (c *Conn) lost(e *entry, why *Error, now time.Time) error {
	err := &Error{Op: kmsg.NameForKey(e.call.Key), Addr: c.addr, Cause: why.Cause, Sent: !e.unsent, Err: why.Err}
	if why.Cause == Timeout && now.Before(e.deadline) {
		err.Cause, err.Err = Local, errOtherExpired
	}
	return err
}

// refuse is the error of a call that was never written.
func (c *Conn) refuse(key int16, cause Cause, err error) *Error {
	return &Error{Op: kmsg.NameForKey(key), Addr: c.addr, Cause: cause, Err: err}
}

// acquire takes the right to write.
func (c *Conn) acquire(ctx context.Context, key int16) error {
	if err := ctx.Err(); err != nil {
		return c.refuse(key, Canceled, err)
	}
	select {
	case <-c.token:
		return nil
	case <-c.done:
		why := c.Err().(*Error)
		return c.refuse(key, why.Cause, why.Err)
	case <-ctx.Done():
		return c.refuse(key, Canceled, ctx.Err())
	}
}

func (c *Conn) release() { c.token <- struct{}{} }

// enqueue notes the entries as in flight; the read deadline is moved only when
// one of them ends before it. An error means that nothing was noted.
func (c *Conn) enqueue(entries []*entry) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.pending = append(c.pending, entries...)
	for _, e := range entries {
		if c.armed.IsZero() || e.deadline.Before(c.armed) {
			c.armed = e.deadline
			c.nc.SetReadDeadline(e.deadline)
		}
	}
	return nil
}

// expired is asked when the read deadline passed: is a request really late? If
// not, the deadline moves to the earliest one in flight, or away.
func (c *Conn) expired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.armed = time.Time{}
	for _, e := range c.pending {
		if !now.Before(e.deadline) {
			return true
		}
		if c.armed.IsZero() || e.deadline.Before(c.armed) {
			c.armed = e.deadline
		}
	}
	c.nc.SetReadDeadline(c.armed)
	return false
}

// drain waits until nothing is in flight. The caller holds the token, so that
// nothing is added meanwhile.
func (c *Conn) drain() error {
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.drained == nil {
		c.drained = make(chan struct{})
	}
	drained := c.drained
	c.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-c.done:
		return c.Err()
	}
}

// RoundTrip is how long the way to the broker and back took when nothing else was
// on the connection: a hint at how much to have under way.
func (c *Conn) RoundTrip() time.Duration { return c.roundTrip }
