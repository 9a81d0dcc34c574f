package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// served says how our listeners are served, so that it can be found out whether that fits
// the real brokers'.
type served struct {
	between string // the listener between brokers
	asks    bool   // for certificates there
}

// servedBy is a membership's configuration with how its listeners are served.
func (c Config) servedBy(s ServerConfig, secure []*tls.Config) Config {
	c.served = &served{between: s.BrokerListener}
	for n, l := range c.Listeners {
		if c.served.between == "" {
			c.served.between = l.Name
		}
		if l.Name == c.served.between && n < len(secure) {
			c.served.asks = secure[n] != nil && secure[n].ClientAuth != tls.NoClientCert
		}
	}
	return c
}

// manner is how a real broker receives an unknown client on a listener.
type manner struct {
	asks       bool     // for a certificate
	insists    bool     // and speaks to nobody without
	mechanisms []string // of logins
}

const gssapi = "GSSAPI"

// unrelayable says why nobody can be known through us on a listener, or what of it
// cannot; both empty when all can. It is pure.
func unrelayable(l Listener, m manner, s served) (no, some string) {
	between := s.between == l.Name
	switch {
	case l.Protocol == protocolSSL && m.asks && !between:
		return "real brokers ask clients for certificates there (ssl.client.auth), which cannot be passed on: leave it out, and its clients find no leader of mirror topics", ""
	case l.Protocol == protocolSSL && m.asks && between && !s.asks:
		return "real brokers ask each other for certificates there (ssl.client.auth), and we do not: its TLS has to, by ClientAuth and ClientCAs", ""
	case l.Protocol == protocolSASLSSL && m.insists:
		return "real brokers want certificates there besides a login (ssl.client.auth), which cannot be passed on", ""
	case slices.Contains(m.mechanisms, gssapi) && len(m.mechanisms) == 1:
		return "real brokers take logins by " + gssapi + " there, which cannot be passed on: tickets are for one host", ""
	case slices.Contains(m.mechanisms, gssapi):
		return "", "logins by " + gssapi + " cannot be passed on: who uses them finds no leader of mirror topics"
	}
	return "", ""
}

// checkRelay asks a real broker on each listener. One that cannot be reached now keeps
// nobody from coming back.
func (m *Membership) checkRelay(ctx context.Context, image metalog.Image) error {
	ours := served{between: m.cfg.Listeners[0].Name, asks: true} // whoever serves them by himself knows
	if m.cfg.served != nil {
		ours = *m.cfg.served
	}
	var errs []error
	for _, l := range m.cfg.Listeners {
		if l.Protocol == 0 {
			continue
		}
		how, err := m.received(ctx, reals(image, l.Name, m.cfg.IDs), l)
		if err != nil {
			m.logger.Warn("whether clients of a listener can be passed on is not known", "listener", l.Name, "error", err)
			continue
		}
		no, some := unrelayable(l, how, ours)
		if no != "" {
			errs = append(errs, fmt.Errorf("listener %q: %w: %s", l.Name, errors.ErrUnsupported, no))
		}
		if some != "" {
			m.logger.Warn("not all clients of a listener can be passed on", "listener", l.Name, "why", some)
		}
	}
	return errors.Join(errs...)
}

// received finds out how brokers receive an unknown client.
func (m *Membership) received(ctx context.Context, brokers []real, l Listener) (how manner, err error) {
	err = fmt.Errorf("%w: no broker is alive", cluster.ErrUnavailable)
	for _, at := range brokers {
		var asks atomic.Bool
		cfg := &wire.Config{Dial: m.cfg.Dial, DialTimeout: dialTimeout, RequestTimeout: dialTimeout, ClientID: "mirror-joined"}
		if l.Protocol == protocolSSL || l.Protocol == protocolSASLSSL {
			cfg.TLS = new(tls.Config)
			if m.cfg.TLS != nil {
				cfg.TLS = m.cfg.TLS.Clone()
			}
			cfg.TLS.Certificates = nil
			cfg.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asks.Store(true)
				return new(tls.Certificate), nil // none
			}
		}
		var conn *wire.Conn
		conn, err = wire.Dial(ctx, wire.Addr{Host: at.Host, Port: int32(at.Port)}, cfg)
		if how.asks = asks.Load(); err != nil {
			if how.asks {
				how.insists = true
				return how, nil
			}
			continue
		}
		how.mechanisms, err = mechanisms(ctx, conn, l)
		conn.Close()
		return how, err
	}
	return how, err
}

// mechanisms are those by which clients can log in: who wants another one is told.
func mechanisms(ctx context.Context, conn *wire.Conn, l Listener) ([]string, error) {
	if l.Protocol == protocolSSL {
		return nil, nil
	}
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism = "none"
	resp, err := conn.DoVersion(ctx, req, 1)
	if err != nil {
		return nil, err
	}
	all := resp.(*kmsg.SASLHandshakeResponse).SupportedMechanisms
	for i := range all {
		all[i] = strings.ToUpper(all[i])
	}
	return all, nil
}
