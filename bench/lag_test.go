package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

const (
	lagRate = 1000 // records per second
	lagWarm = 2000 // the first ones are not counted: brokers compile
)

// lagBound fails the test: a mirror that is this far behind at a thousand records
// per second is broken, however busy the machine.
const lagBound = time.Second

// TestLag measures how much later a record can be read at the destination than at
// the source. Both are read by the same kind of consumer in the same process.
func TestLag(t *testing.T) {
	records := 2 * lagRate
	if *full {
		records = 20 * lagRate
	}
	p := clusters(t)
	for _, name := range []string{"mirror", "loop"} {
		lags := p.lag(t, name, records)
		at := func(q float64) time.Duration { return lags[int(q*float64(len(lags)-1))].Round(10 * time.Microsecond) }
		t.Logf("%-6s lag of %d records at %d/s: p50 %v, p90 %v, p99 %v, max %v", name, len(lags), lagRate, at(.5), at(.9), at(.99), at(1))
		if name == "mirror" && at(.5) > lagBound {
			t.Errorf("p50 of the mirror's lag is %v", at(.5))
		}
	}
}

// BenchmarkLag is for comparing two versions with benchstat.
func BenchmarkLag(b *testing.B) {
	p := clusters(b)
	for _, name := range []string{"mirror", "loop"} {
		b.Run(name, func(b *testing.B) {
			var lags []time.Duration
			for b.Loop() {
				lags = p.lag(b, name, 4*lagRate)
			}
			b.ReportMetric(lags[len(lags)/2].Seconds()*1e3, "p50-ms")
			b.ReportMetric(lags[len(lags)*99/100].Seconds()*1e3, "p99-ms")
		})
	}
}

// lag runs a contestant on a topic of its own and gives the sorted lags of the
// records written meanwhile.
func (p pair) lag(t testing.TB, name string, records int) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	topic := fmt.Sprintf("lag-%s-%d", name, time.Now().UnixNano())
	p.source.CreateTopic(t, topic, partitions, 1, nil)
	if name == "loop" {
		p.destination.CreateTopic(t, topic, partitions, 1, nil)
	}
	child := spawn(t, name, job{
		Source: p.source.Bootstrap(), Destination: p.destination.Bootstrap(), Topic: topic, Codec: "none", For: 2 * time.Minute,
	})
	defer child.Kill()

	total := lagWarm + records
	here, there := make([]time.Time, total), make([]time.Time, total)
	var group errgroup.Group
	group.Go(func() error { return watch(ctx, p.source, topic, here) })
	group.Go(func() error { return watch(ctx, p.destination, topic, there) })
	group.Go(func() error { return write(ctx, p.source, topic, total) })
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	lags := make([]time.Duration, 0, records)
	for i := lagWarm; i < total; i++ {
		lags = append(lags, there[i].Sub(here[i]))
	}
	slices.Sort(lags)
	return lags
}

// write sends numbered records at the rate, each by itself.
func write(ctx context.Context, c *kafkatest.Cluster, topic string, total int) error {
	cl, err := kgo.NewClient(append(c.ClientOpts(), kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	began := time.Now()
	tick := time.NewTicker(time.Second / lagRate)
	defer tick.Stop()
	for i := 0; i < total; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		// A tick that was late brings what is due with it.
		for due := int(time.Since(began).Seconds() * lagRate); i < min(due, total); i++ {
			value := binary.BigEndian.AppendUint64(make([]byte, 0, 100), uint64(i))[:100]
			cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: value}, nil)
		}
	}
	return cl.Flush(ctx)
}

// watch notes when each record was first read; it returns when all were. Errors of
// fetches are waited out: the destination's topic may not be there yet.
func watch(ctx context.Context, c *kafkatest.Cluster, topic string, seen []time.Time) error {
	cl, err := kgo.NewClient(append(c.ClientOpts(), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for left := len(seen); left > 0; {
		fetches := cl.PollFetches(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return fmt.Errorf("%d records did not come: %w", left, ctx.Err())
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if i := binary.BigEndian.Uint64(r.Value); i < uint64(len(seen)) && seen[i].IsZero() {
				seen[i] = now
				left--
			}
		})
	}
	return nil
}
