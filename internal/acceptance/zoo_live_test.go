package acceptance

import (
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/internal/zoo/live"
	"github.com/clustermirror/mirror/verify"
)

// TestZooWhileItIsFilled: the mirrors run while producers, cleaner and retention are at
// work at the source. What the cleaner has taken after it was copied is still at the
// destination; nothing else differs.
func TestZooWhileItIsFilled(t *testing.T) {
	src := source(t)
	for way := range ways {
		m := run(t, "live", connect(t, src), connect(t, zooDestination(t, way), filling(way)), mirror.Options{
			Topics: mirror.Topics{Include: []string{"live-.*"}}, SyncInterval: 500 * time.Millisecond, RetryMax: 2 * time.Second,
		})
		complain(t, way, m)
	}
	topics := fill(t, src, "live-", 23, sized(60, 300))
	for way := range ways {
		dst := zooDestination(t, way)
		for _, topic := range topics {
			stableUp(t, sized(time.Minute, 5*time.Minute), src, dst, topic)
			reports, err := verify.Topics(t.Context(), connect(t, src), connect(t, dst), partitions(topic.Name, topic.Partitions), &verify.Options{Differences: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			cleaned := topic.Census[live.HoleInMiddle] > 0
			for _, r := range reports {
				extra := 0
				for _, d := range r.Differences {
					if cleaned && d.Kind == verify.Extra {
						extra++
					} else if !t.Failed() {
						t.Errorf("%s: %v: %v", way, r, d)
					}
				}
				if extra > 0 {
					t.Logf("%s: %v has %d records that the source's cleaner has taken since, %d equal", way, r.Partition, extra, r.Records)
				}
			}
		}
	}
}
