package kafka

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// gate refuses and cuts the connections to one address.
type gate struct {
	mu      sync.Mutex
	closed  string
	through map[net.Conn]string
}

func (g *gate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if address == g.closed {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err == nil {
		if g.through == nil {
			g.through = map[net.Conn]string{}
		}
		g.through[c] = address
	}
	return c, err
}

func (g *gate) shut(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = address
	for c, a := range g.through {
		if a == address {
			c.Close()
		}
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = ""
}
