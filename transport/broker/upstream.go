package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

const dialTimeout = 3 * time.Second

// real is a living real broker's address on a listener.
type real struct {
	broker int32
	metalog.Listener
}

// reals are the addresses of living real brokers on a listener, and whether it
// speaks TLS. It is pure.
func reals(i metalog.Image, listener string, ids IDs) []real {
	var out []real
	for b := range i.Brokers() {
		if b.Fenced || ids.First <= b.ID && b.ID <= ids.Last {
			continue
		}
		for _, l := range b.Listeners {
			if l.Name == listener {
				out = append(out, real{b.ID, l})
			}
		}
	}
	return out
}

// dialReal connects to any living real broker on a listener, without a name: what
// a client asks over it must run under his own identity, never under ours.
// Right after a start, when clients know us already and we know nobody yet, it waits.
func (m *Membership) dialReal(ctx context.Context, listener string) (net.Conn, error) {
	waiting, over := context.WithTimeout(ctx, dialTimeout)
	image, _ := m.log.Wait(waiting, func(metalog.Image) bool { return true })
	over()
	all := reals(image, listener, m.cfg.IDs)
	errs := []error{fmt.Errorf("%w: no broker is alive on listener %q", cluster.ErrUnavailable, listener)}
	dial := m.cfg.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	for _, n := range rand.Perm(len(all)) {
		l := all[n]
		bounded, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := dial(bounded, "tcp", net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))))
		if err == nil && (l.Protocol == 1 || l.Protocol == 3) {
			conn, err = anonymous(bounded, conn, l.Host, m.cfg.TLS)
		}
		cancel()
		if err == nil {
			through := m.passages.add(l.broker, conn)
			if !isOut(m.log.Image(), l.broker) { // what the log says from here on, tend sees
				return through, nil
			}
			through.Close()
			err = fmt.Errorf("%w: broker %d is out", cluster.ErrUnavailable, l.broker)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// anonymous is TLS that trusts what we trust and shows no certificate.
func anonymous(ctx context.Context, conn net.Conn, host string, trust *tls.Config) (net.Conn, error) {
	cfg := &tls.Config{}
	if trust != nil {
		cfg = trust.Clone()
		cfg.Certificates, cfg.GetClientCertificate = nil, nil
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}
