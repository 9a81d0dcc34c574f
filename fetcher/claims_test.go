package fetcher

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// The source loses its tail and grows past the position before it is looked at again
// (C10.3): brokers say so by themselves since Fetch v12, older ones are asked.
func TestSourceTruncatedWhileMirroring_C10_3_I1(t *testing.T) {
	for _, c := range []struct {
		name     string
		compares bool
		idle     bool  // without Remove in between
		to       int64 // the source's end when it is seen again
		span     cluster.Span
	}{
		{"new source, in the new log", true, true, 120, cluster.Span{From: 80, To: 100}},
		{"old source, in the new log", false, true, 120, cluster.Span{From: 80, To: 100}},
		{"new source, restarted", true, false, 120, cluster.Span{From: 80, To: 100}},
		{"old source, restarted", false, false, 120, cluster.Span{From: 80, To: 100}},
		{"new source, still shorter", true, true, 90, cluster.Span{From: 90, To: 100}},
		{"old source, still shorter", false, true, 90, cluster.Span{From: 90, To: 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p := part(0)
				w.src.compares = c.compares
				w.assign(1, p)
				w.src.produce(p, 10, 10, 5)
				w.same(time.Second, p)
				if !c.idle {
					w.remove(p)
				}
				w.src.update(func() {
					l := w.src.logs[p]
					l.batches = l.batches[:8]
					l.leader = cluster.Leader{Broker: 2, Epoch: 1}
					for l.end() < c.to {
						l.append(plain(l.end(), 10, 7, 1))
					}
				})
				if !c.idle {
					w.reassign(p)
				}
				if got := w.fails(p, cluster.ErrTruncated); got != c.span {
					t.Errorf("span %v, want %v", got, c.span)
				}
				pass(time.Second)
				if w.dst.end(p) != 100 || len(w.notes.told()) != 1 {
					t.Errorf("destination ends at %d, told %v", w.dst.end(p), w.notes.told())
				}
			})
		})
	}
}

func TestEpochThatTheSourceHasLost(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.update(func() {
			l := w.src.logs[p]
			l.leader.Epoch = 3
			l.append(plain(0, 10, 5, 1))
			l.append(plain(10, 10, 5, 3))
		})
		w.assign(1, p)
		w.same(time.Second, p)
		w.src.update(func() { // epoch 3 is gone, 5 begins at its start
			l := w.src.logs[p]
			l.batches = l.batches[:1]
			l.leader.Epoch = 5
			l.append(plain(10, 10, 7, 5))
			l.append(plain(20, 10, 7, 5))
		})
		if got, want := w.fails(p, cluster.ErrTruncated), (cluster.Span{From: 10, To: 20}); got != want {
			t.Errorf("span %v, want %v", got, want)
		}
	})
}

func TestEpochsAreAskedForWhereTheBrokerDoesNotCompare(t *testing.T) {
	for _, compares := range []bool{true, false} {
		inWorld(t, Options{}, func(w *world) {
			w.src.compares = compares
			ps := make([]cluster.Partition, 50)
			for i := range ps {
				ps[i] = part(i)
			}
			w.assign(1, ps...)
			for _, p := range ps {
				w.src.produce(p, 1, 10, 5)
			}
			w.same(time.Second, ps...)
			asked := func() int {
				w.src.mu.Lock()
				defer w.src.mu.Unlock()
				return w.src.epochCalls
			}
			if n := asked(); n != 0 {
				t.Errorf("asked %d times before the first record", n)
			}
			w.src.update(func() {
				for _, p := range ps {
					l := w.src.logs[p]
					l.leader.Epoch++
					l.append(plain(10, 10, 5, 1))
				}
			})
			w.same(5*time.Second, ps...)
			if n := asked(); compares && n != 0 || !compares && (n == 0 || n > 10) {
				t.Errorf("compares %v: asked %d times", compares, n)
			}
		})
	}
}

func TestEpochEndThatIsNotAnswered(t *testing.T) {
	for _, c := range []struct {
		name string
		errs []error
		want error
	}{
		{"moves", []error{cluster.ErrNotLeader, cluster.ErrLeaderEpoch}, nil},
		{"for the moment", []error{cluster.ErrUnavailable, cluster.ErrTimeout, cluster.ErrUnknownTopic}, nil},
		{"never", []error{errors.ErrUnsupported}, nil},
		{"forbidden", []error{cluster.ErrAuthorization}, cluster.ErrAuthorization},
		{"nonsense", []error{cluster.ErrTopicReplaced}, cluster.ErrTopicReplaced},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				p := part(0)
				w.assign(1, p)
				w.src.produce(p, 2, 10, 5)
				w.same(time.Second, p)
				w.src.update(func() {
					l := w.src.logs[p]
					l.epochErrs = c.errs
					l.leader.Epoch++
					l.append(plain(20, 10, 5, 1))
				})
				if c.want != nil {
					w.fails(p, c.want)
					if w.dst.end(p) != 20 {
						t.Errorf("destination ends at %d", w.dst.end(p))
					}
					return
				}
				w.same(30*time.Second, p)
				want := []epochTold{{p: p}, {p: p, epoch: 1, start: 20}}
				if diff := cmp.Diff(want, w.notes.told(), cmp.Comparer(func(a, b epochTold) bool { return a.epoch == b.epoch && a.start == b.start })); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
				w.within(time.Second, "no trouble", func() bool { return w.boards[p].Trouble() == nil })
			})
		})
	}
}

func TestCeilingOfEpochs_I5(t *testing.T) {
	keeping := func(t *testing.T, ceiling int32, test func(w *world, p cluster.Partition)) {
		inWorld(t, Options{}, func(w *world) {
			w.f.traits.KeepsEpochs, w.dst.traits.KeepsEpochs = true, true
			p := part(0)
			w.src.create(p, 1)
			w.src.update(func() {
				l := w.src.logs[p]
				l.leader.Epoch = 4
				for _, e := range []int32{0, 0, 2, 3, 4} {
					l.append(plain(l.end(), 10, 5, e))
				}
			})
			w.dst.with(p, func(l *destinationLog) { l.leader = ceiling })
			w.boards[p] = &Progress{}
			w.reassignAt(p, ceiling)
			test(w, p)
		})
	}
	raised := func(w *world, p cluster.Partition) (e int32, ok bool) {
		w.notes.note(func() { e, ok = w.notes.raises[p] })
		return e, ok
	}
	for _, c := range []struct {
		name    string
		ceiling int32
		end     int64
		epoch   int32
	}{
		{"none", cluster.NoEpoch, 50, -1},
		{"above all", 5, 50, -1},
		{"the latest is as high", 4, 40, 4},
		{"in the middle of what arrives", 3, 30, 3},
		{"nothing can be appended", 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			keeping(t, c.ceiling, func(w *world, p cluster.Partition) {
				w.within(time.Second, "the end", func() bool { return w.dst.end(p) == c.end })
				pass(time.Minute)
				got, ok := raised(w, p)
				if w.dst.end(p) != c.end || ok != (c.epoch >= 0) || ok && got != c.epoch {
					t.Errorf("end %d, raise %d %v; want %d, %d", w.dst.end(p), got, ok, c.end, c.epoch)
				}
				if w.notes.failure(p) != nil || w.notes.stalled[p] != 0 {
					t.Errorf("failed with %v, stalled %d", w.notes.failure(p), w.notes.stalled[p])
				}
				w.prefix(p)
				if !ok {
					return
				}
				w.dst.with(p, func(l *destinationLog) { l.leader = 14 })
				w.reassignAt(p, 14)
				w.same(time.Second, p)
			})
		})
	}
	t.Run("raised ahead of need, while copying goes on", func(t *testing.T) {
		keeping(t, 5, func(w *world, p cluster.Partition) {
			w.same(time.Second, p)
			w.dst.with(p, func(l *destinationLog) { l.leader = 15 })
			w.boards[p].Ceiling.Store(15)
			w.src.update(func() {
				l := w.src.logs[p]
				l.leader.Epoch = 9
				l.append(plain(50, 10, 5, 9))
			})
			w.same(5*time.Second, p)
			if _, ok := raised(w, p); ok {
				t.Error("raised once more")
			}
		})
	})
	t.Run("the destination's word after an error", func(t *testing.T) {
		keeping(t, 5, func(w *world, p cluster.Partition) {
			w.same(time.Second, p)
			w.dst.with(p, func(l *destinationLog) { l.faults, l.leader = []fault{{err: cluster.ErrUnavailable}}, 7 })
			w.src.produce(p, 1, 10, 5)
			w.same(5*time.Second, p)
			if got := w.boards[p].Ceiling.Load(); got != 7 {
				t.Errorf("ceiling %d, want 7", got)
			}
		})
	})
}

// reassignAt assigns with a ceiling of epochs.
func (w *world) reassignAt(p cluster.Partition, ceiling int32) {
	w.f.Assign(Assignment{
		Stretch: Stretch{Partition: p}, TopicID: w.src.logs[p].id, Next: w.dst.end(p), LastEpoch: w.dst.lastEpoch(p),
		Progress: w.boards[p], Ceiling: ceiling,
	})
}
