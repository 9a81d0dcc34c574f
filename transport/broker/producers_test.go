package broker

import (
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/metalog"
)

// of is a batch of a producer.
func of(producer int64) cluster.Batch {
	spec := batch.Spec{Records: []batch.Record{{Value: []byte("v")}}}
	if producer >= 0 {
		spec.Producer = &batch.Producer{ID: producer}
	}
	return cluster.Batch{Next: 1, Bytes: batch.Encode(spec)}
}

func TestHighestOf(t *testing.T) {
	old := of(9)
	old.Bytes[16] = 1 // bytes of message format 1 mean something else there
	for _, tt := range []struct {
		name    string
		batches []cluster.Batch
		want    int64
	}{
		{"nothing", nil, -1},
		{"no idempotence", []cluster.Batch{of(-1)}, -1},
		{"the first of all", []cluster.Batch{of(0)}, 0},
		{"several", []cluster.Batch{of(3), of(7), of(5)}, 7},
		{"a mirror's own", []cluster.Batch{of(3), of(batch.OwnProducers), of(batch.OwnProducers + 5)}, 3},
		{"an old format", []cluster.Batch{old}, -1},
	} {
		if got := highestOf(tt.batches); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestTooFar(t *testing.T) {
	for _, tt := range []struct {
		id, next int64
		far      bool
	}{{5, 10, false}, {10, 10, false}, {109, 10, false}, {110, 10, true}, {1 << 61, 0, true}} {
		err := tooFar(tt.id, tt.next, 100)
		if (err != nil) != tt.far || tt.far && (!errors.Is(err, ErrProducerIDs) || cluster.Retriable(err)) {
			t.Errorf("id %d where the cluster is at %d: %v", tt.id, tt.next, err)
		}
	}
}

// TestBehind: a real broker is past an id as long as it is the same process; ours and
// those that are down are not asked.
func TestBehind(t *testing.T) {
	image := metalog.Image{}
	for _, b := range []metalog.Broker{{ID: 1, Epoch: 11}, {ID: 2, Epoch: 12}, {ID: 3, Epoch: 13, Fenced: true}, {ID: 100, Epoch: 14}} {
		var err error
		if image, err = image.Apply(metalog.RegisterBroker{Broker: b}, new(metalog.Delta)); err != nil {
			t.Fatal(err)
		}
	}
	d := &Destination{m: &Membership{cfg: Config{IDs: IDs{First: 100, Last: 101}}}, guard: newGuard(), lifts: newLifts(new(MemoryOverrides)), missed: newMissed(new(MemoryOverrides))}
	behind := func(id int64) (ids []int32) {
		for _, b := range d.behind(image, id) {
			ids = append(ids, b.ID)
		}
		slices.Sort(ids)
		return ids
	}
	if got := behind(0); !slices.Equal(got, []int32{1, 2}) {
		t.Errorf("nobody was asked: %v", got)
	}
	d.guard.past[1], d.guard.past[2] = passed{epoch: 11, id: 50}, passed{epoch: 12, id: 70}
	for id, want := range map[int64][]int32{50: nil, 51: {1}, 70: {1}, 71: {1, 2}} {
		if got := behind(id); !slices.Equal(got, want) {
			t.Errorf("behind %d: %v, want %v", id, got, want)
		}
	}
	d.guard.past[2] = passed{epoch: 9, id: 70}
	if got := behind(10); !slices.Equal(got, []int32{2}) {
		t.Errorf("one that was started again: %v", got)
	}
}
