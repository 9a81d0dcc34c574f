package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Protocols with TLS. The clients of one with SSL alone are known by their certificates.
const (
	protocolSSL     = 1
	protocolSASLSSL = 3
)

// shown tells which certificates real brokers show on the listener between brokers. They
// connect to others with the same.
type shown struct {
	brokers func() []int32 // those that are up
	by      func(ctx context.Context, broker int32) (*x509.Certificate, error)
}

var errNotThatBroker = errors.New("the client's certificate is not that broker's")

// is: the broker shows a certificate of the same name.
func (s *shown) is(ctx context.Context, cert *x509.Certificate, broker int32) error {
	theirs, err := s.by(ctx, broker)
	if err != nil {
		return fmt.Errorf("which certificate broker %d has: %w", broker, err)
	}
	if !sameName(cert, theirs) {
		return fmt.Errorf("broker %d: %w: %q, not %q", broker, errNotThatBroker, cert.Subject, theirs.Subject)
	}
	return nil
}

// sameName reports that two certificates, which our authorities have signed, are of one
// principal: Kafka takes the subject for it. Who has none is known by the certificate
// alone. It is pure.
func sameName(a, b *x509.Certificate) bool {
	return a.Equal(b) || len(a.Subject.Names) > 0 && bytes.Equal(a.RawSubject, b.RawSubject)
}

// betweenBrokers is the certificate that the client has proven to be his, where brokers
// are known by it; nil elsewhere, where none is asked for, or he has none.
func (c *client) betweenBrokers() *x509.Certificate {
	secure, ok := c.conn.(*tls.Conn)
	if !ok || c.server.shown == nil || c.listener != c.server.cfg.BrokerListener {
		return nil
	}
	state := secure.ConnectionState()
	if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}

// isBroker: the certificate is that of some real broker.
func (c *client) isBroker(ctx context.Context, cert *x509.Certificate) error {
	if c.proof != nil && c.proof.until.IsZero() {
		return nil // it has fetched as one over this connection
	}
	ctx, cancel := context.WithTimeout(ctx, c.server.patience)
	defer cancel()
	errs := []error{errNotThatBroker}
	for _, id := range c.server.shown.brokers() {
		err := c.server.shown.is(ctx, cert, id)
		if err == nil {
			c.proof = &proof{replica: id}
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// shownOn tells of a listener; nil for one where clients are not known by certificates.
func (m *Membership) shownOn(listener string) *shown {
	if !slices.ContainsFunc(m.cfg.Listeners, func(l Listener) bool { return l.Name == listener && l.Protocol == protocolSSL }) {
		return nil
	}
	return &shown{
		brokers: func() (ids []int32) {
			for b := range m.log.Image().Brokers() {
				if !b.Fenced && !m.party().own(b.ID) {
					ids = append(ids, b.ID)
				}
			}
			return ids
		},
		by: func(ctx context.Context, id int32) (*x509.Certificate, error) {
			b, ok := m.log.Image().Broker(id) // a fenced one may be about to come up, and fetches already
			if ok && !m.party().own(id) {
				for _, l := range b.Listeners {
					if l.Name == listener {
						return m.look(ctx, l)
					}
				}
			}
			return nil, fmt.Errorf("%w: no real broker has this id on listener %q", cluster.ErrUnavailable, listener)
		},
	}
}

// look connects and reads the certificate that is shown there.
func (m *Membership) look(ctx context.Context, l metalog.Listener) (*x509.Certificate, error) {
	dial := m.cfg.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dial(ctx, "tcp", net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	cfg := new(tls.Config)
	if m.cfg.TLS != nil {
		cfg = m.cfg.TLS.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName = l.Host
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure.ConnectionState().PeerCertificates[0], nil
}
