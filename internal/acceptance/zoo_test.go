package acceptance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo/live"
)

// zooSource is the cluster whose topics hold everything a log can hold.
func zooSource(t *testing.T) *kafkatest.Cluster {
	return kafkatest.Shared(t, kafkatest.Options{Version: sourceVersion(), Config: live.BrokerConfig()})
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

// crashes says that kafka-go cannot read a log that compaction has left an empty batch
// in: it panics. The destination has no such batch.
func crashes(family string, topic live.Topic, err error) bool {
	return family == "kafka-go" && topic.Census[live.Empty] > 0 && err != nil && strings.Contains(err.Error(), "markRead: negative count")
}

// TestJudge: the families agree about a log with itself, and about what was written.
func TestJudge(t *testing.T) {
	src := zooSource(t)
	topics := fill(t, src, "judge-", 1, 40)
	a := invite(t)
	for _, topic := range topics {
		t.Run(topic.Name, func(t *testing.T) {
			all, err := a.sees(t, "librdkafka", src, part{topic: topic.Name})
			if err != nil {
				t.Fatal(err)
			}
			knows(t, topic, all)
			p := parted(topic.Name, all)
			for _, family := range families {
				t.Run(family, func(t *testing.T) {
					t.Parallel()
					began := time.Now()
					lines, err := a.sees(t, family, src, p)
					if crashes(family, topic, err) {
						return
					}
					if err != nil {
						t.Error(err)
					}
					extra, _ := agree(t, family, places(all), lines, lines)
					t.Logf("%d records, %d of control, in %v", len(lines), extra, time.Since(began))
				})
			}
		})
	}
}
