package fetcher

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

var seeds = flag.Int("seeds", 300, "schedules of TestRandomSchedules")
var firstSeed = flag.Uint64("seed", 1, "first schedule of TestRandomSchedules")

// TestRandomSchedules runs seeded schedules of faults. Whatever happens, the
// destination is a prefix of the source at every moment, nothing is appended
// twice or out of place by an answer that was not refused, and when the faults
// end both logs are equal (I1, I2, I3, I4, I10).
func TestRandomSchedules(t *testing.T) {
	n := *seeds
	if testing.Short() || raceEnabled {
		n = min(n, 60)
	}
	for i := range n {
		seed := *firstSeed + uint64(i)
		inWorld(t, Options{BudgetBytes: 1 << 20, PartitionBytes: 4 << 10, ResponseBytes: 16 << 10}, func(w *world) {
			newSchedule(w, seed).run()
		})
		if t.Failed() {
			t.Fatalf("seed %d fails: go test -run RandomSchedules -args -seed %d -seeds 1", seed, seed)
		}
	}
}

// TestRandomSchedulesOfGaps is the same with a destination that takes gaps, and a
// source whose retention and compaction go on at any time. In the end every offset
// that the destination does not have was told as skipped, or is a hole in the source.
func TestRandomSchedulesOfGaps_I9(t *testing.T) {
	n := *seeds
	if testing.Short() || raceEnabled {
		n = min(n, 60)
	}
	for i := range n {
		seed := *firstSeed + uint64(i)
		inWorld(t, Options{BudgetBytes: 1 << 20, PartitionBytes: 4 << 10, ResponseBytes: 16 << 10}, func(w *world) {
			w.dst.traits.Gaps, w.f.traits.Gaps = true, true
			s := newSchedule(w, seed)
			s.gaps, s.src.retained = map[cluster.Partition][]cluster.Span{}, map[cluster.Partition][]sourceBatch{}
			s.run()
			for _, p := range s.ps {
				s.within(time.Minute, "log starts are equal", func() bool { return s.trimmedTo(p) == s.src.logs[p].start })
				s.accounted(p)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d fails: go test -run RandomSchedulesOfGaps -args -seed %d -seeds 1", seed, seed)
		}
	}
}

// delete moves the source's log start up, or takes a batch out.
func (s *schedule) delete(p cluster.Partition) {
	s.src.update(func() {
		l := s.src.logs[p]
		n := len(l.batches)
		if n < 2 {
			return
		}
		if s.rnd.IntN(3) == 0 {
			i := s.rnd.IntN(n - 1)
			if i == 0 || l.batches[i-1].epoch != l.batches[i].epoch {
				return // the double finds epochs in its batches: each keeps its first
			}
			s.gaps[p] = append(s.gaps[p], cluster.Span{From: l.batches[i].base, To: l.batches[i].next})
			s.src.retained[p] = append(s.src.retained[p], l.batches[i])
			l.batches = slices.Delete(l.batches, i, i+1)
			return
		}
		l.start = max(l.start, l.batches[n-1-s.rnd.IntN(min(n, 4))].base+int64(s.rnd.IntN(2)))
		l.start = min(l.start, l.end())
	})
}

// accounted compares what is missing with what was told and what has holes.
func (s *schedule) accounted(p cluster.Partition) {
	s.dst.mu.Lock()
	defer s.dst.mu.Unlock()
	known := slices.Clone(s.gaps[p])
	for _, k := range s.skips() {
		if k.p == p {
			known = append(known, k.span)
		}
	}
	next := int64(0)
	for _, b := range s.dst.log(p).batches {
		for o := next; o < b.base; o++ {
			if !slices.ContainsFunc(known, func(k cluster.Span) bool { return k.From <= o && o < k.To }) {
				s.t.Errorf("%v: offset %d is missing and was not told: %v", p, o, known)
				return
			}
		}
		next = b.next
	}
}

type schedule struct {
	*world
	gaps map[cluster.Partition][]cluster.Span // nil: the source loses nothing
	rnd  *rand.Rand
	ps   []cluster.Partition
	away map[cluster.Partition]bool // removed
}

func newSchedule(w *world, seed uint64) *schedule {
	s := &schedule{world: w, rnd: rand.New(rand.NewPCG(seed, 1)), away: map[cluster.Partition]bool{}}
	for i := range 4 {
		s.ps = append(s.ps, part(i))
	}
	w.assign(1, s.ps...)
	return s
}

func (s *schedule) run() {
	for i := range 150 {
		s.step(s.ps[s.rnd.IntN(len(s.ps))])
		pass(time.Duration(s.rnd.IntN(30)) * time.Millisecond)
		s.prefix(s.ps[i%len(s.ps)])
	}
	s.mend()
	for _, p := range s.ps {
		s.src.produce(p, 1, 1, 1)
	}
	pass(5 * time.Second)
	for _, p := range s.ps { // assigned anew shortly before, as in mend
		if errors.Is(s.notes.failure(p), cluster.ErrFenced) {
			s.anew(p)
		}
	}
	s.same(30*time.Second, s.ps...)
	for _, p := range s.ps {
		s.within(10*time.Second, fmt.Sprintf("%v without trouble", p), func() bool { return s.boards[p].Trouble() == nil })
		if got, want := s.boards[p].LogEnd.Load(), s.src.end(p); got != want {
			s.t.Errorf("%v: LogEnd %d, want %d", p, got, want)
		}
	}
}

// mend ends all faults and has every partition copied.
func (s *schedule) mend() {
	s.src.update(func() {
		for _, b := range s.src.brokers {
			b.down, b.rtt = false, 0
			if b.gate != nil {
				close(b.gate)
				b.gate = nil
			}
		}
		for _, p := range s.ps {
			s.src.logs[p].faults = nil
		}
	})
	for _, p := range s.ps {
		s.dst.with(p, func(l *destinationLog) { l.faults, l.delay, l.endErr, l.forbidden = nil, 0, nil, false })
		s.dst.answer(p)
		// One that was assigned anew while its old session still appended may have failed
		// on the log that had grown.
		if err := s.notes.failure(p); err != nil && !errors.Is(err, cluster.ErrCorrupt) && !errors.Is(err, cluster.ErrFenced) {
			s.t.Errorf("%v failed: %v", p, err)
		}
		if s.away[p] || s.notes.failure(p) != nil {
			s.anew(p)
		}
	}
}

// anew assigns a partition when nothing of it is under way any more.
func (s *schedule) anew(p cluster.Partition) {
	s.remove(p)
	s.notes.note(func() { delete(s.notes.failed, p) })
	s.reassign(p)
}

func (s *schedule) step(p cluster.Partition) {
	kinds := 14
	if s.gaps != nil {
		kinds = 16
	}
	switch broker := int32(s.rnd.IntN(3) + 1); s.rnd.IntN(kinds) {
	case 14, 15:
		s.delete(p)
	case 0, 1, 2, 3:
		s.src.produce(p, 1+s.rnd.IntN(8), 1+s.rnd.IntN(3), s.rnd.IntN(2000))
	case 4:
		s.src.elect(p, broker)
	case 5:
		s.dst.with(p, func(l *destinationLog) {
			errs := []error{cluster.ErrTimeout, cluster.ErrUnavailable, cluster.ErrUnknownOutcome, cluster.ErrCorrupt}
			for range 1 + s.rnd.IntN(3) {
				l.faults = append(l.faults, fault{err: errs[s.rnd.IntN(len(errs))], lands: s.rnd.IntN(2) == 0}, fault{})
			}
		})
	case 6:
		s.dst.with(p, func(l *destinationLog) { l.delay = time.Duration(s.rnd.IntN(60)) * time.Millisecond })
	case 7:
		s.dst.with(p, func(l *destinationLog) { l.endErr, l.endsLeft = cluster.ErrUnavailable, s.rnd.IntN(4) })
	case 8:
		s.removeOrAssign(p)
	case 9:
		s.dst.with(p, func(l *destinationLog) { l.forbidden = false })
		s.reassign(p)
		s.away[p] = false
	case 10:
		s.src.setDown(broker, s.rnd.IntN(2) == 0)
	case 11:
		s.src.mu.Lock()
		s.src.brokers[broker].rtt = time.Duration(s.rnd.IntN(100)) * time.Millisecond
		s.src.mu.Unlock()
	case 12:
		s.gate(broker)
	case 13:
		s.src.mu.Lock()
		errs := []error{cluster.ErrUnavailable, cluster.ErrNotLeader, cluster.ErrLeaderEpoch, cluster.ErrUnknownTopic, cluster.ErrOutOfRange}
		f := Fetched{Err: errs[s.rnd.IntN(len(errs))], Diverging: cluster.EpochEnd{EndOffset: -1}, Leader: cluster.Leader{Broker: broker, Epoch: int32(s.rnd.IntN(3))}}
		s.src.logs[p].faults = append(s.src.logs[p].faults, f)
		s.src.mu.Unlock()
	}
}

func (s *schedule) removeOrAssign(p cluster.Partition) {
	if s.away[p] {
		s.dst.with(p, func(l *destinationLog) { l.forbidden = false })
		s.reassign(p)
	} else {
		s.remove(p)
		s.dst.with(p, func(l *destinationLog) { l.forbidden = true })
	}
	s.away[p] = !s.away[p]
}

// gate holds a broker's answers back, or lets them go.
func (s *schedule) gate(broker int32) {
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	b := s.src.brokers[broker]
	if b.gate == nil {
		b.gate = make(chan struct{})
		return
	}
	close(b.gate)
	b.gate = nil
}
