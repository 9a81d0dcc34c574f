package wire

import (
	"bytes"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mark reads the low-water mark of a socket.
func mark(t *testing.T, c *Conn) (n int) {
	t.Helper()
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { n, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLowWater: the mark follows what is known to come, and is 1 where nothing is.
func TestLowWater(t *testing.T) {
	addr := listen(t, func(conn net.Conn) { conn.Read(make([]byte, 1)) })
	nc, err := net.Dial("tcp", addr.hostPort())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := newConn(nc, addr, (*Config)(nil).withDefaults())
	l := newLowWater(c)
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"much of an answer", func() { l.rest(1<<20, 0) }, lowWaterMark},
		{"it is here", func() { l.rest(100, 100) }, lowWaterMark},
		{"less", func() { l.rest(100<<10, 1000) }, 100 << 10},
		{"the rest", func() { l.rest(1000, 999) }, 1},
		{"the next one in part here", func() { l.rest(1<<20, 0); l.next(headSize - 1) }, 1},
		{"too long", func() { l.rest(1<<20, 0); l.late() }, 1},
		{"the same answer", func() { l.rest(1<<20, 0) }, 1},
		{"the next one", func() { l.next(0); l.rest(1<<20, 0) }, lowWaterMark},
	} {
		step.do()
		if got := mark(t, c); got != step.want || l.mark != step.want {
			t.Errorf("%s: mark %d (%d), want %d", step.what, got, l.mark, step.want)
		}
	}
	if until := time.Until(c.armed); c.armed.IsZero() || until > lowWaterWait {
		t.Errorf("woken in %v at the latest", until)
	}
	nc.Close()
	if l.to(1); c.Err() == nil {
		t.Error("a mark that cannot be taken back")
	}
}

// TestAnswersInPieces: answers are handed on as they come, large ones in pieces among small
// ones, how ever many others are awaited.
func TestAnswersInPieces(t *testing.T) {
	const n = 40
	big := strings.Repeat("big ", 1<<18)
	taken := make(chan struct{})
	ctx := testContext(t)
	addr := listen(t, func(conn net.Conn) {
		var all []*received
		converse(conn, func(r *received) error {
			if all = append(all, r); len(all) < n {
				return nil
			}
			for i, r := range all {
				body := r.body
				if i == n/2 {
					body = []byte(big)
				}
				var b bytes.Buffer
				writeAnswer(&b, r.corr, body)
				for b.Len() > 0 {
					if _, err := conn.Write(b.Next(max(b.Len()/2, 1<<10))); err != nil {
						return err
					}
				}
				select {
				case <-taken:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	})
	c := mustDial(t, addr, nil)
	calls, out := collect(n, time.Minute, strings.Split(strings.Repeat("small ", n-1)+"small", " ")...)
	for i, call := range calls {
		call.Sum = i == n/2
	}
	if err := c.Send(calls...); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		select {
		case got := <-out:
			if want := map[bool]string{false: "small", true: big}[i == n/2]; got.err != nil || got.body != want {
				t.Fatalf("answer %d: %.20q of %d bytes, %v", i, got.body, len(got.body), got.err)
			}
			taken <- struct{}{}
		case <-ctx.Done():
			t.Fatalf("answer %d did not come", i)
		}
	}
}
