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

// asking is a session on the leader of p0 and what it asks for.
type asking struct {
	t *testing.T
	s fetcher.Session
}

func ask(t *testing.T, c *memory.Cluster) asking {
	s, err := c.Open(t.Context(), state(t, c).Leader.Broker)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return asking{t, s}
}

func (a asking) fetch(wait time.Duration, wants ...fetcher.Want) []fetcher.Fetched {
	a.t.Helper()
	resp, err := a.s.Fetch(a.t.Context(), &fetcher.FetchRequest{Changed: wants, MaxWait: wait, MinBytes: 1, MaxBytes: 1 << 20})
	must(a.t, err)
	resp.Release()
	return resp.Partitions
}

func wantAt(offset int64, lastEpoch int32) fetcher.Want {
	return fetcher.Want{Partition: p0, Offset: offset, LeaderEpoch: cluster.NoEpoch, LastEpoch: lastEpoch, MaxBytes: 1 << 20}
}

// TestChecksInKafkasOrder: each want is wrong in more than one way; the first check
// that finds something answers.
func TestChecksInKafkasOrder(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, "a", "b")
	leader := state(t, c).Leader
	must(t, c.Elect(p0, followers(t, c)[0]))
	produce(t, c, "c")
	now := state(t, c)
	there := func(broker int32, w fetcher.Want) fetcher.Fetched {
		s, err := c.Open(t.Context(), broker)
		must(t, err)
		defer s.Close()
		return asking{t, s}.fetch(0, w)[0]
	}
	for name, k := range map[string]struct {
		broker int32
		change func(*fetcher.Want)
		want   error
		hint   bool
	}{
		"unknown topic":  {now.Leader.Broker, func(w *fetcher.Want) { w.Partition.Topic = "no"; w.LeaderEpoch = 9 }, cluster.ErrUnknownTopic, false},
		"topic id":       {leader.Broker, func(w *fetcher.Want) { w.TopicID[3] = 1; w.LeaderEpoch = 9 }, cluster.ErrTopicReplaced, false},
		"older epoch":    {leader.Broker, func(w *fetcher.Want) { w.LeaderEpoch = 0; w.Offset = 99 }, cluster.ErrLeaderEpoch, true},
		"newer epoch":    {now.Leader.Broker, func(w *fetcher.Want) { w.LeaderEpoch = 7; w.Offset = 99 }, cluster.ErrLeaderEpoch, true},
		"not the leader": {leader.Broker, func(w *fetcher.Want) { w.LeaderEpoch = 1; w.Offset = 99 }, cluster.ErrNotLeader, true},
		"unknown end":    {now.Leader.Broker, func(w *fetcher.Want) { w.LastEpoch = 7; w.Offset = 2 }, cluster.ErrOutOfRange, false},
		"beyond the end": {now.Leader.Broker, func(w *fetcher.Want) { w.Offset = 99 }, cluster.ErrOutOfRange, false},
	} {
		w := wantAt(0, cluster.NoEpoch)
		k.change(&w)
		f := there(k.broker, w)
		if !errors.Is(f.Err, k.want) || (f.Leader == now.Leader) != k.hint {
			t.Errorf("%s: %v, leader %+v", name, f.Err, f.Leader)
		}
	}
	if f := there(now.Leader.Broker, wantAt(3, 0)); f.Err != nil || f.Diverging != (cluster.EpochEnd{Epoch: 0, EndOffset: 2}) || len(f.Records) > 0 {
		t.Errorf("an epoch that ends earlier: %+v", f)
	}
	if f := there(now.Leader.Broker, wantAt(99, 0)); f.Err != nil || f.Diverging.EndOffset != 2 {
		t.Errorf("divergence comes before the range: %+v", f)
	}
	if f := there(now.Leader.Broker, wantAt(2, 0)); f.Err != nil || f.Diverging.EndOffset != -1 || len(f.Records) == 0 {
		t.Errorf("where the epoch ends: %+v", f)
	}
}

func TestSessionsAreIncrementalAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := with(t, memory.Options{})
		produce(t, c, "a")
		a := ask(t, c)
		if got := a.fetch(time.Second, wantAt(0, cluster.NoEpoch)); len(got) != 1 || len(got[0].Records) == 0 || got[0].HighWatermark != 1 {
			t.Errorf("%+v", got)
		}
		began := time.Now()
		if got := a.fetch(time.Second, wantAt(1, cluster.NoEpoch)); len(got) != 0 || time.Since(began) != time.Second {
			t.Errorf("nothing new: %+v after %v", got, time.Since(began))
		}
		go func() {
			time.Sleep(300 * time.Millisecond)
			produce(t, c, "b")
		}()
		began = time.Now()
		if got := a.fetch(time.Second); len(got) != 1 || got[0].HighWatermark != 2 || time.Since(began) != 300*time.Millisecond {
			t.Errorf("a record in between: %+v after %v", got, time.Since(began))
		}
		if got := a.fetch(0); len(got) != 1 || len(got[0].Records) == 0 {
			t.Errorf("asked again from the same offset: %+v", got)
		}
		resp, err := a.s.Fetch(t.Context(), &fetcher.FetchRequest{Forgotten: []cluster.Partition{p0}})
		if err != nil || len(resp.Partitions) != 0 {
			t.Errorf("forgotten: %+v, %v", resp, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := a.s.Fetch(ctx, &fetcher.FetchRequest{MaxWait: time.Hour})
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestSessionEnds(t *testing.T) {
	for name, end := range map[string]func(*memory.Cluster, fetcher.Session, int32){
		"closed":        func(_ *memory.Cluster, s fetcher.Session, _ int32) { s.Close(); s.Close() },
		"broker down":   func(c *memory.Cluster, _ fetcher.Session, b int32) { c.StopBroker(b) },
		"broker anew":   func(c *memory.Cluster, _ fetcher.Session, b int32) { c.StopBroker(b); c.StartBroker(b) },
		"cluster ended": func(c *memory.Cluster, _ fetcher.Session, _ int32) { c.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := with(t, memory.Options{})
			a := ask(t, c)
			broker := state(t, c).Leader.Broker
			a.fetch(0, wantAt(0, cluster.NoEpoch))
			failed := make(chan error)
			go func() {
				_, err := a.s.Fetch(t.Context(), &fetcher.FetchRequest{MaxWait: time.Hour})
				failed <- err
			}()
			synctest.Wait()
			end(c, a.s, broker)
			if err := <-failed; !errors.Is(err, cluster.ErrUnreachable) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := a.s.Fetch(t.Context(), &fetcher.FetchRequest{}); !errors.Is(err, cluster.ErrUnreachable) {
				t.Errorf("%s, used again: %v", name, err)
			}
		})
	}
}

// TestLimits: whole batches up to the limits, the first of an answer even above them,
// and what had no room begins the next answer.
func TestLimits(t *testing.T) {
	c := memory.New(memory.Options{Brokers: 1})
	must(t, c.CreateTopic(cluster.NewTopic{Name: p0.Topic, Partitions: 3}))
	at := func(n int32) cluster.Partition { return cluster.Partition{Topic: p0.Topic, Partition: n} }
	var wants []fetcher.Want
	size := int32(0)
	for n := range int32(3) {
		for range 3 {
			_, err := c.Produce(at(n), memory.Values("0123456789")...)
			must(t, err)
		}
		size = int32(len(c.Log(at(n)))) / 3
		wants = append(wants, fetcher.Want{Partition: at(n), LeaderEpoch: -1, LastEpoch: -1, MaxBytes: 2*size + 1})
	}
	s, err := c.Open(t.Context(), 1)
	must(t, err)
	fetch := func(max int32, wants ...fetcher.Want) map[int32]int {
		resp, err := s.Fetch(t.Context(), &fetcher.FetchRequest{Changed: wants, MaxBytes: max})
		must(t, err)
		got := map[int32]int{}
		for _, f := range resp.Partitions {
			got[f.Partition.Partition] = len(f.Records) / int(size)
		}
		return got
	}
	if got := fetch(1, wants...); got[0] != 1 || got[1] != 0 || got[2] != 0 {
		t.Errorf("one byte: %v", got)
	}
	if got := fetch(3 * size); got[1] != 2 || got[2] != 1 || got[0] != 0 {
		t.Errorf("the next answer begins with the others: %v", got)
	}
	if got := fetch(1 << 20); got[0] != 2 || got[1] != 2 || got[2] != 2 {
		t.Errorf("bytes of one partition: %v", got)
	}
}
