package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

// pair are two fake clusters and the ways to them.
type pair struct {
	a, b                *kfake.Cluster
	net                 *kafkatest.Network
	source, destination *kafka.Cluster
}

// newPair starts a source with topics of one number of partitions, and an empty
// destination.
func newPair(t testing.TB, partitions int32, topics ...string) *pair {
	t.Helper()
	p := &pair{net: kafkatest.NewNetwork(t)}
	p.a = newCluster(t, "A", kfake.SeedTopics(partitions, topics...))
	p.b = newCluster(t, "B")
	p.source, p.destination = connect(t, p.a, p.net), connect(t, p.b, p.net)
	return p
}

func newCluster(t testing.TB, id string, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.ClusterID(id)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// connect makes a client of a fake cluster over a network.
func connect(t testing.TB, c *kfake.Cluster, net *kafkatest.Network, change ...func(*kafka.Config)) *kafka.Cluster {
	t.Helper()
	cfg := kafka.Config{Bootstrap: c.ListenAddrs(), DialTimeout: 2 * time.Second, RequestTimeout: 5 * time.Second}
	if net != nil {
		cfg.Dial = net.Dial
	}
	for _, f := range change {
		f(&cfg)
	}
	k, err := kafka.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

// toSource and toDestination are the links to one side's brokers.
func (p *pair) toSource() []*kafkatest.Link      { return p.net.Links(p.a.ListenAddrs()...) }
func (p *pair) toDestination() []*kafkatest.Link { return p.net.Links(p.b.ListenAddrs()...) }

// quick are options under which things happen soon.
func quick(include ...string) mirror.Options {
	return mirror.Options{
		Topics:       mirror.Topics{Include: include},
		SyncInterval: 200 * time.Millisecond, RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond,
		GroupTimeout: 2 * time.Second,
		Fetch:        fetcher.Options{BackoffMin: 10 * time.Millisecond, BackoffMax: 200 * time.Millisecond},
	}
}

// running is a mirror and the end of its Run.
type running struct {
	*mirror.Mirror
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

// patience is how long a test waits for what comes soon: only a failure waits so long,
// and a busy machine is slow.
const patience = 2 * time.Minute

// runBound is how long Run may take to return.
const runBound = 10 * time.Second

func newMirror(t testing.TB, source mirror.Source, destination mirror.Destination, o mirror.Options) *mirror.Mirror {
	t.Helper()
	m, err := mirror.New("dr", source, destination, &o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// start runs a mirror until the test or stop ends it.
func start(t testing.TB, m *mirror.Mirror) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Mirror: m, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = m.Run(ctx)
	}()
	t.Cleanup(func() { r.stop(t) })
	kafkatest.Eventually(t, patience, func(context.Context) error { // until then, operations are only recorded
		select {
		case <-r.ended:
			return nil
		default:
		}
		if !m.Status().Running {
			return errors.New("not running")
		}
		return nil
	})
	return r
}

// stop ends Run, which has to return nil in time.
func (r *running) stop(t testing.TB) {
	t.Helper()
	r.cancel()
	select {
	case <-r.ended:
		if r.err != nil {
			t.Errorf("Run: %v", r.err)
		}
	case <-time.After(runBound):
		t.Fatalf("Run did not return within %v", runBound)
	}
}

func run(t testing.TB, p *pair, o mirror.Options) *running {
	t.Helper()
	return start(t, newMirror(t, p.source, p.destination, o))
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// write appends n records to a partition of a fake cluster and gives the first
// offset. Each record says where it stands.
func write(t testing.TB, c *kfake.Cluster, topic string, partition int32, n int, opts ...kgo.Opt) int64 {
	t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{
			Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "key %d", i),
			Value: fmt.Appendf(nil, "%s-%d record %d", topic, partition, i),
		}
	}
	return writeRecords(t, c, records, opts...)
}

func writeRecords(t testing.TB, c *kfake.Cluster, records []*kgo.Record, opts ...kgo.Opt) int64 {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	results := cl.ProduceSync(within(t, patience), records...)
	if err := results.FirstErr(); err != nil {
		t.Fatalf("write: %v", err)
	}
	first := results[0].Record.Offset
	for _, r := range results {
		first = min(first, r.Record.Offset)
	}
	return first
}

func at(topic string, partition int32) cluster.Partition {
	return cluster.Partition{Topic: topic, Partition: partition}
}

// mirrored waits until a record of each partition is safe at the destination.
func mirrored(t testing.TB, m *running, last map[cluster.Partition]int64) {
	t.Helper()
	ctx := within(t, patience)
	for p, offset := range last {
		if err := m.WaitMirrored(ctx, p, offset); err != nil {
			t.Fatalf("%v\n%v", err, m.describe(p))
		}
	}
}

func (r *running) describe(p cluster.Partition) string {
	s, _ := r.partition(p)
	return fmt.Sprintf("%s\nsync error %q", show(s), r.Status().SyncError)
}

// show is a status in full: its String is only the partition's name.
func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (r *running) partition(p cluster.Partition) (mirror.PartitionStatus, bool) {
	top, ok := r.Topic(p.Topic)
	if !ok || int(p.Partition) >= len(top.Partitions) {
		return mirror.PartitionStatus{}, false
	}
	return top.Partitions[p.Partition], true
}

// reach waits until a partition is in a state, and gives its status then.
func (r *running) reach(t testing.TB, p cluster.Partition, state coordinator.State) (s mirror.PartitionStatus) {
	t.Helper()
	kafkatest.Eventually(t, patience, func(context.Context) error {
		var ok bool
		if s, ok = r.partition(p); !ok || s.State != state {
			return fmt.Errorf("%v is %q, want %s: %s", p, s.State, state, r.describe(p))
		}
		return nil
	})
	return s
}

// equal compares partitions record by record, ends too.
func equal(t testing.TB, a, b verify.Reader, ps ...cluster.Partition) {
	t.Helper()
	reports, err := verify.Topics(within(t, patience), a, b, ps, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		if !r.Equal || !r.EndsEqual {
			t.Errorf("not equal: %v", r)
		}
	}
}

// journal keeps what happened.
type journal struct {
	mu     sync.Mutex
	states []mirror.StateEvent
	topics []mirror.TopicEvent
	groups []mirror.GroupsEvent
}

func (j *journal) events() mirror.Events {
	return mirror.Events{
		State:  func(e mirror.StateEvent) { keep(j, &j.states, e) },
		Topic:  func(e mirror.TopicEvent) { keep(j, &j.topics, e) },
		Groups: func(e mirror.GroupsEvent) { keep(j, &j.groups, e) },
	}
}

func keep[E any](j *journal, to *[]E, e E) {
	j.mu.Lock()
	defer j.mu.Unlock()
	*to = append(*to, e)
}

// failure is the first FAILED event of a partition.
func (j *journal) failure(p cluster.Partition) (mirror.StateEvent, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.states {
		if e.Partition == p && e.To == coordinator.StateFailed {
			return e, true
		}
	}
	return mirror.StateEvent{}, false
}

// wantIs fails unless err is of every kind.
func wantIs(t testing.TB, err error, kinds ...error) {
	t.Helper()
	for _, k := range kinds {
		if !errors.Is(err, k) {
			t.Errorf("error is %v, want one that is %q", err, k)
		}
	}
}
