package wire

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// target is a broker or seed that Any can ask.
type target struct {
	key      linkKey
	addr     Addr
	alive    *Conn
	failures int
}

// targets are all brokers and seeds, in the order to try them: connected ones,
// then those that did not fail lately, brokers before seeds.
func (c *Client) targets() []target {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]target, 0, len(c.brokers)+len(c.seeds))
	add := func(key linkKey, addr Addr) {
		t := target{key: key, addr: addr}
		if l := c.links[key]; l != nil {
			t.failures = l.failures
			if l.conn != nil && l.conn.alive() {
				t.alive = l.conn
			}
		}
		out = append(out, t)
	}
	for _, id := range slices.Sorted(maps.Keys(c.brokers)) {
		add(linkKey{broker: id}, c.brokers[id])
	}
	for i, addr := range c.seeds {
		add(linkKey{broker: int32(-1 - i)}, addr)
	}
	slices.SortStableFunc(out, func(a, b target) int {
		if (a.alive != nil) != (b.alive != nil) {
			if a.alive != nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.failures, b.failures)
	})
	return out
}

var errNoSeeds = errors.New("no seed addresses")

// Any gives a connection to some broker: one that is open already, else the first
// known broker or seed that can be reached. The error holds one for each address
// tried. While all of them are in their pause after a failure, a caller with
// time left waits for the first to be over.
func (c *Client) Any(ctx context.Context) (*Conn, error) {
	for {
		if ctx.Err() != nil {
			return nil, &Error{Op: "dial", Addr: Addr{ID: -1}, Cause: Canceled, Err: ctx.Err()}
		}
		targets := c.targets()
		if len(targets) == 0 {
			return nil, &Error{Op: "dial", Addr: Addr{ID: -1}, Cause: Unknown, Err: errNoSeeds}
		}
		if targets[0].alive != nil {
			return targets[0].alive, nil
		}
		conn, tried, pause, err := c.first(ctx, targets)
		if err == nil {
			return conn, nil
		}
		if end, ok := ctx.Deadline(); tried || ctx.Err() != nil || ok && time.Until(end) < pause {
			return nil, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(&Error{Op: "dial", Addr: targets[0].addr, Cause: Canceled, Err: ctx.Err()}, err)
		}
	}
}

// first tries the targets in turn, leaving out those in their pause. tried tells
// whether any was dialed; pause is the shortest one met.
func (c *Client) first(ctx context.Context, targets []target) (_ *Conn, tried bool, pause time.Duration, _ error) {
	var failed []error
	pause = maxBackoff
	for _, t := range targets {
		conn, d, wait, err := c.attempt(t.key, t.addr)
		if d != nil {
			tried = true
			conn, err = d.wait(ctx, t.addr)
		}
		if conn != nil {
			return conn, true, 0, nil
		}
		if d == nil {
			pause = min(pause, wait)
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, tried, pause, errors.Join(failed...)
}

// Controller gives a connection to the broker that takes administrative requests.
// After NOT_CONTROLLER call Stale without names first.
func (c *Client) Controller(ctx context.Context) (*Conn, error) {
	for _, fresh := range []bool{false, true} {
		m, err := c.Metadata(ctx, []string{}, fresh)
		if err != nil {
			return nil, err
		}
		if m.ControllerID >= 0 {
			return c.Conn(ctx, m.ControllerID, "")
		}
	}
	return nil, Code(41)
}

// Coordinator gives a connection to the coordinator of a consumer group, looked
// up once until ForgetCoordinator. slot is that of Conn. Errors: COORDINATOR_NOT_AVAILABLE
// and other codes, or why nobody could be asked.
func (c *Client) Coordinator(ctx context.Context, group, slot string) (*Conn, error) {
	c.mu.Lock()
	broker, ok := c.groups[group]
	c.mu.Unlock()
	if !ok {
		var err error
		if broker, err = c.findCoordinator(ctx, group); err != nil {
			return nil, err
		}
	}
	return c.Conn(ctx, broker, slot)
}

// LearnCoordinator saves Coordinator a look-up.
func (c *Client) LearnCoordinator(group string, broker int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learn(group, broker)
}

// learn needs mu.
func (c *Client) learn(group string, broker int32) {
	if c.groups == nil {
		c.groups = make(map[string]int32)
	}
	c.groups[group] = broker
}

// ForgetCoordinator makes the next Coordinator look again: after NOT_COORDINATOR,
// COORDINATOR_NOT_AVAILABLE, or when the broker is lost.
func (c *Client) ForgetCoordinator(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.groups, group)
}

func (c *Client) findCoordinator(ctx context.Context, group string) (int32, error) {
	conn, err := c.Any(ctx)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrFindCoordinatorRequest() // type 0, a group
	req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
	resp, err := conn.Do(ctx, req)
	if err != nil {
		return 0, err
	}
	found, err := readCoordinator(resp.(*kmsg.FindCoordinatorResponse))
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learn(group, found.ID)
	if c.brokers[found.ID] != found {
		brokers := maps.Clone(c.brokers) // the old map was given out
		if brokers == nil {
			brokers = make(map[int32]Addr)
		}
		brokers[found.ID] = found
		c.brokers = brokers
	}
	return found.ID, nil
}

// readCoordinator reads both forms of the answer: one coordinator, and from
// version 4 a list.
func readCoordinator(resp *kmsg.FindCoordinatorResponse) (Addr, error) {
	if resp.Version < 4 {
		return Addr{ID: resp.NodeID, Host: resp.Host, Port: resp.Port}, CodeError(resp.ErrorCode)
	}
	if len(resp.Coordinators) != 1 {
		return Addr{}, Code(15)
	}
	f := &resp.Coordinators[0]
	return Addr{ID: f.NodeID, Host: f.Host, Port: f.Port}, CodeError(f.ErrorCode)
}
