package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

func TestPipelinedAnswersReachTheirCalls(t *testing.T) {
	const n = 50
	addr := listen(t, func(conn net.Conn) {
		var held []*received // answers only when all are there
		converse(conn, func(r *received) error {
			if held = append(held, r); len(held) < n {
				return nil
			}
			for _, r := range held {
				if err := r.answer(append([]byte("re "), r.body...)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	c := mustDial(t, addr, &Config{ClientID: "tester"})
	var order []string
	done := make(chan struct{})
	for i := range n {
		call := &Call{Key: 3, Body: net.Buffers{fmt.Appendf(nil, "call "), fmt.Appendf(nil, "%d", i)}}
		call.Done = func(f *Frame, err error) {
			if err != nil {
				t.Error(err)
			} else {
				order = append(order, string(f.Bytes()))
				f.Release()
			}
			if len(order) == n || err != nil {
				close(done)
			}
		}
		if err := c.Send(call); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	for i, got := range order {
		if want := fmt.Sprintf("re call %d", i); got != want {
			t.Fatalf("answer %d is %q, want %q", i, got, want)
		}
	}
}

func TestLargeAnswer(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	addr := listen(t, func(conn net.Conn) {
		converse(conn, func(r *received) error {
			if err := r.answer(want); err != nil {
				return err
			}
			return r.answer(nil) // a second answer, to the same id, is garbage
		})
	})
	c := mustDial(t, addr, nil)
	calls, out := collect(1, 0)
	if err := c.Send(calls...); err != nil {
		t.Fatal(err)
	}
	if got := <-out; got.err != nil || got.body != string(want) {
		t.Fatalf("%d bytes and %v, want %d bytes", len(got.body), got.err, len(want))
	}
	<-c.Done()
	var e *Error
	if !errors.As(c.Err(), &e) || e.Cause != Protocol {
		t.Errorf("an answer to no request: %v, want a protocol error", c.Err())
	}
}

func TestCancelledCallLeavesConnection(t *testing.T) {
	release := make(chan struct{})
	addr := listen(t, func(conn net.Conn) {
		first := true
		converse(conn, func(r *received) error {
			if first {
				first = false
				<-release
				return r.answer(make([]byte, 100_000))
			}
			resp := kmsg.NewPtrMetadataResponse()
			resp.Version = r.version
			return r.answer(resp.AppendTo(nil))
		})
	})
	pool := NewFramePool(0)
	c := mustDial(t, addr, &Config{Frames: pool})
	ctx, cancel := context.WithCancel(testContext(t))
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err := c.Do(ctx, kmsg.NewPtrMetadataRequest())
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cluster.ErrUnknownOutcome) {
		t.Fatalf("cancelled: %v", err)
	}
	close(release)
	if _, err := c.Do(testContext(t), kmsg.NewPtrMetadataRequest()); err != nil {
		t.Fatalf("after a cancelled call: %v", err)
	}
	if pool.Idle() < 100_000 { // only the late one was so large
		t.Error("the late answer's frame was not released")
	}
}

func TestLateRequestEndsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := piped(func(conn net.Conn) {
			converse(conn, func(*received) error { return nil }) // a black hole
		})
		c := mustDial(t, Addr{ID: 1, Host: "b"}, cfg)
		start := time.Now()
		short, outShort := collect(1, 3*time.Second)
		long, outLong := collect(1, time.Minute)
		if err := errors.Join(c.Send(long...), c.Send(short...)); err != nil {
			t.Fatal(err)
		}
		got := <-outShort
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("failed after %v, want 3s", took)
		}
		if !errors.Is(got.err, cluster.ErrTimeout) {
			t.Errorf("expired: %v, want ErrTimeout", got.err)
		}
		got = <-outLong
		if !errors.Is(got.err, cluster.ErrUnknownOutcome) || errors.Is(got.err, cluster.ErrTimeout) || errors.Is(got.err, cluster.ErrUnreachable) {
			t.Errorf("the other: %v, want ErrUnknownOutcome alone", got.err)
		}
		if err := c.Err(); !errors.Is(err, cluster.ErrTimeout) || !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("Err is %v", err)
		}
		calls, out := collect(1, 0)
		if err := c.Send(calls...); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("Send afterwards: %v, want ErrUnreachable", err)
		}
		if got := <-out; !errors.Is(got.err, cluster.ErrUnreachable) || errors.Is(got.err, cluster.ErrUnknownOutcome) {
			t.Errorf("Done afterwards: %v, want ErrUnreachable", got.err)
		}
	})
}

// A request that is answered in time must not be ended by the deadline of one
// that was answered before it, and an idle connection by none.
func TestDeadlineMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := piped(func(conn net.Conn) {
			converse(conn, func(r *received) error {
				if len(r.body) > 0 {
					time.Sleep(20 * time.Second)
				}
				return r.answer([]byte("ok"))
			})
		})
		c := mustDial(t, Addr{ID: 1}, cfg)
		quick, outQuick := collect(1, time.Second)
		slow, outSlow := collect(1, 30*time.Second, "slow")
		if err := c.Send(append(quick, slow...)...); err != nil {
			t.Fatal(err)
		}
		for _, out := range []chan outcome{outQuick, outSlow} {
			if got := <-out; got.err != nil || got.body != "ok" {
				t.Fatalf("got %+v", got)
			}
		}
		time.Sleep(time.Hour)
		if err := c.Err(); err != nil {
			t.Fatalf("idle connection ended: %v", err)
		}
	})
}

func TestBrokerWaitIsAddedToTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := piped(func(conn net.Conn) { converse(conn, func(*received) error { return nil }) })
		cfg.RequestTimeout = 2 * time.Second
		for name, req := range map[string]kmsg.Request{
			"fetch":   &kmsg.FetchRequest{MaxWaitMillis: 5000},
			"produce": &kmsg.ProduceRequest{TimeoutMillis: 5000},
		} {
			c := mustDial(t, Addr{ID: 1}, cfg)
			start := time.Now()
			_, err := c.DoVersion(t.Context(), req, 4)
			if took := time.Since(start); !errors.Is(err, cluster.ErrTimeout) || took != 7*time.Second {
				t.Errorf("%s: %v after %v, want a timeout after 7s", name, err, took)
			}
		}
	})
}

func TestBadAnswers(t *testing.T) {
	frame := func(size uint32, corr int32, body string) []byte {
		b := binary.BigEndian.AppendUint32(nil, size)
		b = binary.BigEndian.AppendUint32(b, uint32(corr))
		return append(b, body...)
	}
	for name, tc := range map[string]struct {
		bytes func(corr int32) []byte
		want  Cause
	}{
		"closed at once":         {func(int32) []byte { return nil }, Closed},
		"closed in the head":     {func(corr int32) []byte { return frame(100, corr, "")[:6] }, Closed},
		"closed in the body":     {func(corr int32) []byte { return frame(100, corr, "x") }, Closed},
		"too large":              {func(corr int32) []byte { return frame(1<<20+1, corr, "x") }, Protocol},
		"negative":               {func(corr int32) []byte { return frame(1<<31, corr, "x") }, Protocol},
		"too short":              {func(corr int32) []byte { return frame(3, corr, "x") }, Protocol},
		"another correlation id": {func(corr int32) []byte { return frame(5, corr+1, "x") }, Protocol},
		"TLS alert":              {func(int32) []byte { return []byte{0x15, 3, 3, 0, 2, 2, 70, 0, 0} }, TLS},
	} {
		t.Run(name, func(t *testing.T) {
			addr := listen(t, func(conn net.Conn) {
				converse(conn, func(r *received) error {
					r.conn.Write(tc.bytes(r.corr))
					return io.EOF
				})
			})
			c := mustDial(t, addr, &Config{MaxFrame: 1 << 20})
			calls, out := collect(2, 0)
			c.Send(calls...)
			for range calls {
				got := <-out
				var e *Error
				if !errors.As(got.err, &e) || e.Cause != tc.want || !errors.Is(got.err, cluster.ErrUnknownOutcome) {
					t.Errorf("%v, want cause %v and ErrUnknownOutcome", got.err, tc.want)
				}
			}
			<-c.Done()
		})
	}
}

func TestFlexibleResponseHeader(t *testing.T) {
	addr := listen(t, func(conn net.Conn) {
		converse(conn, func(r *received) error {
			return r.answer([]byte("\x01\x05\x03abcbody")) // one tag, number 5, three bytes
		})
	})
	c := mustDial(t, addr, nil)
	calls, out := collect(1, 0)
	calls[0].Flexible = true
	if err := c.Send(calls...); err != nil {
		t.Fatal(err)
	}
	if got := <-out; got.body != "body" {
		t.Errorf("got %+v, want the bytes after the tags", got)
	}
}

func TestUnsupportedRequest(t *testing.T) {
	addr := listen(t, func(conn net.Conn) { converse(conn, func(*received) error { return io.EOF }) })
	c := mustDial(t, addr, nil)
	if _, err := c.Do(testContext(t), kmsg.NewPtrCreateTopicsRequest()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
	if got := c.MaxVersion(19); got != -1 {
		t.Errorf("MaxVersion of a request not offered is %d", got)
	}
	if lo, hi := c.MinVersion(3), c.MaxVersion(3); lo != 0 || hi != 8 {
		t.Errorf("versions of Metadata are %d to %d, want 0 to 8", lo, hi)
	}
}
