package broker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// seated is broker 100 of a fake cluster, with others of its range up to 102: it follows the
// metadata log, and does nothing by itself.
func seated(t *testing.T, f *fake, change func(*Config)) *Membership {
	t.Helper()
	cfg := Config{Bootstrap: f.Addrs(), Controllers: f.Addrs(), IDs: IDs{100, 102}, Identities: new(MemoryIdentities),
		Listeners: []Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: 1}}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.become(func() { m.self = Self{Broker: 100, Epoch: 10, Registered: true} })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		m.brokers.Close()
	})
	heard(t, f, m)
	return m
}

// heard waits until all of the log is.
func heard(t *testing.T, f *fake, m *Membership) {
	t.Helper()
	if _, err := m.log.Wait(within(t, 10*time.Second), func(i metalog.Image) bool { return i.Offset >= f.End() }); err != nil {
		t.Fatal(err)
	}
}

// guarding is a guard that takes one turn after the other, and what it has asked for.
type guarding struct {
	*guardian
	t       *testing.T
	f       *fake
	ours    bool // topic t
	unknown bool // it cannot be read what is
	asked   []demand
}

// demand is one partition of a request.
type demand struct{ Assign, Admit []int32 }

func newGuarding(t *testing.T) *guarding {
	g := &guarding{t: t, f: startFake(t, 1, metalog.NewTopic{Name: "t", ID: strayID.Topic})}
	g.f.Offer(45, 0)
	g.f.Offer(56, 3)
	g.f.Handle(func(_ int, req kmsg.Request) kmsg.Response {
		switch req := req.(type) {
		case *kmsg.AlterPartitionAssignmentsRequest:
			for _, topic := range req.Topics {
				for _, p := range topic.Partitions {
					g.note(demand{Assign: p.Replicas})
				}
			}
			return kmsg.NewPtrAlterPartitionAssignmentsResponse()
		case *kmsg.AlterPartitionRequest:
			for _, p := range req.Topics[0].Partitions {
				var admit []int32
				for _, r := range p.NewEpochISR {
					admit = append(admit, r.BrokerID)
				}
				g.note(demand{Admit: admit})
			}
			return kmsg.NewPtrAlterPartitionResponse()
		}
		return nil
	})
	m := seated(t, g.f, func(c *Config) {
		c.Ours = func(topic string, _ cluster.TopicID, _ int32) bool { return topic == "t" && g.ours }
		c.recall = func(context.Context) error {
			if g.unknown {
				return cluster.ErrUnavailable
			}
			return nil
		}
	})
	g.guardian = &guardian{m: m, controller: controller{quorum: m.quorum}, open: make(map[metalog.PartitionID]*guarded)}
	t.Cleanup(g.controller.drop)
	g.turn(t.Context())
	return g
}

func (g *guarding) note(d demand) { g.f.set(func() { g.asked = append(g.asked, d) }) }

// then has records written, and a turn taken that asks for something, or not.
func (g *guarding) then(what string, want []demand, records ...metalog.Record) {
	g.t.Helper()
	if len(records) > 0 {
		g.f.Append(records...)
		heard(g.t, g.f, g.m)
	}
	g.turn(within(g.t, 10*time.Second))
	var got []demand
	g.f.set(func() { got, g.asked = g.asked, nil })
	if diff := cmp.Diff(want, got); diff != "" {
		g.t.Errorf("%s: (-want +got)\n%s", what, diff)
	}
}

func placed(p metalog.Partition) metalog.Record {
	return metalog.NewPartition{ID: strayID, Partition: p}
}

// TestGuardMoves: a stray is moved away, and asked for again only when its move has had an effect or
// should have had.
func TestGuardMoves(t *testing.T) {
	g := newGuarding(t)
	onUs := metalog.Partition{Replicas: []int32{100, 1, 2}, ISR: []int32{100, 1, 2}, Leader: 100}
	move := []demand{{Assign: []int32{1, 2}}}
	g.then("placed on us", move, placed(onUs))
	g.then("asked for already", nil)
	move = []demand{{Assign: []int32{1}}}
	g.then("one of them is not in sync any more", move, metalog.ChangePartition{ID: strayID, ISR: []int32{100, 1}})
	g.open[strayID].asked = time.Now().Add(-retryMove)
	g.then("it takes too long", move)
	g.open[strayID].asked = time.Now().Add(-retryMove)
	g.ours = true
	g.then("it is known to be ours by now", nil)
	if len(g.open) > 0 {
		t.Errorf("still to be moved away: %v", g.open)
	}
}

// TestGuardLeavesOthersAlone: what another broker of our range leads is that one's affair.
func TestGuardLeavesOthersAlone(t *testing.T) {
	g := newGuarding(t)
	g.then("another of ours leads", nil, placed(metalog.Partition{Replicas: []int32{101, 100, 1}, ISR: []int32{101, 100}, Leader: 101}))
	leader := int32(1)
	g.then("a real one does", []demand{{Assign: []int32{1}}}, metalog.ChangePartition{ID: strayID, Leader: &leader})
}

// TestGuardWhenLeaving: nothing is ours any more, without a record of the log that says so.
func TestGuardWhenLeaving(t *testing.T) {
	g := newGuarding(t)
	g.ours = true
	g.then("ours", nil, placed(metalog.Partition{Replicas: []int32{100, 1, 2}, ISR: []int32{100}, Leader: 100}))
	g.m.mu.Lock()
	g.m.leave = true
	g.m.mu.Unlock()
	g.then("leaving", []demand{{Assign: []int32{1, 2}}})
}

// TestGuardIsUnsure: while it cannot be read what is ours only internal topics are moved and
// what was made on us alone of ours, and the others as soon as it can.
func TestGuardIsUnsure(t *testing.T) {
	g := newGuarding(t)
	g.unknown = true
	groups := metalog.PartitionID{Topic: cluster.TopicID{9}}
	g.then("not known what is ours", []demand{{Assign: []int32{1}}}, placed(metalog.Partition{Replicas: []int32{101, 100, 1, 2}, Leader: 100}),
		metalog.NewTopic{Name: "__consumer_offsets", ID: groups.Topic}, metalog.NewPartition{ID: groups, Partition: metalog.Partition{Replicas: []int32{100, 1}, Leader: 100}})
	g.unknown = false
	g.then("known", []demand{{Assign: []int32{1, 2}}})
}

// TestGuardOfOneAlone: what was made on us alone moves to a real broker, never to another of
// ours, which is let in by us as its leader once we are registered.
func TestGuardOfOneAlone(t *testing.T) {
	g := newGuarding(t)
	g.f.Append(metalog.RegisterBroker{Broker: metalog.Broker{ID: 101, Epoch: 5, Rack: "another"}})
	g.then("made on us", []demand{{Assign: []int32{1}}}, placed(metalog.Partition{Replicas: []int32{100}, ISR: []int32{100}, Leader: 100}))
	moving := metalog.ChangePartition{ID: strayID, Replicas: []int32{1, 100}, Adding: []int32{1}, Removing: []int32{100}}
	admit := []demand{{Admit: []int32{100, 1}}}
	g.then("on its way", admit, moving)
	g.m.become(func() { g.m.self.Registered = false })
	g.then("we are not registered", nil, moving)
	g.m.become(func() { g.m.self.Registered = true })
	g.then("again", admit, moving)
}
