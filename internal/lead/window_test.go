package lead

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWindowAgainstAList drives a window beside a list that is gone through each time.
func TestWindowAgainstAList(t *testing.T) {
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(seed, 3))
		w, end := window{}, int64(0)
		var list []entry
		for range 300 {
			switch n := dice.IntN(10); {
			case n < 6:
				base := end + dice.Int64N(2)
				e := entry{base: base, next: base + 1 + dice.Int64N(4), bytes: make([]byte, 1+dice.IntN(50)), run: &run{}}
				w.push(e)
				list, end = append(list, e), e.next
			case n < 9:
				low := w.low
				quorum, all, limit := low+dice.Int64N(end-low+1), low+dice.Int64N(end-low+1), dice.Int64N(100)
				freed := len(w.drop(quorum, all, limit, nil))
				was := len(list)
				for len(list) > 0 && list[0].next <= quorum && (list[0].next <= all || bytesTo(list, quorum) > limit) {
					list = list[1:]
				}
				if freed != was-len(list) {
					t.Fatalf("seed %d: %d dropped of %d, %d left by the list", seed, freed, was, len(list))
				}
			default:
				at := w.before(w.low + dice.Int64N(end-w.low+1))
				w.cut(at, nil)
				list = slices.DeleteFunc(list, func(e entry) bool { return e.next > at })
				end = at
			}
			same := slices.EqualFunc(w.live(), list, func(a, b entry) bool { return a.base == b.base && a.next == b.next && a.run == b.run })
			if !same || w.size != bytesTo(list, end) {
				t.Fatalf("seed %d: %d entries of %d bytes, the list has %d of %d", seed, len(w.live()), w.size, len(list), bytesTo(list, end))
			}
			mark := dice.Int64N(end + 1)
			if got, want := w.heldTo(mark), bytesTo(list, mark); got != want {
				t.Fatalf("seed %d: %d bytes below %d, want %d", seed, got, mark, want)
			}
		}
	}
}

// bytesTo is how many bytes the batches have that end at an offset or before.
func bytesTo(list []entry, offset int64) (n int64) {
	for _, e := range list {
		if e.next <= offset {
			n += int64(len(e.bytes))
		}
	}
	return n
}
