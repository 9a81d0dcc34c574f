package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

func newClient(t *testing.T, seeds []string, cfg *Config) *Client {
	c := NewClient(seeds, cfg)
	t.Cleanup(c.Close)
	return c
}

func TestClientAgainstCluster(t *testing.T) {
	seeds := fakeCluster(t, kfake.ClusterID("the-cluster"), kfake.SeedTopics(5, "orders"))
	ctx := testContext(t)
	c := newClient(t, append([]string{"127.0.0.1:1"}, seeds...), nil) // the first seed is dead
	if id, err := c.ClusterID(ctx); err != nil || id != "the-cluster" {
		t.Fatalf("cluster id %q, %v", id, err)
	}
	m, err := c.Metadata(ctx, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Brokers) != 3 || len(m.Topics["orders"].Partitions) != 5 || m.Topics["orders"].ID.IsZero() {
		t.Fatalf("metadata: %+v", m)
	}
	for i := range int32(5) {
		l, id, err := c.Leader(ctx, cluster.Partition{Topic: "orders", Partition: i}, i%2 == 0)
		if want := m.Topics["orders"].Partitions[i].Leader; err != nil || l != want || id != m.Topics["orders"].ID {
			t.Errorf("leader of %d is %v, %v; want %v", i, l, err, want)
		}
		conn, err := c.Conn(ctx, l.Broker, "data")
		if err != nil || conn.Addr() != m.Brokers[l.Broker] {
			t.Fatalf("connection to %d: %v", l.Broker, err)
		}
		if again, _ := c.Conn(ctx, l.Broker, "data"); again != conn {
			t.Error("a second connection for the same slot")
		}
		if other, _ := c.Conn(ctx, l.Broker, "other"); other == conn {
			t.Error("one connection for two slots")
		}
	}
	for _, p := range []cluster.Partition{{Topic: "nothing", Partition: 0}, {Topic: "orders", Partition: 5}} {
		if _, _, err := c.Leader(ctx, p, false); !errors.Is(err, cluster.ErrUnknownTopic) {
			t.Errorf("leader of %v: %v, want ErrUnknownTopic", p, err)
		}
	}
	if all, _ := c.Metadata(ctx, nil, false); len(all.Topics) != 1 {
		t.Errorf("asking created a topic: %v", all.Topics)
	}
	if _, err := c.Conn(ctx, 77, ""); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("broker 77: %v, want ErrUnreachable", err)
	}
	conn, err := c.Controller(ctx)
	if err != nil || conn.Addr().ID != m.ControllerID {
		t.Errorf("controller: %v, want broker %d", err, m.ControllerID)
	}
	coordinator, err := c.Coordinator(ctx, "group", "")
	if err != nil {
		t.Fatal(err)
	}
	c.ForgetCoordinator("group")
	if again, err := c.Coordinator(ctx, "group", ""); again != coordinator {
		t.Errorf("coordinator changed: %v", err)
	}
	c.Close()
	<-conn.Done()
	if again, err := c.Controller(ctx); err != nil || again == conn {
		t.Errorf("after Close: %v, want a new connection", err)
	}
}

// scripted is a cluster of one broker, number 1, for Metadata and FindCoordinator.
type scripted struct {
	asked   atomic.Int32 // metadata requests
	epoch   atomic.Int32
	last    atomic.Pointer[kmsg.MetadataRequest]
	hold    chan struct{} // when set, metadata answers wait for it
	brokers []kmsg.MetadataResponseBroker
}

func (s *scripted) serve(conn net.Conn) {
	converse(conn, func(r *received) error {
		if r.key != 3 {
			return io.EOF
		}
		s.asked.Add(1)
		req := kmsg.NewPtrMetadataRequest()
		req.Version = r.version
		if err := req.ReadFrom(r.body); err != nil {
			return err
		}
		s.last.Store(req)
		if s.hold != nil {
			<-s.hold
		}
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version, resp.ControllerID, resp.Brokers = r.version, 1, s.brokers
		for _, t := range req.Topics {
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic = t.Topic
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Leader, p.LeaderEpoch = 1, s.epoch.Load()
			rt.Partitions = append(rt.Partitions, p)
			resp.Topics = append(resp.Topics, rt)
		}
		return r.answer(resp.AppendTo(nil))
	})
}

func newScripted() *scripted {
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Host, b.Port = 1, "b1", 9092
	return &scripted{brokers: []kmsg.MetadataResponseBroker{b}}
}

func TestMetadataIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		c := NewClient([]string{"seed:9092"}, piped(s.serve))
		defer c.Close()
		p := cluster.Partition{Topic: "a"}
		look := func(want cluster.Leader, asked int32, when string) {
			t.Helper()
			l, _, err := c.Leader(t.Context(), p, false)
			if err != nil || l != want || s.asked.Load() != asked {
				t.Errorf("%s: leader %v, %v, asked %d times; want %v, %d", when, l, err, s.asked.Load(), want, asked)
			}
		}
		look(cluster.Leader{Broker: 1, Epoch: 0}, 1, "first")
		look(cluster.Leader{Broker: 1, Epoch: 0}, 1, "again")
		if req := s.last.Load(); req.AllowAutoTopicCreation {
			t.Error("the request allows topic creation")
		}
		given, _ := c.Metadata(t.Context(), []string{"a"}, false)
		c.Learn(p, cluster.Leader{Broker: 4, Epoch: 7})
		look(cluster.Leader{Broker: 4, Epoch: 7}, 1, "learnt")
		c.Learn(p, cluster.Leader{Broker: 5, Epoch: 6})
		look(cluster.Leader{Broker: 4, Epoch: 7}, 1, "learnt an older one")
		if got := given.Topics["a"].Partitions[0].Leader.Epoch; got != 0 {
			t.Errorf("Metadata given out changed: epoch %d", got)
		}
		s.epoch.Store(9)
		c.Stale("a")
		look(cluster.Leader{Broker: 1, Epoch: 9}, 2, "doubted")
		time.Sleep(maxAge)
		look(cluster.Leader{Broker: 1, Epoch: 9}, 3, "old")
	})
}

// Those who ask while a request is in flight share the next one, and one who
// gives up does not end it.
func TestMetadataIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		s.hold = make(chan struct{})
		c := NewClient([]string{"seed:9092"}, piped(s.serve))
		defer c.Close()
		ctx, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Metadata(ctx, []string{"first"}, true); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
		})
		synctest.Wait()
		for i := range 20 {
			all.Go(func() {
				name := fmt.Sprintf("t%02d", i)
				m, err := c.Metadata(t.Context(), []string{name}, true)
				if err != nil || len(m.Topics) != 1 || m.Topics[name].Name != name {
					t.Errorf("%s: %v, %+v", name, err, m)
				}
			})
		}
		synctest.Wait()
		giveUp()
		synctest.Wait()
		close(s.hold)
		all.Wait()
		if got := s.asked.Load(); got != 2 {
			t.Errorf("%d requests, want 2", got)
		}
		if got := len(s.last.Load().Topics); got != 20 {
			t.Errorf("the second asks for %d topics, want 20", got)
		}
	})
}

func TestBackoffAfterFailedDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var dials []time.Duration
		cfg := &Config{Dial: func(context.Context, string, string) (net.Conn, error) {
			dials = append(dials, time.Since(start))
			return nil, io.EOF
		}}
		c := NewClient([]string{"seed:1"}, cfg)
		defer c.Close()
		c.brokers = map[int32]Addr{1: {ID: 1, Host: "b", Port: 1}}
		for range 9 {
			if _, err := c.Conn(t.Context(), 1, ""); !errors.Is(err, cluster.ErrUnreachable) {
				t.Fatalf("%v, want ErrUnreachable", err)
			}
		}
		want := []time.Duration{0, 100, 300, 700, 1500, 3100, 6300, 11300, 16300}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(dials, want) {
			t.Errorf("dials at %v, want %v", dials, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := time.Now()
		if _, err := c.Conn(ctx, 1, ""); !errors.Is(err, io.EOF) || time.Since(before) != 0 {
			t.Errorf("no time left: %v after %v, want the last error at once", err, time.Since(before))
		}
	})
}

func TestDialIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		cfg := piped(s.serve)
		dial, dials := cfg.Dial, 0
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			time.Sleep(time.Second)
			return dial(ctx, network, address)
		}
		c := NewClient([]string{"seed:1"}, cfg)
		defer c.Close()
		c.brokers = map[int32]Addr{1: {ID: 1, Host: "b", Port: 1}}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Conn(short, 1, ""); !errors.Is(err, cluster.ErrTimeout) {
				t.Errorf("gave up: %v", err)
			}
		})
		for range 10 {
			all.Go(func() {
				if _, err := c.Conn(t.Context(), 1, ""); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if dials != 1 {
			t.Errorf("%d dials, want 1", dials)
		}
	})
}

func TestAnyNamesEveryAddress(t *testing.T) {
	cfg := &Config{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }}
	c := newClient(t, []string{"one:1", "two:2", "three"}, cfg)
	_, err := c.Any(testContext(t))
	if !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("%v, want ErrUnreachable", err)
	}
	for _, want := range []string{"one:1", "two:2", "three:9092"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in: %v", want, err)
		}
	}
	if _, err := newClient(t, nil, nil).Any(testContext(t)); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("no seeds: %v", err)
	}
}

// A broker advertised on an address that fails must not fail what does not need it.
func TestUnreachableBrokerFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		bad := kmsg.NewMetadataResponseBroker()
		bad.NodeID, bad.Host, bad.Port = 0, "bad", 1
		s.brokers = append([]kmsg.MetadataResponseBroker{bad}, s.brokers...)
		cfg := piped(s.serve)
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "bad:1" {
				return nil, io.EOF
			}
			return dial(ctx, network, address)
		}
		c := NewClient([]string{"seed:1"}, cfg)
		defer c.Close()
		if _, err := c.ClusterID(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Conn(t.Context(), 0, ""); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("bad broker: %v", err)
		}
		seed, _ := c.Any(t.Context())
		seed.Close() // now brokers come before seeds
		if _, _, err := c.Leader(t.Context(), cluster.Partition{Topic: "a"}, true); err != nil {
			t.Error(err)
		}
		if _, err := c.Controller(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseEndsLookUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		s.hold = make(chan struct{})
		c := NewClient([]string{"seed:1"}, piped(s.serve))
		results := make(chan error, 2)
		for range 2 { // one in flight, one waiting for the next
			go func() {
				_, err := c.Metadata(t.Context(), []string{"a"}, true)
				results <- err
			}()
			synctest.Wait()
		}
		c.Close()
		for range 2 {
			if err := <-results; !errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) {
				t.Errorf("after Close: %v, want net.ErrClosed", err)
			}
		}
		close(s.hold)
		if _, err := c.ClusterID(t.Context()); err != nil {
			t.Errorf("used after Close: %v", err)
		}
		c.Close()
	})
}
