package mirror

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// withKinds runs the loops of kinds in a bubble until f returns.
func withKinds(t *testing.T, told func(SyncEvent), f func(m *Mirror), kinds ...*kind) {
	synctest.Test(t, func(t *testing.T) {
		m := &Mirror{name: "dr", events: newEventQueue(), kinds: kinds}
		o, _, err := (&Options{Events: Events{Sync: told}}).normalize()
		if err != nil {
			t.Fatal(err)
		}
		m.opts = o
		ctx, cancel := context.WithCancel(context.Background())
		for _, k := range kinds {
			k.kick, k.turn = make(chan struct{}, 1), make(chan struct{}, 1) // the bubble's own
			go m.syncLoop(ctx, k)
		}
		go m.events.run(ctx)
		synctest.Wait()
		f(m)
		cancel()
		synctest.Wait()
	})
}

// after lets time go by and everything come to rest.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestKindsApart: a kind that fails is tried again soon, and keeps no other from its
// rounds, nor does one that hangs; a kick is a round at once.
func TestKindsApart(t *testing.T) {
	down := errors.New("no broker answers")
	failing := newKind("failing", time.Minute, func(context.Context) (outcome, error) { return outcome{}, down })
	hanging := newKind("hanging", time.Minute, func(ctx context.Context) (outcome, error) {
		<-ctx.Done()
		return outcome{}, ctx.Err()
	})
	good := newKind("good", time.Minute, func(context.Context) (outcome, error) { return outcome{}, nil })
	withKinds(t, nil, func(m *Mirror) {
		after(time.Minute + time.Second)
		if got := good.now(); got.Rounds != 2 || got.Error != "" || got.Synced == nil {
			t.Errorf("good: %+v", got)
		}
		if got := failing.now(); got.Rounds < 4 || got.Failures != int(got.Rounds) || !errors.Is(got.Err, down) || got.Synced != nil {
			t.Errorf("failing: %+v", got)
		}
		if got := hanging.now(); got.Rounds != 0 {
			t.Errorf("hanging: %+v", got)
		}
		m.kickSync()
		synctest.Wait()
		if got := good.now(); got.Rounds != 3 {
			t.Errorf("good after a kick: %+v", got)
		}
		before := failing.now().Rounds
		m.kickOthers("failing")
		synctest.Wait()
		if got := good.now(); got.Rounds != 4 || failing.now().Rounds != before {
			t.Errorf("after a kick of the others: good %+v", got)
		}
	}, failing, hanging, good)
}

// TestKindTells: what rounds do adds up, what they see is the last one's; an event is told
// when something was done, when the kind begins to fail and when it succeeds again.
func TestKindTells(t *testing.T) {
	down := errors.New("no broker answers")
	outs := []struct {
		out outcome
		err error
	}{
		{outcome{done: map[string]int64{"set": 2, "removed": 0}, seen: map[string]int64{"topics": 5}}, nil},
		{outcome{done: map[string]int64{"set": 0}, seen: map[string]int64{"topics": 4}, refused: map[string]error{"a": down}}, nil},
		{outcome{done: map[string]int64{"set": 1}}, down},
		{outcome{}, down},
		{outcome{idle: "nothing to do"}, nil},
	}
	round := 0
	k := newKind("configs", time.Minute, func(context.Context) (outcome, error) {
		o := outs[min(round, len(outs)-1)]
		round++
		return o.out, o.err
	})
	var told []SyncEvent
	var shown []SyncStatus
	withKinds(t, func(e SyncEvent) { told = append(told, e) }, func(*Mirror) {
		for range len(outs) {
			shown = append(shown, k.now())
			k.soon()
			synctest.Wait()
		}
	}, k)
	set := map[string]int64{}
	want := []SyncEvent{
		{Mirror: "dr", Kind: "configs", Done: map[string]int64{"set": 2}},
		{Mirror: "dr", Kind: "configs", Done: map[string]int64{"set": 1}, Err: down},
		{Mirror: "dr", Kind: "configs", Done: set},
	}
	if diff := cmp.Diff(want, told, cmpopts.EquateErrors()); diff != "" {
		t.Errorf("events: %s", diff)
	}
	sum := func(n int64) map[string]int64 { return map[string]int64{"set": n, "removed": 0} }
	seen := func(n int64) map[string]int64 { return map[string]int64{"topics": n} }
	refused, text := map[string]string{"a": down.Error()}, down.Error()
	wantShown := []SyncStatus{
		{Rounds: 1, Done: sum(2), Seen: seen(5)}, {Rounds: 2, Done: sum(2), Seen: seen(4), Refused: refused},
		{Rounds: 3, Done: sum(3), Seen: seen(4), Refused: refused, Error: text, Err: down, Failures: 1},
		{Rounds: 4, Done: sum(3), Seen: seen(4), Refused: refused, Error: text, Err: down, Failures: 2},
		{Rounds: 5, Done: sum(3), Idle: "nothing to do"},
	}
	for i := range wantShown {
		wantShown[i].Kind = "configs"
	}
	if diff := cmp.Diff(wantShown, shown, cmpopts.EquateErrors(), cmpopts.IgnoreFields(SyncStatus{}, "Synced")); diff != "" {
		t.Errorf("status: %s", diff)
	}
}

// TestKindValue: what was shown does not change when the next round does something.
func TestKindValue(t *testing.T) {
	k := newKind("configs", time.Minute, nil)
	out := outcome{done: map[string]int64{"set": 1}, seen: map[string]int64{"topics": 1}, refused: map[string]error{"a": errors.New("no")}}
	k.note(out, nil, time.Unix(1, 0))
	first := k.now()
	first.Done["set"], first.Seen["topics"], first.Refused["a"], *first.Synced = 9, 9, "changed", time.Unix(9, 0)
	out.seen["topics"] = 7
	second := k.now()
	want := SyncStatus{
		Kind: "configs", Rounds: 1, Synced: moment(time.Unix(1, 0)), Done: map[string]int64{"set": 1}, Seen: map[string]int64{"topics": 1},
		Refused: map[string]string{"a": "no"},
	}
	if diff := cmp.Diff(want, second); diff != "" {
		t.Error(diff)
	}
	k.note(out, nil, time.Unix(2, 0))
	if second.Done["set"] != 1 || !second.Synced.Equal(time.Unix(1, 0)) {
		t.Errorf("changed later: %+v", second)
	}
}
