package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// patientVersions are those of joinedVersions on which what takes long is tried: none in the ordinary run.
var patientVersions = sized(nil, joinedVersions)

// custody watches, again and again, that the real replicas of a topic stay and that none of
// them could lead.
func custody(t *testing.T, c *kafkatest.Cluster, topic string) (end func()) {
	t.Helper()
	cl := c.Client(t, kgo.RetryTimeout(time.Second))
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	looks := 0
	watching.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			text, ps, err := placement(ctx, cl, topic)
			for _, p := range ps {
				reals := slices.DeleteFunc(slices.Sorted(slices.Values(p.Replicas)), func(id int32) bool { return id >= 100 })
				leads := p.Leader >= 0 && p.Leader < 100 || slices.ContainsFunc(p.ISR, func(id int32) bool { return id < 100 })
				if err == nil && (leads || !slices.Equal(reals, []int32{1, 2, 3})) {
					t.Errorf("partition %d is not safe:%s", p.Partition, text)
					return
				}
			}
			looks++
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	end = sync.OnceFunc(func() { cancel(); watching.Wait(); t.Logf("looked at the replicas %d times", looks) })
	t.Cleanup(end)
	return end
}

// TestJoinedThree: of three workers the one that leads is killed, then the next one. Each time
// another leads within the time that one worker's death may cost, the replica lists lose no real
// replica meanwhile, and nobody can write. Then the last one dies as well, and all three leave:
// nothing of them stays in the cluster.
func TestJoinedThree(t *testing.T) {
	for _, version := range patientVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			topic, name, n := "joined-three-"+version[:1], "three-"+version[:1], int32(4)
			src.CreateTopic(t, topic, n, 1, nil)
			stop := writer(t, src, topic, n, 0)
			workers := make(map[int32]*kafkatest.Process)
			for _, id := range []int32{170, 171, 172} {
				workers[id] = standUp(t, name, fmt.Sprint("worker-", id), src, dst, topic, 170)
				ledByOne(t, dst, topic, workers)
			}
			safe := custody(t, dst, topic)
			r := read(t, dst, topic, n)
			r.calm()
			r.pause(n)
			for range 2 {
				leader := ledByOne(t, dst, topic, workers)
				r.calm()
				workers[leader].Kill()
				delete(workers, leader)
				stoodStill(t, fmt.Sprint(leader, " killed"), r.pause(n))
				ledByOne(t, dst, topic, workers)
				refused(t, dst, cluster.Partition{Topic: topic})
			}
			stop()
			caughtUp(t, time.Minute, src, dst, topic)
			equal(t, src, dst, topic, n)
			sameBytes(t, time.Minute, src, dst, 1, topic, n)
			r.end()
			workers[ledByOne(t, dst, topic, workers)].Kill()
			leaderless(t, dst, topic)
			safe()

			began := time.Now()
			left := leaveAll(t, name, dst, topic, broker.IDs{First: 170, Last: 172})
			if slices.Sort(left.Out); !slices.Equal(left.Out, []int32{170, 171, 172}) {
				t.Errorf("out are %v", left.Out)
			}
			t.Logf("left after %v", time.Since(began))
			for _, id := range left.Out {
				traceless(t, dst, id, topic)
			}
			equal(t, src, dst, topic, n)
			write(t, dst, topic, 0, 1)
		})
	}
}

// ledByOne waits until one of some workers, which have ids of their own, leads all partitions, and all
// of them are in sync and nobody else. On a busy machine any of them may.
func ledByOne(t *testing.T, dst *kafkatest.Cluster, topic string, workers map[int32]*kafkatest.Process) (leader int32) {
	t.Helper()
	cl, isr := dst.Client(t), slices.Sorted(maps.Keys(workers))
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		text, ps, err := placement(ctx, cl, topic)
		if err == nil && len(ps) == 0 {
			err = errors.New("no partitions")
		}
		for n, p := range ps {
			slices.Sort(p.ISR)
			if n == 0 {
				leader = p.Leader
			}
			if p.Leader != leader || !slices.Equal(p.ISR, isr) {
				err = fmt.Errorf("in sync are to be %v:%s", isr, text)
			}
		}
		return err
	})
	return leader
}

// leaveAll takes workers out of a cluster whose processes are gone, by the state that they share, and has
// nothing of it left.
func leaveAll(t *testing.T, name string, dst *kafkatest.Cluster, topic string, ids broker.IDs) broker.Left {
	t.Helper()
	store, err := statekafka.New(statekafka.Config{Bootstrap: dst.Bootstrap(), Topic: "__state_of_" + name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	shared := broker.NewShared(store, name)
	us := &member{t: t, k: dst, first: ids.First}
	cfg := us.leaving()
	cfg.Membership.IDs, cfg.Membership.Identities, cfg.Overrides = ids, shared.Identities(), shared.Overrides()
	cfg.Stop = stopping(t, name, store)
	left, err := broker.Leave(timeout(t, time.Minute), cfg)
	if err != nil {
		t.Fatalf("%+v, %v", left, err)
	}
	kept, errKept := shared.Identities().All(t.Context())
	topics, errTopics := shared.Overrides().Topics(t.Context())
	if err := errors.Join(errKept, errTopics); err != nil || len(kept)+len(topics) > 0 {
		t.Errorf("left are identities %+v and topics %v: %v", kept, topics, err)
	}
	records, err := store.Load(t.Context(), name)
	for _, r := range records {
		if err != nil || r.State != coordinator.StateStopped || !r.HasPosition {
			t.Errorf("%v is %s with a position %v: %v", r.Partition, r.State, r.HasPosition, err)
		}
	}
	return left
}

// stopping ends the mirror that is on record, its source being out of reach.
func stopping(t *testing.T, name string, store mirror.Store) func(context.Context, broker.Running, []string) error {
	return func(ctx context.Context, d broker.Running, topics []string) error {
		nowhere, err := kafka.New(kafka.Config{Bootstrap: []string{"127.0.0.1:1"}})
		if err != nil {
			return err
		}
		defer nowhere.Close()
		m := run(t, name, nowhere, d, mirror.Options{Topics: mirror.Topics{Include: topics}, Store: store, GroupTimeout: time.Second})
		defer m.end()
		kafkatest.Eventually(t, time.Minute, func(context.Context) error {
			if !m.Status().Running {
				return errors.New("not running yet")
			}
			return nil
		})
		return m.Stop(ctx, topics...)
	}
}
