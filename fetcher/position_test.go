package fetcher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
)

// value is a batch of one record.
func value(offset int64, e int32, v string) []byte {
	return batch.Encode(batch.Spec{Base: offset, LeaderEpoch: e, Records: []batch.Record{rec(offset, v)}})
}

// epochsOf makes a destination that also says where its own epochs end.
type epochsOf struct {
	*destination
	ends map[int32]int64
	err  error
}

func (d epochsOf) EpochEnds(_ context.Context, qs []EpochQuery) ([]EpochAnswer, error) {
	end, ok := d.ends[qs[0].Epoch]
	if !ok {
		end = -1
	}
	return []EpochAnswer{{EpochEnd: cluster.EpochEnd{Epoch: qs[0].Epoch, EndOffset: end}, Err: d.err}}, nil
}

func at(e int32, offset int64) *cluster.Position { return &cluster.Position{Epoch: e, Offset: offset} }

// TestAlignAtPositions is a failback onto A, the destination here, from B, the source
// (semantics, section 6), and a start after an own stop.
func TestAlignAtPositions(t *testing.T) {
	ab := [][]byte{value(0, 0, "a"), value(1, 1, "b")}
	for _, c := range []struct {
		name       string
		a, b       [][]byte
		target     Target
		ends       map[int32]int64 // of A's own epochs
		topic      byte
		start      int64 // of B
		keeps      bool
		cut        int64
		lastEpoch  int32
		epochs     epoch.History
		err        error
		span       cluster.Span
		how, error string
	}{
		{name: "E1 a tail of a later epoch", a: [][]byte{ab[0], ab[1], value(2, 2, "c")}, b: [][]byte{ab[0], ab[1], value(2, 13, "d")},
			target: Target{Peer: at(1, 2)}, ends: map[int32]int64{1: 2}, cut: 2, lastEpoch: 1, epochs: epoch.History{{Epoch: 1, Start: 1}}},
		{name: "E1 by the offset alone", a: [][]byte{ab[0], ab[1], value(2, 2, "c")}, b: [][]byte{ab[0], ab[1], value(2, 13, "d")},
			target: Target{Peer: at(1, 2)}, cut: 2, lastEpoch: 1, epochs: epoch.History{{Epoch: 1, Start: 1}}},
		{name: "E2 a tail in the same epoch", a: [][]byte{ab[0], ab[1], value(2, 1, "c")}, b: ab,
			target: Target{Peer: at(1, 2)}, ends: map[int32]int64{1: 3}, cut: 2, lastEpoch: 1, epochs: epoch.History{{Epoch: 1, Start: 1}}},
		{name: "E3 restarted empty", a: [][]byte{value(0, 2, "c")}, b: ab,
			target: Target{Peer: at(1, 2)}, ends: map[int32]int64{1: 0}, cut: 0, lastEpoch: cluster.NoEpoch},
		{name: "E3 found by records where epochs are not known", a: [][]byte{value(0, 2, "c")}, b: ab,
			target: Target{Peer: at(1, 2)}, cut: 0, lastEpoch: cluster.NoEpoch},
		{name: "equal ends", a: ab, b: [][]byte{ab[0], ab[1], value(2, 13, "d")},
			target: Target{Peer: at(1, 2)}, ends: map[int32]int64{1: 2}, cut: -1, lastEpoch: 1, epochs: epoch.History{{Epoch: 1, Start: 1}}, how: "stopped at 2"},
		{name: "the destination has lost its tail", a: ab[:1], b: ab,
			target: Target{Peer: at(1, 2)}, ends: map[int32]int64{1: 1}, cut: -1, lastEpoch: 0, epochs: epoch.History{{Epoch: 0, Start: 0}}},
		{name: "was taken over already, the record lost", a: [][]byte{ab[0], ab[1], value(2, 13, "d")}, b: [][]byte{ab[0], ab[1], value(2, 13, "d")},
			target: Target{Peer: at(1, 2)}, ends: map[int32]int64{1: 2, 13: 3}, cut: -1, lastEpoch: 13, epochs: epoch.History{{Epoch: 13, Start: 2}}},
		{name: "the same value in another epoch", a: [][]byte{ab[0], ab[1], value(2, 2, "d")}, b: [][]byte{ab[0], ab[1], value(2, 13, "d")}, keeps: true,
			target: Target{Peer: at(1, 2)}, cut: 2, lastEpoch: 1, epochs: epoch.History{{Epoch: 1, Start: 1}}},
		{name: "running: no position counts", a: [][]byte{ab[0], ab[1], value(2, 13, "d")}, b: [][]byte{ab[0], ab[1], value(2, 13, "d")},
			target: Target{Peer: at(1, 2), Own: at(0, 1), Aligned: true, Epochs: epoch.History{{Epoch: 1, Start: 1}, {Epoch: 13, Start: 2}}},
			cut:    -1, lastEpoch: 13, epochs: epoch.History{{Epoch: 1, Start: 1}, {Epoch: 13, Start: 2}}},
		{name: "the topic is another one", a: [][]byte{ab[0], ab[1], value(2, 2, "c")}, b: [][]byte{ab[0], ab[1], value(2, 13, "d")}, topic: 2,
			target: Target{Peer: at(1, 2), PeerTopic: cluster.TopicID{1}}, err: cluster.ErrDiverged, span: cluster.Span{From: 2, To: 3}, error: "Scratch"},
		{name: "the farther one counts: the other mirror's", a: [][]byte{ab[0], ab[1], value(2, 2, "c")}, b: [][]byte{ab[0], ab[1], value(2, 13, "d")},
			target: Target{Own: at(0, 1), Peer: at(1, 2)}, cut: 2, lastEpoch: 1, epochs: epoch.History{{Epoch: 1, Start: 1}}},
		{name: "the farther one counts: the own", a: [][]byte{ab[0], ab[1], value(2, 2, "c")}, b: [][]byte{ab[0], ab[1], value(2, 13, "d")},
			target: Target{Own: at(1, 2), Peer: at(0, 1)}, err: cluster.ErrLocalWrites, span: cluster.Span{From: 2, To: 3}, error: "DiscardLocalWrites"},
		{name: "own stop, equal ends", a: ab, b: ab, target: Target{Own: at(1, 2), Epochs: epoch.History{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 1}}},
			cut: -1, lastEpoch: 1, epochs: epoch.History{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 1}}, how: "this mirror stopped at 2"},
		{name: "own stop, only the fence behind it", a: [][]byte{ab[0], ab[1], phantoms(2, 1)}, b: [][]byte{ab[0], ab[1], value(2, 1, "c")},
			target: Target{Own: at(1, 2)}, err: cluster.ErrLocalWrites, span: cluster.Span{From: 2, To: 3}},
		{name: "own stop, the source has the fence too", a: [][]byte{ab[0], ab[1], phantoms(2, 1)}, b: [][]byte{ab[0], ab[1], phantoms(2, 1), value(3, 1, "c")},
			target: Target{Own: at(1, 2)}, cut: -1, lastEpoch: 0, epochs: epoch.History{{Epoch: 0, Start: 2}}},
		{name: "own stop, local writes, may be discarded", a: [][]byte{ab[0], ab[1], value(2, 2, "c")}, b: ab,
			target: Target{Own: at(1, 2), Policy: Policy{DiscardLocalWrites: true}}, cut: 2, lastEpoch: 1, epochs: epoch.History{{Epoch: 1, Start: 1}}},
		{name: "own stop, the source has lost its tail since", a: ab, b: ab[:1],
			target: Target{Own: at(1, 2)}, err: cluster.ErrTruncated, span: cluster.Span{From: 1, To: 2}, error: "UncleanRecovery"},
		{name: "own stop, source and destination differ, discarding is not enough", a: [][]byte{ab[0], value(1, 1, "x"), value(2, 2, "c")}, b: ab,
			target: Target{Own: at(1, 2), Policy: Policy{DiscardLocalWrites: true}}, err: cluster.ErrDiverged, span: cluster.Span{From: 1, To: 3}},
		{name: "nothing known (C10.5)", a: [][]byte{value(0, 2, "c")}, b: ab, err: cluster.ErrDiverged, span: cluster.Span{From: 0, To: 1}, error: "Scratch"},
		{name: "nothing known, from scratch", a: [][]byte{value(0, 2, "c")}, b: ab, target: Target{Policy: Policy{Scratch: true}}, cut: 0, lastEpoch: cluster.NoEpoch},
		{name: "nothing to compare", a: ab, b: [][]byte{value(2, 1, "c")}, start: 2, err: cluster.ErrNoPosition, span: cluster.Span{From: 0, To: 2}, error: "Scratch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := logs(t, c.b, c.a)
			src.logs[part(0)].start, src.logs[part(0)].leader.Epoch = c.start, 20
			dst.traits.KeepsEpochs = c.keeps
			dst.with(part(0), func(l *destinationLog) { l.topic = cluster.TopicID{c.topic} })
			c.target.Stretch.Partition = part(0)
			var log Log = dst
			if c.ends != nil {
				log = epochsOf{destination: dst, ends: c.ends}
			}
			got := aligned(t.Context(), src, log, dst, []Target{c.target})[0]
			if !errors.Is(got.Err, c.err) || (got.Err == nil) != (c.err == nil) {
				t.Fatalf("error %v, want %v", got.Err, c.err)
			}
			var off *cluster.OffsetError
			if c.err != nil {
				if !errors.As(got.Err, &off) || off.Span != c.span || !strings.Contains(got.Err.Error(), c.error) || got.Cut != -1 {
					t.Errorf("error %v (cut %d), want the span %v and %q", got.Err, got.Cut, c.span, c.error)
				}
				return
			}
			if got.Cut != c.cut || got.LastEpoch != c.lastEpoch || got.Unproven || got.Next != int64(len(c.a)) || !strings.Contains(got.How, c.how) {
				t.Errorf("cut %d, epoch %d, unproven %v, next %d, how %q; want %d, %d, %q", got.Cut, got.LastEpoch, got.Unproven, got.Next, got.How, c.cut, c.lastEpoch, c.how)
			}
			if diff := cmp.Diff(c.epochs, slices.Clip(got.Epochs)); diff != "" && len(c.epochs)+len(got.Epochs) > 0 {
				t.Errorf("epochs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAlignAsksTheDestinationAgain(t *testing.T) {
	src, dst := logs(t, tens(10, 1), tens(10, 1))
	target := Target{Stretch: Stretch{Partition: part(0)}, Peer: at(1, 10)}
	log := epochsOf{destination: dst, err: errors.ErrUnsupported}
	if got := aligned(t.Context(), src, log, dst, []Target{target})[0]; got.Err != nil || got.Cut != -1 {
		t.Errorf("a destination that cannot tell: cut %d, %v", got.Cut, got.Err)
	}
	log.err = cluster.ErrAuthorization
	if got := aligned(t.Context(), src, log, dst, []Target{target})[0]; !errors.Is(got.Err, cluster.ErrAuthorization) {
		t.Errorf("error %v", got.Err)
	}
	synctest.Test(t, func(t *testing.T) {
		log := epochsOf{destination: dst, err: cluster.ErrNotLeader}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := aligned(ctx, src, log, dst, []Target{target})[0]
		if !errors.Is(got.Err, cluster.ErrNotLeader) || !strings.Contains(got.Err.Error(), "destination has not said where epoch 1 ends") {
			t.Errorf("error %v does not say what was waited for", got.Err)
		}
	})
}
