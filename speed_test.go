package mirror_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestC13_1_LongLink: one partition over 150 ms and 1 Gbit/s, on either side. The
// bar is 20 MB/s; what fails the test is far below, for machines that are busy.
func TestC13_1_LongLink(t *testing.T) {
	const megabytes, bar, floor = 60, 20, 4
	p := newPair(t, 1)
	for i, long := range []struct {
		name  string
		links func() []*kafkatest.Link
	}{{"source", p.toSource}, {"destination", p.toDestination}} {
		t.Run(long.name, func(t *testing.T) {
			topic := fmt.Sprint("long", i)
			if err := p.a.CreateTopic(topic, 1, nil); err != nil {
				t.Fatal(err)
			}
			last := fill(t, p.a, topic, megabytes)
			for _, l := range long.links() {
				l.Delay(150*time.Millisecond, 125_000_000)
				defer l.Delay(0, 0)
			}
			r := start(t, newMirror(t, connect(t, p.a, p.net), connect(t, p.b, p.net), quick(topic)))
			s := r.reach(t, at(topic, 0), coordinator.StateMirroring)
			began, already := time.Now(), s.Bytes
			mirrored(t, r, map[cluster.Partition]int64{at(topic, 0): last})
			s, _ = r.partition(at(topic, 0))
			rate := float64(s.Bytes-already) / 1e6 / time.Since(began).Seconds()
			t.Logf("%s 150 ms away: %.1f MB/s (bar %d MB/s)", long.name, rate, bar)
			if rate < floor {
				t.Errorf("%.1f MB/s", rate)
			}
			r.stop(t)
		})
	}
}

// fill writes megabytes of what does not compress, and gives the last offset.
func fill(t *testing.T, c *kfake.Cluster, topic string, megabytes int) (last int64) {
	t.Helper()
	value := make([]byte, 10_000)
	rand.Read(value)
	var records []*kgo.Record
	for range megabytes * 100 {
		records = append(records, &kgo.Record{Topic: topic, Value: value})
	}
	writeRecords(t, c, records, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(500_000))
	return int64(len(records) - 1)
}

// TestC13_3_ManyTopics: 200 topics of 5 partitions are all MIRRORING soon.
func TestC13_3_ManyTopics(t *testing.T) {
	const count, parts = 200, 5
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("topic-%03d", i))
	}
	p := newPair(t, parts, names...)
	began := time.Now()
	r := run(t, p, quick("topic-.*"))
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if s := r.Status(); s.States[coordinator.StateMirroring] != count*parts {
			return errors.New(show(s.States) + s.SyncError)
		}
		return nil
	})
	t.Logf("%d partitions MIRRORING after %v", count*parts, time.Since(began).Round(time.Millisecond))
	last := map[cluster.Partition]int64{}
	for i := 0; i < count; i += 40 {
		last[at(names[i], 0)] = write(t, p.a, names[i], 0, 1)
	}
	mirrored(t, r, last)
}
