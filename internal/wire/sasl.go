package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// authenticate runs the SASL exchange (SaslHandshake v1 and SaslAuthenticate) and
// plans the next one when the broker limits the session. The caller holds the
// token and nothing is in flight.
func (c *Conn) authenticate(ctx context.Context) error {
	ctx = sasl.WithMetadata(ctx, &sasl.Metadata{Host: c.addr.Host, Port: int(c.addr.Port)})
	began := time.Now()
	if err := c.saslHandshake(ctx); err != nil {
		return err
	}
	lifetime, err := c.saslExchange(ctx)
	if err != nil {
		return err
	}
	if lifetime > 0 {
		c.planRenewal(began, lifetime)
	}
	return nil
}

// saslError is an error of the authentication itself; errors of the connection
// pass as they are.
func (c *Conn) saslError(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	return &Error{Op: "sasl", Addr: c.addr, Cause: SASL, Err: err}
}

func (c *Conn) saslHandshake(ctx context.Context) error {
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism = c.cfg.SASL.Name()
	if c.MaxVersion(req.Key()) < 1 {
		return c.saslError(errors.New("the listener offers no SASL"))
	}
	resp, err := c.ask(ctx, req, 1)
	if err != nil {
		return err
	}
	hello := resp.(*kmsg.SASLHandshakeResponse)
	if err := CodeError(hello.ErrorCode); err != nil {
		return c.saslError(fmt.Errorf("mechanism %s: %w (the broker has %s)",
			req.Mechanism, err, strings.Join(hello.SupportedMechanisms, ", ")))
	}
	return nil
}

// saslExchange runs the mechanism and gives the session's lifetime, 0 when it is
// not limited. The mechanism is done when it says so, but an answer it gives
// together with that is still sent (kafka-go's own loop drops it).
func (c *Conn) saslExchange(ctx context.Context) (time.Duration, error) {
	state, out, err := c.cfg.SASL.Start(ctx)
	if err != nil {
		return 0, c.saslError(err)
	}
	version := min(2, c.MaxVersion(36))
	if version < 0 {
		return 0, c.saslError(errors.New("the listener offers no SaslAuthenticate"))
	}
	for done := false; ; {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.SASLAuthBytes = out
		resp, err := c.ask(ctx, req, version)
		if err != nil {
			return 0, err
		}
		step := resp.(*kmsg.SASLAuthenticateResponse)
		if err := CodeError(step.ErrorCode); err != nil {
			if step.ErrorMessage != nil && *step.ErrorMessage != "" {
				err = fmt.Errorf("%w: %s", err, *step.ErrorMessage)
			}
			return 0, c.saslError(err)
		}
		lifetime := time.Duration(step.SessionLifetimeMillis) * time.Millisecond
		if done {
			return lifetime, nil
		}
		if done, out, err = state.Next(ctx, step.SASLAuthBytes); err != nil {
			return 0, c.saslError(err)
		}
		if done && len(out) == 0 {
			return lifetime, nil
		}
	}
}

// ask is exchange with the answer read.
func (c *Conn) ask(ctx context.Context, req kmsg.Request, version int16) (kmsg.Response, error) {
	frame, err := c.exchange(ctx, req, version)
	if err != nil {
		return nil, err
	}
	return c.parse(frame, req, version)
}

// planRenewal starts the timer of the next authentication (KIP-368): somewhere
// in 85 to 95 % of the lifetime, as Kafka's own clients do, so that the
// connections of a process do not all stop at once.
func (c *Conn) planRenewal(began time.Time, lifetime time.Duration) {
	share := 0.85 + 0.1*rand.Float64()
	wait := time.Until(began.Add(time.Duration(share * float64(lifetime))))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.renew = time.AfterFunc(max(0, wait), c.reauthenticate)
	}
}

// reauthenticate keeps every sender out, lets the answers in flight come in, and
// authenticates again on the same connection.
func (c *Conn) reauthenticate() {
	if c.acquire(context.Background(), 36) != nil {
		return // the connection has ended
	}
	defer c.release()
	if c.drain() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.DialTimeout)
	defer cancel()
	err := c.authenticate(ctx)
	if err == nil {
		return
	}
	c.cfg.Logger.Warn("re-authentication failed", "broker", c.addr.String(), "error", err)
	var why *Error
	errors.As(dialError(ctx, "sasl", c.addr, err), &why)
	c.fail(why)
}
