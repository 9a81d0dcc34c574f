package wire

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// selfMade is a certificate for 127.0.0.1 that signs itself.
func selfMade(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// listenTLS serves TLS; after a failed handshake it reads on, so that the alert
// is not overtaken by a reset.
func listenTLS(t *testing.T, cfg *tls.Config) Addr {
	return listen(t, func(conn net.Conn) {
		secured := tls.Server(conn, cfg)
		if secured.Handshake() != nil {
			io.Copy(io.Discard, conn)
			return
		}
		echo(secured)
	})
}

func TestTLS(t *testing.T) {
	cert, pool := selfMade(t)
	addr := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	c := mustDial(t, addr, &Config{TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}})
	calls, out := collect(3, 0, "one", "two", string(make([]byte, 1<<20)))
	if err := c.Send(calls...); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{3, 3, 1 << 20} {
		if got := <-out; got.err != nil || len(got.body) != want {
			t.Errorf("answer %d: %d bytes, %v", i, len(got.body), got.err)
		}
	}
}

func TestC11_7ErrorClassIsDecidedByType(t *testing.T) {
	cert, pool := selfMade(t)
	noServer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := Addr{ID: 1, Host: "127.0.0.1", Port: int32(noServer.Addr().(*net.TCPAddr).Port)}
	noServer.Close()
	plainText := listen(t, func(conn net.Conn) { io.WriteString(conn, "no TLS"); io.Copy(io.Discard, conn) })
	untrusted := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	wantsOurs := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	blackhole := listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	eof := listen(t, func(conn net.Conn) { readRequest(conn); conn.Write([]byte{0, 0, 0, 9, 0}); conn.Close() })
	reset := listen(t, func(conn net.Conn) {
		readRequest(conn)
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})
	failing := func(err error) *Config {
		return &Config{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, err }}
	}
	trusting := &Config{TLS: &tls.Config{RootCAs: pool}}
	for name, tc := range map[string]struct {
		addr  Addr
		cfg   *Config
		cause Cause
		is    error
	}{
		"refused":                    {refused, nil, Refused, cluster.ErrUnreachable},
		"DNS":                        {Addr{Host: "no-such-host.invalid.", Port: 1}, failing(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "connection refused", IsNotFound: true}}), DNS, cluster.ErrUnreachable},
		"DNS that times out":         {refused, failing(&net.DNSError{Err: "EOF", IsTimeout: true}), DNS, cluster.ErrUnreachable},
		"no route":                   {refused, failing(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}), Network, cluster.ErrUnreachable},
		"time-out of the kernel":     {refused, failing(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}), Timeout, cluster.ErrTimeout},
		"text that lies":             {refused, failing(errors.New("connection refused: i/o timeout: EOF")), Unknown, cluster.ErrUnreachable},
		"black hole":                 {blackhole, &Config{DialTimeout: 50 * time.Millisecond}, Timeout, cluster.ErrTimeout},
		"EOF in a frame":             {eof, nil, Closed, cluster.ErrUnreachable},
		"reset":                      {reset, nil, Closed, cluster.ErrUnreachable},
		"unknown authority":          {untrusted, &Config{TLS: &tls.Config{}}, TLS, cluster.ErrUnreachable},
		"another name":               {untrusted, &Config{TLS: &tls.Config{RootCAs: pool, ServerName: "other"}}, TLS, cluster.ErrUnreachable},
		"no TLS there":               {plainText, trusting, TLS, cluster.ErrUnreachable},
		"alert: certificate missing": {wantsOurs, trusting, TLSRefused, cluster.ErrAuthentication},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Dial(testContext(t), tc.addr, tc.cfg)
			var e *Error
			if !errors.As(err, &e) || e.Cause != tc.cause {
				t.Fatalf("%v, want cause %v", err, tc.cause)
			}
			if !errors.Is(err, tc.is) || errors.Is(err, cluster.ErrUnknownOutcome) {
				t.Errorf("%v does not match %v, or claims an unknown outcome", err, tc.is)
			}
			if !cluster.Retriable(err) {
				t.Errorf("%v is not retriable", err)
			}
		})
	}
}

func TestCancelledDial(t *testing.T) {
	blackhole := listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Dial(ctx, blackhole, nil); !errors.Is(err, context.Canceled) || cluster.Retriable(err) {
		t.Errorf("cancelled: %v, want context.Canceled, not retriable", err)
	}
}

func TestSentDecidesWhatALostConnectionMeans(t *testing.T) {
	for _, tc := range []struct {
		err  Error
		is   []error
		not  []error
		name string
	}{
		{Error{Cause: Closed, Sent: true}, []error{cluster.ErrUnknownOutcome}, []error{cluster.ErrUnreachable}, "lost after the write"},
		{Error{Cause: Closed}, []error{cluster.ErrUnreachable}, []error{cluster.ErrUnknownOutcome}, "lost before it"},
		{Error{Cause: Timeout, Sent: true}, []error{cluster.ErrTimeout, cluster.ErrUnknownOutcome}, []error{cluster.ErrUnreachable}, "expired"},
		{Error{Cause: Canceled, Err: context.Canceled}, []error{context.Canceled}, []error{cluster.ErrUnreachable, cluster.ErrTimeout}, "cancelled"},
		{Error{Cause: Canceled, Err: context.DeadlineExceeded}, []error{cluster.ErrTimeout}, []error{cluster.ErrUnreachable}, "the caller's deadline"},
		{Error{Cause: Unsupported}, []error{errors.ErrUnsupported}, []error{cluster.ErrUnreachable}, "unsupported"},
	} {
		for _, is := range tc.is {
			if !errors.Is(&tc.err, is) {
				t.Errorf("%s: not %v", tc.name, is)
			}
		}
		for _, not := range tc.not {
			if errors.Is(&tc.err, not) {
				t.Errorf("%s: is %v", tc.name, not)
			}
		}
	}
}

func TestCodes(t *testing.T) {
	if CodeError(0) != nil {
		t.Error("code 0 is an error")
	}
	if got := CodeError(6).Error(); got != "NOT_LEADER_OR_FOLLOWER (6)" {
		t.Errorf("code 6 is %q", got)
	}
	for code, want := range map[int16]error{
		-1: cluster.ErrRefused, 1: cluster.ErrOutOfRange, 2: cluster.ErrCorrupt, 3: cluster.ErrUnknownTopic, 5: cluster.ErrUnavailable,
		6: cluster.ErrNotLeader, 7: cluster.ErrTimeout, 10: cluster.ErrTooLarge, 18: cluster.ErrTooLarge, 19: cluster.ErrUnavailable,
		29: cluster.ErrAuthorization, 30: cluster.ErrAuthorization, 31: cluster.ErrAuthorization, 33: cluster.ErrAuthentication,
		35: errors.ErrUnsupported, 36: cluster.ErrTopicExists, 41: cluster.ErrUnavailable, 44: cluster.ErrRefused, 45: cluster.ErrOutOfOrder,
		47: cluster.ErrFenced, 53: cluster.ErrAuthorization, 58: cluster.ErrAuthentication, 74: cluster.ErrLeaderEpoch, 75: cluster.ErrLeaderEpoch,
		76: cluster.ErrCompression, 87: cluster.ErrRefused, 90: cluster.ErrFenced, 100: cluster.ErrUnknownTopic, 103: cluster.ErrTopicReplaced,
		136: cluster.ErrUnavailable, 137: cluster.ErrRefused, -2: cluster.ErrRefused, 32767: cluster.ErrRefused,
	} {
		if err := fmt.Errorf("wrapped: %w", CodeError(code)); !errors.Is(err, want) {
			t.Errorf("%v does not match %v", err, want)
		}
	}
	for i, row := range codes {
		if row.name == "" || (row.is == nil) != (i == 1) {
			t.Errorf("row of code %d: %+v", i-1, row)
		}
	}
	if !Code(6).Retriable() || Code(44).Retriable() || Code(999).Retriable() {
		t.Error("Retriable is not as in Kafka's exceptions")
	}
}
