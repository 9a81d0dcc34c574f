package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// other is another broker of our range, at work or not.
type other struct {
	at  metalog.Listener
	end func() // nobody listens any more
}

// startOther begins one of a group; silent takes questions and says nothing.
func startOther(t *testing.T, group string, silent bool) *other {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(ServerConfig{BrokerListener: "INTERNAL"}, func() Self { return Self{} }, nil, nil)
	s.worker = func() self { return self{broker: 101, group: digestOf(group), turn: true} }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if silent {
			<-ctx.Done()
			l.Close()
			return
		}
		if err := s.Serve(ctx, "INTERNAL", l, nil); err != nil {
			t.Error(err)
		}
	}()
	o := &other{at: metalog.Listener{Name: "INTERNAL", Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}, end: func() { cancel(); <-done }}
	t.Cleanup(o.end)
	return o
}

// standingBy is a destination that stands by for "g" in a fake cluster, as broker 100,
// beside one that leads what is ours.
type standingBy struct {
	*Destination
	f *fake
}

func standBeside(t *testing.T, o *other, p metalog.Partition) *standingBy {
	t.Helper()
	f := startFake(t, 1)
	m, _ := joinFake(t, f, func(c *Config) { c.IDs = IDs{100, 102} })
	d := &Destination{cfg: DestinationConfig{Workers: "g", Silence: 300 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, m: m,
		own: newOwnTopics(&MemoryOverrides{all: map[string]Own{"t": {}}}), turned: make(chan struct{})}
	d.peers = newPeers(m, "g", d.cfg.Silence)
	if err := m.WaitJoined(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	b := metalog.Broker{ID: 101, Epoch: 77, Listeners: []metalog.Listener{o.at}, Directories: []metalog.UUID{{101}}, Cordoned: []metalog.UUID{{101}}}
	f.set(func() { f.brokers[101] = &b })
	f.Append(metalog.RegisterBroker{Broker: b}, metalog.NewTopic{Name: "t", ID: strayID.Topic}, metalog.NewPartition{ID: strayID, Partition: p})
	if _, err := m.log.Wait(within(t, 10*time.Second), func(i metalog.Image) bool { _, ok := i.Partition(strayID); return ok }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended []chan error
	for _, run := range []func(context.Context) error{d.peers.run, d.keepOwn, d.standBy} {
		done := make(chan error, 1)
		ended = append(ended, done)
		go func() { done <- run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for _, done := range ended {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return &standingBy{d, f}
}

// fences are the heartbeats in the other's name.
func (s *standingBy) fences() (out []kmsg.BrokerHeartbeatRequest) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for _, b := range s.f.beats {
		if b.BrokerID == 101 {
			out = append(out, *b)
		}
	}
	return out
}

func (s *standingBy) until(t *testing.T, ok func() bool) {
	t.Helper()
	kafkatest.Eventually(t, 10*time.Second, func(context.Context) error {
		if !ok() {
			return errNothing
		}
		return nil
	})
}

var ledByOther = metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{101, 100}, Leader: 101}

// TestSilentLeaderIsFenced once, in its name, and in our place the turn is ours when we
// are elected.
func TestSilentLeaderIsFenced(t *testing.T) {
	o := startOther(t, "g", false)
	s := standBeside(t, o, ledByOther)
	s.until(t, func() bool { return s.peers.words()[101].worker && s.peers.words()[101].turn })
	if s.hasTurn() || len(s.fences()) > 0 {
		t.Fatalf("it answers, and we have the turn: %v, fenced %v", s.hasTurn(), s.fences())
	}
	o.end()
	s.until(t, func() bool { return len(s.fences()) > 0 })
	got := s.fences()[0]
	if got.BrokerEpoch != 77 || !got.WantFence || !slices.Equal(got.CordonedLogDirs, [][16]byte{{101}}) {
		t.Errorf("%+v", got)
	}
	if s.hasTurn() {
		t.Error("we have the turn before we are elected")
	}
	leader := int32(100)
	s.f.Append(metalog.ChangePartition{ID: strayID, Leader: &leader})
	if shared, err := s.Turn(within(t, 10*time.Second)); err != nil || !shared {
		t.Errorf("%v, %v", shared, err)
	}
	if n := len(s.fences()); n != 1 {
		t.Errorf("fenced %d times", n)
	}
}

// TestWhoNeverAnsweredIsNotFenced: it may be the way that is broken.
func TestWhoNeverAnsweredIsNotFenced(t *testing.T) {
	s := standBeside(t, startOther(t, "g", true), ledByOther)
	s.until(t, func() bool { return s.peers.words()[101].asked })
	(&standby{d: s.Destination}).look(t.Context(), time.Now().Add(time.Hour)) // without a link to the controller it would panic
	if got := s.fences(); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestOthersOfTheRangeAreLeftAlone: a process of another group is nobody's to fence.
func TestOthersOfTheRangeAreLeftAlone(t *testing.T) {
	o := startOther(t, "another", false)
	s := standBeside(t, o, ledByOther)
	s.until(t, func() bool { return s.peers.words()[101].asked })
	o.end()
	s.until(t, func() bool { return s.peers.words()[101].gone })
	(&standby{d: s.Destination}).look(t.Context(), time.Now().Add(time.Hour))
	if got := s.fences(); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestTurnIsLost: who had the turn and sees another lead is told so.
func TestTurnIsLost(t *testing.T) {
	o := startOther(t, "g", false)
	f := startFake(t, 1)
	m, _ := joinFake(t, f, func(c *Config) { c.IDs = IDs{100, 102} })
	d := &Destination{cfg: DestinationConfig{Workers: "g", Silence: 300 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, m: m,
		own: newOwnTopics(&MemoryOverrides{all: map[string]Own{"t": {}}}), turned: make(chan struct{})}
	d.peers = newPeers(m, "g", d.cfg.Silence)
	lost := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	asking := make(chan error, 1)
	go func() { asking <- d.peers.run(ctx) }()
	t.Cleanup(func() { cancel(); <-asking })
	go func() { lost <- d.standBy(ctx) }()
	if _, err := d.Turn(within(t, 10*time.Second)); err != nil {
		t.Fatal(err) // nobody else is there
	}
	if err := d.own.recall(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Append(metalog.RegisterBroker{Broker: metalog.Broker{ID: 101, Epoch: 77, Listeners: []metalog.Listener{o.at}}},
		metalog.NewTopic{Name: "t", ID: strayID.Topic}, metalog.NewPartition{ID: strayID, Partition: ledByOther})
	select {
	case err := <-lost:
		if !errors.Is(err, cluster.ErrSuperseded) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the turn is still ours")
	}
}

// TestSilenceCountsOnce: the way to one that was fenced has to have worked again before its
// silence means anything.
func TestSilenceCountsOnce(t *testing.T) {
	p := newPeers(nil, "g", time.Second)
	if _, is := p.begin(t.Context(), 101); !is {
		t.Fatal("it was known")
	}
	if _, is := p.begin(t.Context(), 101); is {
		t.Error("it is asked twice")
	}
	at := time.Now()
	answers := func() { p.note(101, func(w *word) { w.heard, w.worker = at, true }) }
	dead := func(after time.Duration, looks int) bool { // so long after the last time
		var w word
		for range looks {
			at = at.Add(after / time.Duration(looks))
			w = p.look(at)[101]
		}
		return w.overdue(at, p.silence)
	}
	dead(0, 1)
	answers()
	if dead(900*time.Millisecond, 9) || !dead(200*time.Millisecond, 2) {
		t.Error("it is dead after a second, not before")
	}
	p.fenced(101)
	if dead(9*time.Second, 90) {
		t.Error("dead again without an answer since")
	}
	answers()
	if dead(time.Hour, 1) || dead(900*time.Millisecond, 9) || !dead(200*time.Millisecond, 2) {
		t.Error("an hour in which we did not look counts as its silence")
	}
	p.keep(map[int32]bool{})
	if len(p.words()) > 0 {
		t.Error("it is not registered any more")
	}
}

// TestWhoLeadsWithoutTheTurnGivesUp: two lead some of ours each. The second fences itself, once
// somebody can take what it leads, and is in good standing again.
func TestWhoLeadsWithoutTheTurnGivesUp(t *testing.T) {
	o := startOther(t, "g", false)
	first := metalog.Broker{ID: 100, Epoch: 5, Listeners: []metalog.Listener{o.at}, Directories: []metalog.UUID{{100}}}
	f := startFake(t, 1, metalog.RegisterBroker{Broker: first})
	m, _ := joinFake(t, f, func(c *Config) { c.IDs = IDs{100, 102} })
	d := &Destination{cfg: DestinationConfig{Workers: "g", Silence: 300 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, m: m,
		own: newOwnTopics(&MemoryOverrides{all: map[string]Own{"t": {}}}), turned: make(chan struct{})}
	d.peers = newPeers(m, "g", d.cfg.Silence)
	if err := errors.Join(m.WaitJoined(within(t, 10*time.Second)), d.own.recall(t.Context())); err != nil || m.Self().Broker != 101 {
		t.Fatalf("broker %d: %v", m.Self().Broker, err)
	}
	second := metalog.PartitionID{Topic: strayID.Topic, Partition: 0}
	f.Append(metalog.NewTopic{Name: "t", ID: strayID.Topic},
		metalog.NewPartition{ID: second, Partition: metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{101}, Leader: 101}},
		metalog.NewPartition{ID: strayID, Partition: metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{100}, Leader: 100}})
	if _, err := m.log.Wait(within(t, 10*time.Second), func(i metalog.Image) bool { _, ok := i.Partition(strayID); return ok }); err != nil {
		t.Fatal(err)
	}
	s := &standby{d: d, link: controller{quorum: m.quorum}}
	t.Cleanup(s.link.drop)
	wants := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, b := range f.beats {
			if b.BrokerID == 101 && b.WantFence {
				n++
			}
		}
		return n
	}
	if err := s.look(t.Context(), time.Now()); err != nil || wants() > 0 {
		t.Fatalf("nobody could take it: %v, fenced %d times", err, wants())
	}
	f.Append(metalog.ChangePartition{ID: second, ISR: []int32{101, 100}})
	if _, err := m.log.Wait(within(t, 10*time.Second), func(i metalog.Image) bool { p, _ := i.Partition(second); return len(p.ISR) == 2 }); err != nil {
		t.Fatal(err)
	}
	if err := s.look(t.Context(), time.Now()); err != nil || wants() == 0 || d.hasTurn() {
		t.Errorf("%v, fenced %d times, the turn is ours: %v", err, wants(), d.hasTurn())
	}
	if err := m.WaitJoined(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
}

// TestWhoBeganAnewIsOverdue: a process that is back before anybody noticed has not the turn that
// the one before had. Another one takes over at once, as it has all that it needs.
func TestWhoBeganAnewIsOverdue(t *testing.T) {
	p := newPeers(nil, "g", time.Second)
	p.begin(t.Context(), 101)
	overdue := func() bool {
		now := time.Now()
		return p.look(now)[101].overdue(now, p.silence)
	}
	for _, step := range []struct {
		name string
		turn bool
		want bool
	}{{"it has not begun", false, false}, {"its turn", true, false}, {"still", true, false}, {"anew", false, true}, {"still anew", false, true}, {"its turn again", true, false}} {
		p.answered(101, said{group: p.group, turn: step.turn})
		if got := overdue(); got != step.want {
			t.Errorf("%s: overdue %v", step.name, got)
		}
	}
	p.answered(101, said{group: p.group})
	if p.fenced(101); overdue() {
		t.Error("it was fenced")
	}
	if p.answered(101, said{group: p.group}); overdue() {
		t.Error("it stands by")
	}
	p.answered(101, said{group: digestOf("another"), turn: true})
	if p.answered(101, said{group: digestOf("another")}); overdue() {
		t.Error("it is of another group")
	}
}
