package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// Config says how to connect. It is copied; nil means all defaults.
type Config struct {
	// Dial opens the TCP connection. Default: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS, when set, wraps every connection; an empty ServerName is filled with
	// the broker's host. Default: plain TCP.
	TLS *tls.Config
	// SASL authenticates every connection, and again before the broker's session
	// lifetime ends (KIP-368). Default: none.
	SASL sasl.Mechanism
	// ClientID is sent with every request. Default: "mirror".
	ClientID string
	// DialTimeout bounds TCP, TLS, versions and SASL together. Default: 10 s.
	DialTimeout time.Duration
	// RequestTimeout bounds each request, beside the time the broker was asked to
	// wait. Default: 30 s.
	RequestTimeout time.Duration
	// MaxFrame: a larger answer closes the connection. Default: 256 MiB.
	MaxFrame int32
	// Frames is where answers are read into; share one among clients to bound
	// their idle memory together. Default: a pool per Client, or per Dial.
	Frames *FramePool
	// Logger hears of failed re-authentications. Default: silent.
	Logger *slog.Logger
}

func (c *Config) withDefaults() *Config {
	var d Config
	if c != nil {
		d = *c
	}
	if d.Dial == nil {
		d.Dial = new(net.Dialer).DialContext
	}
	d.ClientID = cmp.Or(d.ClientID, "mirror")
	d.DialTimeout = cmp.Or(d.DialTimeout, 10*time.Second)
	d.RequestTimeout = cmp.Or(d.RequestTimeout, 30*time.Second)
	d.MaxFrame = cmp.Or(d.MaxFrame, 256<<20)
	d.Frames = cmp.Or(d.Frames, NewFramePool(0))
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	return &d
}

// Addr is where a broker listens. ID is -1 for a seed, whose id is not known.
type Addr struct {
	ID   int32
	Host string
	Port int32
}

// String is "host:port", with the broker's id in front when it is known.
func (a Addr) String() string {
	if a.ID < 0 {
		return a.hostPort()
	}
	return strconv.Itoa(int(a.ID)) + "@" + a.hostPort()
}

func (a Addr) hostPort() string {
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}
