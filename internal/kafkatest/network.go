package kafkatest

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Network is a network with faults, as a Dial function. Clients follow the
// addresses that brokers advertise, so the faults sit where they dial, one
// [Link] per address. Safe for concurrent use.
type Network struct {
	mu     sync.Mutex
	links  map[string]*Link
	closed bool
	wg     sync.WaitGroup
}

// NewNetwork returns a network without faults. It ends with the test: open
// connections are cut then.
func NewNetwork(t testing.TB) *Network {
	n := &Network{links: make(map[string]*Link)}
	t.Cleanup(n.close)
	return n
}

// Link returns the way to an address ("host:port" as it is dialled), before or
// after the first dial.
func (n *Network) Link(addr string) *Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[addr]
	if l == nil {
		l = newLink()
		l.closed = n.closed
		n.links[addr] = l
	}
	return l
}

// Links returns the ways to several addresses, to be given one fault each.
func (n *Network) Links(addrs ...string) []*Link {
	links := make([]*Link, 0, len(addrs))
	for _, a := range addrs {
		links = append(links, n.Link(a))
	}
	return links
}

// Dial connects like [net.Dialer.DialContext], over the link of addr.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return n.Link(addr).dial(ctx, network, addr, &n.wg)
}

func (n *Network) close() {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.links {
		l.close()
	}
	n.mu.Unlock()
	n.wg.Wait()
}

// close cuts the link for good.
func (l *Link) close() {
	l.set(func() { l.closed = true })
	l.Cut()
}

func (l *Link) dial(ctx context.Context, network, addr string, wg *sync.WaitGroup) (net.Conn, error) {
	if err := l.admit(ctx); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	var d net.Dialer
	real, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return l.join(real, wg)
}

// admit waits as long as a connection takes on this link: one round trip, or
// for ever behind a black hole.
func (l *Link) admit(ctx context.Context) error {
	l.mu.Lock()
	l.dials++
	start := time.Now()
	l.mu.Unlock()
	for {
		l.mu.Lock()
		closed, refuse, hole, changed := l.closed, l.refuse, l.blackhole, l.changed
		left := l.rtt - time.Since(start)
		l.mu.Unlock()
		switch {
		case closed:
			return net.ErrClosed
		case hole:
			left = -1 // only a change helps
		case left > 0:
		case refuse:
			return os.NewSyscallError("connect", syscall.ECONNREFUSED)
		default:
			return nil
		}
		await(left, changed, ctx.Done(), nil)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
