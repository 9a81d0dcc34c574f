package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joined is a membership with its server, in a real cluster.
type joined struct {
	*Membership
	server   *Server
	accepted *atomic.Int32 // connections, so far
	stop     func() error  // ends Run as ctx does, and gives its error
	done     <-chan error
}

// join starts one that ends with the test.
func join(t *testing.T, k *kafkatest.Cluster, cfg Config) *joined {
	t.Helper()
	cfg.Bootstrap = k.Bootstrap()
	var protocol int16
	if k.Options().SASL != "" {
		protocol = 2
	}
	return joinOn(t, k, cfg, protocol, nil, "INTERNAL", "CLIENT")
}

// counting is a listener that counts.
type counting struct {
	net.Listener
	accepted *atomic.Int32
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return conn, err
}

// joinOn starts one on listeners of a protocol, with our side of TLS.
func joinOn(t *testing.T, k *kafkatest.Cluster, cfg Config, protocol int16, secure *tls.Config, names ...string) *joined {
	t.Helper()
	cfg.ClusterID = k.ClusterID()
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	var listeners []net.Listener
	accepted := new(atomic.Int32)
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, &counting{l, accepted})
		cfg.Listeners = append(cfg.Listeners, Listener{Name: name, Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port), Protocol: protocol})
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done, ended := make(chan error, 1), make(chan struct{})
	server := NewServer(m, ServerConfig{Logger: cfg.Logger})
	for n, l := range listeners {
		serving := make(chan struct{})
		go func() {
			defer close(serving)
			if err := server.Serve(ctx, cfg.Listeners[n].Name, l, secure); err != nil {
				t.Errorf("Serve: %v", err)
			}
		}()
		t.Cleanup(func() { cancel(); <-serving })
	}
	go func() { done <- m.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return &joined{Membership: m, server: server, accepted: accepted, done: done, stop: func() error { cancel(); return <-done }}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// seen are the broker ids that a real broker tells clients of; fenced ones are
// not among them.
func seen(ctx context.Context, cl *kgo.Client) ([]int32, error) {
	resp, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, b := range resp.Brokers {
		ids = append(ids, b.NodeID)
	}
	slices.Sort(ids)
	return ids, nil
}

func waitSeen(t *testing.T, cl *kgo.Client, want ...int32) {
	t.Helper()
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		got, err := seen(ctx, cl)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("clients are told of brokers %v, want %v", got, want)
		}
		return err
	})
}

// offUs waits until a partition has as many replicas as it should, all in sync and
// none of them ours.
func offUs(t *testing.T, m *Membership, topic string, partitions, replicas int) time.Duration {
	t.Helper()
	began := time.Now()
	_, err := m.log.Wait(within(t, time.Minute), func(i metalog.Image) bool {
		got, ok := i.TopicNamed(topic)
		if !ok || int(got.Partitions) != partitions {
			return false
		}
		for n := range got.Partitions {
			p, _ := i.Partition(metalog.PartitionID{Topic: got.ID, Partition: n})
			if len(p.Replicas) != replicas || len(p.ISR) != replicas || p.Leader < 0 || slices.Max(p.Replicas) >= 100 {
				return false
			}
		}
		return true
	})
	if err != nil {
		for id, p := range m.log.Image().Partitions() {
			if topicName(m.log.Image(), id) == topic {
				t.Logf("%d: %+v", id.Partition, p)
			}
		}
		t.Fatalf("%s: %v", topic, err)
	}
	return time.Since(began)
}

// TestReal joins a cluster of three and goes through what can happen to a member.
func TestReal(t *testing.T) {
	for _, version := range both() {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // sessions take their time to end
			k := kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3, Config: map[string]string{"broker.session.timeout.ms": "4000"}})
			network := kafkatest.NewNetwork(t)
			identities := new(MemoryIdentities)
			cfg := Config{IDs: IDs{First: 100, Last: 102}, Identities: identities, Dial: network.Dial,
				HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 4 * time.Second}
			admin := k.Client(t)
			began := time.Now()
			us := join(t, k, cfg)
			if err := us.WaitJoined(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			t.Logf("joined after %v: %+v", time.Since(began), us.Self())
			waitSeen(t, admin, 1, 2, 3, 100)
			strays(t, k, us.Membership, version)
			us = crash(t, k, cfg, us)
			controllers(t, k, us.Membership)
			frozen(t, k, network, us.Membership)

			if err := us.Leave(within(t, time.Minute)); err != nil {
				t.Fatalf("Leave: %v", err)
			}
			if err := <-us.done; err != nil {
				t.Errorf("Run after Leave: %v", err)
			}
			waitSeen(t, admin, 1, 2, 3)
			if left, _ := identities.All(t.Context()); len(left) > 0 {
				t.Error("the identity is left")
			}
			for id, p := range us.log.Image().Partitions() {
				if slices.Contains(append(p.Replicas, p.ISR...), 100) {
					t.Errorf("trace in partition %v: %+v", id, p)
				}
			}
		})
	}
}

// strays: topics made by others never land on us, or not for long.
func strays(t *testing.T, k *kafkatest.Cluster, m *Membership, version string) {
	t.Helper()
	for n, replicas := range []int16{3, 1} {
		topic := fmt.Sprint("theirs-", n)
		k.CreateTopic(t, topic, 12, replicas, nil)
		landed := 0
		if version == "4.4.0" {
			image, err := m.log.Wait(within(t, time.Minute), func(i metalog.Image) bool { _, ok := i.TopicNamed(topic); return ok })
			if err != nil {
				t.Fatal(err)
			}
			landed = len(placedOn(image, 100))
		}
		began := time.Now()
		if _, err := m.log.Wait(within(t, time.Minute), func(i metalog.Image) bool { return len(placedOn(i, 100)) == 0 }); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		t.Logf("%s: off us after %v, whole after %v (%d landed on us)", topic, took, took+offUs(t, m, topic, 12, int(replicas)), landed)
		if landed > 0 {
			t.Errorf("%d partitions were placed on a cordoned broker", landed)
		}
		if took > 10*time.Second { // the bar is one second, on a machine that is not busy
			t.Errorf("%v until strays were off us", took)
		}
	}
	if err := m.Cordon(within(t, time.Minute), false); version != "4.4.0" {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Cordon on %s: %v", version, err)
		}
	} else {
		if err != nil {
			t.Fatal(err)
		}
		k.CreateTopic(t, "uncordoned", 12, 1, nil)
		t.Logf("uncordoned: whole and off us after %v", offUs(t, m, "uncordoned", 12, 1))
		movedToUs(t, k, m)
		if err := m.Cordon(within(t, time.Minute), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Client(t, kgo.DefaultProduceTopic("theirs-1")).ProduceSync(within(t, time.Minute), kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Errorf("writing to a topic that had strays: %v", err)
	}
}

// movedToUs: an operator gives us replicas.
func movedToUs(t *testing.T, k *kafkatest.Cluster, m *Membership) {
	t.Helper()
	ctx := within(t, time.Minute)
	i := m.log.Image()
	set := make(map[metalog.PartitionID][]int32)
	for _, id := range partitionsOf(i, "theirs-0") {
		p, _ := i.Partition(id)
		set[id] = append(slices.Clone(p.Replicas), 100)
	}
	c := &controller{quorum: m.quorum}
	defer c.drop()
	not, err := assign(ctx, c, i, set)
	if err := errors.Join(err, not.join()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.log.Wait(ctx, func(i metalog.Image) bool { return len(placedOn(i, 100)) > 0 }); err != nil {
		t.Fatal(err)
	}
	t.Logf("given by an operator: off us after %v", offUs(t, m, "theirs-0", 12, 3))
}

// crash: the same identity gets its session back at once, and nobody else gets it.
func crash(t *testing.T, k *kafkatest.Cluster, cfg Config, us *joined) *joined {
	t.Helper()
	before := us.Self()
	other := cfg
	other.Identities = new(MemoryIdentities)
	second := join(t, k, other)
	if err := second.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := second.Self().Broker; got != 101 {
		t.Errorf("a second member took id %d", got)
	}
	if err := second.Leave(within(t, time.Minute)); err != nil {
		t.Errorf("Leave of the second: %v", err)
	}
	if err := us.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	began := time.Now()
	us = join(t, k, cfg)
	if err := us.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if after := us.Self(); after.Broker != before.Broker || after.Epoch != before.Epoch {
		t.Errorf("we were %+v and are %+v", before, after)
	}
	t.Logf("back after a crash in %v", time.Since(began))
	return us
}

// controllers: the active one is killed.
func controllers(t *testing.T, k *kafkatest.Cluster, m *Membership) {
	t.Helper()
	active, err := m.quorum.Active(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dead := active.ID
	active.Close()
	before := m.Self()
	k.Kill(int(dead))
	_, err = m.log.Wait(within(t, time.Minute), func(i metalog.Image) bool { b, _ := i.Broker(dead); return b.Fenced })
	if err != nil {
		t.Fatal(err)
	}
	if b, self, ok := m.mine(m.log.Image()); !ok || b.Fenced || self.Broker != before.Broker || self.Epoch != before.Epoch {
		t.Errorf("after a controller was killed: %+v, we were %+v and are %+v", b, before, self)
	}
	k.Restart(int(dead))
}

// frozen: nothing of ours reaches the cluster for longer than a session.
func frozen(t *testing.T, k *kafkatest.Cluster, network *kafkatest.Network, m *Membership) {
	t.Helper()
	outside := observe(t, k)
	fenced := func(want bool) func(metalog.Image) bool {
		return func(i metalog.Image) bool { b, ok := i.Broker(m.Self().Broker); return ok && b.Fenced == want }
	}
	links := network.Links(append(append(k.Bootstrap(), k.Controllers()...), k.Internal()...)...)
	for _, l := range links {
		l.Blackhole(true)
	}
	if _, err := outside.Wait(within(t, time.Minute), fenced(true)); err != nil {
		t.Fatal("the session does not end: ", err)
	}
	for _, l := range links {
		l.Blackhole(false)
	}
	began := time.Now()
	if _, err := outside.Wait(within(t, time.Minute), fenced(false)); err != nil {
		t.Fatal("not let in again: ", err)
	}
	t.Logf("back %v after the network", time.Since(began))
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
}

// observe reads the metadata log by a way of its own.
func observe(t *testing.T, k *kafkatest.Cluster) *metalog.Reader {
	t.Helper()
	q, err := metalog.NewQuorum(metalog.QuorumConfig{Controllers: k.Controllers()})
	if err != nil {
		t.Fatal(err)
	}
	r := metalog.New(metalog.Config{Quorum: q})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return r
}
