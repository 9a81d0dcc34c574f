package mirror

import (
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// TestLaterEffectStays: an effect that waited long for an answer does not take the place
// of the one that superseded it, whose findings would be lost.
func TestLaterEffectStays(t *testing.T) {
	p := cluster.Partition{Topic: "t"}
	effect := func(seq uint64) task {
		return task{rec: coordinator.Record{Partition: p}, effect: coordinator.Effect{Seq: seq}}
	}
	var f fetching
	f.put(effect(2))
	f.put(effect(1))
	if got, ok := f.take(p); !ok || got.effect.Seq != 2 {
		t.Errorf("effect %d, %v", got.effect.Seq, ok)
	}
	f.put(effect(3))
	f.put(effect(4))
	if got, _ := f.take(p); got.effect.Seq != 4 {
		t.Errorf("effect %d", got.effect.Seq)
	}
}
