package kafka

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
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/clustermirror/mirror/fetcher"
)

// Config says how to reach one cluster. The zero value of every field but
// Bootstrap is usable.
type Config struct {
	// Bootstrap are addresses, host:port, to ask for the cluster's brokers.
	Bootstrap []string
	// TLS is used on every connection. The server name is filled in from the
	// address where it is empty. Default: nil, plain TCP.
	TLS *tls.Config
	// SASL logs in on every connection. Default: nil, no login.
	SASL sasl.Mechanism
	// ClientID is the name brokers see in quotas and logs. Default: "mirror".
	ClientID string
	// Dial opens TCP connections. Default: net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTimeout bounds TCP, TLS and login together. Default: 10 s.
	DialTimeout time.Duration
	// RequestTimeout bounds one request, from writing it to its answer.
	// Default: 30 s.
	RequestTimeout time.Duration
	// MaxStartFill is the largest number of offsets that are filled so that the log of
	// one partition starts where the source's does. A broker takes 4 to 18 million
	// a second, by what it has to spare, and half a byte for each until it is deleted, which
	// is done on the way. Filling says how far it is.
	// Default: 100,000,000.
	MaxStartFill int64
	// GapFill says what takes the place of offsets that hold no record at the source.
	// Default: GapAuto.
	GapFill GapFill
	// Truncation says what may be done when records in a mirror topic of this cluster
	// have to go. Clients cannot cut a log's tail. Default: Refuse.
	Truncation Truncation
	// Truncater cuts tails in this cluster when Truncation is Join: a Truncater of
	// transport/broker, which becomes a broker of it for as long as a cut takes.
	Truncater fetcher.Truncater
	// Logger gets reports of what was retried or left out. Default: silent.
	Logger *slog.Logger
}

// Validate reports every bad field at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Bootstrap) == 0 {
		bad("Bootstrap: at least one host:port is needed")
	}
	for i, address := range c.Bootstrap {
		if err := checkAddress(address); err != nil {
			bad("Bootstrap[%d] %q: %w", i, address, err)
		}
	}
	for name, d := range map[string]time.Duration{"DialTimeout": c.DialTimeout, "RequestTimeout": c.RequestTimeout} {
		if d < 0 {
			bad("%s: %v is negative", name, d)
		}
	}
	if c.MaxStartFill < 0 {
		bad("MaxStartFill: %d is negative", c.MaxStartFill)
	}
	if c.Truncation < Refuse || c.Truncation > Join {
		bad("Truncation: %d is none of Refuse, Rebuild and Join", c.Truncation)
	}
	if (c.Truncation == Join) != (c.Truncater != nil) {
		bad("Truncater: goes with Truncation Join, and only with that")
	}
	if !c.GapFill.valid() {
		bad("GapFill: %d is not one of %s", int(c.GapFill), strings.Join(gapFillNames[:], ", "))
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("want host:port")
	}
	if host == "" {
		return errors.New("host is empty")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Bootstrap = slices.Clone(c.Bootstrap)
	c.ClientID = cmp.Or(c.ClientID, "mirror")
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 30*time.Second)
	c.MaxStartFill = cmp.Or(c.MaxStartFill, 100_000_000)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
