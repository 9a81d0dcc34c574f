package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// Config says which cluster to join, and as whom.
type Config struct {
	// Bootstrap are addresses, host:port, of real brokers on the listener that TLS
	// and SASL fit.
	Bootstrap []string
	// Controllers are addresses, host:port, of controller listeners. Default: asked
	// of the brokers (DescribeQuorum).
	Controllers []string
	// TLS is used to brokers and controllers, with a certificate of ours where the
	// cluster demands one. Default: nil, plain TCP.
	TLS *tls.Config
	// SASL logs in at brokers and controllers, as a user with Cluster Alter,
	// ClusterAction and Describe. Default: nil, no login.
	SASL sasl.Mechanism
	// ControllerTLS and ControllerSASL replace TLS and SASL at controllers when
	// ControllerSecurity is set. Default: as for brokers.
	ControllerSecurity bool
	ControllerTLS      *tls.Config
	ControllerSASL     sasl.Mechanism
	// Dial opens TCP connections. Default: net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// ClusterID is the id the cluster must have. Default: any.
	ClusterID string
	// IDs are the broker ids that are ours to take. They must not be given to real
	// brokers or controllers.
	IDs IDs
	// Listeners are the addresses under which the cluster's brokers and clients
	// reach our Server: one for each of the cluster's listeners that is to know us,
	// the one between brokers among them.
	Listeners []Listener
	// Untested joins a cluster that is newer than any that was tested. Default: that is
	// refused.
	Untested bool
	// Rack of ours. Default: none.
	Rack string
	// Identities keeps who we are over restarts. Processes that share one have different
	// ids, and one goes on in the place of another that is dead.
	Identities Identities
	// Name tells us from other processes that share the Identities: a process gets the
	// identity back that it had under this name, at once. Two that live must not have the
	// same. Default: host:port of the first listener, which only one can have.
	Name string

	// Ours says which partitions are meant to be on us; what else comes here is a
	// stray and moved away at once. It has to be true from before a partition is
	// placed on us until after it has been taken off, also after a restart. It must
	// not block, and is called from several goroutines. Default: none is.
	Ours func(topic string, id cluster.TopicID, partition int32) bool
	// recall brings what Ours knows up to date, before something counts as a stray. It may
	// block for a second. nil: Ours knows.
	recall func(context.Context) error
	// only is the one id that we may have; nil: any of IDs.
	only *int32

	served *served // nil: nobody knows

	// HeartbeatInterval is a fifth of the cluster's broker.session.timeout.ms or
	// less. Default: 1.5 s.
	HeartbeatInterval time.Duration
	// SessionTimeout is the cluster's broker.session.timeout.ms. Default: 9 s.
	SessionTimeout time.Duration
	// Logger hears of what happens to the membership. Default: silent.
	Logger *slog.Logger
}

// IDs is a range of broker ids, both ends included.
type IDs struct{ First, Last int32 }

// Listener is an address of ours as we register it. Protocol is Kafka's number:
// 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL; it must be the one that the
// listener of this name has at the real brokers.
type Listener struct {
	Name, Host string
	Port       uint16
	Protocol   int16
}

// Validate reports every bad field at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Bootstrap) == 0 {
		bad("Bootstrap: at least one host:port is needed")
	}
	for name, list := range map[string][]string{"Bootstrap": c.Bootstrap, "Controllers": c.Controllers} {
		for i, address := range list {
			if _, port, err := net.SplitHostPort(address); err != nil {
				bad("%s[%d] %q: want host:port", name, i, address)
			} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				bad("%s[%d] %q: port is not a number from 1 to 65535", name, i, address)
			}
		}
	}
	if c.IDs.First < 0 || c.IDs.Last < c.IDs.First {
		bad("IDs: %d to %d is no range of broker ids", c.IDs.First, c.IDs.Last)
	}
	if len(c.Listeners) == 0 {
		bad("Listeners: at least the one between brokers is needed")
	}
	for i, l := range c.Listeners {
		same := func(m Listener) bool { return m.Name == l.Name }
		switch {
		case l.Name == "" || l.Host == "" || l.Port == 0:
			bad("Listeners[%d]: Name, Host and Port are needed", i)
		case l.Protocol < 0 || l.Protocol > 3:
			bad("Listeners[%d]: Protocol %d", i, l.Protocol)
		case slices.IndexFunc(c.Listeners, same) < i:
			bad("Listeners[%d]: %q is there twice", i, l.Name)
		}
	}
	if c.Identities == nil {
		bad("Identities: without a memory of who we are every restart leaves a broker behind")
	}
	if c.HeartbeatInterval < 0 || c.SessionTimeout < 0 {
		bad("HeartbeatInterval and SessionTimeout must not be negative")
	}
	d := c.withDefaults()
	if 5*d.HeartbeatInterval > d.SessionTimeout {
		bad("HeartbeatInterval: %v is more than a fifth of the session's %v", d.HeartbeatInterval, d.SessionTimeout)
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Bootstrap, c.Controllers, c.Listeners = slices.Clone(c.Bootstrap), slices.Clone(c.Controllers), slices.Clone(c.Listeners)
	if c.Name == "" && len(c.Listeners) > 0 {
		c.Name = net.JoinHostPort(c.Listeners[0].Host, strconv.Itoa(int(c.Listeners[0].Port)))
	}
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 1500*time.Millisecond)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 9*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if !c.ControllerSecurity {
		c.ControllerTLS, c.ControllerSASL = c.TLS, c.SASL
	}
	return c
}

// wires are how to connect to brokers and to controllers. A controller that says
// nothing must be given up soon enough for the session to survive it.
func (c Config) wires() (brokers, controllers *wire.Config) {
	patience := min(c.SessionTimeout/4, 3*time.Second)
	brokers = &wire.Config{Dial: c.Dial, TLS: c.TLS, SASL: c.SASL, Logger: c.Logger, ClientID: "mirror-joined"}
	controllers = &wire.Config{Dial: c.Dial, TLS: c.ControllerTLS, SASL: c.ControllerSASL, Logger: c.Logger, ClientID: "mirror-joined",
		DialTimeout: patience, RequestTimeout: patience}
	return brokers, controllers
}
