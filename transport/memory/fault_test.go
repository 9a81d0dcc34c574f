package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
)

// on makes one kind of call end with a fault, once.
func on(c *memory.Cluster, call memory.Call, f memory.Fault) {
	done := false
	c.SetFault(func(op memory.Op) memory.Fault {
		if op.Call != call || done {
			return memory.Fault{}
		}
		done = true
		return f
	})
}

func TestFaultsOfCalls(t *testing.T) {
	topic := cluster.NewTopic{Name: "new", Partitions: 1}
	for name, k := range map[string]struct {
		fault   memory.Fault
		want    error
		created bool
		after   time.Duration
	}{
		"none":          {memory.Fault{}, nil, true, 0},
		"request lost":  {memory.Fault{Kind: memory.LoseRequest}, cluster.ErrUnknownOutcome, false, 0},
		"answer lost":   {memory.Fault{Kind: memory.LoseAnswer, Err: cluster.ErrTimeout}, cluster.ErrTimeout, true, 0},
		"request late":  {memory.Fault{Kind: memory.DelayRequest, Delay: 2 * time.Second}, nil, true, 2 * time.Second},
		"answer late":   {memory.Fault{Kind: memory.DelayAnswer, Delay: 2 * time.Second}, nil, true, 2 * time.Second},
		"too late":      {memory.Fault{Kind: memory.DelayAnswer, Delay: time.Hour}, context.DeadlineExceeded, true, time.Minute},
		"crash":         {memory.Fault{Kind: memory.Crash}, cluster.ErrUnreachable, false, 0},
		"crash after":   {memory.Fault{Kind: memory.CrashAfter}, cluster.ErrUnreachable, true, 0},
		"frozen before": {memory.Fault{Kind: memory.FreezeFirst}, nil, true, 0}, // no partition is named
	} {
		synctest.Test(t, func(t *testing.T) {
			c := with(t, memory.Options{})
			w := c.Client("w")
			on(c, memory.CallCreateTopics, k.fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			err := w.CreateTopics(ctx, []cluster.NewTopic{topic})[0]
			if !errors.Is(err, k.want) || (k.want == nil) != (err == nil) || time.Since(began) != k.after {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			if _, err := c.State(cluster.Partition{Topic: "new"}); (err == nil) != k.created {
				t.Errorf("%s: created: %v", name, err)
			}
			_, err = w.ID(t.Context())
			if dead := k.fault.Kind == memory.Crash || k.fault.Kind == memory.CrashAfter; dead != errors.Is(err, cluster.ErrUnreachable) {
				t.Errorf("%s, the next call: %v", name, err)
			}
		})
	}
}

// TestLateRequestsOutliveTheirCaller: what is on its way arrives.
func TestLateRequestsOutliveTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := with(t, memory.Options{})
		release := make(chan struct{})
		on(c, memory.CallCreateTopics, memory.Fault{Kind: memory.DelayRequest, Until: release})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.CreateTopics(ctx, []cluster.NewTopic{{Name: "new", Partitions: 1}})[0]; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		_, before := c.State(cluster.Partition{Topic: "new"})
		close(release)
		synctest.Wait()
		_, after := c.State(cluster.Partition{Topic: "new"})
		if before == nil || after != nil {
			t.Errorf("before %v, after %v", before, after)
		}
	})
}

// TestZombies is I4: a batch that a crashed worker had sent arrives after the next
// worker has begun, and lands where it belongs or nowhere.
func TestZombies(t *testing.T) {
	for name, k := range map[string]struct {
		options memory.Options
		goOn    bool // the next worker has appended before the zombie's batch arrives
		want    string
	}{
		"owned":            {memory.Options{}, false, "\n[0,2) high watermark 2\n0-1 epoch 0: 0:null=x\n1-2 epoch 0: 1:null=y\n"},
		"owned, later":     {memory.Options{}, true, "\n[0,2) high watermark 2\n0-1 epoch 0: 0:null=x\n1-2 epoch 0: 1:null=y\n"},
		"sequences":        {memory.Options{Produce: true}, false, "\n[0,2) high watermark 2\n0-1 epoch 0: 0:null=x\n1-2 epoch 0: 1:null=zombie\n"},
		"sequences, later": {memory.Options{Produce: true}, true, "\n[0,2) high watermark 2\n0-1 epoch 0: 0:null=x\n1-2 epoch 0: 1:null=y\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := with(t, k.options)
			zombie, w := c.Client("zombie"), c.Client("w")
			begin(t, zombie, one)
			if r := appended(zombie, batchAt(0, 0, "x")); r.Err != nil {
				t.Fatal(r.Err)
			}
			release := make(chan struct{})
			on(c, memory.CallAppend, memory.Fault{Kind: memory.DelayRequest, Until: release})
			b := batchAt(1, 0, "zombie")
			late := appending(zombie, b)
			zombie.Crash()
			if r := <-late; !errors.Is(r.Err, cluster.ErrUnreachable) {
				t.Errorf("%s: %+v", name, r)
			}
			clear(b.Bytes) // they are the caller's again
			begin(t, w, one)
			arrive := func() { close(release); synctest.Wait() }
			if !k.goOn {
				arrive()
			}
			r := appended(w, batchAt(1, 0, "y"))
			if (r.Err == nil) != (k.goOn || !k.options.Produce) {
				t.Errorf("%s: %+v", name, r)
			}
			if k.goOn {
				arrive()
			}
			if got := "\n" + c.Dump(p0); got != k.want {
				t.Errorf("%s:%s", name, got)
			}
		})
	}
}

func TestFaultsOfAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := with(t, memory.Options{})
		w := c.Client("w")
		begin(t, w, one)
		on(c, memory.CallAppend, memory.Fault{Kind: memory.LoseAnswer})
		first := appending(w, batchAt(0, 0, "a"))
		second := appending(w, batchAt(1, 0, "b"))
		if r := <-first; !errors.Is(r.Err, cluster.ErrUnknownOutcome) || r.Next != 0 {
			t.Errorf("an answer that is lost: %+v", r)
		}
		if r := <-second; !errors.Is(r.Err, cluster.ErrOutOfOrder) {
			t.Errorf("behind it: %+v", r)
		}
		if e := begin(t, w, one); e.LogEnd != 1 {
			t.Errorf("it has landed: %+v", e)
		}
		release := make(chan struct{})
		on(c, memory.CallAppend, memory.Fault{Kind: memory.DelayAnswer, Until: release})
		freed, b := false, batchAt(1, 0, "b")
		answer := make(chan fetcher.Result, 1)
		w.Append(p0, []cluster.Batch{b}, func() { freed = true; clear(b.Bytes) }, func(r fetcher.Result) { answer <- r })
		first, second = answer, appending(w, batchAt(2, 0, "c"))
		synctest.Wait()
		if !freed {
			t.Error("the bytes are kept although the batch has landed")
		}
		if len(first)+len(second) != 0 {
			t.Error("answered early")
		}
		close(release)
		if a, b := <-first, <-second; a.Err != nil || b.Err != nil || b.Next != 3 {
			t.Errorf("%+v, %+v", a, b)
		}
		leader := state(t, c).Leader.Broker
		on(c, memory.CallAppend, memory.Fault{Kind: memory.BreakBroker})
		if r := appended(w, batchAt(3, 0, "d")); r.Err != nil {
			t.Errorf("another leader takes over: %+v", r)
		}
		if now := state(t, c).Leader.Broker; now == leader {
			t.Error("the broker is still up")
		}
		on(c, memory.CallAppend, memory.Fault{Kind: memory.FreezeFirst})
		held := appending(w, batchAt(4, 0, "e"))
		if e := begin(t, c.Client("other"), one); !errors.Is(e.Err, cluster.ErrTimeout) {
			t.Errorf("Ends of a frozen partition: %+v", e)
		}
		synctest.Wait()
		if len(held) != 0 {
			t.Error("a frozen partition answers")
		}
		c.Thaw(p0)
		if r := <-held; r.Err != nil || r.Next != 5 {
			t.Errorf("%+v", r)
		}
	})
}

func TestFaultsOfFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := with(t, memory.Options{})
		produce(t, c, "a")
		for kind, want := range map[memory.FaultKind]error{
			memory.LoseRequest: cluster.ErrUnknownOutcome, memory.LoseAnswer: cluster.ErrUnknownOutcome,
			memory.BreakBroker: cluster.ErrUnreachable, memory.DelayAnswer: nil, memory.DelayRequest: nil,
		} {
			for b := range int32(3) {
				c.StartBroker(b + 1)
			}
			s, err := c.Open(t.Context(), state(t, c).Leader.Broker)
			must(t, err)
			on(c, memory.CallFetch, memory.Fault{Kind: kind, Delay: time.Second})
			_, err = s.Fetch(t.Context(), &fetcher.FetchRequest{Changed: []fetcher.Want{wantAt(0, cluster.NoEpoch)}, MaxBytes: 1 << 20})
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%v: %v", kind, err)
			}
			if want != nil {
				if _, err := s.Fetch(t.Context(), &fetcher.FetchRequest{}); !errors.Is(err, cluster.ErrUnreachable) {
					t.Errorf("%v, used again: %v", kind, err)
				}
			}
			s.Close()
		}
	})
}

func TestCloseLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := with(t, memory.Options{})
		w := c.Client("w")
		begin(t, w, one)
		c.SetFault(func(op memory.Op) memory.Fault {
			return memory.Fault{Kind: memory.DelayRequest, Until: make(chan struct{})}
		})
		held := appending(w, batchAt(0, 0, "a"))
		failed := make(chan error)
		go func() {
			_, err := w.ID(context.Background())
			failed <- err
		}()
		synctest.Wait()
		c.Close()
		if r := <-held; !errors.Is(r.Err, cluster.ErrUnreachable) {
			t.Errorf("%+v", r)
		}
		if err := <-failed; !errors.Is(err, cluster.ErrUnreachable) {
			t.Error(err)
		}
		if len(c.Log(p0)) > 0 {
			t.Error("a request was carried out after Close")
		}
	})
}

// TestOwnLateRequests: what a client had sent before it looked at the log end arrives
// afterwards. Where the owner is compared it lands nowhere; where only sequences are,
// it is the client's own batch, and the repetition is known as such.
func TestOwnLateRequests(t *testing.T) {
	for name, o := range map[string]memory.Options{"owned": {}, "sequences": {Produce: true}} {
		synctest.Test(t, func(t *testing.T) {
			c := with(t, o)
			w := c.Client("w")
			begin(t, w, one)
			release := make(chan struct{})
			on(c, memory.CallAppend, memory.Fault{Kind: memory.DelayRequest, Until: release})
			late := appending(w, batchAt(0, 0, "a"))
			if e := begin(t, w, one); e.LogEnd != 0 {
				t.Errorf("%s: %+v", name, e)
			}
			if r := <-late; !errors.Is(r.Err, cluster.ErrTimeout) {
				t.Errorf("%s: %+v", name, r)
			}
			close(release)
			synctest.Wait()
			if landed := len(c.Log(p0)) > 0; landed != o.Produce {
				t.Errorf("%s: landed: %v", name, landed)
			}
			if r := appended(w, batchAt(0, 0, "a")); r.Err != nil || r.Next != 1 {
				t.Errorf("%s: %+v", name, r)
			}
			dumped(t, c, "\n[0,1) high watermark 1\n0-1 epoch 0: 0:null=a\n")
		})
	}
}

// TestLateFence is I4: a fence that arrives when the partition was begun anew, by whoever
// it be, does nothing.
func TestLateFence(t *testing.T) {
	for name, options := range map[string]memory.Options{"owned": {}, "sequences": {Produce: true}} {
		synctest.Test(t, func(t *testing.T) {
			c := with(t, options)
			w := c.Client("w")
			begin(t, w, one)
			release := make(chan struct{})
			on(c, memory.CallFence, memory.Fault{Kind: memory.DelayRequest, Until: release})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := w.Fence(ctx, []fetcher.Stretch{one}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			begin(t, w, one)
			close(release)
			synctest.Wait()
			if r := appended(w, batchAt(0, 0, "x")); r.Err != nil {
				t.Errorf("%s: %v", name, r.Err)
			}
		})
	}
}
