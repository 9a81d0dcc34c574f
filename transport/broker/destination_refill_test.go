package broker

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
)

// TestDestinationRefill: the source of the mirror whose stretch it is is asked, and its
// batches get the leader epochs that our log has.
func TestDestinationRefill(t *testing.T) {
	ctx := t.Context()
	l := newLone(t, -1)
	ask := func() ([]byte, error) { return l.refill(ctx, cluster.TopicID{1}, 0, 1, 77) }
	if _, err := l.refill(ctx, cluster.TopicID{2}, 0, 1, 77); !errors.Is(err, cluster.ErrNotLeader) {
		t.Errorf("what is not ours: %v", err)
	}
	l.begin(mirrorOf("a"))
	if _, err := ask(); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("no mirror is running: %v", err)
	}
	var told error
	l.RefillFrom("b", func(context.Context, cluster.Partition, int64, int32) ([]byte, error) {
		t.Error("another mirror's source is asked")
		return nil, nil
	})
	l.RefillFrom("a", func(_ context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
		if p != l.p || offset != 1 || maxBytes != 77 {
			t.Errorf("asked for %v at %d, %d bytes", p, offset, maxBytes)
		}
		return slices.Concat(batchAt(0, 2, 9), batchAt(2, 1, 9)), told
	})
	done := l.append(0, 3)
	l.follow()
	l.follow()
	<-done
	now := l.h.led.State().History[0].Epoch
	if got, err := ask(); err != nil || !bytes.Equal(got, slices.Concat(batchAt(0, 2, now), batchAt(2, 1, now))) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	told = cluster.ErrDiverged
	if got, err := ask(); got != nil || !errors.Is(err, told) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	l.RefillFrom("a", nil)
	if _, err := ask(); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("the mirror has ended: %v", err)
	}
}

func TestStampedAs(t *testing.T) {
	history := epoch.History{{Epoch: 3, Start: 12}, {Epoch: 5, Start: 20}}
	for name, c := range map[string]struct{ in, want []int64 }{
		"two epochs":          {[]int64{15, 20}, []int64{3, 5}},
		"the log starts here": {[]int64{10}, []int64{3}}, // inside of the batch
		"not known":           {[]int64{5, 10}, nil},
		"nothing":             {nil, nil},
	} {
		var in []byte
		for _, base := range c.in {
			in = append(in, batchAt(base, 5, 1)...)
		}
		var got []int64
		w := batch.Walk(stampedAs(in, history))
		for w.Next() {
			got = append(got, int64(w.Header().LeaderEpoch()))
		}
		if !slices.Equal(got, c.want) || w.Err() != nil {
			t.Errorf("%s: epochs %v, want %v", name, got, c.want)
		}
	}
}
