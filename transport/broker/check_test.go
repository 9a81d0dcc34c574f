package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestTieredRefused: a topic of tiered storage is not taken over, and is left as it is.
func TestTieredRefused(t *testing.T) {
	on, id := "true", cluster.TopicID{7}
	f := startFake(t, 1, metalog.NewTopic{Name: "tiered", ID: id},
		metalog.NewPartition{ID: metalog.PartitionID{Topic: id}, Partition: metalog.Partition{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}},
		metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "tiered"}, Key: "remote.storage.enable", Value: &on})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDestination(DestinationConfig{
		Membership: Config{Bootstrap: f.Addrs(), Controllers: f.Addrs(), IDs: IDs{100, 101}, Identities: new(MemoryIdentities),
			Listeners:         []Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}},
			HeartbeatInterval: 20 * time.Millisecond, SessionTimeout: 4 * time.Second},
		Listeners: []net.Listener{l}, Admin: nobody{}, Overrides: new(MemoryOverrides),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	if err := d.Membership().WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	ends, err := d.Ends(within(t, time.Minute), []fetcher.Stretch{{Mirror: "m", Partition: cluster.Partition{Topic: "tiered"}, New: true}})
	if err != nil || !errors.Is(ends[0].Err, cluster.ErrRefused) || !strings.Contains(ends[0].Err.Error(), "remote.storage.enable") {
		t.Errorf("%+v, %v", ends, err)
	}
	if ours, err := d.cfg.Overrides.Topics(t.Context()); err != nil || len(ours) > 0 {
		t.Errorf("%v: ours are %v", err, ours)
	}
}

// TestNoControllers: where the controllers cannot be reached nothing is joined.
func TestNoControllers(t *testing.T) {
	f := startFake(t, 1)
	m, err := New(Config{Bootstrap: f.Addrs(), Controllers: []string{"127.0.0.1:1"}, IDs: IDs{100, 101}, Identities: new(MemoryIdentities),
		Listeners: []Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	m.starting = 100 * time.Millisecond
	if err := m.Run(within(t, time.Minute)); !errors.Is(err, ErrNoControllers) || !strings.Contains(err.Error(), "managed service") {
		t.Errorf("Run: %v", err)
	}
}

// TestRealRefused: clients that show certificates cannot be relayed, and brokers that do
// have to be asked for them.
func TestRealRefused(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{Mutual: true, Config: map[string]string{"listener.name.client.ssl.client.auth": "requested"}})
	ours, err := k.Certificate("mirror")
	if err != nil {
		t.Fatal(err)
	}
	trust := k.TLSConfig()
	trust.Certificates = []tls.Certificate{ours}
	asking := &tls.Config{Certificates: trust.Certificates, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: trust.RootCAs}
	check := func(between *tls.Config, names ...string) error {
		cfg := Config{Bootstrap: k.Internal(), ClusterID: k.ClusterID(), TLS: trust, IDs: IDs{100, 102}, Identities: new(MemoryIdentities)}
		for n, name := range names {
			cfg.Listeners = append(cfg.Listeners, Listener{Name: name, Host: "127.0.0.1", Port: uint16(9000 + n), Protocol: protocolSSL})
		}
		tr, err := NewTruncater(TruncateConfig{Membership: cfg, TLS: []*tls.Config{between}, Overrides: new(MemoryOverrides)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return tr.Check(within(t, time.Minute))
	}
	if err := check(asking, "INTERNAL"); err != nil {
		t.Errorf("between brokers, who are asked: %v", err)
	}
	if err := check(asking, "INTERNAL", "CLIENT"); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `"CLIENT"`) || strings.Contains(err.Error(), `"INTERNAL"`) {
		t.Errorf("with a listener whose clients are asked for certificates: %v", err)
	}
	if err := check(&tls.Config{Certificates: trust.Certificates}, "INTERNAL"); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `"INTERNAL"`) {
		t.Errorf("between brokers, who are not asked: %v", err)
	}
}
