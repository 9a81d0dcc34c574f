package acceptance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/logdir"
	"github.com/clustermirror/mirror/internal/zoo/live"
	"github.com/clustermirror/mirror/transport/broker"
)

// joinedVersions are the clusters that are joined: the newest, and in the long form all
// (what the older one does in another way is tried in transport/broker each time).
var joinedVersions = sized([]string{"4.4.0"}, []string{"4.4.0", "3.9.1"})

// joinable is a cluster of three brokers to be joined. Its own cleaner does not come by.
func joinable(t *testing.T, version string) *kafkatest.Cluster {
	return kafkatest.Shared(t, kafkatest.Options{Version: version, Nodes: 3, Config: map[string]string{
		"broker.rack": "joined", "default.replication.factor": "3", "broker.session.timeout.ms": "3000",
		"log.cleaner.backoff.ms": "3600000", "auto.leader.rebalance.enable": "false",
	}})
}

// member is what outlives a process that has joined a cluster.
type member struct {
	t          *testing.T
	k          *kafkatest.Cluster
	identities broker.MemoryIdentities
	overrides  broker.MemoryOverrides
	first      int32 // broker id
	// addresses are the same in each life: replicas look for a leader of the same epoch
	// where it was.
	addresses []string
}

// destination is what a process has that joins; it belongs to one mirror, which runs it.
func (m *member) destination(change ...func(*broker.DestinationConfig)) *broker.Destination {
	m.t.Helper()
	cfg := broker.DestinationConfig{
		Membership: broker.Config{
			Bootstrap: m.k.Internal(), ClusterID: m.k.ClusterID(), IDs: broker.IDs{First: m.first, Last: m.first + 2}, Identities: &m.identities,
			HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 3 * time.Second,
		},
		Admin: connect(m.t, m.k), Overrides: &m.overrides, Logger: slog.New(slog.NewTextHandler(m.t.Output(), nil)),
	}
	for n, name := range []string{"INTERNAL", "CLIENT"} {
		if n == len(m.addresses) {
			m.addresses = append(m.addresses, "127.0.0.1:0")
		}
		l, err := net.Listen("tcp", m.addresses[n])
		if err != nil {
			m.t.Fatal(err)
		}
		m.addresses[n] = l.Addr().String()
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Membership.Listeners = append(cfg.Membership.Listeners, broker.Listener{Name: name, Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)})
	}
	for _, c := range change {
		c(&cfg)
	}
	d, err := broker.NewDestination(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	return d
}

// away has the member leave its cluster, which others may use. Nothing is its own any more.
func (m *member) away() {
	m.t.Helper()
	depart(m.t, m.destination())
}

// depart runs a destination until it has left its cluster.
func depart(t *testing.T, d *broker.Destination) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	if err := d.Membership().Leave(ctx); err != nil {
		t.Errorf("leaving: %v", err)
		cancel()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// replicas are the real brokers with a replica of a partition.
func replicas(ctx context.Context, cl *kgo.Client, p cluster.Partition) (out []int32, err error) {
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &p.Topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, one)
	m, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(m.Topics[0].ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	for _, part := range m.Topics[0].Partitions {
		if part.Partition == p.Partition {
			for _, r := range part.Replicas {
				if r < 100 {
					out = append(out, r)
				}
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// sameBytes waits until every replica of a topic at the destination has, from the log start on,
// the bytes that a broker of the source has, leader epochs and the places where they begin
// included.
func sameBytes(t *testing.T, within time.Duration, src, dst *kafkatest.Cluster, from int, topic string, n int32) {
	t.Helper()
	sameLogs(t, within, src, dst, from, topic, n, func(logdir.Log) {})
}

// sameLogs is sameBytes of logs in which something is made alike before.
func sameLogs(t *testing.T, within time.Duration, src, dst *kafkatest.Cluster, from int, topic string, n int32, alike func(logdir.Log)) {
	t.Helper()
	cl, starts := dst.Client(t), src.Starts(t.Context(), t, topic)
	var size, copies int
	var last error
	kafkatest.Eventually(t, within, func(ctx context.Context) (err error) {
		defer func() {
			if ctx.Err() != nil { // in the middle of a question
				err = last
			}
			last = err
		}()
		size, copies = 0, 0
		for _, p := range partitions(topic, n) {
			a, err := logdir.Read(src.LogDir(from), p)
			if err != nil {
				return err
			}
			a = a.FromFirstBatch().From(starts[p.Partition])
			alike(a)
			all, err := replicas(ctx, cl, p)
			if err == nil && len(all) == 0 {
				err = fmt.Errorf("%v has no replica", p)
			}
			if err != nil {
				return err
			}
			for _, r := range all {
				b, err := logdir.Read(dst.LogDir(int(r)), p)
				if err != nil {
					return err
				}
				b = b.From(starts[p.Partition])
				alike(b)
				if diff := logdir.Diff(a, b); diff != "" {
					return fmt.Errorf("%v on broker %d: source and destination: %s", p, r, diff)
				}
				copies++
			}
			for _, b := range a.Batches {
				size += len(b.Bytes)
			}
		}
		return nil
	})
	t.Logf("%s: %d bytes are the same on %d replicas", topic, size, copies)
}

// refused is a producer that is told that it must not write.
func refused(t *testing.T, c *kafkatest.Cluster, p cluster.Partition) {
	t.Helper()
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(20*time.Second))
	err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: p.Topic, Partition: p.Partition, Value: []byte("of others")}).FirstErr()
	if !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("writing to %v: %v", p, err)
	}
}

// TestJoinedZoo: what a log can hold stands on every real replica byte for byte as it does
// at the source. Clients read it while we lead, and cannot write to it; after the stop they
// can, no transaction of the source's is open, and the mirror can begin again.
func TestJoinedZoo(t *testing.T) {
	for _, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			prefix := "joined" + version[:1] + "-"
			topics := fill(t, src, prefix, 5, sized(40, 400))
			us := &member{t: t, k: dst, first: 100}
			options := mirror.Options{Topics: mirror.Topics{Include: []string{prefix + ".*"}}, Store: coordinator.NewMemory()}
			m := run(t, "joined", connect(t, src), us.destination(), options)
			complain(t, version, m)
			began := time.Now()
			for _, topic := range topics {
				caughtUp(t, time.Minute, src, dst, topic.Name)
			}
			t.Logf("copied after %v", time.Since(began))
			for _, topic := range topics {
				sameBytes(t, time.Minute, src, dst, 1, topic.Name, topic.Partitions)
			}
			same(t, src, dst, topics)
			refused(t, dst, cluster.Partition{Topic: topics[0].Name})
			began = time.Now()
			if err := m.Stop(timeout(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			t.Logf("stopped in %v", time.Since(began))
			same(t, src, dst, topics)
			for _, topic := range topics {
				closed(t, dst, topic)
				// A producer that is new here must not be taken for one of the source.
				before := ends(t, dst, topic.Name)[0]
				if at := write(t, dst, topic.Name, 0, 10); at < before {
					t.Errorf("%s: records written behind %d are said to stand at %d", topic.Name, before, at)
				}
			}
			m.end()

			// What was written there goes, markers of the stop included.
			options.DiscardLocalWrites = true
			m = run(t, "joined", connect(t, src), us.destination(), options)
			complain(t, version, m)
			for _, topic := range topics {
				kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
					if _, known := m.Topic(topic.Name); !known {
						return fmt.Errorf("%s is not known", topic.Name)
					}
					return m.Start(ctx, topic.Name)
				})
			}
			for _, topic := range topics {
				write(t, src, topic.Name, 0, 10)
				caughtUp(t, time.Minute, src, dst, topic.Name)
			}
			for _, topic := range topics {
				sameBytes(t, time.Minute, src, dst, 1, topic.Name, topic.Partitions)
			}
			if err := m.Stop(timeout(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			m.end()
			us.away()
		})
	}
}

// write writes n records with keys to a partition, and gives the offset of the first.
func write(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, n int) int64 {
	t.Helper()
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Append(nil, "written ", i), Value: []byte("here")})
	}
	results := cl.ProduceSync(timeout(t, time.Minute), records...)
	if err := results.FirstErr(); err != nil {
		t.Fatal(err)
	}
	return results[0].Record.Offset
}

// closed: no transaction is open in a topic, so that readers of committed records come to
// its end.
func closed(t *testing.T, c *kafkatest.Cluster, topic live.Topic) {
	t.Helper()
	cl := c.Client(t)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		committed, err := stable(ctx, cl, topic.Name, topic.Partitions)
		if err != nil {
			return err
		}
		ends, err := highWatermarks(ctx, cl, topic.Name)
		if err == nil && !slices.Equal(committed, ends) {
			err = fmt.Errorf("%s ends at %v, readers of committed records come to %v", topic.Name, ends, committed)
		}
		return err
	})
}
