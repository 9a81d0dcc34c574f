package acceptance

import (
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// fillings looks at what Status says of a partition being filled until it is asked for
// all of it.
func fillings(t *testing.T, m *running, p cluster.Partition) (seen func() []fetcher.Filling) {
	var all []fetcher.Filling
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			top, _ := m.Topic(p.Topic)
			if int(p.Partition) < len(top.Partitions) {
				if f := top.Partitions[p.Partition].Filling; f != nil {
					all = append(all, *f)
				}
			}
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	})
	stop := sync.OnceFunc(func() { close(end) })
	t.Cleanup(stop)
	return func() []fetcher.Filling {
		stop()
		wg.Wait()
		return all
	}
}

// progress checks what was seen: it never goes back, is seen on its way, with an estimate
// in the beginning and with a measure when it took long enough.
func progress(t *testing.T, seen []fetcher.Filling, took time.Duration) {
	t.Helper()
	inside, measured := 0, 0
	for i, f := range seen {
		if i > 0 && f.At < seen[i-1].At || f.At < f.From || f.At > f.To || f.Rate <= 0 || f.Bytes <= 0 || f.Until.IsZero() {
			t.Fatalf("look %d: %+v after %+v", i, f, seen[max(i-1, 0)])
		}
		if f.At > f.From && f.At < f.To {
			inside++
		}
		if f.Measured {
			measured++
		}
	}
	if inside == 0 || took > 3*time.Second && measured == 0 {
		t.Fatalf("of %d looks in %v %d were on the way and %d measured", len(seen), took, inside, measured)
	}
	t.Logf("seen %d times, first: %v; in the middle: %v", len(seen), seen[0], seen[len(seen)/2])
}
