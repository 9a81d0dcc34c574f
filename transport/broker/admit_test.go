package broker

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

func TestProofHolds(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		name    string
		p       *proof
		replica int32
		want    bool
	}{
		{"none", nil, 1, false},
		{"in time", &proof{1, now.Add(1)}, 1, true},
		{"over", &proof{1, now}, 1, false},
		{"another replica", &proof{1, now.Add(1)}, 2, false},
		{"for good", &proof{replica: 1}, 1, true},
		{"for good, another replica", &proof{replica: 1}, 2, false},
	} {
		if got := tt.p.holds(tt.replica, now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// admission is a server that leads a partition, and the real brokers behind it.
type admission struct {
	*testing.T
	server *Server
	addr   string
	real   []*realBroker
	mu     sync.Mutex
	dialed []net.Conn // to real brokers, the first of them as often as it is let
	p      *lead.Partition
}

func startAdmission(t *testing.T, secure *tls.Config, change func(*Server)) *admission {
	t.Helper()
	a := &admission{T: t, real: []*realBroker{startReal(t), startReal(t)}}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", a.real[min(len(a.dialed), 1)].addr)
		if err == nil {
			a.dialed = append(a.dialed, conn)
		}
		return conn, err
	}
	a.server, a.addr = serveDial(t, dial, ServerConfig{BrokerListener: "CLIENT"}, secure, change)
	a.p = lead.New(lead.Config{Topic: cluster.TopicID{1}, Partition: cluster.Partition{Topic: "led"}, Epoch: 4, Quorum: 1, Followers: []int32{1}, Stamp: true})
	a.server.led.add(a.p)
	return a
}

// cut ends the way to the first real broker.
func (a *admission) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dialed[0].Close()
}

// answeredHere reports that a fetch of replica 1 is answered by us; false is for a real
// broker's answer, of the request's own bytes.
func answeredHere(conn net.Conn) (bool, error) {
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	frame := fetchFrame(fetchOf(0, -1, 0), 1, 0)
	if err := writeFrame(conn, frame); err != nil {
		return false, err
	}
	got, err := readRequest(context.Background(), conn, 1<<20, newBudget(1<<20))
	if err != nil {
		return false, err
	}
	if bytes.Equal(got.bytes[4:], frame) {
		return false, nil
	}
	resp := kmsg.NewPtrFetchResponse()
	if err := readAnswerBody(got.bytes, 17, resp); err != nil {
		return false, err
	}
	if len(resp.Topics) != 1 {
		return false, errNothing
	}
	return true, nil
}

func (a *admission) want(conn net.Conn, ours bool) {
	a.Helper()
	if got, err := answeredHere(conn); err != nil || got != ours {
		a.Errorf("answered by us: %v, want %v: %v", got, ours, err)
	}
}

// TestFollowersNeedClusterAction: who has it not is sent to the real broker, with all
// that followers ask; a proof holds for its time and no longer.
func TestFollowersNeedClusterAction(t *testing.T) {
	a := startAdmission(t, nil, func(s *Server) { s.trust = time.Hour })
	for _, r := range a.real {
		r.denies.Store(true)
	}
	conn := dialTest(t, a.addr)
	a.want(conn, false)
	if len(a.server.sessions.owners) > 0 {
		t.Error("who is refused may speak for a partition")
	}
	ends := kmsg.NewPtrListOffsetsRequest()
	ends.SetVersion(10)
	ends.ReplicaID = 1
	frame := frameOf(2, 10, 1, ends.AppendTo([]byte{0})...)
	if got := exchange(t, conn, frame); !slices.Equal(got[4:], frame) {
		t.Error("who is refused is told offsets")
	}
	a.real[0].denies.Store(false)
	a.want(conn, true)
	a.real[0].denies.Store(true)
	a.want(conn, true)                      // it has been proven
	exchange(t, conn, frameOf(36, 2, 1, 0)) // who logs in anew may be another one
	a.want(conn, false)
	a.server.trust = 0
	a.real[0].denies.Store(false)
	a.want(conn, true)
	a.real[0].denies.Store(true)
	a.want(conn, false)
}

// TestJudgeDies: without a login another real broker knows as much; with one the
// follower has to log in again, and is told nothing until then.
func TestJudgeDies(t *testing.T) {
	a := startAdmission(t, nil, func(s *Server) { s.trust = 0 })
	conn := dialTest(t, a.addr)
	a.want(conn, true)
	a.cut()
	a.want(conn, true)

	a = startAdmission(t, nil, func(s *Server) { s.trust = 0 })
	conn = dialTest(t, a.addr)
	exchange(t, conn, frameOf(17, 1, 1, 0, 0))
	a.want(conn, true)
	a.cut()
	if ours, err := answeredHere(conn); err == nil {
		t.Errorf("answered by us: %v", ours)
	}
	a.want(dialTest(t, a.addr), true)
}

// TestJudgeSaysNothing: a real broker that does not answer costs the connection.
func TestJudgeSaysNothing(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", silent.Addr().String())
	}
	_, addr := serveDial(t, dial, ServerConfig{BrokerListener: "CLIENT"}, nil, func(s *Server) { s.patience = 50 * time.Millisecond })
	if ours, err := answeredHere(dialTest(t, addr)); err == nil {
		t.Errorf("answered by us: %v", ours)
	}
	conn := dialTest(t, addr)
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if err := writeFrame(conn, frameOf(17, 1, 1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, net.ErrClosed) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// issuer signs certificates.
type issuer struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

func (i *issuer) sign(name string) tls.Certificate {
	i.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.Fatal(err)
	}
	i.last++
	form := &x509.Certificate{SerialNumber: big.NewInt(i.last), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	if name != "" {
		form.Subject = pkix.Name{CommonName: name}
	}
	by, with := i.cert, i.key
	if by == nil {
		form.IsCA, form.BasicConstraintsValid = true, true
		by, with = form, key
	}
	der, err := x509.CreateCertificate(rand.Reader, form, by, &key.PublicKey, with)
	if err != nil {
		i.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		i.Fatal(err)
	}
	if i.cert == nil {
		i.cert, i.key = leaf, key
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// authorityOf is one, and the pool that trusts it.
func authorityOf(t *testing.T) (*issuer, *x509.CertPool) {
	t.Helper()
	i, pool := &issuer{T: t}, x509.NewCertPool()
	i.sign("authority")
	pool.AddCert(i.cert)
	return i, pool
}

func TestSameName(t *testing.T) {
	ca, _ := authorityOf(t)
	a, again, b, none, other := ca.sign("a").Leaf, ca.sign("a").Leaf, ca.sign("b").Leaf, ca.sign("").Leaf, ca.sign("").Leaf
	for _, tt := range []struct {
		name string
		a, b *x509.Certificate
		want bool
	}{
		{"the same", a, a, true}, {"renewed", a, again, true}, {"another name", a, b, false},
		{"no name, the same", none, none, true}, {"no names", none, other, false}, {"one without", a, none, false},
	} {
		if got := sameName(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestFollowersWithCertificates: where clients are known by certificates, a follower has
// that of the broker that it says it is; nobody is asked in its name.
func TestFollowersWithCertificates(t *testing.T) {
	ca, trusted := authorityOf(t)
	strangers, _ := authorityOf(t)
	one := ca.sign("broker one")
	secure := &tls.Config{Certificates: []tls.Certificate{ca.sign("us")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted}
	brokers := map[int32]*x509.Certificate{1: one.Leaf, 2: ca.sign("broker two").Leaf}
	a := startAdmission(t, secure, func(s *Server) {
		s.shown = &shown{
			brokers: func() []int32 { return []int32{2, 1} },
			by: func(_ context.Context, broker int32) (*x509.Certificate, error) {
				if cert := brokers[broker]; cert != nil {
					return cert, nil
				}
				return nil, cluster.ErrUnavailable
			},
		}
	})
	as := func(certs ...tls.Certificate) net.Conn {
		t.Helper()
		conn := tls.Client(dialTest(t, a.addr), &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1", Certificates: certs})
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		return conn
	}
	a.want(as(one), true)
	for name, conn := range map[string]net.Conn{
		"nobody": as(), "somebody": as(ca.sign("somebody")), "another broker": as(ca.sign("broker two")), "a stranger": as(strangers.sign("broker one")),
	} {
		if ours, err := answeredHere(conn); err == nil {
			t.Errorf("%s is answered, by us: %v", name, ours)
		}
	}
	markers := func(conn net.Conn) (codes []int16) {
		t.Helper()
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		marker := kmsg.NewWriteTxnMarkersRequestMarker()
		for _, name := range []string{"led", "not led"} {
			topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			topic.Topic, topic.Partitions = name, []int32{0}
			marker.Topics = append(marker.Topics, topic)
		}
		req.SetVersion(1)
		req.Markers = append(req.Markers, marker)
		if err := writeFrame(conn, frameOf(req.Key(), 1, 1, req.AppendTo([]byte{0})...)); err != nil {
			return nil
		}
		got, err := readRequest(context.Background(), conn, 1<<20, newBudget(1<<20))
		if err != nil {
			return nil
		}
		resp := kmsg.NewPtrWriteTxnMarkersResponse()
		if err := readAnswerBody(got.bytes, 1, resp); err != nil {
			t.Fatal(err)
		}
		for _, topic := range resp.Markers[0].Topics {
			codes = append(codes, topic.Partitions[0].ErrorCode)
		}
		return codes
	}
	if got := markers(as(one)); !slices.Equal(got, []int16{0, lead.NotLeader}) {
		t.Errorf("markers of a broker: %v", got)
	}
	if got := markers(as(ca.sign("somebody"))); got != nil {
		t.Errorf("markers of somebody: %v", got)
	}
	curious := as(ca.sign("somebody"))
	if err := writeFrame(curious, frameOf(18, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if n, err := curious.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("somebody is told versions: %v", err)
	}
	if len(a.dialed) > 0 {
		t.Errorf("%d connections to real brokers", len(a.dialed))
	}
}
