package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// stage is a Performer that writes down what it was asked for.
type stage struct {
	mu    sync.Mutex
	asked []call
}

type call struct {
	ctx context.Context
	rec Record
	Effect
}

func (s *stage) Perform(ctx context.Context, rec Record, e Effect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, call{ctx, rec, e})
}

func (s *stage) kinds() (kinds []EffectKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.asked {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}

func (s *stage) last(t *testing.T) call {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		t.Fatal("nothing was performed")
	}
	return s.asked[len(s.asked)-1]
}

// start runs a coordinator; the function returned ends it and checks that it
// returned nil.
func start(t *testing.T, c *Coordinator) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	synctest.Wait()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func post(c *Coordinator, events ...Event) {
	for i := range events {
		if events[i].Partition.Topic == "" {
			events[i].Partition = testPartition
		}
	}
	c.Post(events...)
	synctest.Wait()
}

// pass lets the bubble's clock go on.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func state(t *testing.T, c *Coordinator) Snapshot {
	t.Helper()
	s, ok := c.Snapshot(testPartition)
	if !ok {
		t.Fatalf("nothing is known of %v", testPartition)
	}
	return s
}

func wantState(t *testing.T, c *Coordinator, want State) Snapshot {
	t.Helper()
	s := state(t, c)
	if s.State != want {
		t.Fatalf("state %s, want %s (err %v)", s.State, want, s.Err)
	}
	return s
}

func TestRetriesDoubleTo300Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perf := &stage{}
		c := New("m", NewMemory(), perf, &Options{Jitter: -1})
		defer start(t, c)()
		post(c, Event{Kind: EventWant, Desired: WantMirroring}, Event{Kind: EventAligned})
		want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300}
		for i, seconds := range want {
			post(c, Event{Kind: EventFailed, Err: fmt.Errorf("fetch: %w", cluster.ErrUnreachable)})
			s := wantState(t, c, StateFailed)
			if got := time.Until(s.RetryAt); got != seconds*time.Second || s.Attempts != i+1 {
				t.Fatalf("failure %d: retry in %v after %d attempts, want %v", i+1, got, s.Attempts, seconds*time.Second)
			}
			if !errors.Is(s.Err, cluster.ErrUnreachable) {
				t.Fatalf("error %v lost its value", s.Err)
			}
			pass(seconds*time.Second - 1)
			wantState(t, c, StateFailed)
			pass(1)
			wantState(t, c, StateLogAlignment)
			post(c, Event{Kind: EventAligned})
			wantState(t, c, StateMirroring)
		}
		if s := state(t, c); s.Err == nil || s.Reason == "" {
			t.Error("the error was cleared before the first good append")
		}
		post(c, Event{Kind: EventProgress})
		if s := state(t, c); s.Err != nil || s.Reason != "" || s.Attempts != 0 {
			t.Errorf("after a good append: %v, %q, %d attempts", s.Err, s.Reason, s.Attempts)
		}
		post(c, Event{Kind: EventFailed, Err: cluster.ErrTopicReplaced})
		pass(24 * time.Hour)
		if s := wantState(t, c, StateFailed); !s.RetryAt.IsZero() {
			t.Errorf("a permanent fault is retried at %v", s.RetryAt)
		}
		post(c, Event{Kind: EventRecover})
		wantState(t, c, StateLogAlignment)
	})
}

func TestJitterStaysBelowTheLongestWait(t *testing.T) {
	o := (&Options{Jitter: 0.5}).withDefaults()
	seen := map[time.Duration]bool{}
	for range 100 {
		d := o.delay(3)
		seen[d] = true
		if d < 2*time.Second || d > 6*time.Second+1 {
			t.Fatalf("third wait %v is not 4 s give or take a half", d)
		}
		if d := o.delay(1000); d < 150*time.Second || d > 300*time.Second {
			t.Fatalf("late wait %v", d)
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d different waits", len(seen))
	}
}

func TestSupersededEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perf := &stage{}
		c := New("m", NewMemory(), perf, nil)
		defer start(t, c)()
		post(c, Event{Kind: EventWant, Desired: WantMirroring})
		align := perf.last(t)
		post(c, Event{Kind: EventWant, Desired: WantStopped})
		if align.ctx.Err() == nil {
			t.Error("the alignment goes on during the stop")
		}
		stop := perf.last(t)
		post(c, Event{Kind: EventStopped, Seq: stop.Seq}, Event{Kind: EventWant, Desired: WantMirroring})
		var refused error
		post(c, Event{Kind: EventAligned, Seq: align.Seq, Ack: func(err error) { refused = err }})
		if !errors.Is(refused, ErrUnfit) {
			t.Errorf("the first alignment's outcome was taken for the second's: %v", refused)
		}
		wantState(t, c, StateLogAlignment)
		post(c, Event{Kind: EventAligned, Seq: perf.last(t).Seq})
		fetch := perf.last(t)
		post(c, Event{Kind: EventEpochSeen, Epoch: 1, Seq: fetch.Seq})
		if fetch.ctx.Err() != nil {
			t.Error("a change that keeps the state ended the fetching")
		}
		want := []EffectKind{EffectAlign, EffectStop, EffectAlign, EffectFetch}
		if diff := cmp.Diff(want, perf.kinds()); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
	})
}

func TestEventsBeforeRunAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("m", NewMemory(), &stage{}, nil)
		c.Post(Event{Partition: testPartition, Kind: EventWant, Desired: WantMirroring})
		stop := start(t, c)
		wantState(t, c, StateLogAlignment)
		if err := c.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
		stop()
		var late error
		c.Post(Event{Partition: testPartition, Kind: EventRecover, Ack: func(err error) { late = err }})
		if !errors.Is(late, ErrEnded) {
			t.Errorf("posted after the end: %v", late)
		}
		err := c.Await(t.Context(), []cluster.Partition{testPartition}, func(Snapshot) bool { return false })
		if !errors.Is(err, ErrEnded) {
			t.Errorf("Await after the end: %v", err)
		}
	})
}

func TestAwaitAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("m", NewMemory(), &stage{}, nil)
		defer start(t, c)()
		other := cluster.Partition{Topic: "other"}
		got := make(chan error, 1)
		go func() {
			got <- c.Await(t.Context(), []cluster.Partition{testPartition, other},
				func(s Snapshot) bool { return s.State == StateStopped })
		}()
		post(c, Event{Kind: EventWant, Desired: WantStopped},
			Event{Partition: other, Kind: EventWant, Desired: WantMirroring})
		if diff := cmp.Diff(map[State]int{StateStopped: 1, StateLogAlignment: 1}, c.Counts()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		select {
		case err := <-got:
			t.Fatalf("Await returned %v with one of two stopped", err)
		default:
		}
		post(c, Event{Partition: other, Kind: EventWant, Desired: WantStopped},
			Event{Partition: other, Kind: EventStopped, Position: &cluster.Position{Epoch: 1, Offset: 2}})
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := c.Await(ctx, []cluster.Partition{other}, func(s Snapshot) bool { return s.State == StateMirroring })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Await for what never comes: %v", err)
		}
		post(c, Event{Partition: other, Kind: EventForget})
		if diff := cmp.Diff(map[State]int{StateStopped: 1}, c.Counts()); diff != "" || len(c.All()) != 1 {
			t.Errorf("after forgetting one: %d snapshots, counts (-want +got):\n%s", len(c.All()), diff)
		}
	})
}

// TestUnfitOutcome: an effect whose outcome cannot be taken has failed: nothing
// waits for it for ever.
func TestUnfitOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perf := &stage{}
		c := New("m", NewMemory(), perf, nil)
		defer start(t, c)()
		post(c, Event{Kind: EventWant, Desired: WantMirroring})
		back := []EpochStart{{Epoch: 3, Start: 0}, {Epoch: 2, Start: 5}}
		post(c, Event{Kind: EventAligned, Epochs: back, Seq: perf.last(t).Seq})
		if s := wantState(t, c, StateFailed); !s.Retriable || s.Err == nil {
			t.Errorf("failed with %v, retriable %v", s.Err, s.Retriable)
		}
		pass(2 * time.Second)
		post(c, Event{Kind: EventAligned, Seq: perf.last(t).Seq})
		wantState(t, c, StateMirroring)
	})
}
