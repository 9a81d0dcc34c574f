// Package kafka speaks to stock Kafka with the rights of a client: as the source
// of a mirror (fetch sessions, epochs, groups, topics), and as its destination,
// where a produce request is used as a compare-and-append. One type, Cluster, is
// both, so that failback only swaps the two ends.
//
// How the destination keeps offsets identical: every stretch of a partition has a
// producer id of its own, and the sequence of a batch is its base offset mod
// 2^31. A broker that knows the id takes exactly the next offset and nothing
// else. What the broker cannot refuse (other producers, a new leader without the
// id's state, records older than the state's expiry) is found in the answers'
// base offsets and reported as a displaced span, never silently.
package kafka

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

var (
	_ fetcher.Source  = (*Cluster)(nil)
	_ fetcher.Session = (*session)(nil)
	_ fetcher.Log     = (*Cluster)(nil)
	_ fetcher.Starter = (*Cluster)(nil)
	_ fetcher.Fencer  = (*Cluster)(nil)
	_ topics.Source   = (*Cluster)(nil)
	_ topics.Sink     = (*Cluster)(nil)
	_ offsets.Source  = (*Cluster)(nil)
	_ offsets.Sink    = (*Cluster)(nil)
)

// Cluster is one Kafka cluster. All methods are safe for concurrent use. It
// connects when it is first used, and keeps its connections and the goroutines
// that append until Close, or until the last Run returns.
type Cluster struct {
	cfg    Config
	client *wire.Client

	runs   atomic.Int32
	slots  slotNumbers // of the connections of fetch sessions
	expiry expiryCache

	fillers fillers
	shares  shareMemory

	mu    sync.Mutex
	lanes map[cluster.Partition]*lane
	gen   *generation
}

// New makes a Cluster. It connects to nothing.
func New(cfg Config) (*Cluster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Cluster{cfg: cfg, lanes: map[cluster.Partition]*lane{}}
	c.client = wire.NewClient(cfg.Bootstrap, &wire.Config{
		Dial: cfg.Dial, TLS: cfg.TLS, SASL: cfg.SASL, ClientID: cfg.ClientID,
		DialTimeout: cfg.DialTimeout, RequestTimeout: cfg.RequestTimeout, Logger: cfg.Logger,
	})
	c.gen = c.newGeneration()
	return c, nil
}

// Run keeps connections and appenders until ctx ends, and returns nil. When the
// last Run of a Cluster returns, every connection is closed and no goroutine is
// left. Running is not needed to use a Cluster that is closed by Close.
func (c *Cluster) Run(ctx context.Context) error {
	c.runs.Add(1)
	<-ctx.Done()
	if c.runs.Add(-1) == 0 {
		return c.Close()
	}
	return nil
}

// Close answers everything that was queued for appending, closes every
// connection and waits for every goroutine. The next call dials again.
func (c *Cluster) Close() error {
	old := c.generation()
	old.stop()
	c.client.Close()
	old.wg.Wait()
	// Only now: what is appended while it closes is refused, not begun anew.
	c.mu.Lock()
	if c.gen == old {
		c.gen = c.newGeneration()
	}
	c.mu.Unlock()
	return nil
}

// ID is the cluster's id.
func (c *Cluster) ID(ctx context.Context) (string, error) { return c.client.ClusterID(ctx) }

// generation is what lives between two Closes: the appenders and the goroutines
// that answer callers.
type generation struct {
	c      *Cluster
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	pipes  map[pipeKey]*pipe
	pens   map[int32]*scribe // by broker
}

type pipeKey struct {
	broker int32
	acks   int16
}

func (c *Cluster) newGeneration() *generation {
	ctx, cancel := context.WithCancel(context.Background())
	return &generation{c: c, ctx: ctx, cancel: cancel, pipes: map[pipeKey]*pipe{}, pens: map[int32]*scribe{}}
}

func (c *Cluster) generation() *generation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gen
}

// stop ends the loops; their queues are answered by the loops themselves.
func (g *generation) stop() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
}

// spawn runs f in a goroutine that Close waits for. After Close has begun, f
// still runs: it answers somebody who waits.
func (g *generation) spawn(f func(ctx context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		go f(g.ctx)
		return
	}
	g.wg.Go(func() { f(g.ctx) })
}

// pipe is the appender to a broker, started when it is first asked for; nil after
// Close has begun.
func (g *generation) pipe(key pipeKey) *pipe {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.pipes[key]; p != nil || g.closed {
		return p
	}
	p := newPipe(g.c, key)
	g.pipes[key] = p
	g.wg.Go(func() { p.run(g.ctx) })
	return p
}

// scribe writes markers to a broker.
func (g *generation) scribe(broker int32) *scribe {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.pens[broker]
	if s == nil {
		s = &scribe{c: g.c, broker: broker}
		g.pens[broker] = s
	}
	return s
}
