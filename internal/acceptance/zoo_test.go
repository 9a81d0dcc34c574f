package acceptance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo/live"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

// ways are those in which a destination fills the offsets without records.
var ways = map[string]kafka.GapFill{"markers": kafka.GapMarkers, "phantoms": kafka.GapPhantoms}

func filling(way string) func(*kafka.Config) {
	return func(c *kafka.Config) { c.GapFill = ways[way] }
}

// zooDestination is where a zoo is mirrored to in one of the ways: where all else goes, or
// to a cluster like that.
func zooDestination(t *testing.T, way string) *kafkatest.Cluster {
	if way == "markers" {
		return destination(t)
	}
	return kafkatest.Shared(t, kafkatest.Options{Config: map[string]string{"broker.rack": "zoo-" + way, "log.cleaner.backoff.ms": "3600000"}})
}

// fill makes a zoo.
func fill(t *testing.T, c *kafkatest.Cluster, prefix string, seed uint64, batches int) []live.Topic {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	began := time.Now()
	topics, err := live.Fill(ctx, live.Options{
		Client: c.ClientOpts(), Reader: connect(t, c), Release: c.Version(), Prefix: prefix, Seed: seed, Batches: batches,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("filled in %v", time.Since(began))
	return topics
}

// crashes says why a family cannot read a log of the source, that it can read at the
// destination; nothing if that is no known weakness of it. kafka-go panics at an empty
// batch, which compaction leaves; clients in Go refuse lz4 of message format 0, whose
// writers made another checksum (kafka-go without a word).
func crashes(family string, topic live.Topic, err error) string {
	switch {
	case err == nil:
	case family == "kafka-go" && topic.Census[live.Empty] > 0 && strings.Contains(err.Error(), "markRead: negative count"):
		return "panics at an empty batch of the source"
	case topic.Census[live.Format0] > 0 && strings.Contains(err.Error(), "lz4: invalid header checksum"):
		return "cannot read lz4 of message format 0"
	case family == "kafka-go" && topic.Census[live.Format0] > 0 && strings.Contains(err.Error(), "deadline exceeded"):
		return "stands still at lz4 of message format 0"
	}
	return ""
}

// timed makes one of the ways in which clients show that a message of format 0 has no
// timestamp.
func timed(topic live.Topic, lines []kafkatest.Line) []kafkatest.Line {
	for i, l := range lines {
		if topic.Census[live.Format0] > 0 && (l.Time == "" || l.Time == "0") {
			lines[i].Time = "-1"
		}
	}
	return lines
}

// TestZoo: a zoo is mirrored with markers and with phantoms. Both copies are equal, and
// five families of clients see the same there as at the source; so they do when the
// transactions have ended that were open. From sources before 3.0 it is C5.5 as well.
func TestZoo(t *testing.T) {
	src, a := source(t), invite(t)
	topics := fill(t, src, "zoo-", 1, sized(40, 400))
	for way := range ways {
		dst := zooDestination(t, way)
		m := run(t, "zoo", connect(t, src), connect(t, dst, filling(way)), mirror.Options{Topics: mirror.Topics{Include: []string{"zoo-.*"}}})
		complain(t, way, m)
	}
	began := time.Now()
	for way := range ways {
		for _, topic := range topics {
			stableUp(t, sized(time.Minute, 10*time.Minute), src, zooDestination(t, way), topic)
		}
		t.Logf("%s: copied after %v", way, time.Since(began))
		same(t, src, zooDestination(t, way), topics)
	}
	for _, topic := range topics {
		t.Run(topic.Name, func(t *testing.T) { look(t, a, src, topic) })
	}
	for _, topic := range topics {
		endOpen(t, src, topic)
	}
	for way := range ways {
		for _, topic := range topics {
			caughtUp(t, time.Minute, src, zooDestination(t, way), topic.Name)
			equal(t, src, zooDestination(t, way), topic.Name, topic.Partitions)
		}
	}
}

// look has each family read a topic at the source and at the destinations.
func look(t *testing.T, a *audience, src *kafkatest.Cluster, topic live.Topic) {
	all, err := a.sees(t, "librdkafka", src, part{topic: topic.Name})
	if err != nil {
		t.Fatal(err)
	}
	knows(t, topic, all)
	known, p := places(all), parted(topic.Name, all)
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			source, err := a.sees(t, family, src, p)
			if weak := crashes(family, topic, err); weak != "" {
				t.Log(weak)
				source, err = nil, nil
			}
			if err != nil {
				t.Fatalf("source: %v", err)
			}
			source = timed(topic, source)
			for way := range ways {
				destination, err := a.sees(t, family, zooDestination(t, way), p)
				if err != nil {
					t.Errorf("%s: %v", way, err)
					continue
				}
				if source == nil {
					source, _ = only(destination, known)
				}
				there, here := agree(t, family+", "+way, known, source, timed(topic, destination))
				if family != "kafka-go" && there+here > 0 {
					t.Errorf("%s: %d records at the source and %d at the destination are none", way, there, here)
				}
				t.Logf("%s: %d records; shown though they are none: %d at the source, %d at the destination", way, len(known), there, here)
			}
		})
	}
}

// same proves that the destination is equal up to where transactions are open.
func same(t *testing.T, src, dst *kafkatest.Cluster, topics []live.Topic) {
	t.Helper()
	source, destination := connect(t, src), connect(t, dst)
	for _, topic := range topics {
		reports, err := verify.Topics(t.Context(), source, destination, partitions(topic.Name, topic.Partitions), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reports {
			if !r.Equal || r.Source.LogStart != r.Destination.LogStart {
				t.Errorf("%v, differences: %v", r, r.Differences)
			}
		}
	}
}

// stable are the ends that readers of committed records see.
func stable(ctx context.Context, cl *kgo.Client, topic string, partitions int32) ([]int64, error) {
	ask := kmsg.NewListOffsetsRequestTopic()
	ask.Topic = topic
	for i := range partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = i, -1
		ask.Partitions = append(ask.Partitions, p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, 1
	req.Topics = append(req.Topics, ask)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	out := make([]int64, partitions)
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return nil, fmt.Errorf("%s-%d: %w", topic, p.Partition, err)
		}
		out[p.Partition] = p.Offset
	}
	return out, nil
}

// stableUp waits until the destination ends where the source's last stable offset is.
func stableUp(t *testing.T, within time.Duration, src, dst *kafkatest.Cluster, topic live.Topic) {
	t.Helper()
	from, to := src.Client(t), dst.Client(t)
	var last error
	kafkatest.Eventually(t, within, func(ctx context.Context) (err error) {
		defer func() {
			if ctx.Err() != nil { // in the middle of a question
				err = last
			}
			last = err
		}()
		a, err := stable(ctx, from, topic.Name, topic.Partitions)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		b, err := highWatermarks(ctx, to, topic.Name)
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			return fmt.Errorf("%s: source is stable up to %v, destination ends at %v", topic.Name, a, b)
		}
		return nil
	})
}

// endOpen aborts the transactions of a topic that are open, as new producers of the
// same names do.
func endOpen(t *testing.T, c *kafkatest.Cluster, topic live.Topic) {
	t.Helper()
	cl := c.Client(t)
	for _, name := range topic.Open {
		kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis = &name, 60_000
			req.ProducerID, req.ProducerEpoch = -1, -1
			resp, err := req.RequestWith(ctx, cl)
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(resp.ErrorCode)
		})
	}
}
