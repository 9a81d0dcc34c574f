package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/transport/transporttest"
)

// destinationOf is a destination that leads in a real cluster, running until the test
// ends or stop is called.
func destinationOf(t testing.TB, k *kafkatest.Cluster, change func(*DestinationConfig)) (d *Destination, stop func()) {
	t.Helper()
	admin, err := kafka.New(kafka.Config{Bootstrap: k.Bootstrap()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DestinationConfig{
		Membership: Config{
			Bootstrap: k.Internal(), ClusterID: k.ClusterID(), IDs: IDs{First: 100, Last: 102}, Identities: new(MemoryIdentities),
			HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 3 * time.Second,
		},
		Admin: admin, Overrides: new(MemoryOverrides), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, name := range []string{"INTERNAL", "CLIENT"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Membership.Listeners = append(cfg.Membership.Listeners, Listener{Name: name, Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)})
	}
	if change != nil {
		change(&cfg)
	}
	if d, err = NewDestination(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
		admin.Close()
	}
	t.Cleanup(stop)
	return d, stop
}

// TestRealDestinationContract is what every destination promises, on three real brokers.
func TestRealDestinationContract(t *testing.T) {
	for _, version := range both() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3,
				Config: map[string]string{"broker.session.timeout.ms": "3000", "default.replication.factor": "3"}})
			d, _ := destinationOf(t, k, nil)
			if err := d.Membership().WaitJoined(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			cl := k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(5), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
			transporttest.Run(t, transporttest.Options{Timeout: time.Minute, Open: func(t testing.TB) transporttest.End {
				return transporttest.End{Destination: d, Produce: writes(cl)}
			}})
		})
	}
}

// writes is a producer that writes one record after the other.
func writes(cl *kgo.Client) func(context.Context, cluster.Partition, ...[]byte) error {
	return func(ctx context.Context, p cluster.Partition, batches ...[]byte) error {
		var errs []error
		for _, b := range batches {
			errs = append(errs, batch.Decode(batch.Header(b), func(r batch.Record) error {
				return cl.ProduceSync(ctx, &kgo.Record{Topic: p.Topic, Partition: p.Partition, Key: r.Key, Value: r.Value}).FirstErr()
			}))
		}
		return errors.Join(errs...)
	}
}
