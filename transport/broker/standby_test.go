package broker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
)

// asking is Overrides that count how often they are read, and may be out of reach.
type asking struct {
	MemoryOverrides
	reads atomic.Int32
	away  atomic.Bool
}

func (a *asking) Topics(ctx context.Context) ([]string, error) {
	a.reads.Add(1)
	if a.away.Load() {
		return nil, cluster.ErrUnavailable
	}
	return a.MemoryOverrides.Topics(ctx)
}

// lines counts what is logged.
type lines struct{ n atomic.Int32 }

func (l *lines) Enabled(context.Context, slog.Level) bool  { return true }
func (l *lines) Handle(context.Context, slog.Record) error { l.n.Add(1); return nil }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler        { return l }
func (l *lines) WithGroup(string) slog.Handler             { return l }

// waiting is broker 100 that waits for its turn, beside 101, in steps.
type waiting struct {
	*standby
	t      *testing.T
	f      *fake
	stored *asking
	logged *lines
}

func newWaiting(t *testing.T) *waiting {
	t.Helper()
	w := &waiting{t: t, f: startFake(t, 1), stored: &asking{MemoryOverrides: MemoryOverrides{all: map[string]Own{"t": {}}}}, logged: new(lines)}
	m := seated(t, w.f, nil)
	d := &Destination{cfg: DestinationConfig{Workers: "g", Silence: 300 * time.Millisecond, Logger: slog.New(w.logged)}, m: m,
		own: newOwnTopics(w.stored), turned: make(chan struct{})}
	d.peers = newPeers(m, "g", d.cfg.Silence)
	w.standby = &standby{d: d, link: controller{quorum: m.quorum}}
	t.Cleanup(w.link.drop)
	m.id = newIdentity(100)
	w.append(metalog.RegisterBroker{Broker: metalog.Broker{ID: 100, Epoch: 10, Directories: []metalog.UUID{m.id.Directory}}})
	return w
}

func (w *waiting) append(records ...metalog.Record) {
	w.t.Helper()
	w.f.Append(records...)
	heard(w.t, w.f, w.d.m)
}

// turn looks once, and reports whether the turn is ours.
func (w *waiting) turn() bool {
	w.t.Helper()
	if err := w.look(w.t.Context(), time.Now()); err != nil {
		w.t.Error(err)
	}
	return w.d.hasTurn()
}

// TestTurnIsTaken only by who is in good standing, once it is known who the others are, and what
// is ours: another may lead that already.
func TestTurnIsTaken(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		if !newWaiting(t).turn() {
			t.Error("it is nobody's")
		}
	})
	t.Run("another is up, and has not said who it is", func(t *testing.T) {
		w := newWaiting(t)
		w.append(metalog.RegisterBroker{Broker: metalog.Broker{ID: 101, Epoch: 77}})
		w.d.peers.begin(t.Context(), 101)
		if w.turn() {
			t.Error("it is taken all the same")
		}
		w.d.peers.note(101, func(w *word) { w.asked = true })
		if !w.turn() {
			t.Error("it is of another group, and waited for")
		}
	})
	t.Run("what is ours is not known", func(t *testing.T) {
		w := newWaiting(t)
		w.stored.away.Store(true)
		if w.turn() {
			t.Error("it is taken all the same")
		}
		w.stored.away.Store(false)
		if !w.turn() {
			t.Error("it is known now")
		}
	})
	t.Run("another leads what we did not know to be ours", func(t *testing.T) {
		w := newWaiting(t)
		w.append(metalog.NewTopic{Name: "t", ID: strayID.Topic}, placed(ledByOther))
		if w.turn() {
			t.Error("it is taken all the same")
		}
	})
	t.Run("fenced", func(t *testing.T) {
		w := newWaiting(t)
		out := true
		w.append(metalog.ChangeBroker{ID: 100, Epoch: 10, Fenced: &out})
		if w.turn() {
			t.Error("it is taken all the same")
		}
	})
	t.Run("registered as somebody else by now", func(t *testing.T) {
		w := newWaiting(t)
		w.append(metalog.RegisterBroker{Broker: metalog.Broker{ID: 100, Epoch: 11}})
		if w.turn() {
			t.Error("it is taken all the same")
		}
	})
}

// TestWhoIsFenced: one that leads what we could, that is silent, and is not out already; once,
// until it is heard again.
func TestWhoIsFenced(t *testing.T) {
	for _, tt := range []struct {
		name  string
		out   bool
		after int
		want  int
	}{{"we could lead", false, 1, 1}, {"we are not in sync", false, 0, 0}, {"out already", true, 1, 0}} {
		w := newWaiting(t)
		b := metalog.Broker{ID: 101, Epoch: 77, Fenced: tt.out, Directories: []metalog.UUID{{101}}}
		w.f.set(func() { w.f.brokers[101] = &b })
		w.append(metalog.RegisterBroker{Broker: b})
		w.d.peers.begin(t.Context(), 101)
		w.d.peers.note(101, func(w *word) { w.heard, w.worker, w.asked = time.Now().Add(-time.Minute), true, true })
		w.leads = leads{brokers: []int32{101}, after: map[int32]int{101: tt.after}}
		image := w.d.m.log.Image() // which has no fence yet
		for range 2 {
			w.fence(t.Context(), image, w.d.peers.words(), time.Now())
		}
		w.f.mu.Lock()
		if n := len(w.f.beats); n != tt.want {
			t.Errorf("%s: fenced %d times, want %d", tt.name, n, tt.want)
		}
		w.f.mu.Unlock()
	}
}

// TestGivingUpTakesItsTime: what was asked for is not asked for again at once.
func TestGivingUpTakesItsTime(t *testing.T) {
	w := newWaiting(t)
	if err := w.d.own.recall(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.append(metalog.NewTopic{Name: "t", ID: strayID.Topic}, placed(metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{100, 101}, Leader: 100}))
	over, cancel := context.WithCancel(t.Context())
	cancel() // it need not come about
	now := time.Now()
	for _, tt := range []struct {
		at   time.Duration
		want int
	}{{0, 1}, {900 * time.Millisecond, 0}, {1100 * time.Millisecond, 1}} {
		w.yield(over, now.Add(tt.at))
		if n := int(w.logged.n.Swap(0)); n != tt.want {
			t.Errorf("after %v: given up %d times, want %d", tt.at, n, tt.want)
		}
	}
}

// TestOwnTopicsAreFollowed: what the worker that has the turn makes, and forgets, is read when it shows in
// the log, not only after a while.
func TestOwnTopicsAreFollowed(t *testing.T) {
	w := newWaiting(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.d.keepOwn(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	until := func(what string, ok func() bool) {
		t.Helper()
		kafkatest.Eventually(t, 10*time.Second, func(context.Context) error {
			if !ok() {
				return errNothing
			}
			return nil
		})
	}
	until("at first", func() bool { return w.stored.reads.Load() == 2 }) // and with the log's first image
	if err := w.stored.Save(t.Context(), map[string]Own{"new": {}}); err != nil {
		t.Fatal(err)
	}
	w.append(metalog.NewTopic{Name: "new", ID: strayID.Topic}, placed(ledByOther))
	until("one more", func() bool { return w.d.own.has("new") })
	if err := w.stored.Delete(t.Context(), []string{"new"}); err != nil {
		t.Fatal(err)
	}
	leader := int32(1)
	w.append(metalog.ChangePartition{ID: strayID, Leader: &leader})
	until("handed back", func() bool { return !w.d.own.has("new") })
}
