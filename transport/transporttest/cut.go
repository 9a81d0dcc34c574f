package transporttest

import (
	"context"
	"errors"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

var cutChecks = []check{
	{"truncate", needsDestination, truncate},
	{"truncate reaches every replica", with("Elect, or no exact truncation", func(e End) bool { return hasElect(e) && cutsExactly(e) }), truncateEverywhere},
	{"trim", needsDestination, trim},
	{"start at an offset", with("Starter", hasStarter), startAt},
	{"epochs", needsDestination, epochs},
	{"epochs are raised", with("EpochRaiser", hasRaiser), raise},
	{"a cancelled context leaves nothing half done", needsDestination, cancelled},
}

// truncate: everything from the offset on goes, and the whole of the batch that holds
// it; what is cut already is no error; other records may follow.
func truncate(k *kit) {
	p := k.started()
	all := k.run(0, 4, 5)
	k.land(k.to, p, all...)
	k.replicated(k.to, stretch(p))
	cut := func(at int64) error {
		errs := k.to.Truncate(k.ctx, []fetcher.Cut{{Partition: p, Offset: at}})
		if len(errs) != 1 {
			k.Fatalf("%d errors for one cut", len(errs))
		}
		return errs[0]
	}
	if !cutsExactly(k.end) {
		if err := cut(10); !errors.Is(err, errors.ErrUnsupported) {
			k.Errorf("truncate without the trait: %v", err)
		}
		k.holds(k.to, p, all...)
		return
	}
	if !k.end.Destination.Traits().ReadOnly { // what others have written since is not cut with the rest
		err := k.to.Truncate(k.ctx, []fetcher.Cut{{Partition: p, Offset: 10, End: 19}})[0]
		if e := k.begin(k.to, stretch(p)); !errors.Is(err, cluster.ErrUnavailable) || e.LogEnd != 20 {
			k.Fatalf("a log that has grown is cut: %v, %+v", err, e)
		}
	}
	for _, step := range []struct{ at, end int64 }{{20, 20}, {99, 20}, {17, 15}, {17, 15}, {10, 10}, {12, 10}} {
		if err := cut(step.at); err != nil {
			k.Fatalf("cut at %d: %v", step.at, err)
		}
		e := k.begin(k.to, stretch(p))
		if e.LogEnd != step.end || e.HighWatermark > step.end || e.LogStart != 0 {
			k.Fatalf("cut at %d: %+v, want the end at %d", step.at, e, step.end)
		}
	}
	k.holds(k.to, p, all[:2]...)
	other := k.batchOf(batch.Spec{Base: 10, LeaderEpoch: 1}, 2)
	k.land(k.to, p, other)
	k.holds(k.to, p, append(all[:2:2], other)...)
	if err := cut(0); err != nil {
		k.Fatal(err)
	}
	if e := k.begin(k.to, stretch(p)); e.LogEnd != 0 {
		k.Errorf("cut at 0: %+v", e)
	}
	k.land(k.to, p, k.batch(0, 1))
}

// truncateEverywhere is I8: whoever leads next has no record of the cut tail.
func truncateEverywhere(k *kit) {
	p := k.started()
	all := k.run(0, 4, 5)
	k.land(k.to, p, all...)
	k.replicated(k.to, stretch(p))
	if err := k.to.Truncate(k.ctx, []fetcher.Cut{{Partition: p, Offset: 10}})[0]; err != nil {
		k.Fatal(err)
	}
	for range 3 {
		k.end.Elect(k.TB, p)
		if e := k.begin(k.to, stretch(p)); e.LogEnd != 10 {
			k.Fatalf("the next leader's log: %+v, want the end at 10", e)
		}
	}
	k.land(k.to, p, k.batchOf(batch.Spec{Base: 10, LeaderEpoch: 1}, 2))
	k.end.Elect(k.TB, p)
	k.holds(k.to, p, all[0], all[1], k.batchOf(batch.Spec{Base: 10, LeaderEpoch: 1}, 2))
}

// trim is C1.3 and C1.7: never further than asked, never back, inside a batch too.
func trim(k *kit) {
	p := k.started()
	all := k.run(0, 4, 5)
	k.land(k.to, p, all...)
	k.replicated(k.to, stretch(p))
	for _, step := range []struct{ to, start int64 }{{0, 0}, {7, 7}, {3, 7}, {7, 7}, {10, 10}} {
		if err := k.to.Trim(k.ctx, []fetcher.Cut{{Partition: p, Offset: step.to}})[0]; err != nil {
			k.Fatalf("trim to %d: %v", step.to, err)
		}
		if e := k.begin(k.to, stretch(p)); e.LogStart != step.start || e.LogEnd != 20 {
			k.Errorf("trim to %d: %+v, want the start at %d", step.to, e, step.start)
		}
		if step.start > 0 {
			if _, err := k.to.Read(k.ctx, p, step.start-1, 1); !errors.Is(err, cluster.ErrOutOfRange) {
				k.Errorf("read below the log start: %v", err)
			}
		}
		if step.to == 7 {
			k.holds(k.to, p, all[1:]...)
		}
	}
	k.land(k.to, p, k.batch(20, 1))
	if k.end.Elect == nil {
		return
	}
	k.replicated(k.to, stretch(p))
	k.end.Elect(k.TB, p)
	if e := k.begin(k.to, stretch(p)); e.LogStart != 10 {
		k.Errorf("the next leader's log start: %+v, want 10", e)
	}
}

func startAt(k *kit) {
	p := k.started()
	starter := k.to.(fetcher.Starter)
	filler, fills := k.to.(fetcher.Filler)
	told := int64(-1)
	for range 2 { // it can be broken off and done again
		if err := starter.StartAt(k.ctx, stretch(p), 50, func(n int64) { told = max(told, n) }); err != nil {
			k.Fatal(err)
		}
		if fills {
			if f, still := filler.Filling(p); still {
				k.Errorf("it has returned, and yet: %v", f)
			}
		}
	}
	if e := k.begin(k.to, stretch(p)); e.LogStart != 50 || e.LogEnd != 50 || told > 50 {
		k.Fatalf("%+v, progress %d, want 50", e, told)
	}
	k.land(k.to, p, k.batch(50, 2))
	k.holds(k.to, p, k.batch(50, 2))
	if err := starter.StartAt(k.ctx, stretch(p), 99, nil); err == nil {
		k.Error("a log with records was made to start elsewhere")
	}
	k.begin(k.to, stretch(p))
	k.holds(k.to, p, k.batch(50, 2))
}

// epochs: the batches' epochs are kept where the trait says so, and then the log's own
// are told (OffsetForLeaderEpoch).
func epochs(k *kit) {
	p := k.started()
	at := func(base int64, epoch int32) cluster.Batch {
		return k.batchOf(batch.Spec{Base: base, LeaderEpoch: epoch}, 2)
	}
	e := k.begin(k.to, stretch(p))
	if !k.traits.KeepsEpochs {
		k.land(k.to, p, at(0, 3), at(2, 5))
		k.holds(k.to, p, at(0, 3), at(2, 5))
		return
	}
	if e.LeaderEpoch == cluster.NoEpoch {
		k.Error("the destination keeps epochs and does not tell its own")
	}
	if raiser, ok := k.to.(fetcher.EpochRaiser); ok {
		if err := raiser.RaiseEpochs(k.ctx, []fetcher.EpochRaise{{Partition: p, Epoch: 20}})[0]; err != nil {
			k.Fatal(err)
		}
		k.begin(k.to, stretch(p))
	}
	k.land(k.to, p, at(0, 3), at(2, 3), at(4, 5))
	k.holds(k.to, p, at(0, 3), at(2, 3), at(4, 5))
	asks, ok := k.to.(fetcher.Epochs)
	if !ok {
		return
	}
	for epoch, want := range map[int32]cluster.EpochEnd{3: {Epoch: 3, EndOffset: 4}, 4: {Epoch: 3, EndOffset: 4}, 5: {Epoch: 5, EndOffset: 6}} {
		got, err := asks.EpochEnds(k.ctx, []fetcher.EpochQuery{{Partition: p, Current: cluster.NoEpoch, Epoch: epoch}})
		if err != nil || got[0].Err != nil || got[0].EpochEnd != want {
			k.Errorf("end of epoch %d: %+v, %v, want %+v", epoch, got, err, want)
		}
	}
}

// raise is I5: the leader epoch reaches what is asked for, and never goes back.
func raise(k *kit) {
	p := k.started()
	raiser := k.to.(fetcher.EpochRaiser)
	to := func(epoch int32) error {
		return raiser.RaiseEpochs(k.ctx, []fetcher.EpochRaise{{Partition: p, Epoch: epoch}})[0]
	}
	if !k.traits.KeepsEpochs {
		if err := to(7); !errors.Is(err, errors.ErrUnsupported) {
			k.Errorf("without the trait: %v", err)
		}
		return
	}
	for _, step := range []struct{ to, least int32 }{{30, 30}, {30, 30}, {4, 30}, {45, 45}} {
		if err := to(step.to); err != nil {
			k.Fatalf("raise to %d: %v", step.to, err)
		}
		if e := k.begin(k.to, stretch(p)); e.LeaderEpoch < step.least {
			k.Errorf("raised to %d: leader epoch %d", step.to, e.LeaderEpoch)
		}
	}
	k.land(k.to, p, k.batchOf(batch.Spec{LeaderEpoch: 44}, 1))
	if k.end.Elect == nil {
		return
	}
	k.replicated(k.to, stretch(p))
	k.end.Elect(k.TB, p)
	if e := k.begin(k.to, stretch(p)); e.LeaderEpoch < 45 {
		k.Errorf("the next leader's epoch is %d, after 45", e.LeaderEpoch)
	}
}

// cancelled: calls whose time is over say so, and what they were to do is done as a
// whole or not at all; done again it is done.
func cancelled(k *kit) {
	p := k.started()
	all := k.run(0, 4, 5)
	k.land(k.to, p, all...)
	k.replicated(k.to, stretch(p))
	over, cancel := context.WithCancel(k.ctx)
	cancel()
	if _, err := k.to.Ends(over, []fetcher.Stretch{stretch(p)}); err == nil {
		k.Error("Ends answers although its time is over")
	}
	if _, err := k.to.Read(over, p, 0, 1); err == nil {
		k.Error("Read answers although its time is over")
	}
	if err := k.to.Trim(over, []fetcher.Cut{{Partition: p, Offset: 5}})[0]; err == nil {
		k.Error("Trim succeeds although its time is over")
	}
	if e := k.begin(k.to, stretch(p)); e.LogStart != 0 && e.LogStart != 5 || e.LogEnd != 20 {
		k.Errorf("after calls whose time was over: %+v", e)
	}
	if cutsExactly(k.end) {
		if err := k.to.Truncate(over, []fetcher.Cut{{Partition: p, Offset: 15}})[0]; err == nil {
			k.Error("Truncate succeeds although its time is over")
		}
		if e := k.begin(k.to, stretch(p)); e.LogEnd != 15 && e.LogEnd != 20 {
			k.Errorf("after a cut whose time was over: %+v", e)
		}
		if err := k.to.Truncate(k.ctx, []fetcher.Cut{{Partition: p, Offset: 15}})[0]; err != nil {
			k.Fatal(err)
		}
		all = all[:3]
	}
	end := all[len(all)-1].Next
	if e := k.begin(k.to, stretch(p)); e.LogEnd != end {
		k.Fatalf("%+v, want the end at %d", e, end)
	}
	k.land(k.to, p, k.batch(end, 1))
	k.holds(k.to, p, append(all, k.batch(end, 1))...)
}
