package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

const (
	hotBatch    = 256 << 10
	hotUnderWay = 32 // batches
)

// heat is what was measured of a hot partition.
type heat struct {
	Seconds, CPU float64
	Bytes        int64
	Stop         float64 // seconds until real brokers lead all partitions
}

func hotChild(args []string) error {
	var j job
	if err := json.Unmarshal([]byte(args[0]), &j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	h, err := runHot(ctx, j)
	if err != nil {
		return err
	}
	line, err := json.Marshal(h)
	fmt.Printf("result %s\n", line)
	return err
}

// runHot leads a hot partition and idle ones, and appends to the hot one as fast as
// its followers take it.
func runHot(ctx context.Context, j job) (h heat, err error) {
	d, err := join(j)
	if err != nil {
		return h, err
	}
	err = d.during(ctx, func(ctx context.Context) error {
		hot := cluster.Partition{Topic: j.Topic}
		topics := []cluster.NewTopic{{Name: hot.Topic, Partitions: 1, ReplicationFactor: -1}}
		if j.Idle > 0 {
			topics = append(topics, cluster.NewTopic{Name: idleTopic(j.Topic), Partitions: int32(j.Idle), ReplicationFactor: -1})
		}
		stretches, err := d.lead(ctx, topics)
		if err != nil {
			return err
		}
		next, err := d.feed(ctx, hot, 0, j.Bytes/4) // sockets, and the brokers' code
		if err != nil {
			return err
		}
		if j.Profile != "" {
			f, err := os.Create(j.Profile)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		cpu, began := spent(), time.Now()
		if _, err = d.feed(ctx, hot, next, j.Bytes); err != nil {
			return err
		}
		h.CPU, h.Seconds, h.Bytes = spent()-cpu, time.Since(began).Seconds(), j.Bytes
		pprof.StopCPUProfile()
		began = time.Now()
		ends, err := d.Fence(ctx, stretches)
		h.Stop = time.Since(began).Seconds()
		return errors.Join(err, firstOf(ends))
	})
	return h, err
}

func idleTopic(hot string) string { return hot + "-idle" }

// lead creates topics and begins their stretches.
func (d *joined) lead(ctx context.Context, topics []cluster.NewTopic) (stretches []fetcher.Stretch, err error) {
	if err := d.Membership().WaitJoined(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(d.CreateTopics(ctx, topics)...); err != nil {
		return nil, err
	}
	for _, t := range topics {
		for n := range t.Partitions {
			stretches = append(stretches, fetcher.Stretch{Mirror: "bench", Partition: cluster.Partition{Topic: t.Name, Partition: n}, New: true})
		}
	}
	for { // brokers make a thousand replicas first
		ends, err := d.Ends(ctx, stretches)
		if err = errors.Join(err, firstOf(ends)); !errors.Is(err, cluster.ErrUnavailable) {
			return stretches, err
		}
	}
}

// firstOf is the first error of any partition.
func firstOf(ends []fetcher.End) error {
	for _, e := range ends {
		if e.Err != nil {
			return e.Err
		}
	}
	return nil
}

// feed appends batches from offset next on, and waits until a quorum has them.
func (d *joined) feed(ctx context.Context, p cluster.Partition, next, bytes int64) (int64, error) {
	free := make(chan []byte, hotUnderWay)
	body := hotBytes()
	for range hotUnderWay {
		free <- append([]byte(nil), body...)
	}
	landed := make(chan error, bytes/int64(len(body))+1)
	records := int64(batch.Header(body).Next())
	for sent, held := int64(0), int64(0); held < bytes; {
		var buffers chan []byte
		if sent < bytes {
			buffers = free
		}
		select {
		case b := <-buffers:
			binary.BigEndian.PutUint64(b, uint64(next))
			one := cluster.Batch{Base: next, Next: next + records, Bytes: b}
			next += records
			sent += int64(len(b))
			d.Append(p, []cluster.Batch{one}, func() { free <- b }, func(r fetcher.Result) { landed <- r.Err })
		case err := <-landed:
			if err != nil {
				return 0, err
			}
			held += int64(len(body))
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return next, nil
}

// hotBytes is a batch of 1,000-byte values.
func hotBytes() []byte {
	var s batch.Spec
	for n := range hotBatch / 1024 {
		value := make([]byte, 1000)
		fill(value, uint64(n))
		s.Records = append(s.Records, batch.Record{Offset: int64(n), Value: value})
	}
	return batch.Encode(s)
}

// spent is the processor time of this process, in seconds.
func spent() float64 {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}

// idleBar is how much of its speed a hot partition may lose to idle ones beside it.
const idleBar = 0.1

// TestIdle: a hot partition alone, and beside idle ones that the same brokers follow.
// With -full a real leader is measured beside: what it loses is not ours.
func TestIdle(t *testing.T) {
	p := followed(t)
	rounds, idle, bytes := 1, 100, int64(64<<20)
	if *full {
		rounds, idle, bytes = 3, 1000, 1<<30
	}
	alone, beside := &heats{}, &heats{}
	var realAlone, realBeside []float64
	for round := range rounds {
		topic := fmt.Sprintf("hot-%d", round)
		for turn := range 2 {
			n, ours, theirs := 0, alone, &realAlone
			if turn != round%2 { // brokers that have run for longer are faster
				n, ours, theirs = idle, beside, &realBeside
			}
			ours.add(p.heat(t, topic, n, bytes))
			if *full {
				*theirs = append(*theirs, p.led(t, topic, n, bytes/2))
			}
		}
	}
	t.Logf("alone: %v", alone)
	t.Logf("beside %d: %v", idle, beside)
	lost := 1 - middle(beside.rates)/middle(alone.rates)
	b := bar{fmt.Sprintf("lost beside %d", idle), lost, idleBar}
	t.Log(b)
	if *full {
		t.Logf("followers of a real leader: alone %.0f MB/s, beside %d %.0f MB/s, lost %.2f",
			middle(realAlone), idle, middle(realBeside), 1-middle(realBeside)/middle(realAlone))
	}
	if lost > shared*idleBar {
		t.Errorf("%v: more than %d times the bar", b, shared)
	}
}

// heats are what was measured in some rounds.
type heats struct{ rates, cpu, stops []float64 }

func (h *heats) add(one heat) {
	h.rates = append(h.rates, float64(one.Bytes)/1e6/one.Seconds)
	h.cpu = append(h.cpu, one.CPU*1e9/float64(one.Bytes))
	h.stops = append(h.stops, one.Stop)
}

func (h *heats) String() string {
	return fmt.Sprintf("%.0f MB/s (%.0f), %.2f processor seconds per GB, handed back in %.1f s", middle(h.rates), h.rates, middle(h.cpu), middle(h.stops))
}

func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// heat measures in a process of its own.
func (p pair) heat(t *testing.T, topic string, idle int, bytes int64) (h heat) {
	t.Helper()
	k, ctx := p.destination, t.Context()
	j := job{Destination: k.Bootstrap(), Internal: k.Internal(), ClusterID: k.ClusterID(), Idle: idle, Topic: topic, Bytes: bytes}
	if *profile != "" {
		j.Profile = filepath.Join(*profile, fmt.Sprintf("%s-%d.pprof", topic, idle))
	}
	child := spawn(t, "hot", j)
	if err := json.Unmarshal([]byte(strings.TrimPrefix(child.WaitLine(ctx, "result "), "result ")), &h); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(ctx); err != nil {
		t.Fatalf("%v, its output:\n%s", err, strings.Join(child.Lines(), "\n"))
	}
	p.drop(ctx, t, topic)
	if idle > 0 {
		p.drop(ctx, t, idleTopic(topic))
	}
	return h
}

// led has broker 2 copy a partition that broker 1 leads, beside idle ones, and gives the
// MB/s.
func (p pair) led(t *testing.T, topic string, idle int, bytes int64) float64 {
	t.Helper()
	k, ctx := p.destination, t.Context()
	place(t, k, topic, 1, 1)
	if idle > 0 {
		place(t, k, idleTopic(topic), idle, 1, 2)
	}
	cl := k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(hotBatch), kgo.MaxBufferedRecords(1<<17), kgo.MaxBufferedBytes(64<<20), kgo.ProducerLinger(20*time.Millisecond))
	value := make([]byte, 1000)
	fill(value, 1)
	for range bytes / 1000 {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: value}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 30_000
	one, part := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	part.Replicas = []int32{1, 2}
	one.Topic, one.Partitions = topic, append(one.Partitions, part)
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		req := kmsg.NewPtrMetadataRequest()
		one := kmsg.NewMetadataRequestTopic()
		one.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, one)
		resp, err := req.RequestWith(ctx, cl)
		if err == nil && len(resp.Topics[0].Partitions[0].ISR) != 2 {
			err = fmt.Errorf("in sync are %v", resp.Topics[0].Partitions[0].ISR)
		}
		return err
	})
	took := time.Since(began)
	p.drop(ctx, t, topic)
	if idle > 0 {
		p.drop(ctx, t, idleTopic(topic))
	}
	return float64(bytes) / 1e6 / took.Seconds()
}

// place makes a topic with all replicas on the same brokers.
func place(t *testing.T, k *kafkatest.Cluster, topic string, partitions int, brokers ...int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, -1, -1
	for n := range partitions {
		part := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		part.Partition, part.Replicas = int32(n), brokers
		one.ReplicaAssignment = append(one.ReplicaAssignment, part)
	}
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(t.Context(), k.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}
