package wire

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// received is one request as a hand-made broker sees it.
type received struct {
	key, version int16
	corr         int32
	clientID     string
	body         []byte // after a request header version 1; flexible ones begin with their tags
	conn         net.Conn
}

// answer writes an answer with a response header version 0.
func (r *received) answer(body []byte) error { return writeAnswer(r.conn, r.corr, body) }

func writeAnswer(w io.Writer, corr int32, body []byte) error {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	_, err := w.Write(append(b, body...))
	return err
}

func readRequest(conn net.Conn) (*received, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, err
	}
	r := &received{conn: conn}
	r.key, r.version = int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:]))
	r.corr = int32(binary.BigEndian.Uint32(b[4:]))
	n := int(binary.BigEndian.Uint16(b[8:]))
	r.clientID, r.body = string(b[10:10+n]), b[10+n:]
	return r, nil
}

// versions answers ApiVersions with the same range for the keys given.
func (r *received) versions(keys map[int16]versionRange) error {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = r.version
	for k, v := range keys {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: k, MinVersion: v.min, MaxVersion: v.max})
	}
	return r.answer(resp.AppendTo(nil))
}

var usual = map[int16]versionRange{3: {0, 8}, 10: {0, 2}, 17: {0, 1}, 18: {0, 3}, 36: {0, 1}}

// converse serves one connection: ApiVersions with the usual ranges, and the
// rest by handle, until handle or the connection says no.
func converse(conn net.Conn, handle func(*received) error) {
	defer conn.Close()
	for {
		r, err := readRequest(conn)
		if err != nil {
			return
		}
		if r.key == apiVersionsKey {
			err = r.versions(usual)
		} else {
			err = handle(r)
		}
		if err != nil {
			return
		}
	}
}

// listen serves TCP connections with serve, until the test ends.
func listen(t *testing.T, serve func(net.Conn)) Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			all.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	at := l.Addr().(*net.TCPAddr)
	return Addr{ID: 1, Host: "127.0.0.1", Port: int32(at.Port)}
}

// piped is a Config whose every dial is a net.Pipe to serve: no socket, so that
// it runs in a synctest bubble.
func piped(serve func(net.Conn)) *Config {
	return &Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go serve(theirs)
		return ours, nil
	}}
}

func mustDial(t *testing.T, addr Addr, cfg *Config) *Conn {
	t.Helper()
	c, err := Dial(testContext(t), addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// testContext ends a test that hangs.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// outcome collects what Done of a call was told.
type outcome struct {
	body string
	err  error
}

// collect makes calls of key 3 whose outcomes arrive in the channel.
func collect(n int, timeout time.Duration, bodies ...string) ([]*Call, chan outcome) {
	out := make(chan outcome, 4*n)
	calls := make([]*Call, n)
	for i := range calls {
		calls[i] = &Call{Key: 3, Version: 0, Timeout: timeout, Done: func(f *Frame, err error) {
			if err != nil {
				out <- outcome{err: err}
				return
			}
			out <- outcome{body: string(f.Bytes())}
			f.Release()
		}}
		if i < len(bodies) {
			calls[i].Body = net.Buffers{[]byte(bodies[i])}
		}
	}
	return calls, out
}
