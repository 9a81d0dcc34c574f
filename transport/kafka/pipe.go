package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// The bounds of one pipe: enough under way to fill a long link, small enough that
// a request is answered well before its timeout.
const (
	pipeRequests      = 12
	pipeBytes         = 4 << 20
	longPipe          = 20 * time.Millisecond // round trip from which on the next two hold
	longPipeRequests  = 512
	longPipeBytes     = 32 << 20
	requestBytes      = 1 << 20
	requestPartitions = 500
)

// pipe is the appender to one broker with one kind of acks: a connection of its
// own and one goroutine that builds and sends requests. acks=all has its own
// because a broker handles one request of a connection at a time, and such a
// request holds it during replication.
//
// The mutex guards the list and the counts, which answers and callers change; it
// is never held while sending.
type pipe struct {
	c   *Cluster
	key pipeKey
	sig chan struct{} // capacity 1: something to do

	conn    *wire.Conn // these are run's own
	written []func()   // give back what the write under way reads

	mu       sync.Mutex
	closed   bool
	ready    []*lane
	requests int // under way
	bytes    int
	round    time.Duration // trip to the broker
}

func newPipe(c *Cluster, key pipeKey) *pipe {
	return &pipe{c: c, key: key, sig: make(chan struct{}, 1)}
}

func (p *pipe) signal() {
	select {
	case p.sig <- struct{}{}:
	default:
	}
}

// enqueue reports false after the pipe has ended.
func (p *pipe) enqueue(l *lane) bool {
	p.mu.Lock()
	ok := !p.closed
	if ok {
		p.ready = append(p.ready, l)
	}
	p.mu.Unlock()
	if ok {
		p.signal()
	}
	return ok
}

// run sends until ctx ends; then it refuses what stands in its list. What is under
// way is answered when its connection closes.
func (p *pipe) run(ctx context.Context) {
	var calls []*wire.Call
	for {
		select {
		case <-ctx.Done():
			p.mu.Lock()
			p.closed = true
			p.mu.Unlock()
			p.refuseAll(errClosed)
			return
		case <-p.sig:
		}
		for p.due() {
			calls = p.turn(ctx, calls[:0])
		}
	}
}

// due reports whether it is time for a turn: there is something to send, and at
// most half of what may be under way is. Waiting until then makes a write carry
// several requests; a pipe that has little to do waits for nothing.
func (p *pipe) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.half()
}

func (p *pipe) half() bool {
	requests, bytes := p.limits()
	return len(p.ready) > 0 && p.requests <= requests/2 && p.bytes <= bytes/2
}

// room reports whether a turn may go on.
func (p *pipe) room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	requests, bytes := p.limits()
	return len(p.ready) > 0 && p.requests < requests && p.bytes < bytes
}

// limits are how much may be under way.
func (p *pipe) limits() (requests, bytes int) {
	if p.round >= longPipe {
		return longPipeRequests, longPipeBytes
	}
	return pipeRequests, pipeBytes
}

// turn sends what is ready: several requests in one write.
func (p *pipe) turn(ctx context.Context, calls []*wire.Call) []*wire.Call {
	if err := p.connect(ctx); err != nil {
		p.refuseAll(err)
		return calls
	}
	for p.room() {
		r := p.build()
		if r == nil {
			continue
		}
		calls = append(calls, &r.call)
		p.mu.Lock()
		p.requests++
		p.bytes += r.size
		p.mu.Unlock()
	}
	if len(calls) > 0 {
		// Every call's Done is called with the error.
		_ = p.conn.Send(calls...)
	}
	for _, free := range p.written {
		free()
	}
	clear(p.written)
	p.written = p.written[:0]
	return calls
}

// connect makes sure of a connection that lives.
func (p *pipe) connect(ctx context.Context) error {
	if p.conn != nil {
		select {
		case <-p.conn.Done():
			p.conn = nil
		default:
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.c.cfg.DialTimeout)
	defer cancel()
	conn, err := p.c.client.Conn(ctx, p.key.broker, p.slot())
	if err == nil && conn.MaxVersion(produceKey) < produceVersion {
		err = errOldBroker
	}
	if err != nil {
		return err
	}
	p.conn = conn
	p.mu.Lock()
	p.round = conn.RoundTrip()
	p.mu.Unlock()
	return nil
}

func (p *pipe) slot() string {
	if p.key.acks == acksAll {
		return "produce-all"
	}
	return "produce"
}

// build makes one request out of the lanes that are ready: one batch of each. Nil
// when none of them had anything to send here.
func (p *pipe) build() *request {
	p.mu.Lock()
	lanes := p.ready
	p.ready = nil
	p.mu.Unlock()
	r := newRequest(p)
	var again []*lane
	n := 0
	for ; n < len(lanes) && r.size < requestBytes && len(r.items) < requestPartitions; n++ {
		if r.add(lanes[n]) {
			again = append(again, lanes[n])
		}
	}
	// Lanes that were not reached stand before those that go round again: every
	// partition has its turn.
	p.mu.Lock()
	p.ready = append(append(lanes[n:len(lanes):len(lanes)], p.ready...), again...)
	p.mu.Unlock()
	if len(r.items) == 0 {
		r.free()
		return nil
	}
	r.lay()
	return r
}

// answered gives back the room of a request.
func (p *pipe) answered(size int) {
	p.mu.Lock()
	p.requests--
	p.bytes -= size
	due := p.half()
	p.mu.Unlock()
	if due {
		p.signal()
	}
}

func (p *pipe) refuseAll(err error) {
	p.mu.Lock()
	lanes := p.ready
	p.ready = nil
	p.mu.Unlock()
	for _, l := range lanes {
		p.c.stale(l.p)
		p.c.refuse(l, err)
	}
}

// stale says that the leader a lane was sent to may be another by now.
func (c *Cluster) stale(p cluster.Partition) { c.client.Stale(p.Topic) }
