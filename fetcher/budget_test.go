package fetcher

import (
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

func TestDeadDestinationDoesNotStopTheOthers_I10(t *testing.T) {
	inWorld(t, Options{BudgetBytes: 8 << 20, StallAfter: time.Hour}, func(w *world) {
		var dead, live []cluster.Partition
		for i := range 20 {
			p := part(i)
			broker := int32(i%3 + 1)
			w.assign(broker, p)
			if i < 10 {
				dead = append(dead, p)
				w.dst.with(p, func(l *destinationLog) { l.silent = true })
			} else {
				live = append(live, p)
				w.dst.with(p, func(l *destinationLog) { l.delay = 2 * time.Millisecond })
			}
		}
		for range 200 {
			for _, p := range dead {
				w.src.produce(p, 2, 1, 10<<10)
			}
			for _, p := range live {
				w.src.produce(p, 2, 1, 10<<10)
			}
			pass(10 * time.Millisecond)
		}
		w.same(5*time.Second, live...)
		budget := w.f.budget
		w.src.mu.Lock()
		if limit := int(budget.total) + 10<<20; w.src.most > limit {
			t.Errorf("answers held up to %d bytes, limit %d", w.src.most, limit)
		}
		w.src.mu.Unlock()
		waits := int64(0)
		for _, p := range dead {
			w.dst.with(p, func(l *destinationLog) { waits += l.mostWaits })
		}
		if waits > budget.total*3/4+20*64<<10 || waits == 0 {
			t.Errorf("the dead partitions hold %d bytes of %d", waits, budget.total)
		}
		for _, p := range dead {
			w.dst.with(p, func(l *destinationLog) { l.delay = time.Millisecond })
			w.dst.answer(p)
		}
		w.same(30*time.Second, dead...)
	})
}

// A dead partition with little data in every answer keeps the whole answers.
func TestSmallPartsDoNotKeepLargeAnswers_I10(t *testing.T) {
	inWorld(t, Options{BudgetBytes: 8 << 20}, func(w *world) {
		dead, live := part(0), part(1)
		w.assign(1, dead, live)
		w.dst.with(dead, func(l *destinationLog) { l.silent = true })
		for range 300 {
			w.src.update(func() {
				for p, size := range map[cluster.Partition]int{dead: 10, live: 100 << 10} {
					l := w.src.logs[p]
					l.append(plain(l.end(), 1, size, 0))
				}
			})
			pass(20 * time.Millisecond)
		}
		w.same(time.Second, live)
	})
}

func TestBudgetIsKept(t *testing.T) {
	inWorld(t, Options{BudgetBytes: 4 << 20}, func(w *world) {
		var ps []cluster.Partition
		for i := range 12 {
			p := part(i)
			ps = append(ps, p)
			w.src.create(p, int32(i%3+1))
			w.src.produce(p, 100, 1, 50<<10)
			w.dst.with(p, func(l *destinationLog) { l.delay = 15 * time.Millisecond })
		}
		w.assign(0, ps...)
		w.same(time.Minute, ps...)
		w.src.mu.Lock()
		defer w.src.mu.Unlock()
		if w.src.most > 4<<20+1<<20 {
			t.Errorf("answers held up to %d bytes, the budget is %d", w.src.most, 4<<20)
		}
		if w.src.most < 1<<20 {
			t.Errorf("answers held up to %d bytes: the case did not happen", w.src.most)
		}
	})
}

func TestBatchLargerThanTheBudgetPasses(t *testing.T) {
	inWorld(t, Options{BudgetBytes: 256 << 10}, func(w *world) {
		ps := []cluster.Partition{part(0), part(1), part(2)}
		for i, p := range ps {
			w.src.create(p, int32(i+1))
			w.src.produce(p, 10, 1, 400<<10)
		}
		w.assign(0, ps...)
		w.same(time.Minute, ps...)
	})
}

// A partition that waits for room is not kept waiting by an idle neighbour's
// long poll.
func TestRoomIsUsedThoughALongPollIsUnderWay(t *testing.T) {
	inWorld(t, Options{BudgetBytes: 4 << 20}, func(w *world) {
		busy, idle := part(0), part(1)
		w.src.create(busy, 1)
		w.src.produce(busy, 200, 1, 100<<10) // 20 MB, 1 MiB in flight at most
		w.dst.with(busy, func(l *destinationLog) { l.delay = 20 * time.Millisecond })
		w.assign(1, busy, idle)
		w.same(2*time.Second, busy)
	})
}

// While a destination is dead the source is not asked all the time.
func TestWaitingForRoomBecomesPatient(t *testing.T) {
	inWorld(t, Options{BudgetBytes: 4 << 20}, func(w *world) {
		dead, idle := part(0), part(1)
		w.src.create(dead, 1)
		w.src.produce(dead, 200, 1, 100<<10)
		w.dst.with(dead, func(l *destinationLog) { l.silent = true })
		w.assign(1, dead, idle)
		pass(10 * time.Second)
		n := w.fetches(1)
		pass(10 * time.Second)
		if n = w.fetches(1) - n; n > 25 {
			t.Errorf("%d requests in 10 s, want about 20", n)
		}
	})
}

func TestLongRoundTrip_C13_1(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.brokers[1].rtt = 150 * time.Millisecond
		w.src.brokers[1].bytesPerSecond = 125 << 20
		w.src.produce(p, 240, 1, 500<<10) // 120 MB
		w.dst.with(p, func(l *destinationLog) { l.delay = 10 * time.Millisecond })
		began := time.Now()
		w.assign(1, p)
		w.same(time.Minute, p)
		took := time.Since(began)
		speed := float64(w.boards[p].Bytes.Load()) / took.Seconds() / 1e6
		if speed < 20 {
			t.Errorf("%.0f MB/s, want 20 at least", speed)
		}
		t.Logf("%.0f MB/s", speed)
	})
}

// What is handed over before answers come is bounded on short ways, the more the more
// partitions there are, and fills a long one.
func TestHandedOverAtATime(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name       string
		far, grown bool
		largest    int32
		in         int64
		busy       int64
		ask        int32
		take       bool
	}{
		{"near, little", false, false, 0, 3 * mib, 4, mib, true},
		{"near, enough", false, false, 0, 4 * mib, 4, mib, false},
		{"near, large batches", false, false, 256 << 10, 4 * mib, 1, 4 * mib, true},
		{"near, of sixteen, little", false, false, 16 << 10, mib + mib/2, 16, mib / 2, true},
		{"near, of sixteen, enough", false, false, 16 << 10, 2 * mib, 16, mib / 2, false},
		{"near, of a thousand", false, false, 16 << 10, 3 * leastNear / 4, 1000, leastShare, true},
		{"near, of a thousand, enough", false, false, 16 << 10, leastNear, 1000, leastShare, false},
		{"near, of a thousand, a batch larger than that", false, false, mib, 0, 1000, leastShare, true},
		{"far source, of sixteen", false, true, 16 << 10, 3 * mib, 16, mib, true},
		{"far, as much", true, false, 0, 4 * mib, 16, mib, true},
		{"far, its share", true, false, 0, 31*mib + 1, 16, mib, false},
	} {
		tr := newTracker(Assignment{Stretch: Stretch{Partition: part(0)}}, mib)
		tr.far, tr.grown, tr.largest, tr.inflight = tc.far, tc.grown, tc.largest, tc.in
		share := newBudget(256<<20).share(1000, tc.busy)
		if ask, take := tr.ask(share), tr.ready(share); ask != tc.ask || take != tc.take {
			t.Errorf("%s: asks for %d, ready is %v", tc.name, ask, take)
		}
	}
}

// TestBusyAreCounted: partitions with something on its way are counted, and those that have
// caught up or left are not.
func TestBusyAreCounted(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.assign(1, part(0), part(1), part(2))
		w.dst.with(part(1), func(l *destinationLog) { l.silent = true })
		for n := range 3 {
			w.src.produce(part(n), 1, 3, 100)
		}
		w.same(time.Second, part(0), part(2))
		if busy := w.f.busy.Load(); busy != 1 {
			t.Errorf("one partition waits for the destination, %d count as busy", busy)
		}
		w.dst.answer(part(1))
		w.same(time.Minute, part(1))
		if busy := w.f.busy.Load(); busy != 0 {
			t.Errorf("nothing is under way, %d count as busy", busy)
		}
	})
}

func TestIdlePartitionsCostNothing_Scale(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		busy := part(10_000)
		ps := make([]cluster.Partition, 10_000)
		for i := range ps {
			ps[i] = part(i)
		}
		w.assign(1, ps...)
		w.assign(1, busy)
		w.src.produce(busy, 1, 1, 1)
		w.same(10*time.Second, busy)
		pass(10 * time.Second)
		b := w.src.brokers[1]
		w.src.mu.Lock()
		fetches, changes, ends := b.fetches, b.changes, w.dst.asked()
		w.src.mu.Unlock()
		for range 50 {
			w.src.produce(busy, 1, 1, 1)
			w.same(time.Second, busy)
		}
		w.src.mu.Lock()
		defer w.src.mu.Unlock()
		fetches, changes = b.fetches-fetches, b.changes-changes
		if fetches < 50 || changes > fetches {
			t.Errorf("%d requests named %d partitions, want one each", fetches, changes)
		}
		if w.dst.asked() != ends {
			t.Errorf("the destination was asked %d times", w.dst.asked()-ends)
		}
	})
}
