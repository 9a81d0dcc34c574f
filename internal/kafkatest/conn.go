package kafkatest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// lingerTime is how long a connection broken after a write stays half open
// towards the server, which must be able to read the write.
const lingerTime = 5 * time.Second

// conn is a connection over a link. Two goroutines move bytes between the real
// connection and the two lines; the client works on the lines only.
type conn struct {
	link *Link
	real net.Conn
	up   *line // client to server
	down *line

	readDeadline, writeDeadline *deadline
	writing                     sync.Mutex // keeps the pieces of a write together

	mu        sync.Mutex
	answerCut *Shot // armed by a write: cut when bytes come back
	lingering bool
}

// join wraps a real connection. wg counts the two goroutines.
func (l *Link) join(real net.Conn, wg *sync.WaitGroup) (net.Conn, error) {
	c := &conn{link: l, real: real, up: newLine(l, Write), down: newLine(l, Read),
		readDeadline: newDeadline(), writeDeadline: newDeadline()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		real.Close()
		return nil, net.ErrClosed
	}
	l.conns[c] = struct{}{}
	var both sync.WaitGroup
	both.Go(c.pumpUp)
	both.Go(c.pumpDown)
	wg.Go(func() {
		both.Wait()
		real.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	})
	return c, nil
}

// pumpUp passes on what the client wrote until the line ends.
func (c *conn) pumpUp() {
	buf := make([]byte, maxPiece)
	for {
		n, write, err := c.up.pop(buf, nil)
		if err != nil {
			// The client closed (all it wrote has been passed on), or a cut.
			if !c.isLingering() {
				c.real.Close()
			}
			return
		}
		if s := c.link.fire(flipBit, Write, n); s != nil {
			buf[n/2] ^= 1
			close(s.done)
		}
		// Both are prepared before the write: the answer may come at once.
		last := c.link.fire(cutAfterWrite, Write, write)
		if last != nil {
			c.down.abort(syscall.ECONNRESET)
		}
		if s := c.link.fire(cutBeforeAnswer, Write, write); s != nil {
			c.mu.Lock()
			c.answerCut = s
			c.mu.Unlock()
		}
		if _, err := c.real.Write(buf[:n]); err != nil {
			c.up.abort(err)
			return
		}
		if last != nil {
			c.linger()
			close(last.done)
		}
	}
}

// pumpDown passes on what the server sends until it ends.
func (c *conn) pumpDown() {
	buf := make([]byte, maxPiece)
	for {
		n, err := c.real.Read(buf)
		if n > 0 && !c.deliver(buf[:n]) {
			break
		}
		if err != nil {
			c.down.end(err)
			return
		}
	}
	// Nobody listens any more, but closing now could take bytes from the
	// server that are still on their way up.
	_, _ = io.Copy(io.Discard, c.real)
}

// deliver hands bytes of the server to the client; false when it is gone.
func (c *conn) deliver(p []byte) bool {
	if s := c.link.fire(flipBit, Read, len(p)); s != nil {
		p[len(p)/2] ^= 1
		close(s.done)
	}
	c.mu.Lock()
	s := c.answerCut
	c.answerCut = nil
	c.mu.Unlock()
	if s != nil {
		c.linger()
		close(s.done)
	}
	return c.down.push(p, 0, nil) == nil
}

// linger breaks the connection for the client only. The server sees an orderly
// end after everything written: a reset could make it drop what it has not
// read yet.
func (c *conn) linger() {
	c.mu.Lock()
	c.lingering = true
	c.mu.Unlock()
	if half, ok := c.real.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only when the server is gone
	}
	_ = c.real.SetReadDeadline(time.Now().Add(lingerTime))
	c.up.abort(syscall.ECONNRESET)
	c.down.abort(syscall.ECONNRESET)
}

func (c *conn) isLingering() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lingering
}

// cut breaks the connection for both ends.
func (c *conn) cut() {
	c.up.abort(syscall.ECONNRESET)
	c.down.abort(syscall.ECONNRESET)
	c.real.Close()
}

func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, _, err := c.down.pop(p, c.readDeadline.channel())
	return n, c.wrap("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	total := 0
	for total < len(p) {
		part, write := p[total:], 0
		if len(part) > maxPiece {
			part = part[:maxPiece]
		} else {
			write = len(p)
		}
		if err := c.up.push(part, write, c.writeDeadline.channel()); err != nil {
			return total, c.wrap("write", err)
		}
		total += len(part)
	}
	return total, nil
}

// Close ends the connection; as with TCP, what was written before still
// arrives.
func (c *conn) Close() error {
	c.down.abort(net.ErrClosed)
	c.up.end(io.EOF)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.real.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr { return c.real.RemoteAddr() }

func (c *conn) SetDeadline(t time.Time) error {
	c.readDeadline.set(t)
	c.writeDeadline.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.readDeadline.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.set(t)
	return nil
}

// wrap gives an error the form of a TCP connection's.
func (c *conn) wrap(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var oe *net.OpError
	if errors.As(err, &oe) {
		return err
	}
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
