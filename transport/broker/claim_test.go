package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/metalog"
)

func swapped(t *testing.T, i Identities, was, now *Kept, want bool) {
	t.Helper()
	if ok, err := i.Swap(t.Context(), was, now); ok != want || err != nil {
		t.Fatalf("%v in the place of %v: %v, %v", now, was, ok, err)
	}
}

// TestKeepers: identities are compared before they are replaced, wherever they are kept,
// and topics' own settings are there with all their values.
func TestKeepers(t *testing.T) {
	files, err := OpenFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	shared := NewShared(coordinator.NewMemory(), "m")
	for name, k := range map[string]struct {
		i Identities
		o Overrides
	}{
		"memory": {new(MemoryIdentities), new(MemoryOverrides)}, "files": {files.Identities(), files.Overrides()},
		"shared": {shared.Identities(), shared.Overrides()},
	} {
		t.Run(name, func(t *testing.T) {
			a, other := Kept{newIdentity(100), "a", "x"}, Kept{newIdentity(101), "b", "y"}
			next := a
			next.Holder = "z"
			swapped(t, k.i, nil, &a, true)
			swapped(t, k.i, nil, &next, false)
			swapped(t, k.i, &next, &a, false)
			swapped(t, k.i, nil, &other, true)
			swapped(t, k.i, &a, &next, true)
			swapped(t, k.i, &a, nil, false)
			all, err := k.i.All(t.Context())
			slices.SortFunc(all, func(a, b Kept) int { return int(a.Broker - b.Broker) })
			if err != nil || !slices.Equal(all, []Kept{next, other}) {
				t.Errorf("%+v, %v", all, err)
			}
			swapped(t, k.i, &next, nil, true)
			swapped(t, k.i, nil, &a, true)
			for _, bad := range [][2]*Kept{{nil, nil}, {&a, &other}} {
				if _, err := k.i.Swap(t.Context(), bad[0], bad[1]); err == nil {
					t.Errorf("%v in the place of %v was taken", bad[1], bad[0])
				}
			}
			keepsOverrides(t, k.o)
			keepsMissed(t, k.o)
			keepsLifted(t, k.o)
		})
	}
}

func keepsOverrides(t *testing.T, o Overrides) {
	t.Helper()
	two := "2"
	want := map[string]Own{"a": {"min.insync.replicas": &two, "unclean.leader.election.enable": nil}, "b": {}}
	err := errors.Join(o.Save(t.Context(), map[string]Own{"a": {}, "gone": {}}), o.Save(t.Context(), want), o.Delete(t.Context(), []string{"gone", "none"}))
	got, loadErr := o.Load(t.Context(), "a", "b", "gone")
	if err := errors.Join(err, loadErr); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	topics, err := o.Topics(t.Context())
	if slices.Sort(topics); err != nil || !slices.Equal(topics, []string{"a", "b"}) {
		t.Errorf("topics %v, %v", topics, err)
	}
}

func TestSharedOfALaterVersion(t *testing.T) {
	memory := coordinator.NewMemory()
	shared := NewShared(memory, "m")
	for key, text := range map[string]string{"identity:100": `{"v":2}`, "topic:a": `{"v":2}`, "identity:101": `{"v":1,"directory":"AA"}`, "missed:a": `{"v":2}`, "producers": `{"v":2}`} {
		if _, err := memory.SwapNotes(t.Context(), "m", nil, map[string][]byte{key: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		_, errI := shared.Identities().All(t.Context())
		_, errO := shared.Overrides().Load(t.Context(), "a")
		_, errM := shared.Overrides().Missed(t.Context())
		_, _, errL := shared.Overrides().Lifted(t.Context())
		if errI == nil && errO == nil && errM == nil && errL == nil {
			t.Errorf("%s: %s was read", key, text)
		}
		if _, err := memory.SwapNotes(t.Context(), "m", map[string][]byte{key: []byte(text)}, map[string][]byte{key: nil}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAtOnce: processes that start at the same time are different brokers, and each
// finds itself again after a restart.
func TestAtOnce(t *testing.T) {
	f := startFake(t, 1)
	shared := NewShared(coordinator.NewMemory(), "m")
	const many = 5
	before := make(map[string]int32)
	for round := range 2 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			var all []*Membership
			for n := range many {
				if round == 1 {
					n = many - 1 - n
				}
				m, _ := joinFake(t, f, func(c *Config) {
					c.Name, c.Identities, c.IDs = fmt.Sprint("worker-", n), shared.Identities(), IDs{100, 100 + many - 1}
				})
				all = append(all, m)
			}
			seen := make(map[int32]string)
			for _, m := range all {
				if err := m.WaitJoined(within(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
				id, name := m.Self().Broker, m.cfg.Name
				if other, ok := seen[id]; ok {
					t.Errorf("%s and %s are both broker %d", name, other, id)
				}
				if was, ok := before[name]; ok && was != id {
					t.Errorf("%s was broker %d and is %d", name, was, id)
				}
				seen[id], before[name] = name, id
			}
		})
	}
	all, err := shared.Identities().All(t.Context())
	if err != nil || len(all) != many || slices.ContainsFunc(all, func(k Kept) bool { return k.Holder != "" }) {
		t.Errorf("after all have ended: %+v, %v", all, err)
	}
}

// TestInThePlaceOfTheDead: the identity of a process whose broker is fenced goes on, and
// a living one keeps its own.
func TestInThePlaceOfTheDead(t *testing.T) {
	dead, alive := kept(100, "dead", "x"), kept(101, "alive", "y")
	f := startFake(t, 1)
	for _, k := range []Kept{alive, dead} {
		b := &metalog.Broker{ID: k.Broker, Epoch: int64(k.Broker), Incarnation: k.Incarnation, Directories: []metalog.UUID{k.Directory}, Fenced: k == dead}
		f.set(func() { f.brokers[k.Broker], f.sessions[k.Broker] = b, k == alive })
		f.Append(metalog.RegisterBroker{Broker: *b})
	}
	identities := new(MemoryIdentities)
	swapped(t, identities, nil, &dead, true)
	swapped(t, identities, nil, &alive, true)
	began := time.Now()
	const session = 600 * time.Millisecond
	m, _ := joinFake(t, f, func(c *Config) { c.Name, c.Identities, c.SessionTimeout = "new", identities, session })
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if self := m.Self(); self.Broker != 100 || self.Epoch != 100 || time.Since(began) < session/3 {
		t.Errorf("after %v we are %+v", time.Since(began), self)
	}
	if id := m.keptNow(); id.Identity != dead.Identity || id.Name != "new" {
		t.Errorf("kept as %+v", id)
	}
}

// TestDisplaced: who finds another holder at its place ends, and gives nothing free.
func TestDisplaced(t *testing.T) {
	f, identities := startFake(t, 1), new(MemoryIdentities)
	m, result := joinFake(t, f, func(c *Config) { c.Identities, c.SessionTimeout = identities, 600*time.Millisecond })
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	was := m.keptNow()
	other := was
	other.Holder = "another"
	swapped(t, identities, &was, &other, true)
	if err := result(); !errors.Is(err, ErrDisplaced) {
		t.Errorf("Run: %v", err)
	}
	if all, _ := identities.All(t.Context()); !slices.Equal(all, []Kept{other}) {
		t.Errorf("left behind: %+v", all)
	}
}

// awayIdentities may be out of reach.
type awayIdentities struct {
	MemoryIdentities
	away atomic.Bool
}

func (i *awayIdentities) All(ctx context.Context) ([]Kept, error) {
	if i.away.Load() {
		return nil, cluster.ErrUnreachable
	}
	return i.MemoryIdentities.All(ctx)
}

// TestFrozenTooLong: after a rest in which others may have gone on in our place, that is
// looked up before a heartbeat says that we are there.
func TestFrozenTooLong(t *testing.T) {
	f, identities := startFake(t, 1), new(awayIdentities)
	m, _ := joinFake(t, f, func(c *Config) { c.Identities, c.SessionTimeout = identities, time.Minute })
	ctx := within(t, time.Minute)
	if err := m.WaitJoined(ctx); err != nil {
		t.Fatal(err)
	}
	frozen := func() (next, error) {
		ended, stopped := make(chan struct{}), make(chan struct{})
		defer func() { close(ended); <-stopped }()
		go func() { // a cluster writes all the time
			defer close(stopped)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					f.Append(metalog.SetFeature{Name: metadataVersion, Level: cordonLevel})
				case <-ended:
					return
				}
			}
		}()
		s := &session{m: m, controller: controller{quorum: m.quorum}, id: m.keptNow().Identity, identified: true, registered: true,
			epoch: m.Self().Epoch, answered: time.Now().Add(-2 * time.Hour)}
		defer s.controller.drop()
		return s.turn(ctx)
	}
	if step, err := frozen(); step != goOn || err != nil {
		t.Errorf("nobody came: %v, %v", step, err)
	}
	identities.away.Store(true)
	if step, err := frozen(); step != goOn || err != nil {
		t.Errorf("the store is away, and we are not out: %v, %v", step, err)
	}
	for _, out := range []bool{true, false} {
		f.Append(metalog.ChangeBroker{ID: 100, Epoch: m.Self().Epoch, Fenced: &out})
		if _, err := m.log.Wait(ctx, func(i metalog.Image) bool { b, _ := i.Broker(100); return b.Fenced == out }); err != nil {
			t.Fatal(err)
		}
		if step, _ := frozen(); (step == goOn) == out {
			t.Errorf("the store is away, out is %v: %v", out, step)
		}
	}
	identities.away.Store(false)
	was := m.keptNow()
	other := was
	other.Holder = "another"
	swapped(t, identities, &was, &other, true)
	if step, err := frozen(); step != giveUp || !errors.Is(err, ErrDisplaced) {
		t.Errorf("somebody came: %v, %v", step, err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	ctx = over
	if step, _ := frozen(); step == goOn {
		t.Error("not known, and gone on")
	}
}

// TestIdentityOfSomebodyElse: one whose id is a broker's that is alive is forgotten.
func TestIdentityOfSomebodyElse(t *testing.T) {
	f, identities := startFake(t, 1), new(MemoryIdentities)
	mine := kept(100, "127.0.0.1:1", "")
	swapped(t, identities, nil, &mine, true)
	f.set(func() { // the log does not have it yet
		f.brokers[100], f.sessions[100] = &metalog.Broker{ID: 100, Epoch: 2, Incarnation: metalog.UUID{9}}, true
	})
	m, _ := joinFake(t, f, func(c *Config) { c.Identities = identities })
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	all, err := identities.All(t.Context())
	if err != nil || m.Self().Broker != 101 || len(all) != 1 || all[0].Broker != 101 {
		t.Errorf("we are %d, kept %+v, %v", m.Self().Broker, all, err)
	}
}

func TestUnless(t *testing.T) {
	for err, want := range map[error]next{cluster.ErrUnreachable: seek, cluster.ErrTimeout: seek, cluster.ErrAuthorization: giveUp, errors.New("disk"): giveUp} {
		if got := unless(fmt.Errorf("state: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestStraysAreAskedAbout: what another process has stored is known before it is moved away.
func TestStraysAreAskedAbout(t *testing.T) {
	var known, refuse atomic.Bool
	ours := func(topic string, _ cluster.TopicID, _ int32) bool { return topic == "new" && known.Load() }
	m, _ := joinFake(t, startFake(t, 1), func(c *Config) {
		c.Ours, c.recall = ours, func(context.Context) error {
			if refuse.Load() {
				return cluster.ErrUnavailable
			}
			known.Store(true)
			return nil
		}
	})
	if err := m.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	on := func(topic string, n byte) []metalog.Record {
		return []metalog.Record{metalog.NewTopic{Name: topic, ID: cluster.TopicID{n}},
			metalog.NewPartition{ID: metalog.PartitionID{Topic: cluster.TopicID{n}}, Partition: metalog.Partition{Replicas: []int32{1, 100}}}}
	}
	now := image(t, append(on("new", 1), on("stray", 2)...)...)
	now.Version = 1
	g := &guardian{m: m, open: make(map[metalog.PartitionID]*guarded)}
	refuse.Store(true) // then nothing is touched that might be ours
	if g.look(t.Context(), now, metalog.Delta{All: true}); len(g.open) > 0 || !g.unsure {
		t.Errorf("to be moved away: %v, looked at again: %v", g.open, g.unsure)
	}
	refuse.Store(false)
	g.look(t.Context(), now, metalog.Delta{})
	stray := metalog.PartitionID{Topic: cluster.TopicID{2}}
	if len(g.open) != 1 || g.open[stray] == nil {
		t.Errorf("to be moved away: %v", g.open)
	}
	refuse.Store(true) // nobody has to be asked about what was made on us, without who makes what is ours
	now = image(t, append(append(on("new", 1), on("stray", 2)...), on("made", 3)...)...)
	now.Version = 2
	made := metalog.PartitionID{Topic: cluster.TopicID{3}}
	if g.look(t.Context(), now, metalog.Delta{Partitions: map[metalog.PartitionID]struct{}{made: {}}}); g.open[made] == nil || g.unsure {
		t.Errorf("to be moved away: %v, looked at again: %v", g.open, g.unsure)
	}
}
