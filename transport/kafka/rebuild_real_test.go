package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// onThree runs f against three real brokers of each version.
func onThree(t *testing.T, f func(t *testing.T, k *kafkatest.Cluster)) {
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f(t, threeNodes(t, version))
		})
	}
}

// Everything about the topic is kept but its records, its id and what groups committed;
// and the log of the new one is new for the appender, the epochs and a second worker.
func TestRealRebuild(t *testing.T) {
	onThree(t, func(t *testing.T, k *kafkatest.Cluster) {
		c := open(t, k.Bootstrap(), rebuilding)
		was := kept(unique("rebuilt"), 3)
		was.Configs = append(was.Configs, cluster.TopicConfig{Name: "segment.bytes", Value: "1048576"})
		old := filled(t, c, was)
		if id := stands(t, c, was); id != old {
			t.Fatalf("described as %v, is %v", id, old)
		}
		p := cluster.Partition{Topic: was.Name}
		group := unique("group")
		ctx := within(t, 60*time.Second)
		if err := c.Commit(ctx, group, []cluster.Committed{{Partition: p, Offset: 7}}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		made, err := c.Rebuild(ctx, was.Name, old, was)
		if err != nil || made == old {
			t.Fatal(made, err)
		}
		t.Logf("rebuilt in %v", time.Since(began))
		if id := stands(t, c, was); id != made {
			t.Errorf("stands as %v, answered %v", id, made)
		}
		for i := range was.Partitions {
			startsAfresh(t, c, cluster.Partition{Topic: was.Name, Partition: i}, made)
		}
		leaders, err := c.Leaders(ctx, []cluster.Partition{p}, true)
		if err != nil || leaders[0].Err != nil {
			t.Fatal(err, leaders)
		}
		ends, err := c.EpochEnds(ctx, []fetcher.EpochQuery{{Partition: p, Current: leaders[0].Epoch, Epoch: leaders[0].Epoch}})
		if err != nil || ends[0].Err != nil || ends[0].EndOffset != 15 {
			t.Errorf("the epoch of the new log: %+v %v", ends, err)
		}
		kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			got, err := c.Committed(ctx, []string{group})
			if err == nil && len(got[0].Offsets) > 0 {
				err = fmt.Errorf("still committed: %+v", got[0].Offsets)
			}
			return errors.Join(err, got[0].Err)
		})
		other := open(t, k.Bootstrap(), rebuilding)
		if again, err := other.Rebuild(ctx, was.Name, old, was); err != nil || again != made {
			t.Errorf("once more, elsewhere: %v %v", again, err)
		}
		if e := beginAt(t, other, stretchOf(p)); e.LogEnd != 15 || !e.Ours || e.TopicID != made {
			t.Errorf("the next worker: %+v", e)
		}
	})
}

// The two halves that a crash can leave: deleted and not made, made and not told.
func TestRealRebuildAfterCrash(t *testing.T) {
	onThree(t, func(t *testing.T, k *kafkatest.Cluster) {
		c := open(t, k.Bootstrap(), rebuilding)
		was := kept(unique("half"), 3)
		old := filled(t, c, was)
		ctx := within(t, 60*time.Second)
		if err := c.deleteTopic(ctx, old); err != nil {
			t.Fatal(err)
		}
		id, err := open(t, k.Bootstrap(), rebuilding).Rebuild(ctx, was.Name, old, was)
		if err != nil || id == old || stands(t, c, was) != id {
			t.Fatalf("deleted and not made: %v %v", id, err)
		}
		if again, err := c.Rebuild(ctx, was.Name, old, was); err != nil || again != id {
			t.Errorf("made and not told: %v %v", again, err)
		}
		// Broken off after any time, by whoever, it is finished by the next.
		for wait := 5 * time.Millisecond; wait < 200*time.Millisecond; wait *= 4 {
			old = id
			short, cancel := context.WithTimeout(ctx, wait)
			_, first := open(t, k.Bootstrap(), rebuilding).Rebuild(short, was.Name, old, was)
			cancel()
			if id, err = open(t, k.Bootstrap(), rebuilding).Rebuild(ctx, was.Name, old, was); err != nil || id == old || stands(t, c, was) != id {
				t.Fatalf("broken off after %v (%v): %v %v", wait, first, id, err)
			}
		}
		startsAfresh(t, c, cluster.Partition{Topic: was.Name, Partition: 1}, id)
	})
}

// Whoever appends while the topic is rebuilt gets errors, goes on where Ends says, and
// every record of the new log stands where it belongs (I1, I4).
func TestRealRebuildUnderAppends(t *testing.T) {
	onThree(t, func(t *testing.T, k *kafkatest.Cluster) {
		c := open(t, k.Bootstrap(), rebuilding)
		was := cluster.NewTopic{Name: unique("busy"), Partitions: 3, ReplicationFactor: 3}
		old := filled(t, c, was)
		stop, began := make(chan struct{}), make(chan struct{}, 3)
		var work sync.WaitGroup
		var failed [3]int
		for i := range was.Partitions {
			p := cluster.Partition{Topic: was.Name, Partition: i}
			work.Go(func() { failed[i] = appendUntil(t, c, p, began, stop) })
		}
		for range was.Partitions {
			<-began
		}
		id, err := c.Rebuild(within(t, 60*time.Second), was.Name, old, was)
		if err != nil {
			t.Error(err)
		}
		close(stop)
		work.Wait()
		for i := range was.Partitions {
			p := cluster.Partition{Topic: was.Name, Partition: i}
			e := beginAt(t, c, stretchOf(p))
			if e.TopicID != id || failed[i] == 0 {
				t.Errorf("%v: %+v of topic %v, %d appends failed", p, e, id, failed[i])
			}
			mustAppend(t, c, p, batchesAt(e.LogEnd, 2, 4, now()))
			landedWhole(t, c, p, e.LogEnd+8)
		}
	})
}

// appendUntil appends run after run, several under way, and counts those that fail.
func appendUntil(t *testing.T, c *Cluster, p cluster.Partition, began chan<- struct{}, stop <-chan struct{}) (failed int) {
	end := int64(10)
	for n := 0; ; n++ {
		if n == 3 {
			began <- struct{}{}
		}
		select {
		case <-stop:
			return failed
		default:
		}
		got := make(chan fetcher.Result, 8)
		for i := range 8 {
			c.Append(p, batchesAt(end+int64(i)*12, 3, 4, now()), nil, func(r fetcher.Result) { got <- r })
		}
		bad := false
		for range 8 {
			r := <-got
			if errors.Is(r.Err, cluster.ErrDisplaced) {
				t.Errorf("%v: %v", p, r.Err)
			}
			bad = bad || r.Err != nil
		}
		if !bad {
			end += 96
			continue
		}
		failed++
		ends, err := c.Ends(within(t, 30*time.Second), []fetcher.Stretch{stretchOf(p)})
		if err != nil {
			t.Error(err)
			return failed
		}
		if ends[0].Err == nil {
			end = ends[0].LogEnd
		}
	}
}

// A worker of another process that knows nothing of it does not put a batch for the old
// log into the new one, and finds the new one when it looks.
func TestRealRebuildUnknownToAnother(t *testing.T) {
	onThree(t, func(t *testing.T, k *kafkatest.Cluster) {
		c, other := open(t, k.Bootstrap(), rebuilding), open(t, k.Bootstrap())
		was := kept(unique("unknown"), 3)
		old := filled(t, c, was)
		for i := range was.Partitions {
			p := cluster.Partition{Topic: was.Name, Partition: i}
			beginAt(t, other, stretchOf(p))
			mustAppend(t, other, p, batchesAt(10, 1, 10, now()))
		}
		made, err := c.Rebuild(within(t, 60*time.Second), was.Name, old, was)
		if err != nil {
			t.Fatal(err)
		}
		for i := range was.Partitions {
			p := cluster.Partition{Topic: was.Name, Partition: i}
			if r := appendRun(t, other, p, batchesAt(20, 1, 10, now())); r.Err == nil || errors.Is(r.Err, cluster.ErrDisplaced) {
				t.Errorf("%v: %+v", p, r)
			}
			startsAfresh(t, other, p, made)
			if e := beginAt(t, c, stretchOf(p)); e.LogEnd != 15 || !e.Ours || e.TopicID != made {
				t.Errorf("%v: found as %+v", p, e)
			}
		}
	})
}

func TestRealRebuildWhereDeletingIsOff(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{Version: "4.4.0", Config: map[string]string{"delete.topic.enable": "false"}})
	c := open(t, k.Bootstrap(), rebuilding)
	was := kept("kept", 1)
	old := filled(t, c, was)
	deletingIsOff(t, c, was, old)
	// What the settings do not allow is found before anything is deleted.
	bad := was
	bad.Configs = []cluster.TopicConfig{{Name: "retention.ms", Value: "soon"}}
	if _, err := c.Rebuild(within(t, 20*time.Second), was.Name, old, bad); err == nil || !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("%v", err)
	}
}
