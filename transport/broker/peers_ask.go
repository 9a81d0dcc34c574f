package broker

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// peerKey is the request by which workers ask each other; no API of Kafka's has the number.
// It has no body, and its answer is the digest of the group's name and whose turn it is: it is
// asked without a login, and tells no more than that.
const peerKey = int16(32279)

// digest stands for the name of a group.
type digest [16]byte

func digestOf(group string) (d digest) {
	sum := sha256.Sum256([]byte("workers of " + group))
	copy(d[:], sum[:])
	return d
}

// answerPeer answers another worker.
func (c *client) answerPeer(h header) error {
	var group digest
	var turn bool
	if c.server.worker != nil {
		group, turn = c.server.worker()
	}
	b := append(binary.BigEndian.AppendUint32(nil, uint32(h.correlation)), group[:]...)
	if b = append(b, 0); turn {
		b[len(b)-1] = 1
	}
	c.conn.SetWriteDeadline(time.Now().Add(c.server.cfg.FrameTimeout))
	return writeFrame(c.conn, b)
}

// askPeer asks a broker of our range, over one connection and three times in silence, until
// that does not work any more or it says nothing for so long.
func (m *Membership) askPeer(ctx context.Context, id int32, silence time.Duration, answered func(group digest, turn bool)) error {
	conn, err := m.dialPeer(ctx, id, silence)
	var alert tls.AlertError
	if errors.As(err, &alert) { // it lives, and wants a certificate that we do not have
		return fmt.Errorf("broker %d cannot be asked: %w", id, err)
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	tick := time.NewTicker(silence / 3)
	defer tick.Stop()
	for n := uint32(1); ; n++ {
		question := binary.BigEndian.AppendUint16(nil, uint16(peerKey))
		question = append(question, 0, 0) // version
		question = binary.BigEndian.AppendUint32(question, n)
		question = append(question, 0xff, 0xff) // no client id
		conn.SetDeadline(time.Now().Add(silence))
		if err := writeFrame(conn, question); err != nil {
			return err
		}
		var answer [25]byte // size, correlation, digest, turn
		if _, err := io.ReadFull(conn, answer[:]); err != nil {
			return err
		}
		if binary.BigEndian.Uint32(answer[:]) != 21 || binary.BigEndian.Uint32(answer[4:]) != n {
			return errNoAnswer
		}
		answered(digest(answer[8:24]), answer[24] == 1)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dialPeer connects to a broker of our range on the listener between brokers.
func (m *Membership) dialPeer(ctx context.Context, id int32, patience time.Duration) (net.Conn, error) {
	b, ok := m.log.Image().Broker(id)
	if !ok || len(b.Listeners) == 0 {
		return nil, fmt.Errorf("broker %d: %w", id, cluster.ErrUnavailable)
	}
	at := listenerOf(b.Listeners, m.cfg.Listeners[0].Name)
	dial := m.cfg.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dial(ctx, "tcp", net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))))
	if err != nil || at.Protocol != 1 && at.Protocol != 3 {
		return conn, err
	}
	// Nothing is told over it, and who lies about being alive is not worse than who is silent.
	cfg := &tls.Config{}
	if m.cfg.TLS != nil {
		cfg = m.cfg.TLS.Clone()
	}
	cfg.InsecureSkipVerify = true
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// listenerOf is the listener of a name, or the first.
func listenerOf(all []metalog.Listener, name string) metalog.Listener {
	for _, l := range all {
		if l.Name == name {
			return l
		}
	}
	return all[0]
}
