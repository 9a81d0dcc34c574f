package kafka

import (
	"errors"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// Two workers look at the same log end and both begin to fill there, whoever owns the
// partition: the broker takes the first marker of one of them, whichever comes first (I4).
func TestRealBeginTogether(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		for name, owners := range map[string][2]int32{"no owners": {0, 0}, "equal owners": {7, 7}, "owners": {7, 8}, "owners, the later first": {8, 7}} {
			p := realTopic(t, k, "together", nil)
			a, b := open(t, k.Bootstrap()), open(t, k.Bootstrap())
			sa, sb := stretchOf(p), stretchOf(p)
			sa.Owner, sb.Owner = owners[0], owners[1]
			beginAt(t, a, sa)
			mustAppend(t, a, p, batchesAt(0, 1, 5, now()))
			for beginAt(t, b, sb); b.lane(p).turn.pick == a.lane(p).turn.pick; {
				if owners[0] != owners[1] {
					t.Fatalf("%s: both have picked %d", name, a.lane(p).turn.pick)
				}
				beginAt(t, b, sb)
			}
			first, second := a.lane(p).marking(hole(5, 9)), b.lane(p).marking(hole(5, 9))
			a.generation().scribe(first.broker).round(t.Context(), &first)
			if first.judge(); first.err != nil || first.next != 6 {
				t.Fatalf("%s: the first: %+v", name, first)
			}
			b.generation().scribe(second.broker).round(t.Context(), &second)
			if second.judge(); !errors.Is(second.err, cluster.ErrFenced) || second.end != 6 {
				t.Errorf("%s: the second: %v, and the log ends at %d", name, second.err, second.end)
			}
		}
	})
}

// One worker is at it, another looks at the log end and begins: the first marker of the
// one that comes first is taken, and nothing more of the other's.
func TestRealBeginBesideAnother(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		for name, late := range map[string]bool{"the old one is quicker": false, "the new one is quicker": true} {
			p := realTopic(t, k, "beside", nil)
			a, b := open(t, k.Bootstrap()), open(t, k.Bootstrap())
			beginAt(t, a, stretchOf(p))
			mustAppend(t, a, p, append(batchesAt(0, 1, 5, now()), hole(5, 8)))
			beginAt(t, b, stretchOf(p))
			first, second := a.lane(p).marking(hole(8, 9)), b.lane(p).marking(hole(8, 9))
			if !first.turn.held || second.turn.held {
				t.Fatalf("%s: %+v, %+v", name, first.turn, second.turn)
			}
			if late {
				first, second = second, first
			}
			a.generation().scribe(first.broker).round(t.Context(), &first)
			if first.judge(); first.err != nil {
				t.Fatalf("%s: %+v", name, first)
			}
			b.generation().scribe(second.broker).round(t.Context(), &second)
			if second.judge(); !errors.Is(second.err, cluster.ErrFenced) || second.end != 9 {
				t.Errorf("%s: %v, and the log ends at %d", name, second.err, second.end)
			}
		}
	})
}
