package acceptance

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo/live"
)

// destination is the cluster that most tests mirror to. Its own cleaner does not come
// by: it would take from compacted topics what the source's has not taken yet.
func destination(t *testing.T) *kafkatest.Cluster {
	return kafkatest.Shared(t, kafkatest.Options{Config: map[string]string{
		"broker.rack": "destination", "log.cleaner.backoff.ms": "3600000",
		// The broker's memory of sequences is looked through every second, so that
		// what has expired is really gone.
		"producer.id.expiration.check.interval.ms": "1000",
	}})
}

// source is the cluster that most tests mirror from, of the release that
// MIRROR_SOURCE names. A zoo can be made in it.
func source(t *testing.T) *kafkatest.Cluster { return sourceOf(t, sourceVersion()) }

func sourceOf(t *testing.T, version string) *kafkatest.Cluster {
	return kafkatest.Shared(t, kafkatest.Options{Version: version, Config: live.BrokerConfig()})
}

func sourceVersion() string { return os.Getenv("MIRROR_SOURCE") }

// TestKill: a mirror that is killed at random moments of a copy leaves neither a
// hole nor a duplicate, and each new process goes on from the destination (I3,
// I4, C11.1). Old timestamps: the broker's sequence memory does not help there.
func TestKill(t *testing.T) {
	for name, age := range map[string]time.Duration{"fresh": 0, "month-old": 30 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			src, dst := source(t), destination(t)
			topic := "kill-" + name
			src.CreateTopic(t, topic, 4, 1, map[string]string{"retention.ms": "-1"})
			load := kafkatest.LoadSpec{
				Topic: topic, Partitions: 4, Records: sized(200_000, 2_000_000), ValueSize: 1000, BatchBytes: 64 << 10,
				Codecs: []kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression()},
			}
			if age > 0 {
				load.Timestamps = func(i int) time.Time { return time.Now().Add(-age) }
			}
			src.Load(t.Context(), t, load)
			kills, under := sized(3, 20), 0
			for i := range kills {
				before := ends(t, dst, topic)
				p := spawn(t, "kill", src, dst, topic)
				moving(t, dst, topic, before)
				wait(t, time.Duration(rand.IntN(200))*time.Millisecond)
				p.Kill()
				now := ends(t, dst, topic)
				t.Logf("kill %d: destination at %v", i+1, now)
				if sum(now) < int64(load.Records) {
					under++
				}
			}
			if under == 0 {
				t.Error("every kill came after the copy was done")
			}
			spawn(t, "kill", src, dst, topic)
			caughtUp(t, 2*time.Minute, src, dst, topic)
			equal(t, src, dst, topic, 4)
		})
	}
}
