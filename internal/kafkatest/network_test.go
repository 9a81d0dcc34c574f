package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server listens on loopback and gives each connection to serve; it ends with
// the test.
func server(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				serve(c)
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); wg.Wait() })
	return l.Addr().String()
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// dial connects over a new network to a server.
func dial(t *testing.T, serve func(net.Conn)) (net.Conn, *Link) {
	t.Helper()
	addr := server(t, serve)
	n := NewNetwork(t)
	c, err := n.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil { // no test hangs
		t.Fatal(err)
	}
	return c, n.Link(addr)
}

func roundTrip(t *testing.T, c net.Conn, out []byte) []byte {
	t.Helper()
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	in := make([]byte, len(out))
	if _, err := io.ReadFull(c, in); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestNetworkPassesBytes(t *testing.T) {
	c, link := dial(t, echo)
	out := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() { _, _ = c.Write(out) }()
	in := make([]byte, len(out))
	if _, err := io.ReadFull(c, in); err != nil || !bytes.Equal(in, out) {
		t.Fatalf("other bytes than written, %v", err)
	}
	if up, down := link.Bytes(Write), link.Bytes(Read); up != 1_000_000 || down != 1_000_000 {
		t.Errorf("%d bytes up, %d down, want 1000000", up, down)
	}
	if link.Conns() != 1 || link.Dials() != 1 {
		t.Errorf("%d connections, %d dials, want 1 and 1", link.Conns(), link.Dials())
	}
	c.Close()
	Eventually(t, 5*time.Second, func(context.Context) error {
		if n := link.Conns(); n != 0 {
			return errors.New("still counted after Close")
		}
		return nil
	})
}

func TestNetworkCloseDelivers(t *testing.T) {
	got := make(chan []byte, 1)
	c, link := dial(t, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- b
	})
	link.Delay(100*time.Millisecond, 0)
	if _, err := c.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if b := <-got; string(b) != "last words" {
		t.Errorf("server got %q", b)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
}

func TestNetworkEndOfServer(t *testing.T) {
	c, _ := dial(t, func(c net.Conn) { _, _ = c.Write([]byte("bye")) })
	if b, err := io.ReadAll(c); err != nil || string(b) != "bye" {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestNetworkRefuse(t *testing.T) {
	n := NewNetwork(t)
	addr := server(t, echo)
	n.Link(addr).Refuse(true)
	if _, err := n.Dial(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	n.Link(addr).Refuse(false)
	if _, err := n.Dial(t.Context(), "tcp", addr); err != nil {
		t.Errorf("dial: %v", err)
	}
}

func TestNetworkCut(t *testing.T) {
	ended := make(chan struct{})
	c, link := dial(t, func(c net.Conn) { echo(c); close(ended) })
	roundTrip(t, c, []byte("hello"))
	if n := link.Cut(); n != 1 {
		t.Errorf("cut %d connections", n)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("write: %v", err)
	}
	<-ended
}

func TestNetworkBlackhole(t *testing.T) {
	c, link := dial(t, echo)
	roundTrip(t, c, []byte("hello"))
	link.Blackhole(true)
	if _, err := c.Write([]byte("later")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	in := make([]byte, 5)
	_, err := c.Read(in)
	var ne net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("read in the black hole: %v", err)
	}
	// Full in the end, like a socket: a write blocks until its deadline.
	_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Write(make([]byte, 8<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n >= 8<<20 {
		t.Errorf("wrote %d bytes into the black hole, %v", n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	link.Blackhole(false)
	if _, err := io.ReadFull(c, in); err != nil || string(in) != "later" {
		t.Errorf("after the black hole %q, %v", in, err)
	}
}

func TestNetworkBlackholeDial(t *testing.T) {
	n := NewNetwork(t)
	addr := server(t, echo)
	n.Link(addr).Blackhole(true)
	ctx := withTimeout(t, 50*time.Millisecond)
	if _, err := n.Dial(ctx, "tcp", addr); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial: %v", err)
	}
	done := make(chan error)
	go func() {
		_, err := n.Dial(t.Context(), "tcp", addr)
		done <- err
	}()
	Eventually(t, 5*time.Second, func(context.Context) error {
		if n.Link(addr).Dials() < 2 {
			return errors.New("second dial has not begun")
		}
		return nil
	})
	n.Link(addr).Blackhole(false)
	if err := <-done; err != nil {
		t.Errorf("dial after the black hole: %v", err)
	}
}

func TestNetworkFaultsAreOfOneAddress(t *testing.T) {
	n := NewNetwork(t)
	a, b := server(t, echo), server(t, echo)
	n.Link(a).Refuse(true)
	c, err := n.Dial(t.Context(), "tcp", b)
	if err != nil {
		t.Fatal(err)
	}
	n.Link(a).Cut()
	roundTrip(t, c, []byte("hello"))
}
