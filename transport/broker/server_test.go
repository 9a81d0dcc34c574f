package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// realBroker stands for a real broker: it answers ApiVersions, and everything else
// with the request's own bytes behind its correlation id, or as answer says.
type realBroker struct {
	addr   string
	answer func(kmsg.Request) kmsg.Response
	denies atomic.Bool // ClusterAction
	mu     sync.Mutex
	got    [][]byte
	open   int
}

func startReal(t *testing.T) *realBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &realBroker{addr: l.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				r.count(1)
				r.serve(conn)
				conn.Close()
				r.count(-1)
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return r
}

func (r *realBroker) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open += n
}

func (r *realBroker) serve(conn net.Conn) {
	for {
		req, err := readRequest(context.Background(), conn, 1<<20, newBudget(1<<20))
		if err != nil {
			return
		}
		r.mu.Lock()
		r.got = append(r.got, req.bytes)
		r.mu.Unlock()
		out := bytes.Clone(req.bytes[4:8])
		switch h, _ := parseHeader(req.bytes); {
		case h.key == 18:
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.SetVersion(h.version)
			resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 1, MaxVersion: 18}}
			out = resp.AppendTo(out)
		case silent(req.bytes):
			continue
		case judges(h):
			out = append(out, scripted(h, r.judge)...)
		case r.answer != nil:
			out = append(out, scripted(h, r.answer)...)
		default:
			out = append(out, req.bytes...)
		}
		if writeFrame(conn, out) != nil {
			return
		}
	}
}

// judges: somebody asks for a topic that is not there, to see what he may.
func judges(h header) bool {
	return h.key == 1 && h.version == judgeVersion && bytes.Contains(h.body, nowhere[:])
}

// judge answers as a broker does that asks its authorizer (KafkaApis.handleFetchRequest).
func (r *realBroker) judge(req kmsg.Request) kmsg.Response {
	resp := kmsg.NewPtrFetchResponse()
	for _, t := range req.(*kmsg.FetchRequest).Topics {
		topic, part := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.TopicID, part.ErrorCode = t.TopicID, codeUnknownTopicID
		if r.denies.Load() {
			part.ErrorCode = codeNotAuthorized
		}
		topic.Partitions = append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// scripted is an answer without its correlation id.
func scripted(h header, answer func(kmsg.Request) kmsg.Response) []byte {
	req := kmsg.RequestForKey(h.key)
	req.SetVersion(h.version)
	body := h.body
	if req.IsFlexible() {
		body = body[1:]
	}
	if err := req.ReadFrom(body); err != nil {
		panic(err)
	}
	resp := answer(req)
	resp.SetVersion(h.version)
	var out []byte
	if flexibleAnswer(resp) {
		out = append(out, 0)
	}
	return resp.AppendTo(out)
}

func (r *realBroker) last() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) == 0 {
		return nil
	}
	return r.got[len(r.got)-1]
}

// serveTest starts a server in front of a real broker and gives its address.
func serveTest(t *testing.T, r *realBroker, cfg ServerConfig) (*Server, string) {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", r.addr)
	}
	return serveDial(t, dial, cfg, nil, nil)
}

// serveDial starts a server that goes on where dial leads to.
func serveDial(t *testing.T, dial upstream, cfg ServerConfig, secure *tls.Config, change func(*Server)) (*Server, string) {
	t.Helper()
	s := newServer(cfg, func() Self { return Self{Broker: 100} }, func(context.Context) (string, error) { return fakeID, nil }, dial)
	if change != nil {
		change(s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, "CLIENT", l, secure) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if s.memory.left != s.cfg.MaxMemory {
			t.Errorf("%d bytes of the budget are lost", s.cfg.MaxMemory-s.memory.left)
		}
		if s.answers.left != s.cfg.MaxMemory {
			t.Errorf("%d bytes of the budget of answers are lost", s.cfg.MaxMemory-s.answers.left)
		}
	})
	return s, l.Addr().String()
}

func dialTest(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// frameOf is a request with a header; client id "c".
func frameOf(key, version int16, corr int32, body ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	return append(append(b, 0, 1, 'c'), body...)
}

func exchange(t *testing.T, conn net.Conn, b []byte) []byte {
	t.Helper()
	if err := writeFrame(conn, b); err != nil {
		t.Fatal(err)
	}
	resp, err := readRequest(context.Background(), conn, 1<<24, newBudget(1<<24))
	if err != nil {
		t.Fatal(err)
	}
	return resp.bytes
}

func TestPassedOnByteForByte(t *testing.T) {
	r := startReal(t)
	_, addr := serveTest(t, r, ServerConfig{})
	conn := dialTest(t, addr)
	for n, b := range [][]byte{
		frameOf(3, 12, 1, 0, 1, 2), frameOf(999, 77, 2), frameOf(0, 9, 3, 0), frameOf(1, 18, -4, make([]byte, 300_000)...),
	} {
		got := exchange(t, conn, b)
		if !bytes.Equal(got[:4], b[4:8]) || !bytes.Equal(got[4:], b) || !bytes.Equal(r.last(), b) {
			t.Errorf("request %d is not what came", n)
		}
	}
	quiet := frameOf(0, 9, 5, 0, 0, 0, 0) // acks=0, then one that is answered
	if err := writeFrame(conn, quiet); err != nil {
		t.Fatal(err)
	}
	if b := frameOf(3, 1, 6); !bytes.Equal(exchange(t, conn, b)[4:], b) {
		t.Error("out of step after a request without an answer")
	}
	// Tokens of SaslHandshake v0 have no header.
	exchange(t, conn, frameOf(17, 0, 7))
	token := []byte("\x00user\x00secret")
	if got := exchange(t, conn, token); !bytes.Equal(got, append(bytes.Clone(token[4:8]), token...)) {
		t.Errorf("token came back as %q", got)
	}
	conn.Close()
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open > 0 {
			return errors.New("the way to the real broker is still open")
		}
		return nil
	})
}

func TestApiVersionsAsOurselves(t *testing.T) {
	tests := []struct {
		name    string
		cluster *string
		node    int32
		code    int16
	}{
		{"nobody in particular", nil, -1, 0},
		{"us", new(fakeID), 100, 0},
		{"another broker", new(fakeID), 1, codeRebootstrap},
		{"another cluster", new("other"), 100, codeRebootstrap},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := startReal(t)
			_, addr := serveTest(t, r, ServerConfig{})
			req := kmsg.NewPtrApiVersionsRequest()
			req.SetVersion(5)
			req.ClientSoftwareName, req.ClientSoftwareVersion, req.ClusterID, req.NodeID = "s", "1", tt.cluster, tt.node
			got := exchange(t, dialTest(t, addr), frameOf(18, 5, 9, req.AppendTo([]byte{0})...))
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.SetVersion(5)
			if err := resp.ReadFrom(got[4:]); err != nil || resp.ErrorCode != tt.code || len(resp.ApiKeys) != 1 {
				t.Errorf("answer %+v %v", resp, err)
			}
			h, _ := parseHeader(r.last())
			asked := kmsg.NewPtrApiVersionsRequest()
			asked.SetVersion(5)
			if err := asked.ReadFrom(h.body[1:]); err != nil || asked.NodeID != -1 || asked.ClusterID != nil || asked.ClientSoftwareName != "s" || h.client != "c" {
				t.Errorf("the real broker was asked %+v %v", asked, err)
			}
		})
	}
	r := startReal(t)
	_, addr := serveTest(t, r, ServerConfig{})
	got := exchange(t, dialTest(t, addr), frameOf(18, 99, 9, 0))
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(got[4:]); err != nil || resp.ErrorCode != codeUnsupported || resp.ApiKeys[0].MaxVersion != 5 {
		t.Errorf("version 99: %+v %v", resp, err)
	}
}

// TestHostile: who sends what is no request loses his connection, and nobody else
// anything.
func TestHostile(t *testing.T) {
	r := startReal(t)
	_, addr := serveTest(t, r, ServerConfig{MaxFrame: 1 << 20, MaxMemory: 1 << 20, FrameTimeout: 200 * time.Millisecond})
	good := dialTest(t, addr)
	size := func(n int32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), rest...)
	}
	for name, b := range map[string][]byte{
		"http": []byte("GET / HTTP/1.1\r\n\r\n"), "TLS": {0x16, 3, 1, 0, 200, 1, 0, 0},
		"negative": size(-1), "nothing": size(0), "too large": size(1<<20 + 1), "half a frame": size(1<<20, 0, 1), "half a size": {0},
		"client id beyond": size(10, 0, 3, 0, 0, 0, 0, 0, 1, 0x7f, 0xff), "negative client id": size(10, 0, 3, 0, 0, 0, 0, 0, 1, 0x80, 0),
		"negative key": size(10, 0xff, 3, 0, 0, 0, 0, 0, 1, 0, 0), "ApiVersions cut short": size(14, 0, 18, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff),
		"ApiVersions with tags": size(12, 0, 18, 0, 5, 0, 0, 0, 1, 0, 0, 7, 7),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialTest(t, addr)
			if _, err := conn.Write(b); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, conn); n > 0 || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d bytes and %v", n, err)
			}
		})
	}
	if b := frameOf(3, 1, 1); !bytes.Equal(exchange(t, good, b)[4:], b) {
		t.Error("another client suffers")
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	r := startReal(t)
	_, addr := serveTest(t, r, ServerConfig{MaxConnections: 2})
	first, second := dialTest(t, addr), dialTest(t, addr)
	exchange(t, first, frameOf(3, 1, 1))
	exchange(t, second, frameOf(3, 1, 1))
	third := dialTest(t, addr)
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Error("a third connection is served")
	}
	first.Close()
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		conn := dialTest(t, addr)
		defer conn.Close()
		if err := writeFrame(conn, frameOf(3, 1, 1)); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	})
}

// TestNoRealBroker: without one a connection ends, and clients go elsewhere.
func TestNoRealBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, addr := serveTest(t, &realBroker{addr: l.Addr().String()}, ServerConfig{})
	conn := dialTest(t, addr)
	if err := writeFrame(conn, frameOf(3, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("an answer from nobody")
	}
}

// TestDyingRealBroker: a connection begins with another real broker when the first is
// about to die, and ends with the one that it has.
func TestDyingRealBroker(t *testing.T) {
	r := startReal(t)
	s, addr := serveTest(t, r, ServerConfig{})
	var dials atomic.Int32
	alive := s.dial
	s.dial = func(ctx context.Context, listener string) (net.Conn, error) {
		if dials.Add(1) == 2 {
			return alive(ctx, listener)
		}
		near, far := net.Pipe()
		go func() { _, _ = readRequest(ctx, far, 1<<20, newBudget(1<<20)); far.Close() }()
		return near, nil
	}
	conn := dialTest(t, addr)
	do(t, conn, 3, kmsg.NewPtrApiVersionsRequest())
	if n := dials.Load(); n != 2 {
		t.Errorf("%d real brokers were tried", n)
	}
	exchange(t, conn, frameOf(3, 1, 1))

	dials.Store(2)
	conn = dialTest(t, addr)
	if err := writeFrame(conn, frameOf(3, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("an answer from nobody")
	}
	if n := dials.Load(); n != 3 {
		t.Errorf("%d real brokers were tried for what only one may get", n-2)
	}
}

// TestFrameLimit: the size is looked at before anything is read or held.
func TestFrameLimit(t *testing.T) {
	memory := newBudget(100)
	whole := append(binary.BigEndian.AppendUint32(nil, 60), make([]byte, 60)...)
	for limit, want := range map[int32]error{60: nil, 59: errFrame} {
		req, err := readRequest(t.Context(), bytes.NewReader(whole), limit, memory)
		if !errors.Is(err, want) {
			t.Errorf("limit %d: %v", limit, err)
		}
		memory.give(req.held)
	}
}

// TestAnswerToAnother: a real broker that is out of step ends the connection.
func TestAnswerToAnother(t *testing.T) {
	ours, theirs := net.Pipe()
	far, near := net.Pipe()
	defer theirs.Close()
	c := &client{server: newServer(ServerConfig{}, nil, nil, nil), conn: ours, real: near}
	defer c.hangUp()
	defer ours.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		if _, err := readRequest(t.Context(), far, 1<<20, newBudget(1<<20)); err == nil {
			_ = writeFrame(far, []byte{0, 0, 0, 9, 1, 2}) // whoever reads may have gone
		}
	}()
	if err := c.pass(t.Context(), frameOf(3, 1, 1)); !errors.Is(err, errNoAnswer) {
		t.Errorf("pass: %v", err)
	}
	near.Close()
	<-done
}

func TestBudget(t *testing.T) {
	b := newBudget(10)
	if err := b.take(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.take(gone, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("more than there is: %v", err)
	}
	got := make(chan error)
	go func() { got <- b.take(t.Context(), 3) }()
	b.give(8)
	if err := <-got; err != nil || b.left != 7 {
		t.Errorf("%v, %d left", err, b.left)
	}
}

func TestSilent(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"v2 acks=0", frameOf(0, 2, 1, 0, 0, 9), true}, {"v2 acks=1", frameOf(0, 2, 1, 0, 1, 9), false},
		{"v3 no id", frameOf(0, 3, 1, 0xff, 0xff, 0, 0), true}, {"v3 id", frameOf(0, 3, 1, 0, 1, 'x', 0, 0), true},
		{"v3 acks=all", frameOf(0, 3, 1, 0xff, 0xff, 0xff, 0xff), false}, {"v9 no id", frameOf(0, 9, 1, 0, 0, 0, 0), true},
		{"v9 id", frameOf(0, 9, 1, 0, 2, 'x', 0, 0), true}, {"v9 acks=1", frameOf(0, 9, 1, 0, 2, 'x', 0, 1), false},
		{"fetch", frameOf(1, 9, 1, 0, 0, 0, 0), false}, {"cut", frameOf(0, 9, 1, 0), false},
	} {
		if got := silent(tt.b); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// FuzzFrames: whatever comes in, there is no panic, and memory is given back.
func FuzzFrames(f *testing.F) {
	f.Add(frameOf(0, 9, 1, 0, 2, 'x', 0, 0))
	f.Add(frameOf(18, 5, 1, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHeader(b); err == nil && len(h.body)+len(h.client)+10 != len(b) {
			t.Errorf("header %+v of %d bytes", h, len(b))
		}
		silent(b)
		memory := newBudget(1 << 20)
		framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
		for _, in := range [][]byte{b, framed} {
			req, err := readRequest(t.Context(), bytes.NewReader(in), 1<<20, memory)
			if err == nil && len(req.bytes) < 8 {
				t.Errorf("a request of %d bytes", len(req.bytes))
			}
			memory.give(req.held)
			if memory.left != 1<<20 {
				t.Fatal(fmt.Sprint(memory.left, " left"))
			}
		}
	})
}
