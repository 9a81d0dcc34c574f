package mirror_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
)

// slowly has a call of a cluster arrive late.
func slowly(c *memory.Cluster, call memory.Call, by time.Duration) {
	c.SetFault(func(op memory.Op) memory.Fault {
		if op.Call == call {
			return memory.Fault{Kind: memory.DelayRequest, Delay: by}
		}
		return memory.Fault{}
	})
}

// TestStopDuringRebuild: a topic is not deleted any more once it is reported as
// stopped, and what is written to it then stays (I6).
func TestStopDuringRebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		slowly(s.lost, memory.CallRebuild, time.Minute)
		m, end := s.home(s.lost.Client("home"))
		defer end()
		settle(10 * time.Second) // the order to delete is on its way
		s.check(m.Stop(hour(t), "billed"))
		s.write(s.lost, "local")
		settle(10 * time.Minute)
		for _, p := range billed {
			got, err := s.lost.Records(p, false)
			s.check(err)
			if len(got) == 0 || string(got[len(got)-1].Value) != "local" {
				t.Errorf("%v: what was written after the stop is gone: %v", p, got)
			}
		}
		if st := m.Status(); st.States[coordinator.StateStopped] != len(billed) {
			t.Errorf("%v: %+v", st.States, st.Worst)
		}
	})
}

// stubborn is a destination that cuts late, and does not give it up.
type stubborn struct {
	*memory.Client
	at chan struct{}
}

func (s *stubborn) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	if s.at != nil {
		close(s.at)
		s.at = nil
		<-time.After(time.Minute)
	}
	return s.Client.Truncate(context.WithoutCancel(ctx), cuts)
}

// TestPauseDuringCut: when PAUSED is reported nothing is cut any more.
func TestPauseDuringCut(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a", "b")
		m, end := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		if err := m.Pause(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "lost", "lost too")
		w.failover(m, end, w.b, "c", "d")
		cutting := make(chan struct{})
		to := &stubborn{w.a.Client("ba"), cutting}
		back, _ := w.mirrorTo("ba", w.b.Client("ba"), to, &mirror.Options{Store: w.storeA, Positions: w.storeB})
		<-cutting
		if err := back.Pause(hour(t), "orders"); err != nil {
			t.Fatal(err)
		}
		paused := w.a.Dump(orders)
		settle(10 * time.Minute)
		if now := w.a.Dump(orders); now != paused {
			t.Errorf("the log has changed after the pause: it was\n%s\nand is\n%s", paused, now)
		}
		if err := back.Resume(context.Background(), "orders"); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		w.equal()
	})
}

// TestRebuildOfATopicThatGrows: a partition that is added while a rebuild waits goes
// with its topic too, and does not hold it up for ever.
func TestRebuildOfATopicThatGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.lost.SetFault(func(op memory.Op) memory.Fault {
			if op.Call == memory.CallRebuild {
				return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrUnavailable}
			}
			return memory.Fault{}
		})
		m, end := s.home(s.lost.Client("home"))
		defer end()
		settle(10 * time.Second)
		s.check(s.took.CreatePartitions("billed", 4))
		added := cluster.Partition{Topic: "billed", Partition: 3}
		_, err := s.took.Produce(added, memory.Values("first")...)
		s.check(err)
		settle(time.Minute)
		s.lost.SetFault(nil)
		settle(20 * time.Minute)
		if st := m.Status(); st.States[coordinator.StateMirroring] != 4 {
			t.Fatalf("%v: %+v", st.States, st.Worst)
		}
		top, _ := m.Topic("billed")
		for _, p := range top.Partitions { // however often it was tried
			if want := int64(2); p.Truncated != want && p.Partition != added {
				t.Errorf("%v: told of %d records that went, want %d", p.Partition, p.Truncated, want)
			}
		}
		if got, err := s.lost.Records(added, false); err != nil || len(got) != 1 {
			t.Errorf("%v, %v", got, err)
		}
		if id, is, err := s.lost.Describe(t.Context(), "billed"); err != nil || is.Partitions != 4 {
			t.Errorf("%v %+v, %v", id, is, err)
		}
	})
}

// TestStopBetweenDeleteAndCreate: a process died between the two. The stop of the next
// one leaves a topic that can be written to, as it was, and what groups had committed.
func TestStopBetweenDeleteAndCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		h := &halfway{s.lost.Client("dies"), s.lost, make(chan struct{})}
		_, end := s.home(h)
		<-h.died
		end()
		unreachable := errors.New("nobody is there")
		s.took.SetFault(func(memory.Op) memory.Fault { return memory.Fault{Kind: memory.LoseRequest, Err: unreachable} })
		var stopping, coordinating atomic.Bool
		s.lost.SetFault(func(op memory.Op) memory.Fault {
			if op.Call == memory.CallRebuild && !stopping.Load() || op.Call == memory.CallCommit && !coordinating.Load() {
				return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrUnavailable}
			}
			return memory.Fault{}
		})
		m, end := s.home(s.lost.Client("home"))
		defer end()
		settle(10 * time.Second)
		stopping.Store(true)
		s.check(m.Stop(hour(t), "billed"))
		_, is, err := s.lost.Describe(t.Context(), "billed")
		s.check(err)
		if diff := cmp.Diff(s.was, is); diff != "" {
			t.Errorf("topic (-was +is):\n%s", diff)
		}
		s.write(s.lost, "local", "more", "yet more")
		coordinating.Store(true) // the groups' coordinator answers again
		settle(10 * time.Minute)
		have, err := s.lost.Committed(t.Context(), []string{"idle"})
		s.check(err)
		if len(have[0].Offsets) != len(billed) {
			t.Errorf("%+v", have)
		}
		for _, o := range have[0].Offsets {
			if o.Offset != 0 {
				t.Errorf("the group skips records: %+v", o)
			}
		}
	})
}

// TestRebuildThatNobodyNeeds: partitions were to go with another one of their topic,
// whose cut was never stored. The topic is not deleted for nothing.
func TestRebuildThatNobodyNeeds(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.b = memory.New(memory.Options{ID: "b", Produce: true, Traits: &fetcher.Traits{Truncation: fetcher.TruncateRebuild}})
		w.write(w.a, "a", "b")
		_, end := w.mirror("ab", w.a, w.b, nil)
		settle(time.Second)
		end()
		id, was, err := w.b.Describe(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		recs, err := w.storeB.Load(t.Context(), "ab")
		if err != nil || len(recs) != 1 {
			t.Fatal(recs, err)
		}
		recs[0].State, recs[0].Previous = coordinator.StateULERecovery, coordinator.StateMirroring
		recs[0].Cut, recs[0].RebuildOf, recs[0].RebuildAs = math.MaxInt64, id, &was
		recs[0].StateEpoch++
		if errs := w.storeB.Save(t.Context(), "ab", recs); errs[0] != nil {
			t.Fatal(errs[0])
		}
		m, _ := w.mirror("ab", w.a, w.b, nil)
		settle(time.Minute)
		wantState(t, m, "orders", coordinator.StateMirroring)
		if now, _, err := w.b.Describe(t.Context(), "orders"); err != nil || now != id {
			t.Errorf("the topic was deleted: it is %v now, was %v, %v", now, id, err)
		}
		w.write(w.a, "c")
		settle(time.Minute)
		if got, err := w.b.Records(orders, false); err != nil || len(got) != 3 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
