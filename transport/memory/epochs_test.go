package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/google/go-cmp/cmp"
)

func TestEndOfEpochAsKafkaAnswers(t *testing.T) {
	e := epochs{}
	e.assign(2, 10)
	e.assign(4, 20)
	e.assign(4, 25) // known already
	e.assign(7, 30)
	for epoch, want := range map[int32]cluster.EpochEnd{
		-1: {Epoch: -1, EndOffset: -1},
		1:  {Epoch: 1, EndOffset: 10}, // older than any: where the log begins
		2:  {Epoch: 2, EndOffset: 20},
		3:  {Epoch: 2, EndOffset: 20},
		4:  {Epoch: 4, EndOffset: 30},
		6:  {Epoch: 4, EndOffset: 30},
		7:  {Epoch: 7, EndOffset: 42}, // the latest: the log end
		8:  {Epoch: -1, EndOffset: -1},
	} {
		if got := e.endOf(epoch, 42); got != want {
			t.Errorf("epoch %d: %+v, want %+v", epoch, got, want)
		}
	}
}

func TestEpochHistoryIsCut(t *testing.T) {
	full := func() epochs { return epochs{{1, 0}, {3, 10}, {5, 20}} }
	for name, c := range map[string]struct {
		change func(*epochs)
		want   epochs
	}{
		"tail inside an epoch":                           {func(e *epochs) { e.cutTail(15) }, epochs{{1, 0}, {3, 10}}},
		"tail where one begins":                          {func(e *epochs) { e.cutTail(20) }, epochs{{1, 0}, {3, 10}}},
		"tail to nothing":                                {func(e *epochs) { e.cutTail(0) }, epochs{}},
		"head inside an epoch":                           {func(e *epochs) { e.cutHead(15) }, epochs{{3, 15}, {5, 20}}},
		"head where one begins":                          {func(e *epochs) { e.cutHead(10) }, epochs{{3, 10}, {5, 20}}},
		"an empty epoch is replaced":                     {func(e *epochs) { e.assign(6, 20) }, epochs{{1, 0}, {3, 10}, {6, 20}}},
		"an older epoch comes later":                     {func(e *epochs) { e.assign(3, 30) }, epochs{{1, 0}, {3, 30}}},
		"an empty epoch goes, the one before it goes on": {func(e *epochs) { e.assign(9, 30); e.assign(5, 30) }, epochs{{1, 0}, {3, 10}, {5, 20}}},
	} {
		e := full()
		c.change(&e)
		if d := cmp.Diff(c.want, e, cmp.AllowUnexported(epochStart{})); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

// TestFollowersBecomeTheLeadersCopy: whatever happens to who leads, a follower that
// has followed holds exactly the leader's batches and no record of a dead branch.
// The twin is a plain list of values.
func TestFollowersBecomeTheLeadersCopy(t *testing.T) {
	for seed := range uint64(1000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		logs := make([]log, 3)
		truth := make([][]string, 3) // value at each offset
		leader, epoch := 0, int32(0)
		logs[0].epochs.assign(0, 0)
		for step := range 30 {
			switch rnd.IntN(4) {
			case 0, 1:
				n := 1 + rnd.IntN(3)
				s := batch.Spec{Base: logs[leader].end, LeaderEpoch: epoch}
				for i := range n {
					v := fmt.Sprint(seed, step, i)
					s.Records = append(s.Records, batch.Record{Value: []byte(v)})
					truth[leader] = append(truth[leader], v)
				}
				logs[leader].append(storedOf(batch.Encode(s)))
			case 2:
				f := rnd.IntN(3)
				if f != leader {
					logs[f].follow(&logs[leader])
					truth[f] = append([]string(nil), truth[leader]...)
				}
			case 3:
				leader = rnd.IntN(3)
				epoch++
				logs[leader].epochs.assign(epoch, logs[leader].end)
			}
			for i := range logs {
				if got := valuesOf(t, &logs[i]); !slices.Equal(truth[i], got) {
					t.Fatalf("seed %d, step %d, replica %d of leader %d: %v, want %v", seed, step, i, leader, got, truth[i])
				}
			}
		}
	}
}

func valuesOf(t *testing.T, l *log) (vs []string) {
	for _, s := range l.batches {
		err := batch.Decode(batch.Header(s.bytes), func(r batch.Record) error {
			if r.Offset != int64(len(vs)) {
				t.Fatalf("offset %d at place %d", r.Offset, len(vs))
			}
			vs = append(vs, string(r.Value))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return vs
}

func TestTruncateTakesTheWholeBatch(t *testing.T) {
	fresh := func() *log {
		l := &log{}
		for _, base := range []int64{0, 5, 20} {
			l.append(storedOf(batch.Encode(batch.Spec{Base: base, LeaderEpoch: int32(base), Records: make([]batch.Record, 5)})))
		}
		l.trim(6)
		return l
	}
	for to, want := range map[int64][3]int64{ // start, end, batches
		30: {6, 25, 2}, 25: {6, 25, 2}, 24: {6, 20, 1}, 20: {6, 20, 1}, 15: {6, 15, 1}, 10: {6, 10, 1}, 9: {5, 5, 0}, 6: {5, 5, 0}, 3: {3, 3, 0},
	} {
		l := fresh()
		l.truncate(to)
		if got := [3]int64{l.start, l.end, int64(len(l.batches))}; got != want {
			t.Errorf("to %d: %v, want %v", to, got, want)
		}
	}
}
