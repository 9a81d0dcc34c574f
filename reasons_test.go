package mirror_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestC11_7_Reasons: why a cluster cannot be used is known by type, in what an
// operation returns, and can be read in the status.
func TestC11_7_Reasons(t *testing.T) {
	guarded := newCluster(t, "A", kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "right"))
	// The fake closes the connection on a wrong password; a broker says so first.
	guarded.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	open := newCluster(t, "open")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, tc := range []struct {
		name   string
		config kafka.Config
		kind   error
		text   string
	}{
		{"refused", kafka.Config{Bootstrap: []string{closed.Addr().String()}}, mirror.ErrUnreachable, "refused"},
		{
			"no such host",
			kafka.Config{Bootstrap: []string{"kafka.invalid:9092"}, Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: "kafka.invalid", IsNotFound: true}}
			}},
			mirror.ErrUnreachable, "dns",
		},
		{"not TLS", kafka.Config{Bootstrap: open.ListenAddrs(), TLS: &tls.Config{}}, mirror.ErrUnreachable, "tls"},
		{
			"wrong password",
			kafka.Config{Bootstrap: guarded.ListenAddrs(), SASL: plain.Mechanism{Username: "admin", Password: "wrong"}},
			mirror.ErrAuthentication, "sasl",
		},
		{"no answer", kafka.Config{Bootstrap: []string{silent.Addr().String()}}, mirror.ErrTimeout, "timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.config.DialTimeout, tc.config.RequestTimeout = 500*time.Millisecond, 4*time.Second
			bad, err := kafka.New(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { bad.Close() })
			b := newCluster(t, "B", kfake.SeedTopics(1, "orders"))
			// As a source: the status shows the reason.
			r := start(t, newMirror(t, bad, connect(t, b, nil), quick("orders")))
			kafkatest.Eventually(t, patience, func(context.Context) error {
				if s := r.Status(); !strings.Contains(s.SyncError, tc.text) || s.Health != "troubled" {
					return errors.New(show(s))
				}
				return nil
			})
			if s := r.Status().SyncError; strings.Contains(s, "wrong") || !strings.Contains(s, "source cluster id") {
				t.Errorf("sync error %q", s)
			}
			// As a destination: an operation says it by type.
			r = start(t, newMirror(t, connect(t, b, nil), bad, quick("orders")))
			err = r.Stop(within(t, patience), "unknown")
			wantIs(t, err, tc.kind)
			var e *mirror.Error
			if !errors.As(err, &e) || e.Op != "stop" {
				t.Errorf("error %#v", err)
			}
		})
	}
}

// TestReasonOfAPartition: a partition whose source does not answer keeps
// MIRRORING, shows why by type, and goes on by itself.
func TestReasonOfAPartition(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  *kerr.Error
		kind error
	}{
		{"not authorized", kerr.TopicAuthorizationFailed, mirror.ErrAuthorization},
		{"no leader", kerr.LeaderNotAvailable, cluster.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t, 1, "orders", "other")
			r := run(t, p, quick(".*"))
			mirrored(t, r, map[cluster.Partition]int64{orders: write(t, p.a, "orders", 0, 1)})
			bad := p.a.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders", Err: tc.err, Count: -1})
			kafkatest.Eventually(t, patience, func(context.Context) error {
				s, _ := r.partition(orders)
				if !errors.Is(s.Err, tc.kind) || s.Reason == "" {
					return errors.New(show(s))
				}
				return nil
			})
			mirrored(t, r, map[cluster.Partition]int64{at("other", 0): write(t, p.a, "other", 0, 1)})
			bad.Remove()
			mirrored(t, r, map[cluster.Partition]int64{orders: write(t, p.a, "orders", 0, 1)})
			kafkatest.Eventually(t, patience, func(context.Context) error {
				if s, _ := r.partition(orders); s.State != coordinator.StateMirroring || s.Reason != "" || r.Status().Health != "ok" {
					return errors.New(show(s))
				}
				return nil
			})
		})
	}
}
