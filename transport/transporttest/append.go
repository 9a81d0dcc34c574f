package transporttest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

var appendChecks = []check{
	{"append lands at its offset", needsDestination, landsAtItsOffset},
	{"append elsewhere is refused", needsDestination, refusedElsewhere},
	{"append again changes nothing", needsDestination, againChangesNothing},
	{"after an error nothing lands until Ends", needsDestination, refusedUntilEnds},
	{"appends are answered in order", needsDestination, answeredInOrder},
	{"bytes are given back with the answer", needsDestination, bytesGivenBack},
	{"Ends forgets what is under way", needsDestination, endsForgets},
	{"many partitions at once", needsDestination, manyAtOnce},
	{"writes of others", with("Produce", hasProduce), othersWrite},
	{"an unknown topic", needsDestination, unknownTopic},
}

// landsAtItsOffset: what lands is what was appended, record by record.
func landsAtItsOffset(k *kit) {
	p := k.started()
	batches := k.run(0, 5, 3)
	k.land(k.to, p, batches[:2]...)
	k.land(k.to, p, batches[2:]...)
	if e := k.replicated(k.to, stretch(p)); e.LogEnd != 15 || e.HighWatermark != 15 || e.LogStart != 0 || !e.Ours || e.Stopped {
		k.Errorf("after five batches: %+v", e)
	}
	k.holds(k.to, p, batches...)
	answers, err := k.to.Offsets(k.ctx, []cluster.Partition{p})
	if err != nil || answers[0].Err != nil || answers[0].Offsets != (cluster.Offsets{HighWatermark: 15}) {
		k.Errorf("offsets: %+v, %v", answers, err)
	}
}

// refusedElsewhere is I4: a batch lands at its own offset or nowhere.
func refusedElsewhere(k *kit) {
	for name, stray := range map[string]func() cluster.Batch{
		"below the end":   func() cluster.Batch { return k.batch(0, 2) },
		"across the end":  func() cluster.Batch { return k.batch(2, 4) },
		"twice in a run":  func() cluster.Batch { return k.batch(0, 4) },
		"behind the end":  func() cluster.Batch { return k.batch(6, 2) },
		"far from it all": func() cluster.Batch { return k.batch(1<<33, 1) },
	} {
		b := stray()
		if k.traits.Gaps && !k.traits.Fills && b.Base > 4 {
			continue // it says that something is left out, and that is allowed
		}
		p := k.started()
		k.land(k.to, p, k.batch(0, 4))
		if r := k.append(k.to, p, b); r.Err == nil || r.Batches != 0 || r.Next != 4 {
			k.Errorf("%s, at %d with the log end at 4: %+v", name, b.Base, r)
		}
		k.holds(k.to, p, k.batch(0, 4))
	}
}

func againChangesNothing(k *kit) {
	p := k.started()
	batches := k.run(0, 3, 2)
	k.land(k.to, p, batches...)
	for range 2 {
		k.append(k.to, p, batches[2]) // a result of either kind
		if e := k.begin(k.to, stretch(p)); e.LogEnd != 6 {
			k.Fatalf("the log end after a repeated append: %+v", e)
		}
	}
	k.holds(k.to, p, batches...)
	k.land(k.to, p, k.batch(6, 2))
}

// refusedUntilEnds: what was handed over behind a run that failed does not land, and
// neither does the next one, unless it belongs where the log ends.
func refusedUntilEnds(k *kit) {
	p := k.started()
	k.land(k.to, p, k.batch(0, 2))
	failed, behind := k.appending(k.to, p, k.batch(1, 2)), k.appending(k.to, p, k.batch(3, 2))
	if r := k.result(failed); r.Err == nil {
		k.Fatalf("a batch across the end: %+v", r)
	}
	if r := k.result(behind); !errors.Is(r.Err, cluster.ErrOutOfOrder) || r.Batches != 0 {
		k.Errorf("a batch behind one that failed: %+v, want ErrOutOfOrder", r)
	}
	if e := k.begin(k.to, stretch(p)); e.LogEnd != 2 {
		k.Fatalf("%+v", e)
	}
	k.land(k.to, p, k.batch(2, 2))
	k.holds(k.to, p, k.batch(0, 2), k.batch(2, 2))
}

// answeredInOrder is C11.11: runs that are handed over without waiting land and are
// answered in their order.
func answeredInOrder(k *kit) {
	p := k.started()
	const runs = 50
	var mu sync.Mutex
	var nexts []int64
	all := k.run(0, runs, 1)
	left := make(chan error, runs)
	for _, b := range all {
		k.to.Append(p, copies([]cluster.Batch{b}), nil, func(r fetcher.Result) {
			mu.Lock()
			nexts = append(nexts, r.Next)
			mu.Unlock()
			left <- r.Err
		})
	}
	for range runs {
		select {
		case err := <-left:
			if err != nil {
				k.Fatal(err)
			}
		case <-k.ctx.Done():
			k.Fatal("appends are not answered")
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.IsSorted(nexts) || nexts[runs-1] != runs {
		k.Errorf("answers in the order %v", nexts)
	}
	k.holds(k.to, p, all...)
}

// bytesGivenBack: the bytes are the caller's again, who writes other things into them,
// as soon as free was called, and at the latest with the answer; each comes once, and
// also for what does not land.
func bytesGivenBack(k *kit) {
	p := k.started()
	want := k.run(0, 3, 2)
	runs := [][]cluster.Batch{want[:2], want[2:], {k.batch(1, 9)}} // the last one does not fit
	var frees, dones atomic.Int64
	answered := make(chan error, 10)
	for _, run := range runs {
		got := copies(run)
		k.to.Append(p, got, func() {
			frees.Add(1)
			for _, b := range got {
				clear(b.Bytes)
			}
			answered <- nil
		}, func(r fetcher.Result) {
			dones.Add(1)
			answered <- r.Err
		})
	}
	failed := 0
	for range 2 * len(runs) {
		select {
		case err := <-answered:
			if err != nil {
				failed++
			}
		case <-k.ctx.Done():
			k.Fatalf("%d runs were freed and %d answered, of %d", frees.Load(), dones.Load(), len(runs))
		}
	}
	k.holds(k.to, p, want...)
	if frees.Load() != 3 || dones.Load() != 3 || failed != 1 {
		k.Errorf("3 runs, one of which does not fit: %d freed, %d answered, %d failed", frees.Load(), dones.Load(), failed)
	}
}

// endsForgets: every append is answered, once, when Ends has returned, and nothing of
// it lands afterwards unseen.
func endsForgets(k *kit) {
	p := k.started()
	var answered atomic.Int64
	all := k.run(0, 20, 1)
	for _, b := range all {
		k.to.Append(p, copies([]cluster.Batch{b}), nil, func(fetcher.Result) { answered.Add(1) })
	}
	e := k.begin(k.to, stretch(p))
	if n := answered.Load(); n != 20 {
		k.Errorf("%d of 20 appends were answered when Ends returned", n)
	}
	if e.LogEnd > int64(len(all)) {
		k.Fatalf("the log ends at %d, behind all that was appended", e.LogEnd)
	}
	rest := all[e.LogEnd:]
	if len(rest) > 0 {
		k.land(k.to, p, rest...)
	}
	k.holds(k.to, p, all...)
	if n := answered.Load(); n != 20 {
		k.Errorf("20 appends have %d answers", n)
	}
}

// manyAtOnce: partitions do not disturb each other, calls name many, answers keep
// their order, and one that is not there has its own error.
func manyAtOnce(k *kit) {
	ps := k.topic(6)
	no := cluster.Partition{Topic: unique("absent")}
	stretches := []fetcher.Stretch{stretch(no)}
	for _, p := range ps {
		stretches = append(stretches, stretch(p))
	}
	ends, err := k.to.Ends(k.ctx, stretches)
	if err != nil || len(ends) != len(stretches) {
		k.Fatalf("%d ends: %v", len(ends), err)
	}
	for i, e := range ends {
		if (e.Err != nil) != (i == 0) {
			k.Errorf("%v: %v", stretches[i].Partition, e.Err)
		}
	}
	var group sync.WaitGroup
	for i, p := range ps {
		group.Go(func() {
			for base := int64(0); base < 10; base++ {
				if r := k.append(k.to, p, k.batch(base, 1)); r.Err != nil || r.Partition != p {
					k.Errorf("%v: %+v", p, r)
					return
				}
				if i%2 == 0 {
					k.to.Offsets(k.ctx, ps)
				}
			}
		})
	}
	group.Wait()
	for _, p := range ps {
		k.holds(k.to, p, k.run(0, 10, 1)...)
	}
	errs := k.to.Trim(k.ctx, []fetcher.Cut{{Partition: ps[1], Offset: 3}, {Partition: no, Offset: 3}, {Partition: ps[0], Offset: 5}})
	if len(errs) != 3 || errs[0] != nil || errs[1] == nil || errs[2] != nil {
		k.Errorf("trim: %v", errs)
	}
	for i, want := range []int64{5, 3, 0} {
		if e := k.look(k.to, stretch(ps[i])); e.LogStart != want {
			k.Errorf("%v starts at %d, want %d", ps[i], e.LogStart, want)
		}
	}
}

// othersWrite is C2.15: a destination refuses what clients write into a mirror topic,
// or shows afterwards where it stands.
func othersWrite(k *kit) {
	p := k.started()
	k.land(k.to, p, k.batch(0, 3))
	err := k.end.Produce(k.ctx, p, k.batch(0, 2).Bytes)
	if k.traits.ReadOnly {
		if err == nil {
			k.Error("a client has written into a mirror topic that is read-only by its traits")
		}
		k.holds(k.to, p, k.batch(0, 3))
		return
	}
	if err != nil {
		k.Fatalf("a client could not write, though ReadOnly is no trait: %v", err)
	}
	e := k.look(k.to, stretch(p))
	var at *cluster.OffsetError
	if !errors.Is(e.Err, cluster.ErrForeignWrite) || !errors.As(e.Err, &at) || at.Span != (cluster.Span{From: 3, To: 5}) {
		k.Errorf("records of others at [3,5): %+v", e)
	}
	if r := k.append(k.to, p, k.batch(3, 1)); r.Err == nil {
		k.Errorf("an append at an offset that is taken: %+v", r)
	}
}

func unknownTopic(k *kit) {
	p := cluster.Partition{Topic: unique("absent")}
	if e := k.look(k.to, stretch(p)); !errors.Is(e.Err, cluster.ErrUnknownTopic) {
		k.Errorf("Ends: %+v", e)
	}
	if r := k.append(k.to, p, k.batch(0, 1)); r.Err == nil {
		k.Errorf("append: %+v", r)
	}
	if _, err := k.to.Read(k.ctx, p, 0, 1); !errors.Is(err, cluster.ErrUnknownTopic) {
		k.Errorf("read: %v", err)
	}
	answers, err := k.to.Offsets(k.ctx, []cluster.Partition{p})
	if err != nil || !errors.Is(answers[0].Err, cluster.ErrUnknownTopic) {
		k.Errorf("offsets: %+v, %v", answers, err)
	}
}
