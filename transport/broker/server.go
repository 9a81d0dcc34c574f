package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// ServerConfig says what a Server bears. The zero value is usable.
type ServerConfig struct {
	// MaxConnections: more are closed as they come. Default: 1,000.
	MaxConnections int
	// MaxFrame: a larger request closes its connection. Default: 8 MiB.
	MaxFrame int32
	// MaxMemory bounds the requests of all connections that are in memory at once,
	// in bytes, and once more the answers of real brokers that have to be looked
	// into; those that come when it is used up wait. Default: 64 MiB.
	MaxMemory int64
	// IdleTimeout: a connection without a request for so long is closed, as a
	// broker's connections.max.idle.ms does. Default: 10 min.
	IdleTimeout time.Duration
	// FrameTimeout is how long one request may take to arrive once it has begun,
	// and an answer to be taken. Default: 30 s.
	FrameTimeout time.Duration
	// BrokerListener is the name of the listener between the cluster's brokers. Only
	// there followers are heard. Default: the first of Config.Listeners.
	BrokerListener string
	// Refill reads records of a partition that we lead from where they come from, for a
	// follower that lacks what no other replica holds any more: whole batches as the
	// log has them, beginning with the one that holds offset, or the next one; about
	// max bytes. Default: none, and that follower stays behind; a Destination asks the
	// source of the mirror (fetcher.Refiller).
	Refill func(ctx context.Context, topic cluster.TopicID, partition int32, offset int64, max int32) ([]byte, error)
	// Logger hears of what closes connections, at Debug, of followers that are not let
	// in, and of those that cannot be given what they lack. Default: silent.
	Logger *slog.Logger
}

func (c ServerConfig) withDefaults() ServerConfig {
	c.MaxConnections = cmp.Or(c.MaxConnections, 1000)
	c.MaxFrame = cmp.Or(c.MaxFrame, 8<<20)
	c.MaxMemory = max(cmp.Or(c.MaxMemory, 64<<20), int64(c.MaxFrame)) // or a large one waited for ever
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 10*time.Minute)
	c.FrameTimeout = cmp.Or(c.FrameTimeout, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Server is what brokers and clients connect to under the address we registered.
// It answers ApiVersions for itself; everything else goes byte for byte to a real
// broker, over a connection of this client's own, so that the real broker
// authenticates and authorizes him, and he learns nothing from us that it would
// not have told him.
type Server struct {
	cfg    ServerConfig
	memory *budget // of requests, and of what is kept of consumers
	self   func() Self
	id     func(ctx context.Context) (string, error) // of the cluster
	dial   upstream

	answers  *budget // of real brokers' answers that have to be looked into
	follower dialFollower

	led  *registry // what we lead
	lent bool      // and only for a moment: it was, and will be, written to
	// coming: whether a partition may be ours to lead at any moment, and whether it is already.
	// nil: none.
	coming   func(fetchKey) (soon, elected bool)
	rack     func(broker int32) string // nil: none are known
	worker   func() self               // what is said to other workers; nil: nothing
	sessions *fetchSessions
	pieces   *elsewhere
	haste    *haste
	read     pieceReader
	decoding chan struct{}

	trust    time.Duration // proofLasts
	patience time.Duration // judgePatience
	shown    *shown        // nil: followers are known by what real brokers say of them
	told     atomic.Int64  // when it was told that one was refused, in ns
}

// maxDecoding is how many requests of followers are taken apart at once: what a
// hostile one becomes is many times its size.
const maxDecoding = 2

// upstream opens a connection to a real broker on the listener of a name, without
// credentials.
type upstream func(ctx context.Context, listener string) (net.Conn, error)

// NewServer serves for a membership.
func NewServer(m *Membership, cfg ServerConfig) *Server {
	cfg.BrokerListener = cmp.Or(cfg.BrokerListener, m.cfg.Listeners[0].Name)
	s := newServer(cfg, m.Self, m.brokers.ClusterID, m.dialReal)
	s.read, s.follower, s.rack = m.readReplica, m.dialFollower, m.rack
	s.shown = m.shownOn(cfg.BrokerListener)
	return s
}

func newServer(cfg ServerConfig, self func() Self, id func(context.Context) (string, error), dial upstream) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, memory: newBudget(cfg.MaxMemory), answers: newBudget(cfg.MaxMemory), self: self, id: id, dial: dial,
		led: newRegistry(), sessions: newFetchSessions(), decoding: make(chan struct{}, maxDecoding), haste: newHaste(), trust: proofLasts, patience: judgePatience}
	s.pieces = newElsewhere(s)
	return s
}

// Serve accepts connections on l, the address that was registered for the listener
// of that name, until ctx ends (nil) or l fails. It closes l, and returns when all
// its connections are gone. A nil secure is plain TCP. On a listener between brokers
// where certificates are asked for (ssl.client.auth) it has to ask for them as well, by
// ClientAuth and ClientCAs. It may be called for several listeners at once.
func (s *Server) Serve(ctx context.Context, listener string, l net.Listener, secure *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	var open sync.WaitGroup
	if listener == s.cfg.BrokerListener {
		defer s.sessions.clear()
	}
	defer open.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	slots := make(chan struct{}, s.cfg.MaxConnections)
	for pause := time.Duration(0); ; {
		conn, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err != nil && errors.As(err, &temporary) && temporary.Temporary():
			// Out of file descriptors, or a client that went at once.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return err
		}
		pause = 0
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		open.Go(func() {
			defer func() { <-slots }()
			s.connection(ctx, listener, conn, secure)
		})
	}
}

// connection serves one client until he, we or ctx ends it.
func (s *Server) connection(ctx context.Context, listener string, conn net.Conn, secure *tls.Config) {
	c := &client{server: s, listener: listener, conn: conn}
	if secure != nil {
		c.conn = tls.Server(conn, secure)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer c.reads.Wait()
	defer cancel()
	defer conn.Close()
	defer c.hangUp()
	for {
		if err := c.turn(ctx); err != nil {
			s.cfg.Logger.Debug("a client's connection ends", "listener", listener, "client", conn.RemoteAddr(), "error", err)
			return
		}
	}
}
