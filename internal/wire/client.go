package wire

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	// maxAge is how long a look at the metadata is believed without a reason to
	// doubt it; Kafka's own clients use the same five minutes.
	maxAge = 5 * time.Minute
)

// Client finds the brokers of one cluster and keeps connections to them, opened
// when asked for and opened again when lost. It is safe for concurrent use. An
// unreachable broker fails only what needs that broker.
type Client struct {
	cfg   *Config
	seeds []Addr

	mu      sync.Mutex
	life    *life // nil after Close, until the next use
	links   map[linkKey]*link
	brokers map[int32]Addr // as the newest metadata has them, and coordinators
	groups  map[string]int32
	view    view
	current *look // the metadata request in flight
	next    *look // and the one that follows it
}

// life is the time between a first use and Close: what runs in the background
// then, dials and look-ups, ends with it.
type life struct {
	context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

// linkKey names a cached connection. Seeds have negative broker numbers.
type linkKey struct {
	broker int32
	slot   string
}

// link is one cached connection and its history. Guarded by Client.mu.
type link struct {
	conn     *Conn // the last one; may be dead
	dial     *dialing
	failures int
	retryAt  time.Time
	last     error
}

// dialing is a dial that any number of callers wait for.
type dialing struct {
	done chan struct{} // closed when conn and err are set
	conn *Conn
	err  error
}

// NewClient makes a client that connects to nothing yet. Seeds are "host:port";
// one without a port gets 9092. A nil cfg means the defaults.
func NewClient(seeds []string, cfg *Config) *Client {
	c := &Client{cfg: cfg.withDefaults()}
	for _, s := range seeds {
		c.seeds = append(c.seeds, seedAddr(s))
	}
	return c
}

func seedAddr(s string) Addr {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Addr{ID: -1, Host: s, Port: 9092}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		n = 0 // no such port; the dial says so
	}
	return Addr{ID: -1, Host: host, Port: int32(n)}
}

// Close ends every connection, dial and look-up, and waits for the latter two. A
// later call of any method connects again.
func (c *Client) Close() {
	c.mu.Lock()
	ended, next := c.life, c.next
	var open []*Conn
	for _, l := range c.links {
		if l.conn != nil {
			open = append(open, l.conn)
		}
	}
	c.life, c.links, c.next = nil, nil, nil
	if ended != nil {
		ended.end()
	}
	c.mu.Unlock()
	if next != nil {
		next.err = &Error{Op: "Metadata", Addr: Addr{ID: -1}, Cause: Local, Err: net.ErrClosed}
		close(next.done)
	}
	for _, conn := range open {
		conn.Close()
	}
	if ended != nil {
		ended.running.Wait()
	}
}

// living is the present life. Needs mu.
func (c *Client) living() *life {
	if c.life == nil {
		ctx, end := context.WithCancel(context.Background())
		c.life = &life{Context: ctx, end: end}
	}
	return c.life
}

// Conn gives the connection to a broker for one purpose: each slot is a
// connection of its own, so that a long fetch does not hold up other requests.
// Concurrent callers share a dial, which goes on when one of them gives up. After
// a failed dial there is a pause, 100 ms doubling to 5 s: a caller whose ctx ends
// before it is over gets the last error at once, others wait for the next try.
func (c *Client) Conn(ctx context.Context, broker int32, slot string) (*Conn, error) {
	addr, err := c.broker(ctx, broker)
	if err != nil {
		return nil, err
	}
	return c.connect(ctx, linkKey{broker, slot}, addr)
}

// broker is the address of a broker, looked up when it is not known.
func (c *Client) broker(ctx context.Context, id int32) (Addr, error) {
	c.mu.Lock()
	addr, ok := c.brokers[id]
	c.mu.Unlock()
	if ok {
		return addr, nil
	}
	m, err := c.Metadata(ctx, []string{}, true)
	if err != nil {
		return Addr{}, err
	}
	if addr, ok = m.Brokers[id]; !ok {
		return Addr{}, &Error{Op: "find broker", Addr: Addr{ID: id}, Cause: Unknown, Err: errNoBroker}
	}
	return addr, nil
}

var errNoBroker = errors.New("the cluster has no such broker alive")

// connect gives the living connection of a link or dials, waiting out a pause.
func (c *Client) connect(ctx context.Context, key linkKey, addr Addr) (*Conn, error) {
	for {
		if ctx.Err() != nil { // nobody would wait for a dial
			return nil, &Error{Op: "dial", Addr: addr, Cause: Canceled, Err: ctx.Err()}
		}
		conn, d, wait, last := c.attempt(key, addr)
		switch {
		case conn != nil:
			return conn, nil
		case d != nil:
			return d.wait(ctx, addr)
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
			return nil, last
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(&Error{Op: "dial", Addr: addr, Cause: Canceled, Err: ctx.Err()}, last)
		}
	}
}

func (d *dialing) wait(ctx context.Context, addr Addr) (*Conn, error) {
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, &Error{Op: "dial", Addr: addr, Cause: Canceled, Err: ctx.Err()}
	}
}

// attempt gives one of: a living connection, a dial under way, or the time to
// wait and the error of the last dial.
func (c *Client) attempt(key linkKey, addr Addr) (*Conn, *dialing, time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.links[key]
	if l == nil {
		if c.links == nil {
			c.links = make(map[linkKey]*link)
		}
		l = new(link)
		c.links[key] = l
	}
	switch {
	case l.conn != nil && l.conn.alive():
		return l.conn, nil, 0, nil
	case l.dial != nil:
		return nil, l.dial, 0, nil
	}
	if wait := time.Until(l.retryAt); wait > 0 {
		return nil, nil, wait, l.last
	}
	l.dial = &dialing{done: make(chan struct{})}
	life, d := c.living(), l.dial
	life.running.Go(func() { c.dial(life, l, d, addr) })
	return nil, d, 0, nil
}

func (c *Conn) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

func (c *Client) dial(life context.Context, l *link, d *dialing, addr Addr) {
	d.conn, d.err = Dial(life, addr, c.cfg)
	c.mu.Lock()
	if life.Err() != nil { // closed meanwhile, and the link forgotten
		if d.conn != nil {
			d.conn.Close()
		}
		d.conn, d.err = nil, &Error{Op: "dial", Addr: addr, Cause: Local, Err: net.ErrClosed}
	}
	l.dial, l.conn, l.last = nil, d.conn, d.err
	l.failures++
	if d.err == nil {
		l.failures = 0
	}
	l.retryAt = time.Now().Add(backoff(l.failures))
	c.mu.Unlock()
	close(d.done)
}

// backoff is the pause after so many failed dials in a row.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	return min(maxBackoff, firstBackoff<<min(failures-1, 10))
}

// ClusterID is the id the cluster gave itself, as last seen within five minutes,
// else asked for.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	m, err := c.Metadata(ctx, []string{}, false)
	if err != nil {
		return "", err
	}
	return m.ClusterID, nil
}

// Leader is who leads a partition and the id of its topic. fresh asks the cluster
// even if an answer is at hand. Errors: ErrUnknownTopic, ErrUnavailable when
// nobody leads it now, or why the cluster could not be asked.
func (c *Client) Leader(ctx context.Context, p cluster.Partition, fresh bool) (cluster.Leader, cluster.TopicID, error) {
	none := cluster.Leader{Broker: -1, Epoch: cluster.NoEpoch}
	if !fresh {
		if t, ok := c.cachedTopic(p.Topic); ok {
			if leader, err := t.leader(p.Partition); err == nil {
				return leader, t.ID, nil
			}
		}
	}
	m, err := c.Metadata(ctx, []string{p.Topic}, true)
	if err != nil {
		return none, cluster.TopicID{}, err
	}
	t, ok := m.Topics[p.Topic]
	if !ok {
		return none, cluster.TopicID{}, Code(3)
	}
	leader, err := t.leader(p.Partition)
	return leader, t.ID, err
}

func (t *TopicMetadata) leader(n int32) (cluster.Leader, error) {
	none := cluster.Leader{Broker: -1, Epoch: cluster.NoEpoch}
	if t.Err != nil {
		return none, t.Err
	}
	if n < 0 || int(n) >= len(t.Partitions) {
		return none, Code(3)
	}
	part := &t.Partitions[n]
	if part.Leader.Broker < 0 {
		return part.Leader, cmp.Or(part.Err, error(Code(5)))
	}
	return part.Leader, nil
}
