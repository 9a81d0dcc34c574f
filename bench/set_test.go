package bench

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

const partitions = 4

// set is one topic full of records.
type set struct {
	name      string
	codec     string // as in codecs
	batch     int    // bytes of a batch on the wire, about
	value     int    // bytes of a record's value
	short     bool   // belongs to the ordinary run
	megabytes int    // of values, filled in by sets
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var allSets = []set{
	{name: "16KiB", codec: "none", batch: 16 << 10, value: 1000, short: true},
	{name: "16KiB-lz4", codec: "lz4", batch: 16 << 10, value: 1000},
	{name: "64KiB", codec: "none", batch: 64 << 10, value: 1000},
	{name: "256KiB", codec: "none", batch: 256 << 10, value: 1000},
	{name: "256KiB-lz4", codec: "lz4", batch: 256 << 10, value: 1000, short: true},
	{name: "256KiB-zstd", codec: "zstd", batch: 256 << 10, value: 1000},
	{name: "16KiB-100B", codec: "none", batch: 16 << 10, value: 100},
}

// sets are the data sets of this run.
func sets(t testing.TB) []set {
	t.Helper()
	pattern, err := regexp.Compile("^(?:" + *only + ")$")
	if err != nil {
		t.Fatal(err)
	}
	var out []set
	for _, s := range allSets {
		if s.megabytes = 256; *full {
			s.megabytes = 768
		}
		named := *only != "" && pattern.MatchString(s.name)
		if named || *only == "" && (*full || s.short) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		t.Fatalf("-set %q names no data set", *only)
	}
	return out
}

func (s set) topic() string { return fmt.Sprintf("bench-%s-%d", s.name, s.megabytes) }

func (s set) records() int { return s.megabytes * 1_000_000 / s.value }

func (s set) valueBytes() int64 { return int64(s.records()) * int64(s.value) }

// pair is two clusters of one node.
type pair struct{ source, destination *kafkatest.Cluster }

// jvm is how brokers are started.
func jvm() []string {
	if *full {
		return []string{"-Xmx768m", "-XX:TieredStopAtLevel=4"} // as brokers run; a short run would pay for the compiler
	}
	return []string{"-Xmx768m"}
}

// clusters are shared by all tests of the process, data sets included.
func clusters(t testing.TB) pair {
	t.Helper()
	o := func(side string) kafkatest.Options {
		return kafkatest.Options{JVM: append(jvm(), "-Dbench="+side), Config: map[string]string{
			"log.segment.delete.delay.ms": "500", // what was copied goes before the next copy
			"log.retention.ms":            "-1",
		}}
	}
	return pair{kafkatest.Shared(t, o("source")), kafkatest.Shared(t, o("destination"))}
}

// prepare loads a data set unless an earlier test did, and gives its size: the
// bytes of its batches as the source's log holds them.
func (p pair) prepare(ctx context.Context, t testing.TB, s set) (wire int64) {
	t.Helper()
	cl := p.source.Client(t)
	if exists(ctx, t, cl, s.topic()) {
		return logBytes(ctx, t, cl, s.topic())
	}
	p.source.CreateTopic(t, s.topic(), partitions, 1, nil)
	s.load(ctx, t, p.source)
	return logBytes(ctx, t, cl, s.topic())
}

// exists asks whether the cluster knows the topic.
func exists(ctx context.Context, t testing.TB, cl *kgo.Client, topic string) bool {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].ErrorCode == 0
}

// logBytes is the size of a topic's segments: its batches, byte for byte.
func logBytes(ctx context.Context, t testing.TB, cl *kgo.Client, topic string) (sum int64) {
	t.Helper()
	req := kmsg.NewPtrDescribeLogDirsRequest()
	one := kmsg.NewDescribeLogDirsRequestTopic()
	one.Topic = topic
	for p := range int32(partitions) {
		one.Partitions = append(one.Partitions, p)
	}
	req.Topics = append(req.Topics, one)
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			t.Fatal(shard.Err)
		}
		for _, dir := range shard.Resp.(*kmsg.DescribeLogDirsResponse).Dirs {
			for _, topic := range dir.Topics {
				for _, p := range topic.Partitions {
					sum += p.Size
				}
			}
		}
	}
	if sum == 0 {
		t.Fatalf("topic %s has no bytes", topic)
	}
	return sum
}

// drop deletes the copy and returns when the destination has forgotten it.
func (p pair) drop(ctx context.Context, t testing.TB, topic string) {
	t.Helper()
	cl := p.destination.Client(t)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	req.TopicNames = []string{topic}
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("deleting the copy of %s: %v", topic, err)
	}
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		if exists(ctx, t, cl, topic) {
			return fmt.Errorf("topic %s is still there", topic)
		}
		return nil
	})
}
