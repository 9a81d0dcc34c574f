package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// client is one connection of a client of ours, and the one to a real broker that
// belongs to it. Requests are answered one after the other, as brokers do.
type client struct {
	server   *Server
	listener string
	conn     net.Conn
	real     net.Conn // nil until something has to be passed on
	tokens   bool     // SaslHandshake v0 was passed on: raw tokens follow, which have no header

	early  []byte // of the next request, read while he waited for an answer
	reads  sync.WaitGroup
	writer fetchWriter

	login bool   // a login was passed on: the real broker knows him by name
	proof *proof // that he may fetch as a follower

	said     bool // something else than ApiVersions was asked
	redirect bool // of a family that goes on well when a follower it was sent to dies
	consumer *consumer
}

func (c *client) hangUp() {
	if c.consumer != nil {
		c.consumer.hangUp(c.server.memory)
	}
	if c.real != nil {
		c.real.Close()
	}
}

// turn reads one request and has it answered. An error ends the connection.
func (c *client) turn(ctx context.Context) error {
	req, err := c.next(ctx)
	if err != nil {
		return err
	}
	defer func() { c.server.memory.give(req.held) }() // less, when it was not needed so long
	h, err := parseHeader(req.bytes)
	if err != nil && !c.tokens {
		return err
	}
	if err == nil && !c.tokens && h.key == peerKey {
		return c.answerPeer(h)
	}
	c.said = c.said || h.key != int16(kmsg.ApiVersions)
	if err == nil && !c.tokens && c.listener == c.server.cfg.BrokerListener {
		if done, err := c.follow(ctx, h, &req); done || err != nil {
			return err
		}
	}
	if err == nil && !c.tokens {
		if done, err := c.own(ctx, h, req.bytes); done || err != nil {
			return err
		}
	}
	if h.key == int16(kmsg.SASLHandshake) && h.version == 0 {
		c.tokens = true
	}
	if c.tokens || h.key == int16(kmsg.SASLHandshake) || h.key == int16(kmsg.SASLAuthenticate) {
		return c.logIn(ctx, req.bytes)
	}
	return c.pass(ctx, req.bytes)
}

// logIn passes on a step of a login. What was proven before it counts no more. A real
// broker that does not answer is not waited for between brokers: the next one will.
func (c *client) logIn(ctx context.Context, b []byte) error {
	c.login, c.proof = true, nil
	if c.listener == c.server.cfg.BrokerListener {
		bounded, cancel := context.WithTimeout(ctx, c.server.patience)
		defer cancel()
		ctx = bounded
	}
	return c.pass(ctx, b)
}

// next waits for a request: long for its first byte, and not long for the rest.
func (c *client) next(ctx context.Context) (request, error) {
	c.conn.SetReadDeadline(time.Now().Add(c.server.cfg.IdleTimeout))
	first := c.early
	if c.early = nil; len(first) == 0 {
		first = make([]byte, 1)
		if _, err := io.ReadFull(c.conn, first); err != nil {
			return request{}, err
		}
	}
	c.conn.SetReadDeadline(time.Now().Add(c.server.cfg.FrameTimeout))
	bounded, cancel := context.WithTimeout(ctx, c.server.cfg.FrameTimeout)
	defer cancel()
	return readRequest(bounded, &prefixed{first, c.conn}, c.server.cfg.MaxFrame, c.server.memory)
}

// prefixed is a reader with something in front.
type prefixed struct {
	head []byte
	rest io.Reader
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.head) == 0 {
		return p.rest.Read(b)
	}
	n := copy(b, p.head)
	p.head = p.head[n:]
	return n, nil
}

var errNoAnswer = errors.New("the real broker's answer is not to this request")

// connect opens the way to a real broker.
func (c *client) connect(ctx context.Context) error {
	if c.real != nil {
		return nil
	}
	real, err := c.server.dial(ctx, c.listener)
	if err != nil {
		return fmt.Errorf("no real broker to pass on to: %w", err)
	}
	c.real = real
	return nil
}

// pass sends a request on as it is, and the answer back as it comes, without
// holding it. A produce request with acks=0 has no answer; such a one is passed on
// only.
func (c *client) pass(ctx context.Context, b []byte) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.real.Close() })
	defer stop()
	if err := writeFrame(c.real, b); err != nil {
		return err
	}
	if silent(b) {
		return nil
	}
	var head [8]byte
	if _, err := io.ReadFull(c.real, head[:4]); err != nil {
		return err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	if size < 0 {
		return errNoAnswer
	}
	at := 4
	if !c.tokens && size >= 4 {
		if _, err := io.ReadFull(c.real, head[4:]); err != nil {
			return err
		}
		if string(head[4:]) != string(b[4:8]) {
			return errNoAnswer
		}
		at, size = 8, size-4
	}
	out := &slow{c.conn, c.server.cfg.FrameTimeout}
	if _, err := out.Write(head[:at]); err != nil {
		return err
	}
	_, err := io.CopyN(out, c.real, size)
	return err
}

// slow gives each piece of an answer its time.
type slow struct {
	net.Conn
	patience time.Duration
}

func (s *slow) Write(b []byte) (int, error) {
	s.SetWriteDeadline(time.Now().Add(s.patience))
	return s.Conn.Write(b)
}

// silent reports that a request is a produce request with acks=0: the first field,
// or behind a nullable transactional id from version 3 on.
func silent(b []byte) bool {
	h, err := parseHeader(b)
	if err != nil || h.key != int16(kmsg.Produce) {
		return false
	}
	body := h.body
	if h.version >= 9 { // flexible: tags of the header, then a compact string
		if len(body) < 2 || body[0] != 0 { // no client sends tags here
			return false
		}
		n, used := binary.Uvarint(body[1:])
		skip := 1 + used + max(0, int(min(n, 1<<16))-1)
		if used <= 0 || skip > len(body) {
			return false
		}
		body = body[skip:]
	} else if h.version >= 3 {
		if len(body) < 2 {
			return false
		}
		skip := 2 + max(0, int(int16(binary.BigEndian.Uint16(body))))
		if skip > len(body) {
			return false
		}
		body = body[skip:]
	}
	return len(body) >= 2 && body[0] == 0 && body[1] == 0
}
