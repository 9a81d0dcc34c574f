package broker

import (
	"context"
	"net"
	"sync"

	"github.com/clustermirror/mirror/internal/metalog"
)

// passages are the connections to real brokers over which clients are passed on. A client
// of a broker that hangs learns from its cluster when that one is out (fenced), and asks
// another one. A client of ours goes on asking us, so he is cut off then, and finds another
// real broker when he comes back.
type passages struct {
	mu  sync.Mutex
	all map[*passage]struct{}
}

// passage is a connection to a real broker.
type passage struct {
	net.Conn
	broker int32
	of     *passages
}

func (t *passages) add(broker int32, conn net.Conn) net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[*passage]struct{})
	}
	one := &passage{conn, broker, t}
	t.all[one] = struct{}{}
	return one
}

// Close is of net.Conn.
func (t *passage) Close() error {
	t.of.mu.Lock()
	delete(t.of.all, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

// cut closes those to brokers that are out.
func (t *passages) cut(out func(broker int32) bool) {
	var gone []*passage
	t.mu.Lock()
	for one := range t.all {
		if out(one.broker) {
			gone = append(gone, one)
		}
	}
	t.mu.Unlock()
	for _, one := range gone {
		one.Close()
	}
}

// tend cuts off clients from real brokers that are out, while the log says so.
func (m *Membership) tend(ctx context.Context) error {
	for version := uint64(0); ; {
		image, delta, err := m.log.Next(ctx, version)
		if err != nil {
			return nil // of ctx
		}
		version = image.Version
		if delta.All || len(delta.Brokers) > 0 {
			m.passages.cut(func(id int32) bool { return isOut(image, id) })
		}
	}
}

func isOut(image metalog.Image, broker int32) bool {
	b, ok := image.Broker(broker)
	return !ok || b.Fenced
}
