package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// traceless: nothing of a broker is left in a cluster, and every topic has its own settings.
func traceless(t *testing.T, c *kafkatest.Cluster, id int32, settings map[string]string, topics ...string) {
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
		now := map[string]string{}
		for _, set := range topic.Configs {
			if set.Name == "min.insync.replicas" || set.Name == "unclean.leader.election.enable" {
				now[set.Name] = set.Value
			}
		}
		if topic.Err != nil || !maps.Equal(now, settings) {
			t.Errorf("%s: %v, settings %v, its own were %v", topics[i], topic.Err, now, settings)
		}
	}
}

// alter sets a setting of a topic.
func alter(t *testing.T, c *kafkatest.Cluster, topic, key, value string) {
	t.Helper()
	one := kmsg.NewIncrementalAlterConfigsRequestResource()
	one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	set := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	set.Name, set.Value = key, &value
	one.Configs = append(one.Configs, set)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, one)
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestJoinedLeave: with nobody running a mirror's broker leaves the cluster, by the
// metadata log alone. Every topic is whole, an ordinary one, writable, and without an open transaction.
func TestJoinedLeave(t *testing.T) {
	for _, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			for n, way := range []struct {
				name     string
				seed     uint64
				batches  int
				settings map[string]string // that topics have afterwards
				leave    func(t *testing.T, us *member, store *coordinator.Memory, topics []string)
			}{
				{"log", 8, 10, nil, leaveByLog},
			} {
				t.Run(way.name, func(t *testing.T) {
					prefix := "leave" + version[:1] + "-" + way.name + "-"
					topics := fill(t, src, prefix, way.seed, sized(way.batches, 400))
					var names []string
					for _, topic := range topics {
						names = append(names, topic.Name)
						alter(t, src, topic.Name, "unclean.leader.election.enable", "true")
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
					traceless(t, dst, us.first, way.settings, names...)
					same(t, src, dst, topics)
					for _, topic := range topics {
						closed(t, dst, topic)
						write(t, dst, topic.Name, 0, 1)
					}
					if left, err := us.identities.All(t.Context()); err != nil || way.name == "state" && len(left) > 0 {
						t.Errorf("identities that are left: %+v, %v", left, err)
					}
				})
			}
		})
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
	traceless(t, dst, us.first, nil, topic)
	equal(t, src, dst, topic, 2)
	write(t, dst, topic, 0, 1)
}
