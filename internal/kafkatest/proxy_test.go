package kafkatest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

func dialProxy(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func TestProxy(t *testing.T) {
	p := NewProxy(t, server(t, echo))
	c := dialProxy(t, p)
	out := bytes.Repeat([]byte("abc"), 10_000)
	if !bytes.Equal(roundTrip(t, c, out), out) {
		t.Error("other bytes than written")
	}
	if p.Conns() != 1 || p.Bytes(Write) != 30_000 {
		t.Errorf("%d connections, %d bytes", p.Conns(), p.Bytes(Write))
	}
	const rtt = 100 * time.Millisecond
	p.Delay(rtt, 0)
	start := time.Now()
	roundTrip(t, c, []byte("x"))
	if took := time.Since(start); took < rtt || took > 10*rtt {
		t.Errorf("round trip took %v, want about %v", took, rtt)
	}
	p.Delay(0, 0)
	p.Blackhole(true)
	_, _ = c.Write([]byte("x"))
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("read through a black hole")
	}
	p.Blackhole(false)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("after the black hole: %v", err)
	}
}

func TestProxyCutAndRefuse(t *testing.T) {
	p := NewProxy(t, server(t, echo))
	c := dialProxy(t, p)
	roundTrip(t, c, []byte("x"))
	p.Cut()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read after a cut: %v", err)
	}
	p.Refuse(true)
	// The reset comes during the dial or after it.
	if refused, err := net.Dial("tcp", p.Addr()); err == nil {
		if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read from a refused connection: %v", err)
		}
		refused.Close()
	}
	p.Refuse(false)
	roundTrip(t, dialProxy(t, p), []byte("x"))
}
