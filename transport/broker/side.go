package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// sideVersion is the version of Fetch in which followers are asked: the last that
// names topics, known to every broker that we join.
const sideVersion = 12

// dialFollower connects to a broker as ourselves. What is asked over it has been
// asked for by a client whom a real broker has allowed it.
type dialFollower func(ctx context.Context, broker int32) (*wire.Conn, error)

func (m *Membership) dialFollower(ctx context.Context, broker int32) (*wire.Conn, error) {
	known, err := m.brokers.Metadata(ctx, []string{}, false)
	if err != nil {
		return nil, err
	}
	addr, ok := known.Brokers[broker]
	if !ok {
		if known, err = m.brokers.Metadata(ctx, []string{}, true); err != nil {
			return nil, err
		}
		if addr, ok = known.Brokers[broker]; !ok {
			return nil, fmt.Errorf("%w: broker %d", cluster.ErrUnavailable, broker)
		}
	}
	brokers, _ := m.cfg.wires()
	return wire.Dial(ctx, addr, brokers)
}

// side is this client's own connection to a follower: a fetch that waits holds up
// nobody else.
func (c *client) side(ctx context.Context, broker int32) (*wire.Conn, error) {
	s := c.remembered()
	if conn := s.sides[broker]; conn != nil && conn.Err() == nil {
		return conn, nil
	}
	bounded, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.server.follower(bounded, broker)
	if err != nil {
		return nil, err
	}
	s.sides[broker] = conn
	return conn, nil
}

// fail has a follower left alone for a while.
func (c *client) fail(broker int32) {
	s := c.remembered()
	s.failed[broker] = time.Now()
	if conn := s.sides[broker]; conn != nil {
		conn.Close()
		delete(s.sides, broker)
	}
}

// askFollower asks one question.
func (c *client) askFollower(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	conn, err := c.side(ctx, broker)
	if err != nil {
		return nil, err
	}
	resp, err := conn.DoVersion(ctx, req, req.GetVersion())
	if err != nil {
		c.fail(broker)
	}
	return resp, err
}

// remembered is what the connection keeps, from now on.
func (c *client) remembered() *consumer {
	if c.consumer == nil {
		c.consumer = newConsumer()
	}
	return c.consumer
}

// byNames names topics as Fetch does in sideVersion.
func byNames(c *client, parts []wanted) []wanted {
	out := make([]wanted, 0, len(parts))
	for _, w := range parts {
		if led := c.server.led.find(w.fetchKey); led != nil {
			_, name := led.ID()
			w.fetchKey = fetchKey{name: name.Topic, partition: name.Partition}
			out = append(out, w)
		}
	}
	return out
}

// rack is where a real broker stands; empty where none is known.
func (m *Membership) rack(broker int32) string {
	if b, ok := m.log.Image().Broker(broker); ok {
		return b.Rack
	}
	return ""
}
