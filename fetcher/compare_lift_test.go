package fetcher

import (
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// TestTheSameProducerLifted: a producer that was given another id on the way is the same, and
// another one is not.
func TestTheSameProducerLifted(t *testing.T) {
	of := func(producer int64) side {
		t.Helper()
		b := batch.Encode(batch.Spec{Attributes: batch.AttrTransactional, Producer: &batch.Producer{ID: producer}, Records: []batch.Record{{Value: []byte("v")}}})
		s, err := sideAt(b, 0, cluster.Span{To: 1}, likeness{control: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	lifted, _ := batch.Lifted(2_000_000)
	for there, same := range map[int64]bool{2_000_000: true, lifted: true, 2_000_001: false, lifted + 1: false} {
		if s := sightOf(of(2_000_000), of(there), likeness{control: true}); (s.first < 0) != same || same && s.same != 1 {
			t.Errorf("producer %d: %+v", there, s)
		}
	}
}
