package broker

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// known is a broker of ours as it is registered: incarnation and directory {id}.
func known(id int32, fenced bool) metalog.RegisterBroker {
	return metalog.RegisterBroker{Broker: metalog.Broker{ID: id, Epoch: 5, Incarnation: metalog.UUID{byte(id)},
		Directories: []metalog.UUID{{byte(id)}}, Fenced: fenced}}
}

// placedIn is a topic with one partition for each assignment; all of it is in sync.
func placedIn(name string, n byte, assignments ...metalog.Partition) (out []metalog.Record) {
	out = append(out, metalog.NewTopic{Name: name, ID: cluster.TopicID{n}})
	for i, p := range assignments {
		out = append(out, metalog.NewPartition{ID: metalog.PartitionID{Topic: cluster.TopicID{n}, Partition: int32(i)}, Partition: p})
	}
	return out
}

func TestTraces(t *testing.T) {
	records := []metalog.Record{known(1, false), known(100, true), known(101, false),
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 103, Incarnation: metalog.UUID{9}}}}
	records = append(records, placedIn("t", 1,
		metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{100, 101}, Leader: 101},
		metalog.Partition{Replicas: []int32{100, 1}, ISR: []int32{100}, Leader: -1},
		metalog.Partition{Replicas: []int32{1, 102}, ISR: []int32{1}, Leader: 1, Directories: []metalog.UUID{{1}, {77}}})...)
	got := traces(image(t, records...), IDs{100, 109}, []Kept{kept(100, "a", "x"), kept(103, "b", ""), kept(104, "c", ""), kept(99, "d", "")})
	want := []Trace{
		{Broker: 100, Registered: true, Kept: true, Name: "a", Replicas: 2, Leaderless: 1, id: kept(100, "", "").Identity},
		{Broker: 101, Registered: true, Alive: true, Replicas: 1, Leads: 1, id: kept(101, "", "").Identity},
		{Broker: 102, Replicas: 1, Behind: 1, id: Identity{Directory: metalog.UUID{77}}},
		{Broker: 103, Registered: true, Alive: true, id: Identity{Broker: 103, Incarnation: metalog.UUID{9}}}, // somebody else's
		{Broker: 104, Kept: true, Name: "c", Ended: true, id: kept(104, "", "").Identity},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Trace{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMirrorTopics: what the log alone says is ours.
func TestMirrorTopics(t *testing.T) {
	ours := func(isr ...int32) metalog.Partition {
		return metalog.Partition{Replicas: []int32{100, 1, 2}, ISR: isr, Leader: -1}
	}
	one, no := "1", "false"
	records := slices.Concat(
		placedIn("narrowed", 1, metalog.Partition{Replicas: []int32{1}, ISR: []int32{1}}, ours(100)),
		placedIn("settings", 2, ours(100, 1, 2)),
		placedIn("stray", 3, ours(100, 1, 2)),
		placedIn("behind", 4, metalog.Partition{Replicas: []int32{1, 100}, ISR: []int32{1, 100}}),
		placedIn("another's", 5, metalog.Partition{Replicas: []int32{101, 1}, ISR: []int32{101}}),
		[]metalog.Record{
			metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "settings"}, Key: "min.insync.replicas", Value: &one},
			metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "settings"}, Key: "unclean.leader.election.enable", Value: &no},
		})
	i, us := image(t, records...), party{ids: IDs{100, 109}}
	if got := mirrorTopics(i, us, []int32{100}); !slices.Equal(got, []string{"narrowed", "settings"}) {
		t.Errorf("ours are %v", got)
	}
	if got := touchedBy(i, []int32{100}); !slices.Equal(got, []string{"behind", "narrowed", "settings", "stray"}) {
		t.Errorf("with a replica on us: %v", got)
	}
	if got := order(i, []int32{102, 101, 100}); !slices.Equal(got, []int32{100, 101, 102}) {
		t.Errorf("in the order %v", got)
	}
}

// leaveFake is a LeaveConfig for a fake cluster.
func leaveFake(t *testing.T, f *fake, change func(*LeaveConfig)) LeaveConfig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	cfg := LeaveConfig{Admin: nobody{}, Listeners: []net.Listener{l}, Overrides: new(MemoryOverrides), Membership: Config{
		Bootstrap: f.Addrs(), Controllers: f.Addrs(), IDs: IDs{100, 102}, Identities: new(MemoryIdentities),
		Listeners:         []Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: 1}},
		HeartbeatInterval: 20 * time.Millisecond, SessionTimeout: 300 * time.Millisecond,
	}}
	change(&cfg)
	return cfg
}

func (f *fake) has(b metalog.RegisterBroker) {
	f.set(func() { f.brokers[b.Broker.ID], f.sessions[b.Broker.ID] = &b.Broker, !b.Broker.Fenced })
	f.Append(b)
}

// TestLeaveNothingLed: brokers that lead nothing are unregistered and forgotten; a dry run
// leaves them. What is somebody else's stays.
func TestLeaveNothingLed(t *testing.T) {
	f := startFake(t, 1)
	f.has(known(100, true))
	f.has(known(102, true))
	identities := new(MemoryIdentities)
	for _, k := range []Kept{kept(100, "a", "x"), kept(101, "b", "y")} {
		swapped(t, identities, nil, &k, true)
	}
	for _, dry := range []bool{true, false} {
		left, err := Leave(within(t, time.Minute), leaveFake(t, f, func(c *LeaveConfig) { c.Membership.Identities, c.DryRun = identities, dry }))
		if err != nil || !slices.Equal(left.Brokers, []int32{100, 101}) || len(left.Traces) != 3 {
			t.Fatalf("%+v, %v", left, err)
		}
		f.set(func() {
			all, _ := identities.All(t.Context())
			if is := f.brokers[100] != nil; is != dry || (len(all) == 2) != dry || len(left.Out) != 2-len(all) || f.brokers[102] == nil {
				t.Errorf("dry %v: registered %v, kept %+v, out %v", dry, is, all, left.Out)
			}
		})
	}
}

func TestLeaveRefused(t *testing.T) {
	real := slices.Concat([]metalog.Record{known(100, true)}, placedIn("t", 1, metalog.Partition{Replicas: []int32{1, 100}, ISR: []int32{1}, Leader: 1}))
	alive := func(holder string) func(*LeaveConfig) {
		return func(c *LeaveConfig) {
			k := kept(100, "a", holder)
			_, _ = c.Membership.Identities.Swap(context.Background(), nil, &k)
		}
	}
	both := func(a, b func(*LeaveConfig)) func(*LeaveConfig) { return func(c *LeaveConfig) { a(c); b(c) } }
	by := func(id int32) func(*LeaveConfig) { return func(c *LeaveConfig) { c.Brokers = []int32{id} } }
	for _, tt := range []struct {
		name    string
		records []metalog.Record
		change  func(*LeaveConfig)
		is      error
		says    string
	}{
		{"alive", []metalog.Record{known(100, false)}, alive("x"), ErrAlive, "its process (a)"},
		{"alive, and of nobody", []metalog.Record{known(100, false)}, by(100), ErrAlive, "of which nothing is known"},
		{"alive, and of nobody, by force", []metalog.Record{known(100, false)}, both(by(100), func(c *LeaveConfig) { c.Force = true }), ErrAlive, "not even force"},
		{"which", []metalog.Record{known(100, true)}, func(*LeaveConfig) {}, ErrWhich, "[100]"},
		{"a real one", real, by(100), ErrReal, "behind others in 1 partitions"},
		{"one of two", slices.Concat([]metalog.Record{known(100, false), known(101, true)},
			placedIn("t", 1, metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{100}, Leader: 100})),
			both(alive("x"), both(by(101), func(c *LeaveConfig) {
				k := kept(101, "b", "y")
				_, _ = c.Membership.Identities.Swap(context.Background(), nil, &k)
			})), ErrAlive, "both have to leave"},
		{"out of the range", nil, by(7), nil, "7 is none of IDs"},
		{"no admin", nil, func(c *LeaveConfig) { c.Admin, c.Listeners = nil, nil }, nil, "Admin: is nil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := startFake(t, 1)
			for _, r := range tt.records {
				if b, ok := r.(metalog.RegisterBroker); ok {
					f.has(b)
				} else {
					f.Append(r)
				}
			}
			left, err := Leave(within(t, time.Minute), leaveFake(t, f, tt.change))
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) || len(left.Out) > 0 {
				t.Errorf("%+v, %v", left, err)
			}
		})
	}
}

// TestLeaveBeside: one that is a replica of nothing goes alone, and what is ours stays with
// the other.
func TestLeaveBeside(t *testing.T) {
	f := startFake(t, 1)
	f.has(known(100, false))
	f.has(known(101, true))
	cfg := leaveFake(t, f, func(c *LeaveConfig) { c.Brokers = []int32{101} })
	for _, k := range []Kept{kept(100, "a", "x"), kept(101, "b", "y")} {
		swapped(t, cfg.Membership.Identities, nil, &k, true)
	}
	if err := cfg.Overrides.Save(t.Context(), map[string]Own{"t": {}}); err != nil {
		t.Fatal(err)
	}
	left, err := Leave(within(t, 30*time.Second), cfg)
	all, _ := cfg.Membership.Identities.All(t.Context())
	topics, _ := cfg.Overrides.Topics(t.Context())
	if err != nil || !slices.Equal(left.Out, []int32{101}) || len(left.Topics) > 0 || len(all) != 1 || all[0].Broker != 100 || len(topics) != 1 {
		t.Errorf("%+v, %v; kept are %+v, topics %v", left, err, all, topics)
	}
}

// TestLeaveWaits: a session that ends meanwhile is waited for, one whose process said that it
// ended is not.
func TestLeaveWaits(t *testing.T) {
	f := startFake(t, 1)
	f.has(known(100, false))
	f.has(known(101, false))
	cfg := leaveFake(t, f, func(c *LeaveConfig) { c.Membership.SessionTimeout = time.Minute })
	for _, k := range []Kept{kept(100, "a", "x"), kept(101, "b", "")} {
		swapped(t, cfg.Membership.Identities, nil, &k, true)
	}
	fenced := true
	time.AfterFunc(50*time.Millisecond, func() { f.Append(metalog.ChangeBroker{ID: 100, Epoch: 5, Fenced: &fenced}) })
	left, err := Leave(within(t, 30*time.Second), cfg)
	if err != nil || !slices.Equal(left.Out, []int32{100, 101}) {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestHeldTopics: what is forgotten while topics are held stays ours, and stored.
func TestHeldTopics(t *testing.T) {
	ctx, store := t.Context(), new(MemoryOverrides)
	o := newOwnTopics(store)
	if err := o.Save(ctx, map[string]Own{"a": {}, "b": {}}); err != nil {
		t.Fatal(err)
	}
	o.hold()
	if err := o.Delete(ctx, []string{"a"}); err != nil || !o.has("a") {
		t.Errorf("%v: held, and ours: %v", err, o.has("a"))
	}
	if stored, _ := store.Topics(ctx); len(stored) != 2 {
		t.Errorf("stored are %v", stored)
	}
	if held := o.free(); !slices.Equal(held, []string{"a"}) {
		t.Errorf("held were %v", held)
	}
	if err := o.Delete(ctx, []string{"b"}); err != nil || o.has("b") || !slices.Equal(o.names(), []string{"a"}) {
		t.Errorf("%v: ours are %v", err, o.names())
	}
}
