package broker

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
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
// Its answer is the digest of the group's name and whose turn it is: it is asked without a
// login, and tells no more than that. From version 1 on it has a nonce, and the answer ends with
// what proves that it is this broker's (proofOf). Who knows version 0 only answers with that, and
// so does who shares no secret.
const peerKey = int16(32279)

// self is what a worker says of itself.
type self struct {
	broker int32
	group  digest
	turn   bool
	secret []byte // nil: none is shared
}

// said is what another one has said; proven: nobody else could have.
type said struct {
	group        digest
	turn, proven bool
}

// digest stands for the name of a group.
type digest [16]byte

func digestOf(group string) (d digest) {
	sum := sha256.Sum256([]byte("workers of " + group))
	copy(d[:], sum[:])
	return d
}

// answerPeer answers another worker.
func (c *client) answerPeer(h header) error {
	var w self
	if c.server.worker != nil {
		w = c.server.worker()
	}
	b := append(binary.BigEndian.AppendUint32(nil, uint32(h.correlation)), w.group[:]...)
	if b = append(b, 0); w.turn {
		b[len(b)-1] = 1
	}
	if len(h.body) >= nonceSize && w.secret != nil {
		b = append(b, proofOf(w.secret, h.body[:nonceSize], w.broker, w.group, w.turn)...)
	}
	c.conn.SetWriteDeadline(time.Now().Add(c.server.cfg.FrameTimeout))
	return writeFrame(c.conn, b)
}

// askPeer asks a broker of our range, over one connection and three times in silence, until
// that does not work any more or it says nothing for so long.
func (m *Membership) askPeer(ctx context.Context, id int32, silence time.Duration, secret []byte, answered func(said)) error {
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
		conn.SetDeadline(time.Now().Add(silence))
		answer, err := askOnce(conn, n, id, secret)
		if err != nil {
			return err
		}
		answered(answer)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// askOnce is one question, to a broker.
func askOnce(conn io.ReadWriter, n uint32, id int32, secret []byte) (said, error) {
	var nonce [nonceSize]byte
	_, _ = rand.Read(nonce[:]) // never fails
	question := binary.BigEndian.AppendUint16(nil, uint16(peerKey))
	question = append(question, 0, 1) // version
	question = binary.BigEndian.AppendUint32(question, n)
	question = append(question, 0xff, 0xff) // no client id
	if err := writeFrame(conn, append(question, nonce[:]...)); err != nil {
		return said{}, err
	}
	const plain = 4 + len(digest{}) + 1 // correlation, digest, turn
	var answer [4 + plain + proofSize]byte
	if _, err := io.ReadFull(conn, answer[:4+plain]); err != nil {
		return said{}, err
	}
	size := int(binary.BigEndian.Uint32(answer[:]))
	if size != plain && size != plain+proofSize || binary.BigEndian.Uint32(answer[4:]) != n {
		return said{}, errNoAnswer
	}
	got := said{group: digest(answer[8:24]), turn: answer[24] == 1}
	if size == plain {
		return got, nil
	}
	if _, err := io.ReadFull(conn, answer[4+plain:]); err != nil {
		return said{}, err
	}
	if secret != nil {
		if !hmac.Equal(answer[4+plain:], proofOf(secret, nonce[:], id, got.group, got.turn)) {
			return said{}, fmt.Errorf("broker %d: %w", id, errNotPeer)
		}
		got.proven = true
	}
	return got, nil
}

var errNotPeer = errors.New("who answers in its place is no worker of ours")

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
	// Nothing is told over it, and what is said proves itself.
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
