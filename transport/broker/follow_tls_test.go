package broker

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// selfSigned is a server's side of TLS.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// TestParkedOverTLS: the wait for the end of a connection leaves TLS whole, again and
// again, and records of any size come through.
func TestParkedOverTLS(t *testing.T) {
	s := startParked(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := selfSigned(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(ctx, "CLIENT", l, secure) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) // nothing is proven here
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	s.conn = conn
	s.send(fetchFrame(fetchOf(0, 0, 0), 1, 0))
	s.id = s.receive().SessionID
	next, corr := int64(0), int32(1)
	ask := func(partitions ...int32) {
		req := fetchOf(s.id, corr, partitions...)
		for i := range req.Topics[0].Partitions {
			p := &req.Topics[0].Partitions[i]
			p.FetchOffset, p.LastFetchedEpoch = next, 4
		}
		corr++
		s.send(fetchFrame(req, corr, 25*time.Second))
	}
	for n := range 10 {
		ask()
		s.eventually(func() bool { return s.busy(corr) })
		records := 40 * (n + 2) * (n + 2)
		end, want := next+int64(records), batchAt(next, records, 4)
		s.p.Append([]cluster.Batch{{Base: next, Next: end, Epoch: 4, Bytes: bytes.Clone(want)}}, nil, func(int64, int, error) {})
		resp := s.receive()
		if len(resp.Topics) != 1 || !bytes.Equal(resp.Topics[0].Partitions[0].RecordBatches, want) {
			t.Fatalf("not the %d bytes that were appended: %+v", len(want), resp)
		}
		next = end
		ask(0)
		if resp = s.receive(); len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].HighWatermark != next {
			t.Fatalf("high watermark %d: %+v", next, resp)
		}
	}
}
