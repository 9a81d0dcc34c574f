package wire

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

// countingConn counts writes, and after limit bytes it fails them.
type countingConn struct {
	net.Conn
	writes atomic.Int32
	left   atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	if left := c.left.Add(-int64(len(b))); left < 0 {
		n, _ := c.Conn.Write(b[:max(0, int64(len(b))+left)])
		c.Conn.Close()
		return n, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func counted(limit int64) (*Config, *countingConn) {
	cc := new(countingConn)
	cc.left.Store(limit)
	return &Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		cc.Conn = conn
		return cc, err
	}}, cc
}

func echo(conn net.Conn) {
	converse(conn, func(r *received) error { return r.answer(r.body) })
}

func TestSendIsOneWrite(t *testing.T) {
	addr := listen(t, echo)
	cfg, cc := counted(1 << 40)
	c := mustDial(t, addr, cfg)
	before := cc.writes.Load()
	calls, out := collect(10, 0, strings.Split("a,b,c,d,e,f,g,h,i,j", ",")...)
	for _, call := range calls {
		call.Body = append(call.Body, []byte("-tail"))
	}
	if err := c.Send(calls...); err != nil {
		t.Fatal(err)
	}
	for _, want := range "abcdefghij" {
		if got := <-out; got.body != string(want)+"-tail" {
			t.Errorf("got %+v, want %c-tail", got, want)
		}
	}
	if n := cc.writes.Load() - before; n != 1 {
		t.Errorf("%d writes for ten calls, want 1", n)
	}
}

func TestSendLargeBodies(t *testing.T) {
	big := strings.Repeat("x", joinChunk+1)
	bodies := []string{"small", big, "", strings.Repeat("y", joinChunk-3), "z", big}
	for _, name := range []string{"writev", "joined"} {
		t.Run(name, func(t *testing.T) {
			var cfg *Config
			if name == "joined" {
				cfg, _ = counted(1 << 40)
			}
			c := mustDial(t, listen(t, echo), cfg)
			calls, out := collect(len(bodies), 0, bodies...)
			if err := c.Send(calls...); err != nil {
				t.Fatal(err)
			}
			for i, want := range bodies {
				if got := <-out; got.body != want {
					t.Errorf("answer %d: %d bytes, %v; want %d", i, len(got.body), got.err, len(want))
				}
			}
		})
	}
}

// The write breaks in the second of three calls: the broker may have the first,
// and cannot have the other two.
func TestSendBrokenWrite(t *testing.T) {
	addr := listen(t, func(conn net.Conn) { converse(conn, func(*received) error { return nil }) })
	cfg, cc := counted(1 << 40)
	cfg.ClientID = "c"
	c := mustDial(t, addr, cfg)
	cc.left.Store(4 + 11 + 3 + 10) // the first with its header, and a piece of the second
	calls, out := collect(3, 0, "one", "two", "six")
	if err := c.Send(calls...); !errors.Is(err, cluster.ErrUnknownOutcome) {
		t.Errorf("Send: %v, want ErrUnknownOutcome", err)
	}
	for i, want := range []error{cluster.ErrUnknownOutcome, cluster.ErrUnreachable, cluster.ErrUnreachable} {
		got := <-out
		if !errors.Is(got.err, want) || errors.Is(got.err, cluster.ErrUnknownOutcome) != (i == 0) {
			t.Errorf("call %d: %v, want %v alone", i, got.err, want)
		}
	}
	if len(out) != 0 {
		t.Error("Done was called more than once")
	}
}

// Senders, cancelled callers and Close at the same time: every Done exactly once.
func TestDoneExactlyOnce(t *testing.T) {
	for range 20 {
		c := mustDial(t, listen(t, echo), nil)
		var told, sent atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 50 {
					var once atomic.Int32
					sent.Add(1)
					c.Send(&Call{Key: 3, Body: net.Buffers{make([]byte, 5000)}, Done: func(f *Frame, _ error) {
						if once.Add(1) == 1 {
							told.Add(1)
						} else {
							t.Error("Done called again")
						}
						if f != nil {
							f.Release()
						}
					}})
				}
			})
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Microsecond)
				defer cancel()
				for range 10 {
					if f, err := c.DoFrame(ctx, kmsg.NewPtrMetadataRequest(), 1); err == nil {
						f.Release()
					}
				}
			})
		}
		all.Go(func() {
			for sent.Load() < 60 {
				<-time.After(50 * time.Microsecond)
			}
			c.Close()
		})
		all.Wait()
		// Everything written has been told by now, but for answers the reader holds.
		for end := time.Now().Add(5 * time.Second); told.Load() != sent.Load(); {
			if time.Now().After(end) {
				t.Fatalf("%d calls, %d told", sent.Load(), told.Load())
			}
			<-time.After(time.Millisecond)
		}
	}
}

// A caller that gave up before the write began is not held by it either.
func TestCutBeforeTheWrite(t *testing.T) {
	c := &Conn{nc: &deadlines{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	uncut := c.cutWhenDone(ctx)
	for !c.cut.Load() {
		runtime.Gosched()
	}
	c.bound(time.Now().Add(time.Hour))
	if last := c.nc.(*deadlines).last(); time.Until(last) > 2*writeGrace {
		t.Errorf("the write may take %v", time.Until(last))
	}
	uncut()
	c.bound(time.Now().Add(time.Hour))
	if last := c.nc.(*deadlines).last(); time.Until(last) < time.Minute {
		t.Errorf("the next write may take only %v", time.Until(last))
	}
}

// deadlines notes the write deadlines it is given.
type deadlines struct {
	net.Conn
	mu  sync.Mutex
	set time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set = t
	return nil
}

func (d *deadlines) last() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.set
}

// The broker reads nothing: a caller who gives up is not held until the request
// times out, and the connection, cut in the middle of a request, is closed.
func TestBlockedWriteIsCut(t *testing.T) {
	stuck := make(chan struct{})
	addr := listen(t, func(conn net.Conn) {
		if r, err := readRequest(conn); err == nil {
			r.versions(usual)
		}
		<-stuck
	})
	t.Cleanup(func() { close(stuck) }) // before the listener's own, which waits for serve
	c := mustDial(t, addr, nil)
	req := kmsg.NewPtrMetadataRequest()
	name := strings.Repeat("t", 30_000)
	for range 1000 {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := c.DoVersion(ctx, req, 1); !errors.Is(err, cluster.ErrTimeout) {
		t.Errorf("%v, want ErrTimeout", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("held for %v", took)
	}
	<-c.Done()
}
