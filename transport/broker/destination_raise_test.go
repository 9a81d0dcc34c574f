package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

func nth(n int) metalog.PartitionID { return metalog.PartitionID{Partition: int32(n)} }

// asks has somebody wait for an epoch of each partition, each by himself.
func asks(ctx context.Context, w *epochWishes, n int, then func(n int, err error)) {
	for i := range n {
		go func() { then(i, w.ask(ctx, map[metalog.PartitionID]int32{nth(i): 7})[nth(i)]) }()
	}
}

// TestRaisesGoTogether: whoever asks while others are being worked at goes with all that
// do; each hears of his own, and one that cannot be helped holds up nobody.
func TestRaisesGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, bad, stuck = 1000, 10, 20
		refused := errors.New("refused")
		var calls atomic.Int32
		w := newEpochWishes()
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx, func(ctx context.Context, epochs map[metalog.PartitionID]int32, _ func(metalog.PartitionID) bool, ended func(metalog.PartitionID, error)) map[metalog.PartitionID]error {
			calls.Add(1)
			time.Sleep(100 * time.Millisecond) // of the bubble's clock
			for id, epoch := range epochs {
				switch {
				case epoch != 7:
					t.Errorf("epoch %d is asked for", epoch)
				case id == nth(bad):
					ended(id, refused)
				case id != nth(stuck):
					ended(id, nil)
				}
			}
			if _, some := epochs[nth(stuck)]; some {
				<-ctx.Done()
				return map[metalog.PartitionID]error{nth(stuck): ctx.Err()}
			}
			return nil
		})
		began := time.Now()
		asks(t.Context(), w, all, func(n int, err error) {
			took := time.Since(began)
			switch {
			case n == bad && !errors.Is(err, refused), n == stuck && !errors.Is(err, context.DeadlineExceeded), n != bad && n != stuck && err != nil:
				t.Errorf("%d: %v", n, err)
			case n != stuck && took > time.Second:
				t.Errorf("%d waited for %v", n, took)
			}
		})
		synctest.Wait()
		time.Sleep(time.Minute) // of the bubble's clock
		if n := calls.Load(); n > 2*maxRaises {
			t.Errorf("%d partitions took %d calls", all, n)
		}
		cancel()
		synctest.Wait()
	})
}

// TestRaisesEnd: nobody waits for what nobody works at, and nothing is done for who has
// gone.
func TestRaisesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEpochWishes()
		ctx, cancel := context.WithCancel(t.Context())
		var left atomic.Int32 // calls that were for nobody any more
		go w.run(ctx, func(ctx context.Context, _ map[metalog.PartitionID]int32, unwanted func(metalog.PartitionID) bool, _ func(metalog.PartitionID, error)) map[metalog.PartitionID]error {
			<-ctx.Done()
			if unwanted(nth(0)) {
				left.Add(1)
			}
			return nil
		})
		impatient, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if err := w.ask(impatient, map[metalog.PartitionID]int32{nth(0): 1})[nth(0)]; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who leaves is told %v", err)
		}
		told := make(chan error, 1)
		asks(t.Context(), w, 1, func(_ int, err error) { told <- err })
		synctest.Wait()
		cancel()
		if err := <-told; !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("at the end: %v", err)
		}
		if err := w.ask(t.Context(), map[metalog.PartitionID]int32{nth(0): 1})[nth(0)]; !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("behind the end: %v", err)
		}
		if synctest.Wait(); left.Load() != 1 {
			t.Error("it goes on for who has left")
		}
	})
}
