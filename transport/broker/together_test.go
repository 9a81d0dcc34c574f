package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// TestTogether: what is asked while a question is on its way goes together in the next one, each
// partition once. Who does not wait any more is asked for by nobody in particular.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		var asked [][]cluster.Partition
		send := func(ctx context.Context, names []cluster.Partition) map[cluster.Partition]bounds {
			asked = append(asked, names)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			out := make(map[cluster.Partition]bounds)
			for _, p := range names {
				out[p] = bounds{start: int64(p.Partition), end: int64(10 * p.Partition)}
				if p.Partition == 7 {
					out[p] = bounds{err: lost}
				}
			}
			return out
		}
		all := newTogether[cluster.Partition, bounds]()
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var asking sync.WaitGroup
		began := time.Now()
		ask := func(ctx context.Context, partition int32, want bounds) {
			asking.Go(func() {
				got, err := all.ask(ctx, cluster.Partition{Topic: "t", Partition: partition}, send)
				if got.err = cmp.Or(err, got.err); got.start != want.start || got.end != want.end || !errors.Is(got.err, want.err) {
					t.Errorf("partition %d: %+v, want %+v", partition, got, want)
				}
			})
		}
		ask(t.Context(), 1, bounds{1, 10, nil})
		synctest.Wait() // the first one is on its way
		for _, partition := range []int32{2, 3, 2, 4} {
			ask(t.Context(), partition, bounds{int64(partition), int64(10 * partition), nil})
		}
		ask(t.Context(), 7, bounds{0, 0, lost})
		ask(short, 5, bounds{0, 0, context.DeadlineExceeded})
		asking.Wait()
		if took := time.Since(began); took != 2*time.Second || len(asked) != 2 || len(asked[0]) != 1 {
			t.Errorf("asked were %v in %v", asked, took)
		}
		var numbers []int32
		for _, p := range asked[1] {
			numbers = append(numbers, p.Partition)
		}
		if slices.Sort(numbers); !slices.Equal(numbers, []int32{2, 3, 4, 5, 7}) {
			t.Errorf("asked together were %v", numbers)
		}
	})
}
