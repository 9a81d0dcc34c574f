package kafkatest

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestDelayRoundTrip(t *testing.T) {
	c, link := dial(t, echo)
	const rtt = 200 * time.Millisecond
	link.Delay(rtt, 0)
	start := time.Now()
	roundTrip(t, c, []byte("ping"))
	if took := time.Since(start); took < rtt || took > 10*rtt {
		t.Errorf("round trip took %v, want about %v", took, rtt)
	}
}

func TestDelayOfDial(t *testing.T) {
	n := NewNetwork(t)
	addr := server(t, echo)
	const rtt = 100 * time.Millisecond
	n.Link(addr).Delay(rtt, 0)
	start := time.Now()
	if _, err := n.Dial(t.Context(), "tcp", addr); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < rtt || took > 10*rtt {
		t.Errorf("dial took %v, want about %v", took, rtt)
	}
}

// TestDelayKeepsThroughput: with 200 ms of delay 40 MB in small writes go
// through in little more than one trip; one write per trip would take minutes.
func TestDelayKeepsThroughput(t *testing.T) {
	const size, part = 40 << 20, 16 << 10
	c, link := dial(t, func(c net.Conn) {
		_, _ = io.CopyN(io.Discard, c, size)
		_, _ = c.Write([]byte("!"))
	})
	link.Delay(200*time.Millisecond, 0)
	start := time.Now()
	for range size / part {
		if _, err := c.Write(make([]byte, part)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 200*time.Millisecond || took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestDelayRate: 1 MB at 2 MB/s takes half a second in each direction, also
// when it is a single write.
func TestDelayRate(t *testing.T) {
	for _, d := range []Direction{Read, Write} {
		const size = 1 << 20
		c, link := dial(t, func(c net.Conn) {
			if d == Read {
				_, _ = io.ReadFull(c, make([]byte, 1))
				_, _ = c.Write(make([]byte, size))
				return
			}
			_, _ = io.CopyN(io.Discard, c, size)
			_, _ = c.Write([]byte("!"))
		})
		link.Delay(20*time.Millisecond, 2<<20)
		out, in := make([]byte, 1), make([]byte, size)
		if d == Write {
			out, in = in, out
		}
		start := time.Now()
		if _, err := c.Write(out); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, in); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 500*time.Millisecond || took > 5*time.Second {
			t.Errorf("direction %d: took %v, want about half a second", d, took)
		}
	}
}

func TestDeadlineMoved(t *testing.T) {
	c, _ := dial(t, echo)
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("read with a past deadline")
	}
	_ = c.SetReadDeadline(time.Time{}) // never
	roundTrip(t, c, []byte("hello"))
	// A read that is already waiting sees a deadline set later.
	failed := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		failed <- err
	}()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if err := <-failed; err == nil {
		t.Error("read without a byte to read")
	}
}
