package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// known are the settings that the clusters of these tests know, and their defaults.
func known(change ...cluster.TopicConfig) []cluster.TopicConfig {
	all := []cluster.TopicConfig{
		{Name: "cleanup.policy", Value: "delete"}, {Name: "compression.type", Value: "producer"}, {Name: "max.message.bytes", Value: "1048588"},
		{Name: "message.timestamp.after.max.ms", Value: "3600000"}, {Name: "message.timestamp.before.max.ms", Value: "9223372036854775807"},
		{Name: "message.timestamp.type", Value: "CreateTime"}, {Name: "min.insync.replicas", Value: "1"}, {Name: "retention.ms", Value: "604800000"},
		{Name: "segment.ms", Value: "604800000"}, {Name: "unclean.leader.election.enable", Value: "false"},
	}
	for _, ch := range change {
		i := slices.IndexFunc(all, func(c cluster.TopicConfig) bool { return c.Name == ch.Name })
		if i < 0 {
			all = append(all, ch)
		} else {
			all[i] = ch
		}
	}
	return all
}

// furnished are two clusters whose topics have settings, and what a mirror tells of them.
type furnished struct {
	t     *testing.T
	a, b  *memory.Cluster
	store *coordinator.Memory

	mu      sync.Mutex
	asked   map[memory.Call]int // at the destination
	fault   func(memory.Op) memory.Fault
	changes []string
	notes   []string
}

func newFurnished(t *testing.T, produce bool) *furnished {
	f := &furnished{t: t, store: coordinator.NewMemory(), asked: map[memory.Call]int{}}
	f.a = memory.New(memory.Options{ID: "A", Defaults: known(cluster.TopicConfig{Name: "tiered", Value: "false"})})
	f.b = memory.New(memory.Options{ID: "B", Produce: produce, Defaults: known(cluster.TopicConfig{Name: "retention.ms", Value: "86400000"})})
	f.b.SetFault(func(op memory.Op) memory.Fault {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked[op.Call]++
		if f.fault != nil {
			return f.fault(op)
		}
		return memory.Fault{}
	})
	return f
}

func (f *furnished) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// topic makes a topic with settings "name=value name=value".
func (f *furnished) topic(c *memory.Cluster, name, settings string) {
	f.t.Helper()
	f.check(c.CreateTopic(cluster.NewTopic{Name: name, Partitions: 2, ReplicationFactor: -1, Configs: settingsOf(settings)}))
}

func settingsOf(text string) (out []cluster.TopicConfig) {
	for s := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(s, "=")
		out = append(out, cluster.TopicConfig{Name: name, Value: value})
	}
	return out
}

func (f *furnished) set(c *memory.Cluster, topic, name, value string) {
	f.t.Helper()
	f.check(c.SetTopicConfig(topic, name, value))
}

// has checks the overrides of a topic at the destination.
func (f *furnished) has(topic, want string) {
	f.t.Helper()
	got, err := f.b.TopicConfigs(context.Background(), []string{topic})
	f.check(err)
	if diff := cmp.Diff(settingsOf(want), got[0].Configs); diff != "" {
		f.t.Errorf("settings of %s (-want +got):\n%s", topic, diff)
	}
}

func (f *furnished) run(o mirror.Options, include ...string) (m *mirror.Mirror, end func()) {
	o.Topics.Include, o.Store = include, f.store
	o.Events.Config = func(e mirror.ConfigEvent) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, a := range e.Changes {
			f.changes = append(f.changes, fmt.Sprintf("%s %v drift=%v", e.Topic, a, a.Drift))
		}
	}
	o.Events.Sync = func(e mirror.SyncEvent) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notes = append(f.notes, e.Notes...)
	}
	m, err := mirror.New("dr", f.a.Client("m"), f.b.Client("m"), &o)
	f.check(err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	settle(5 * time.Second)
	return m, sync.OnceFunc(func() {
		cancel()
		f.check(<-ran)
	})
}

// took gives what was told and asked since the last call.
func (f *furnished) took() (changes []string, asked map[memory.Call]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changes, asked = f.changes, f.asked
	f.changes, f.asked = nil, map[memory.Call]int{}
	slices.Sort(changes)
	return changes, asked
}

func kindOf(t *testing.T, m *mirror.Mirror, name string) mirror.SyncStatus {
	t.Helper()
	for _, k := range m.Status().Syncs {
		if k.Kind == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return mirror.SyncStatus{}
}

const long = "9223372036854775807"

// TestSettings: topics are created with the source's settings; changes, removals and what
// was edited by hand are in step after one interval, what the destination has of its own
// stays (C6.3, C6.7), what it does not know is skipped and noted (C6.5). A round that finds
// nothing to do changes nothing and costs one request.
func TestSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFurnished(t, true)
		f.topic(f.a, "a", "retention.ms=1 segment.ms=2 min.insync.replicas=2")
		f.topic(f.a, "b", "tiered=true cleanup.policy=compact")
		m, end := f.run(mirror.Options{}, ".*")
		defer end()
		f.has("a", "compression.type=producer message.timestamp.after.max.ms="+long+" message.timestamp.before.max.ms="+long+
			" message.timestamp.type=CreateTime retention.ms=1 segment.ms=2")
		f.has("b", "cleanup.policy=compact compression.type=producer message.timestamp.after.max.ms="+long+" message.timestamp.before.max.ms="+long+
			" message.timestamp.type=CreateTime")
		if s := m.Status(); s.States[coordinator.StateMirroring] != 4 || s.Health != "ok" {
			t.Errorf("states %v, health %s", s.States, s.Health)
		}
		f.took()
		settle(time.Minute)
		if changes, asked := f.took(); len(changes) > 0 || asked[memory.CallAlterTopics] != 0 || asked[memory.CallCreateTopics] != 0 || asked[memory.CallTopicConfigs] != 1 {
			t.Errorf("a round without work: %v, %v", changes, asked)
		}

		f.set(f.a, "a", "retention.ms", "5")
		f.set(f.a, "a", "segment.ms", "")
		f.set(f.b, "a", "unclean.leader.election.enable", "true")
		f.set(f.b, "b", "cleanup.policy", "delete")
		settle(time.Minute)
		changes, asked := f.took()
		if diff := cmp.Diff([]string{"a retention.ms=5 drift=false", "a segment.ms taken away drift=false", "b cleanup.policy=compact drift=true"}, changes); diff != "" {
			t.Errorf("told: %s", diff)
		}
		if asked[memory.CallAlterTopics] != 1 {
			t.Errorf("%d requests", asked[memory.CallAlterTopics])
		}
		f.has("a", "compression.type=producer message.timestamp.after.max.ms="+long+" message.timestamp.before.max.ms="+long+
			" message.timestamp.type=CreateTime retention.ms=5 unclean.leader.election.enable=true")
		k := kindOf(t, m, mirror.SyncConfigs)
		if k.Done["drift"] != 1 || k.Done["removed"] != 1 || k.Seen["topics"] != 2 || k.Synced == nil || len(k.Refused) > 0 {
			t.Errorf("%+v", k)
		}
		if len(k.Notes) != 2 || !strings.Contains(k.Notes[0], "tiered") || !strings.Contains(k.Notes[1], "retention.ms is 604800000") || len(f.notes) != 2 {
			t.Errorf("notes %q, told %q", k.Notes, f.notes)
		}
		if d := m.Status().Differences; len(d) != 1 || d[0].Name != "retention.ms" || d[0].Source != "604800000" || d[0].Destination != "86400000" || d[0].Topics != 1 {
			t.Errorf("differences %+v", d)
		}
	})
}

// TestSettingsFirst: records come to a topic of before when its settings are in step, not
// earlier (C5.9's order); a log that is not the source's keeps its settings (I12).
func TestSettingsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFurnished(t, true)
		f.topic(f.a, "mine", "retention.ms=5 segment.ms=6")
		f.topic(f.b, "mine", "retention.ms=1")
		f.topic(f.a, "other", "retention.ms=5")
		f.topic(f.b, "other", "retention.ms=1")
		for n := range int32(2) {
			for _, name := range []string{"mine", "other"} {
				_, err := f.a.Produce(at(name, n), memory.Values("one", "two")...)
				f.check(err)
			}
			_, err := f.b.Produce(at("other", n), memory.Values("foreign")...)
			f.check(err)
		}
		denied := func(op memory.Op) memory.Fault {
			if op.Call == memory.CallAlterTopics {
				return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrAuthorization}
			}
			return memory.Fault{}
		}
		f.fault = denied
		m, end := f.run(mirror.Options{}, ".*")
		defer end()
		end0 := func() int64 {
			o, err := f.b.Offsets(context.Background(), []cluster.Partition{at("mine", 0)})
			f.check(err)
			return o[0].HighWatermark
		}
		top, _ := m.Topic("mine")
		if p := top.Partitions[0]; p.State != coordinator.StateFailed || !p.Retriable || !errors.Is(p.Err, mirror.ErrAuthorization) || !strings.Contains(p.Reason, "retention.ms=5") {
			t.Errorf("%+v", p)
		}
		if end0() != 0 {
			t.Error("records came before the settings")
		}
		f.mu.Lock()
		f.fault = nil
		f.mu.Unlock()
		settle(time.Minute)
		if top, _ = m.Topic("mine"); top.Partitions[0].State != coordinator.StateMirroring || end0() != 2 {
			t.Errorf("%+v", top.Partitions[0])
		}
		f.has("mine", "message.timestamp.after.max.ms="+long+" retention.ms=5 segment.ms=6")
		f.has("other", "retention.ms=1")
		if top, _ = m.Topic("other"); top.Partitions[0].State != coordinator.StateFailed {
			t.Errorf("%+v", top.Partitions[0])
		}
	})
}

// TestSettingsPutBack: after the stop a topic has the source's settings where the
// destination required others, or its own from before; also when they cannot be changed at
// the stop, and the source is dead. The stop does not wait for it.
func TestSettingsPutBack(t *testing.T) {
	for _, denied := range []bool{false, true} {
		t.Run(fmt.Sprintf("denied=%v", denied), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFurnished(t, true)
				f.topic(f.a, "a", "compression.type=zstd retention.ms=5")
				f.topic(f.a, "b", "")
				f.topic(f.b, "b", "message.timestamp.type=LogAppendTime")
				m, end := f.run(mirror.Options{}, ".*")
				defer end()
				f.has("b", "message.timestamp.after.max.ms="+long+" message.timestamp.type=CreateTime")
				f.a.SetFault(func(memory.Op) memory.Fault {
					return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrUnreachable}
				})
				f.mu.Lock()
				f.fault = func(op memory.Op) memory.Fault {
					if denied && op.Call == memory.CallAlterTopics {
						return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrAuthorization}
					}
					return memory.Fault{}
				}
				f.mu.Unlock()
				f.check(m.Stop(hour(t), "a", "b"))
				if denied {
					end() // another process goes on with it
					f.mu.Lock()
					f.fault = nil
					f.mu.Unlock()
					_, end = f.run(mirror.Options{}, ".*")
					defer end()
				}
				f.has("a", "compression.type=zstd retention.ms=5")
				f.has("b", "message.timestamp.type=LogAppendTime")
			})
		})
	}
}

// TestSettingsOfReplicas: a destination that takes what replicas hand each other requires
// nothing: topics have the source's settings from the start.
func TestSettingsOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFurnished(t, false)
		f.topic(f.a, "a", "compression.type=zstd message.timestamp.type=LogAppendTime min.insync.replicas=2")
		m, end := f.run(mirror.Options{}, "a")
		defer end()
		f.has("a", "compression.type=zstd message.timestamp.type=LogAppendTime")
		// What such a destination sets for itself is no drift.
		f.set(f.b, "a", "min.insync.replicas", "1")
		f.set(f.b, "a", "unclean.leader.election.enable", "false")
		settle(3 * time.Minute)
		f.has("a", "compression.type=zstd message.timestamp.type=LogAppendTime min.insync.replicas=1 unclean.leader.election.enable=false")
		if changes, _ := f.took(); len(changes) > 0 || m.Status().Health != "ok" {
			t.Errorf("changed %v", changes)
		}
	})
}

// TestSettingsOff: without config sync topics are created with the source's settings, and
// left alone from then on.
func TestSettingsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFurnished(t, false)
		f.topic(f.a, "a", "retention.ms=5")
		f.topic(f.a, "b", "retention.ms=5")
		f.topic(f.b, "b", "")
		m, end := f.run(mirror.Options{NoConfigs: true}, ".*")
		defer end()
		f.set(f.a, "a", "retention.ms", "6")
		settle(3 * time.Minute)
		f.has("a", "retention.ms=5")
		f.has("b", "")
		if k := kindOf(t, m, mirror.SyncConfigs); k.Idle == "" || m.Status().States[coordinator.StateMirroring] != 4 {
			t.Errorf("%+v", k)
		}
	})
}

// TestNothingMatched: a mirror whose entries match nothing says so, and goes on.
func TestNothingMatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFurnished(t, false)
		m, end := f.run(mirror.Options{}, "orders.*")
		defer end()
		if k := kindOf(t, m, mirror.SyncTopics); len(k.Notes) != 1 || k.Notes[0] != "0 topics matched" || len(f.notes) != 1 {
			t.Errorf("notes %q, told %q", k.Notes, f.notes)
		}
		f.topic(f.a, "orders-1", "")
		settle(time.Minute)
		if k := kindOf(t, m, mirror.SyncTopics); len(k.Notes) != 0 || k.Seen["matched"] != 1 {
			t.Errorf("%+v", k)
		}
		f.check(f.a.DeleteTopic("orders-1"))
		settle(3 * time.Minute)
		if gone := m.Status().Gone; len(gone) != 1 || gone[0] != "orders-1" { // C2.11
			t.Errorf("gone %v", gone)
		}
	})
}
