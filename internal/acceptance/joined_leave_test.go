package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/broker"
)

// killed has the identity look as after a kill: nobody said that it ended.
func (m *member) killed(at string) {
	m.t.Helper()
	all, err := m.identities.All(m.t.Context())
	if err != nil || len(all) != 1 {
		m.t.Fatalf("identities %+v, %v", all, err)
	}
	now := all[0]
	now.Name, now.Holder = at, "killed"
	if ok, err := m.identities.Swap(m.t.Context(), &all[0], &now); !ok || err != nil {
		m.t.Fatal(err)
	}
}

// leaving is what it takes to have the member leave with nobody running.
func (m *member) leaving() broker.LeaveConfig {
	m.t.Helper()
	var as broker.DestinationConfig
	m.destination(func(c *broker.DestinationConfig) { as = *c })
	return broker.LeaveConfig{Membership: as.Membership, Overrides: as.Overrides, Listeners: as.Listeners, Admin: as.Admin, Logger: as.Logger}
}

// traceless: nothing of a broker is left in a cluster, and no topic has the settings of
// a mirrored one.
func traceless(t *testing.T, c *kafkatest.Cluster, id int32, topics ...string) {
	t.Helper()
	cl := c.Client(t)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		req := kmsg.NewPtrMetadataRequest()
		for _, topic := range topics {
			one := kmsg.NewMetadataRequestTopic()
			one.Topic = &topic
			req.Topics = append(req.Topics, one)
		}
		meta, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, b := range meta.Brokers {
			if b.NodeID == id {
				return fmt.Errorf("broker %d is registered", id)
			}
		}
		for _, topic := range meta.Topics {
			for _, p := range topic.Partitions {
				if slices.Contains(p.Replicas, id) || p.Leader < 0 || len(p.ISR) != len(p.Replicas) || len(p.Replicas) != 3 {
					return fmt.Errorf("%s-%d: leader %d, replicas %v, in sync %v", *topic.Topic, p.Partition, p.Leader, p.Replicas, p.ISR)
				}
			}
		}
		return nil
	})
	configs, err := connect(t, c).TopicConfigs(t.Context(), topics)
	if err != nil {
		t.Fatal(err)
	}
	for i, topic := range configs {
		set := slices.ContainsFunc(topic.Configs, func(c cluster.TopicConfig) bool {
			return c.Name == "min.insync.replicas" || c.Name == "unclean.leader.election.enable"
		})
		if topic.Err != nil || set {
			t.Errorf("%s: %v, settings %v", topics[i], topic.Err, topic.Configs)
		}
	}
}

// TestJoinedLeave: with nobody running a mirror is stopped and its broker leaves the
// cluster: by its state, after a try that was broken off; in the long form also by the metadata log alone, and after
// somebody has unregistered it.
// Every topic is whole, an ordinary one, writable, and without an open transaction.
func TestJoinedLeave(t *testing.T) {
	for _, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			for n, way := range []struct {
				name    string
				seed    uint64
				batches int
				leave   func(t *testing.T, us *member, store *coordinator.Memory, topics []string)
			}{
				{"state", 5, 40, leaveByState},
				{"log", 8, 10, leaveByLog},
				{"unregistered", 8, 10, leaveUnregistered},
			}[:sized(1, 3)] {
				t.Run(way.name, func(t *testing.T) {
					prefix := "leave" + version[:1] + "-" + way.name + "-"
					topics := fill(t, src, prefix, way.seed, sized(way.batches, 400))
					var names []string
					for _, topic := range topics {
						names = append(names, topic.Name)
					}
					store := coordinator.NewMemory()
					us := &member{t: t, k: dst, first: int32(140 + 10*n)}
					m := run(t, "leaves", connect(t, src), us.destination(), mirror.Options{Topics: mirror.Topics{Include: []string{prefix + ".*"}}, Store: store})
					complain(t, way.name, m)
					for _, topic := range names {
						caughtUp(t, time.Minute, src, dst, topic)
					}
					m.end()
					us.killed("elsewhere:1")
					began := time.Now()
					way.leave(t, us, store, names)
					t.Logf("left after %v, the session of %v included", time.Since(began), 3*time.Second)
					traceless(t, dst, us.first, names...)
					same(t, src, dst, topics)
					for _, topic := range topics {
						closed(t, dst, topic)
						write(t, dst, topic.Name, 0, 1)
					}
					if left, err := us.identities.All(t.Context()); err != nil || way.name != "log" && len(left) > 0 {
						t.Errorf("identities that are left: %+v, %v", left, err)
					}
				})
			}
		})
	}
}

// leaveByState stops the mirror that is on record. The first try is broken off when
// they are stopped, and nothing else is done.
func leaveByState(t *testing.T, us *member, store *coordinator.Memory, topics []string) {
	dry := us.leaving()
	dry.DryRun = true
	found, err := broker.Leave(t.Context(), dry)
	if err != nil || !slices.Equal(found.Brokers, []int32{us.first}) || !slices.Equal(found.Topics, slices.Sorted(slices.Values(topics))) ||
		len(found.Guessed)+len(found.Others)+len(found.Out) > 0 {
		t.Errorf("a dry run: %+v, %v", found, err)
	}
	stop := stopping(t, "leaves", store)
	broken, cancel := context.WithCancel(t.Context())
	first := us.leaving()
	first.Stop = func(ctx context.Context, d broker.Running, topics []string) error {
		err := stop(ctx, d, topics)
		cancel()
		return errors.Join(err, ctx.Err())
	}
	if left, err := broker.Leave(broken, first); !errors.Is(err, context.Canceled) || len(left.Out) > 0 {
		t.Errorf("broken off: %+v, %v", left, err)
	}
	again := us.leaving()
	again.Stop = stop
	left, err := broker.Leave(timeout(t, time.Minute), again)
	if err != nil || !slices.Equal(left.Out, []int32{us.first}) {
		t.Fatalf("%+v, %v", left, err)
	}
	records, err := store.Load(t.Context(), "leaves")
	if err != nil || len(records) == 0 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for _, r := range records {
		if end := ends(t, us.k, r.Partition.Topic)[r.Partition.Partition]; r.State != coordinator.StateStopped || !r.HasPosition || r.Position.Offset > end {
			t.Errorf("%v: %s at %+v, and the log ends at %d", r.Partition, r.State, r.Position, end)
		}
	}
}

// leaveUnregistered: an operator has unregistered our broker too early.
func leaveUnregistered(t *testing.T, us *member, _ *coordinator.Memory, topics []string) {
	leaderless(t, us.k, topics[0])
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = us.first
	resp, err := req.RequestWith(t.Context(), us.k.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left, err := broker.Leave(timeout(t, time.Minute), us.leaving()); err != nil || !slices.Equal(left.Out, []int32{us.first}) {
		t.Fatalf("%+v, %v", left, err)
	}
}

// leaveByLog knows nothing but the metadata log.
func leaveByLog(t *testing.T, us *member, _ *coordinator.Memory, topics []string) {
	cfg := us.leaving()
	cfg.Membership.Identities, cfg.Overrides, cfg.DryRun = nil, nil, true
	if found, err := broker.Leave(t.Context(), cfg); !errors.Is(err, broker.ErrWhich) {
		t.Errorf("which broker is not said: %+v, %v", found, err)
	}
	cfg = us.leaving()
	cfg.Membership.Identities, cfg.Overrides, cfg.Brokers = nil, nil, []int32{us.first}
	left, err := broker.Leave(timeout(t, time.Minute), cfg)
	if err != nil || !slices.Equal(left.Out, []int32{us.first}) || !slices.Equal(left.Guessed, slices.Sorted(slices.Values(topics))) {
		t.Fatalf("%+v, %v", left, err)
	}
}

// TestJoinedLeaveAlive: nobody is thrown out who is alive, unless by force; then its
// process ends, and what it led is handed back.
func TestJoinedLeaveAlive(t *testing.T) {
	src, dst := source(t), joinable(t, "4.4.0")
	const topic = "leave-alive"
	src.CreateTopic(t, topic, 2, 1, nil)
	put(t, src, topic, 0, 100)
	us := &member{t: t, k: dst, first: 160}
	d := us.destination()
	m, err := mirror.New("alive", connect(t, src), d, &mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- m.Run(timeout(t, time.Minute)) }()
	caughtUp(t, time.Minute, src, dst, topic)
	us.addresses = nil // from somewhere else
	impatient := us.leaving()
	impatient.Membership.HeartbeatInterval, impatient.Membership.SessionTimeout = 200*time.Millisecond, time.Second
	if left, err := broker.Leave(timeout(t, time.Minute), impatient); !errors.Is(err, broker.ErrAlive) {
		t.Fatalf("%+v, %v", left, err)
	}
	refused(t, dst, cluster.Partition{Topic: topic})
	us.addresses = nil
	cfg := us.leaving()
	cfg.Force = true
	if left, err := broker.Leave(timeout(t, time.Minute), cfg); err != nil || len(left.Out) != 1 {
		t.Fatalf("%+v, %v", left, err)
	}
	if err := <-ran; !errors.Is(err, broker.ErrDisplaced) {
		t.Errorf("the process that was displaced: %v", err)
	}
	traceless(t, dst, us.first, topic)
	equal(t, src, dst, topic, 2)
	write(t, dst, topic, 0, 1)
}
