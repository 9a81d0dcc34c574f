package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
)

func TestJoinAndLeave(t *testing.T) {
	f := startFake(t, 1)
	identities := new(MemoryIdentities)
	m, result := joinFake(t, f, func(c *Config) { c.Identities = identities })
	ctx := within(t, time.Minute)
	if err := m.WaitJoined(ctx); err != nil {
		t.Fatal(err)
	}
	id := identities.all[100]
	if self := m.Self(); self.Broker != 100 || id.Broker != 100 || id.Name != "127.0.0.1:1" || id.Holder == "" {
		t.Errorf("we are %+v, stored %+v", self, id)
	}
	if beat := f.lastBeat(); len(beat.CordonedLogDirs) != 1 || beat.CordonedLogDirs[0] != id.Directory || beat.Version != 2 {
		t.Errorf("not cordoned from the start: %+v", beat)
	}
	if err := m.Cordon(ctx, false); err != nil {
		t.Error(err)
	}
	if beat := f.lastBeat(); beat.CordonedLogDirs == nil || len(beat.CordonedLogDirs) != 0 {
		t.Errorf("uncordoned: %+v", beat)
	}
	for _, on := range []bool{true, false} {
		if err := m.Fence(ctx, on); err != nil {
			t.Errorf("Fence %v: %v", on, err)
		}
	}
	if err := m.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if err := result(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if b := f.lastBeat(); !b.WantShutdown {
		t.Errorf("the last heartbeat is %+v", b)
	}
	f.set(func() {
		if len(identities.all) > 0 || f.brokers[100] != nil {
			t.Error("something is left of us")
		}
	})
}

// TestOldControllersHaveNoCordon, and new ones of a cluster that is not upgraded yet.
func TestOldControllersHaveNoCordon(t *testing.T) {
	for _, tt := range []struct{ offered, level, want int16 }{{1, cordonLevel, 1}, {2, cordonLevel - 1, 2}} {
		f := startFake(t, 1, metalog.SetFeature{Name: metadataVersion, Level: tt.level})
		f.Offer(63, tt.offered)
		m, _ := joinFake(t, f, nil)
		if err := m.WaitJoined(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := m.Cordon(within(t, time.Minute), true); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Cordon: %v", err)
		}
		if beat := f.lastBeat(); beat.Version != tt.want {
			t.Errorf("heartbeat of version %d, want %d", beat.Version, tt.want)
		}
	}
}

// TestUpgraded: as soon as brokers of a newer release are there we say that we can what they
// can, once, as the same broker, and are cordoned again right after.
func TestUpgraded(t *testing.T) {
	f := startFake(t, 1)
	m, _ := joinFake(t, f, nil)
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	before := m.Self()
	young := metalog.Feature{Name: metadataVersion, Min: 7, Max: newestLevel}
	f.Append(metalog.RegisterBroker{Broker: metalog.Broker{ID: 1, Features: []metalog.Feature{young},
		Listeners: []metalog.Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: 1}}}})
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if b := f.brokers[100]; !slices.Equal(b.Features, []metalog.Feature{young}) || len(b.Cordoned) != 1 {
			return fmt.Errorf("registered is %+v", b)
		}
		return nil
	})
	beats := len(f.copyBeats())
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if n := len(f.copyBeats()); n < beats+5 {
			return fmt.Errorf("%d heartbeats", n-beats)
		}
		return nil
	})
	f.set(func() {
		if f.registrations != 2 || m.Self() != before {
			t.Errorf("%d registrations; we were %+v and are %+v", f.registrations, before, m.Self())
		}
	})
}

// TestAnIDInUse: one that is alive at another, one that is down, and one that
// comes in between.
func TestAnIDInUse(t *testing.T) {
	f := startFake(t, 1, metalog.RegisterBroker{Broker: metalog.Broker{ID: 100, Epoch: 1, Fenced: true}})
	f.set(func() { f.brokers[101], f.sessions[101] = &metalog.Broker{ID: 101, Epoch: 2}, true }) // the log does not have it yet
	m, result := joinFake(t, f, nil)
	if err := result(); !errors.Is(err, ErrNoID) {
		t.Errorf("Run: %v, we are %+v", err, m.Self())
	}
	again, _ := joinFake(t, f, func(c *Config) { c.IDs.Last = 102 })
	if err := again.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := again.Self().Broker; got != 102 {
		t.Errorf("took id %d", got)
	}
}

// TestComesBackAsRegistered: a registration that stands is not made again, as nothing would
// be cordoned after it. One that differs is, and one that the controller refuses.
func TestComesBackAsRegistered(t *testing.T) {
	f := startFake(t, 1)
	identities := new(MemoryIdentities)
	for n, tt := range []struct {
		port  uint16
		epoch int64 // more than in the log
		want  int
	}{{1, 0, 1}, {1, 0, 1}, {2, 0, 2}, {2, 0, 2}, {2, 1, 3}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f.set(func() {
				if b := f.brokers[100]; b != nil {
					b.Epoch += tt.epoch
				}
			})
			m, _ := joinFake(t, f, func(c *Config) { c.Identities, c.Name, c.Listeners[0].Port = identities, "a", tt.port })
			if err := m.WaitJoined(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			beats := len(f.copyBeats())
			kafkatest.Eventually(t, time.Minute, func(context.Context) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.registrations != tt.want || m.Self().Broker != 100 || len(f.brokers[100].Cordoned) != 1 || len(f.beats) < beats+3 {
					return fmt.Errorf("%d registrations, want %d; broker %+v", f.registrations, tt.want, f.brokers[100])
				}
				return nil
			})
		})
	}
}

// TestSessionLost: what the controller forgets is registered again.
func TestSessionLost(t *testing.T) {
	f := startFake(t, 3)
	m, _ := joinFake(t, f, nil)
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	before := m.Self()
	f.set(func() { // unregistered by an operator
		f.Append(metalog.UnregisterBroker{ID: 100, Epoch: before.Epoch})
		delete(f.brokers, 100)
	})
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if got := m.Self(); got.Epoch == before.Epoch || got.Fenced {
			return fmt.Errorf("still %+v", got)
		}
		return nil
	})
	for n, away := range []func(int){f.Kill, f.Freeze} {
		away(n)
		f.Elect(n + 1)
		seen := len(f.copyBeats())
		kafkatest.Eventually(t, time.Minute, func(context.Context) error {
			if len(f.copyBeats()) < seen+3 {
				return errors.New("no heartbeats at the next controller")
			}
			return nil
		})
	}
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
}

func (f *fake) copyBeats() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []int64
	for _, b := range f.beats {
		out = append(out, b.CurrentMetadataOffset)
	}
	return out
}

// TestTheSameAgain: after a crash the identity is the same, and so is the session.
func TestTheSameAgain(t *testing.T) {
	f := startFake(t, 1)
	identities := new(MemoryIdentities)
	ctx := within(t, time.Minute)
	var seen []Self
	for range 2 {
		t.Run("", func(t *testing.T) {
			m, _ := joinFake(t, f, func(c *Config) { c.Identities = identities })
			if err := m.WaitJoined(ctx); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, Self{Broker: m.Self().Broker, Epoch: m.Self().Epoch})
		})
	}
	if seen[0] != seen[1] {
		t.Errorf("first %+v, then %+v", seen[0], seen[1])
	}
}

func TestRefusedAtStart(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(f *fake)
		cfg   func(c *Config)
		is    error
		says  string
	}{
		{"ZooKeeper", func(f *fake) { f.Offer(55, -1) }, func(c *Config) { c.Controllers = nil }, ErrNotKRaft, ""},
		{"permissions", func(f *fake) { f.bits = 1 << 8 }, nil, cluster.ErrAuthorization, "Alter, ClusterAction"},
		{"another cluster", nil, func(c *Config) { c.ClusterID = "x" }, cluster.ErrClusterReplaced, ""},
		{"old metadata version", func(f *fake) { f.Append(metalog.SetFeature{Name: metadataVersion, Level: 7}) }, nil, errors.ErrUnsupported, "3.9"},
		{"newer than tested", func(f *fake) { f.Append(metalog.SetFeature{Name: metadataVersion, Level: newestLevel + 1}) }, nil, errors.ErrUnsupported, "--join-untested"},
		{"brokers newer than tested", func(f *fake) {
			f.Append(metalog.RegisterBroker{Broker: metalog.Broker{ID: 1, Features: []metalog.Feature{{Name: metadataVersion, Min: 7, Max: newestLevel + 1}},
				Listeners: []metalog.Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: 1}}}})
		}, nil, errors.ErrUnsupported, "brokers have up to 34"},
		{"Kerberos", func(f *fake) { f.logsIn("GSSAPI") }, func(c *Config) { c.Listeners[0].Protocol = 2 }, errors.ErrUnsupported, `"INTERNAL": unsupported operation: real brokers take logins by GSSAPI`},
		{"registration refused", func(f *fake) { f.refuse[62] = int16(codeInvalidRegistration) }, nil, codeInvalidRegistration, "registration"},
		{"no such listener", nil, func(c *Config) { c.Listeners[0].Name = "X" }, nil, `"X"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := startFake(t, 1)
			if tt.spoil != nil {
				f.set(func() { tt.spoil(f) })
			}
			_, result := joinFake(t, f, tt.cfg)
			err := result()
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// logsIn has the broker want logins.
func (f *fake) logsIn(mechanisms ...string) {
	host, port, _ := net.SplitHostPort(f.Addrs()[0])
	n, _ := strconv.Atoi(port)
	f.logins = mechanisms
	f.Offer(17, 1)
	f.Append(metalog.RegisterBroker{Broker: metalog.Broker{ID: 1, Listeners: []metalog.Listener{{Name: "INTERNAL", Host: host, Port: uint16(n), Protocol: 2}}}})
}

// TestJoinedAllTheSame: a cluster that is newer than tested, where that is wanted, and one
// where some logins cannot be passed on.
func TestJoinedAllTheSame(t *testing.T) {
	f := startFake(t, 1)
	f.set(func() {
		f.Append(metalog.SetFeature{Name: metadataVersion, Level: newestLevel + 1})
		f.logsIn("GSSAPI", "PLAIN")
	})
	m, _ := joinFake(t, f, func(c *Config) { c.Untested, c.Listeners[0].Protocol = true, 2 })
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
}

// TestLeaveWaitsForOurs: what is mirrored here has to be handed back first.
func TestLeaveWaitsForOurs(t *testing.T) {
	f := startFake(t, 1)
	m, _ := joinFake(t, f, func(c *Config) {
		c.Ours = func(topic string, id cluster.TopicID, partition int32) bool {
			return topic == "mirrored" && partition == 0
		}
	})
	ctx := within(t, time.Minute)
	if err := m.WaitJoined(ctx); err != nil {
		t.Fatal(err)
	}
	f.Append(metalog.NewTopic{Name: "mirrored", ID: strayID.Topic},
		metalog.NewPartition{ID: metalog.PartitionID{Topic: strayID.Topic}, Partition: metalog.Partition{Replicas: []int32{100, 1}, Leader: 100}})
	if _, err := m.log.Wait(ctx, func(i metalog.Image) bool { return len(placedOn(i, 100)) > 0 }); err != nil {
		t.Fatal(err)
	}
	if err := m.Leave(ctx); !errors.Is(err, ErrStillOurs) {
		t.Errorf("Leave: %v", err)
	}
	if slices.ContainsFunc(f.copyShutdowns(), func(b bool) bool { return b }) {
		t.Error("asked for a shutdown")
	}
}

func (f *fake) copyShutdowns() (out []bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.beats {
		out = append(out, b.WantShutdown)
	}
	return out
}
