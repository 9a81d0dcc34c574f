package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// Dial connects, and returns a connection that is ready for requests: TCP, TLS
// and SASL as cfg says, and the versions the broker knows. A nil cfg means the
// defaults. Errors are *Error and never ErrUnknownOutcome. ctx bounds the dial
// only, not the life of the connection.
func Dial(ctx context.Context, addr Addr, cfg *Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	bounded, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	defer cancel()
	nc, err := cfg.Dial(bounded, "tcp", addr.hostPort())
	if err != nil {
		return nil, dialError(ctx, "dial", addr, err)
	}
	c := newConn(nc, addr, cfg)
	if cfg.TLS != nil {
		if c.nc, err = handshake(bounded, nc, addr, cfg.TLS); err != nil {
			nc.Close()
			return nil, dialError(ctx, "tls", addr, err)
		}
		c.tcp = nil
	}
	go c.readLoop()
	if err := c.open(bounded); err != nil {
		c.Close()
		return nil, dialError(ctx, "open", addr, err)
	}
	c.release()
	return c, nil
}

// newConn makes a connection whose token is taken.
func newConn(nc net.Conn, addr Addr, cfg *Config) *Conn {
	tcp, _ := nc.(*net.TCPConn)
	return &Conn{
		addr: addr, cfg: cfg, nc: nc, raw: nc, tcp: tcp,
		token: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func handshake(ctx context.Context, nc net.Conn, addr Addr, cfg *tls.Config) (net.Conn, error) {
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = addr.Host
	}
	secured := tls.Client(nc, cfg)
	return secured, secured.HandshakeContext(ctx)
}

// open brings a fresh connection to the point where it takes requests.
func (c *Conn) open(ctx context.Context) error {
	began := time.Now()
	if err := c.negotiate(ctx); err != nil {
		return err
	}
	c.roundTrip = time.Since(began)
	if c.cfg.SASL == nil {
		return nil
	}
	return c.authenticate(ctx)
}

// dialError is err as the end of a dial: nothing of the caller's was sent, and
// a context that ended is the caller's only if his own has.
func dialError(caller context.Context, op string, addr Addr, err error) error {
	out := Error{Op: op, Addr: addr, Cause: causeOf(err), Err: err}
	var own *Error
	if errors.As(err, &own) {
		out = *own
		out.Sent = false
	}
	switch {
	case errors.Is(caller.Err(), context.Canceled):
		out.Cause, out.Err = Canceled, errors.Join(context.Canceled, out.Err)
	case out.Cause == Canceled:
		out.Cause = Timeout
	}
	return &out
}
