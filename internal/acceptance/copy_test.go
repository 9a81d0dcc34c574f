package acceptance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

func codecs() []kgo.CompressionCodec {
	return []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
}

// TestCopy: records of all codecs, from idempotent and plain producers, with
// keys, headers, nulls and old timestamps, are the same on both clusters (I1),
// for our own comparison and for the Java consumer and librdkafka.
func TestCopy(t *testing.T) {
	versions := []string{"4.4.0", "3.9.1"}
	if v := sourceVersion(); v != "" {
		versions = []string{v}
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			src := sourceOf(t, version)
			dst := destination(t)
			topic := "copy-" + version
			const parts = 8
			total := sized(80_000, 1_000_000)
			src.CreateTopic(t, topic, parts, 1, map[string]string{"retention.ms": "-1"})
			load := kafkatest.LoadSpec{
				Topic: topic, Partitions: parts, Records: total / 2, ValueSize: 1000, Codecs: codecs(), Mixed: true,
				Keys: true, Headers: true, Nulls: true, Idempotent: true,
			}
			src.Load(t.Context(), t, load)
			load.First, load.Idempotent = total/2, false
			load.Timestamps = func(i int) time.Time { return time.UnixMilli(1_500_000_000_000 + int64(i)) }
			src.Load(t.Context(), t, load)

			m := run(t, "copy", connect(t, src), connect(t, dst), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
			caughtUp(t, sized(2*time.Minute, 10*time.Minute), src, dst, topic)
			equal(t, src, dst, topic, parts)
			if s := m.Status(); s.Lag != 0 || s.Health != "ok" || s.Records != int64(total) {
				t.Errorf("status: lag %d, health %s, records %d; want 0, ok, %d", s.Lag, s.Health, s.Records, total)
			}

			spec := kafkatest.ConsumeSpec{Topic: topic, Partition: 3, Max: sized(5_000, 100_000)}
			if diff := cmp.Diff(src.JavaConsume(t.Context(), t, spec), dst.JavaConsume(t.Context(), t, spec)); diff != "" {
				t.Errorf("the Java consumer reads different records (-source +destination):\n%.2000s", diff)
			}
			a, b := src.KcatConsume(t.Context(), t, spec), dst.KcatConsume(t.Context(), t, spec)
			if len(a) != spec.Max {
				t.Errorf("kcat read %d records, want %d", len(a), spec.Max)
			}
			if diff := cmp.Diff(a, b); diff != "" {
				t.Errorf("kcat reads different records (-source +destination):\n%.2000s", diff)
			}
		})
	}
}

// TestStartAbove0: a source whose log starts above 0 is mirrored with its offsets
// kept, and the destination's log starts there too.
func TestStartAbove0(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "start-above-0"
	src.CreateTopic(t, topic, 2, 1, nil)
	src.Load(t.Context(), t, kafkatest.LoadSpec{Topic: topic, Partitions: 2, Records: 20_000})
	trim(t, src, topic, 0, 7_777) // most likely inside a batch
	run(t, "above", connect(t, src), connect(t, dst), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
	caughtUp(t, time.Minute, src, dst, topic)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error { return startsAt(ctx, t, dst, topic, []int64{7_777, 0}) })
	equal(t, src, dst, topic, 2)
}

// TestStartFarAbove0: the same for a log that starts very far up.
func TestStartFarAbove0(t *testing.T) {
	src, dst := source(t), destination(t)
	if long() && sourceVersion() == "" { // these compile their code as brokers do: a short run would pay for that
		src = kafkatest.Shared(t, kafkatest.Options{JVM: []string{"-Xmx768m", "-XX:TieredStopAtLevel=4", "-Dfar=source"}})
		dst = kafkatest.Shared(t, kafkatest.Options{JVM: []string{"-Xmx768m", "-XX:TieredStopAtLevel=4", "-Dfar=destination"}})
	}
	const topic = "start-far-above-0"
	start := sized[int64](100_000_000, 5_000_000_000)
	if sourceVersion() != "" {
		start = sized[int64](5_000_000, 100_000_000)
	}
	far := func(c *kafka.Config) { c.MaxStartFill = start }
	src.CreateTopic(t, topic, 1, 1, nil)
	p := cluster.Partition{Topic: topic}
	err := connect(t, src, far).StartAt(t.Context(), fetcher.Stretch{Mirror: "prepare", Partition: p}, start, func(int64) {})
	if errors.Is(err, errors.ErrUnsupported) { // 2.1.1, which is no destination
		fillTo(t, src, topic, start)
	} else if err != nil {
		t.Fatal(err)
	}
	if at := put(t, src, topic, 0, 100); at != start {
		t.Fatalf("the source's first record is at %d, want %d", at, start)
	}
	began := time.Now()
	m := run(t, "far", connect(t, src), connect(t, dst, far), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
	seen := fillings(t, m, p)
	caughtUp(t, sized(5*time.Minute, 30*time.Minute), src, dst, topic)
	took := time.Since(began)
	t.Logf("a log that starts at %d took %v", start, took.Round(time.Millisecond))
	progress(t, seen(), took)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error { return startsAt(ctx, t, dst, topic, []int64{start}) })
	equal(t, src, dst, topic, 1)
}
