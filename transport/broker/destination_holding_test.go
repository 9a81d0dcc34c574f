package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// lone is a destination without a cluster that leads one partition, and its follower.
type lone struct {
	*Destination
	t    *testing.T
	p    cluster.Partition
	h    *holding
	have int64
	last int32
}

// newLone leads a log that holds one record of an epoch, or none.
func newLone(t *testing.T, written int32) *lone {
	l := &lone{t: t, p: cluster.Partition{Topic: "t"}, last: written, Destination: &Destination{
		held: make(map[cluster.Partition]*holding), led: make(map[metalog.PartitionID]*holding), guard: newGuard(), lifts: newLifts(new(MemoryOverrides)), missed: newMissed(new(MemoryOverrides)),
		cfg: DestinationConfig{Logger: slog.New(slog.DiscardHandler)},
	}}
	l.server = &Server{led: newRegistry()}
	cfg := lead.Config{Topic: cluster.TopicID{1}, Partition: l.p, Epoch: 4, Quorum: 1, Followers: []int32{1}, Proven: true}
	if written >= 0 {
		cfg.History, l.have = []lead.EpochStart{{Epoch: written}}, 1
	}
	l.h = l.holding(l.p)
	l.h.id, l.h.led = metalog.PartitionID{Topic: cfg.Topic}, lead.New(cfg)
	l.led[l.h.id] = l.h
	l.server.led.add(l.h.led)
	l.follow()
	return l
}

// follow is one fetch of the follower, who takes what he gets.
func (l *lone) follow() {
	led, err := l.h.lead()
	if err != nil {
		return
	}
	a := led.Fetch(lead.Fetch{Replica: 1, CurrentEpoch: led.Epoch(), Offset: l.have, LastEpoch: l.last, MaxBytes: 1 << 20, Now: time.Unix(100, 0)})
	for _, b := range a.Records {
		l.have, l.last = batch.Header(b).Next(), batch.Header(b).LeaderEpoch()
	}
	if a.Diverging.Epoch >= 0 {
		l.have = a.Diverging.EndOffset
	}
	a.Release()
}

func (l *lone) begin(s fetcher.Stretch) fetcher.End {
	var e fetcher.End
	if err := l.h.forget(context.Background(), cluster.ErrTimeout); err != nil {
		l.t.Fatal(err)
	}
	l.h.begin(s, &e)
	return e
}

func (l *lone) append(base int64, epoch int32) <-chan fetcher.Result {
	b := batchAt(base, 1, epoch)
	out := make(chan fetcher.Result, 1)
	l.Append(l.p, []cluster.Batch{{Base: base, Next: base + 1, Epoch: epoch, Bytes: b}}, nil, func(r fetcher.Result) { out <- r })
	return out
}

func mirrorOf(name string) fetcher.Stretch {
	return fetcher.Stretch{Mirror: name, Partition: cluster.Partition{Topic: "t"}}
}

// TestStretches: appends are taken between Ends and the fence, of one mirror, and each is
// answered before Ends gives the log end.
func TestStretches(t *testing.T) {
	l := newLone(t, -1)
	if r := <-l.append(0, 0); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("before Ends: %+v", r)
	}
	if e := l.begin(mirrorOf("a")); e.Err != nil || e.Ours || e.LogEnd != 0 || e.LeaderEpoch != 4 {
		t.Fatalf("%+v", e)
	}
	first := l.append(0, 0)
	l.follow() // takes it
	l.follow() // says so
	if r := <-first; r.Err != nil || r.Next != 1 || r.Batches != 1 || r.Partition != l.p {
		t.Errorf("%+v", r)
	}
	second := l.append(1, 0)
	if e := l.begin(mirrorOf("a")); e.Err != nil || !e.Ours || e.LogEnd != 2 || e.HighWatermark != 1 {
		t.Errorf("what is under way stays in the log: %+v", e)
	}
	select {
	case r := <-second:
		if !errors.Is(r.Err, cluster.ErrTimeout) {
			t.Errorf("%+v", r)
		}
	default:
		t.Error("not answered when the end was given")
	}
	if e := l.begin(mirrorOf("b")); !errors.Is(e.Err, cluster.ErrActive) {
		t.Errorf("another mirror: %+v", e)
	}
	if err := l.h.stop(mirrorOf("b")); !errors.Is(err, cluster.ErrActive) {
		t.Errorf("another mirror stops it: %v", err)
	}
	if err := l.h.stop(mirrorOf("a")); err != nil {
		t.Fatal(err)
	}
	if r := <-l.append(2, 0); !errors.Is(r.Err, cluster.ErrFenced) {
		t.Errorf("behind the fence: %+v", r)
	}
	if e := l.begin(mirrorOf("a")); !e.Stopped {
		t.Errorf("behind the fence: %+v", e)
	}
	again := mirrorOf("a")
	again.New = true
	if e := l.begin(again); e.Stopped || e.Ours || e.Err != nil {
		t.Errorf("a new stretch: %+v", e)
	}
	l.close(l.h, l.h.id, fmt.Errorf("%w: tried", cluster.ErrNotLeader))
	if r := <-l.append(2, 0); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("when a real broker leads: %+v", r)
	}
	if l.server.led.byName(l.p) != nil {
		t.Error("followers still find it")
	}
}

// TestCaughtUp: handed back is to replicas that hold everything.
func TestCaughtUp(t *testing.T) {
	l := newLone(t, -1)
	l.begin(mirrorOf("a"))
	done := l.append(0, 3)
	if got := l.caughtUp(l.h.id); len(got) != 0 {
		t.Errorf("%v lack what was appended", got)
	}
	l.follow()
	l.follow()
	<-done
	if got := l.caughtUp(l.h.id); len(got) != 1 || got[0] != 1 {
		t.Errorf("%v hold everything", got)
	}
	if epoch, ok := l.h.above(); !ok || epoch != 13 {
		t.Errorf("handed back with epoch %d, %v; want ten above the log's", epoch, ok)
	}
}

// TestWhoseEpochs: the source's as long as our own can be brought above them within the
// budget; those that are below the log's are ours from then on.
func TestWhoseEpochs(t *testing.T) {
	l := newLone(t, -1)
	shows := func(stamps, known bool) {
		t.Helper()
		if s, k := l.Stamps(l.p); s != stamps || k != known {
			t.Errorf("stamps %v, known %v; want %v, %v", s, k, stamps, known)
		}
	}
	if l.h.tooFar(20, 20) || l.h.stamp != keeps {
		t.Error("within the budget")
	}
	shows(false, true)
	if !l.h.tooFar(21, 20) || l.h.stamp != willStamp {
		t.Error("beyond the budget")
	}
	shows(true, true)
	if !l.h.tooFar(1, 20) {
		t.Error("it was decided before")
	}
	l.closeAll(cluster.ErrUnavailable)
	shows(false, false)
	for _, c := range []struct {
		name    string
		written int32
		err     error
		stamp   stamping
		epoch   int32
	}{
		{"the log has an epoch below ours", 3, nil, stamped, 4},
		{"the log has ours", 4, cluster.ErrUnavailable, willStamp, 0},
	} {
		l := newLone(t, c.written)
		l.begin(mirrorOf("a"))
		done := l.append(1, 2)
		l.follow()
		l.follow()
		if r := <-done; !errors.Is(r.Err, c.err) || l.h.stamp != c.stamp {
			t.Errorf("%s: %+v, %d", c.name, r, l.h.stamp)
		}
		if c.err == nil && l.last != c.epoch {
			t.Errorf("%s: the follower got epoch %d, want %d", c.name, l.last, c.epoch)
		}
		l.closeAll(cluster.ErrUnavailable)
	}
}

// TestOwnTopics: a topic is ours from before it is stored until it is forgotten.
func TestOwnTopics(t *testing.T) {
	ctx, store := t.Context(), new(MemoryOverrides)
	if err := store.Save(ctx, map[string]Own{"old": {}}); err != nil {
		t.Fatal(err)
	}
	probe := &probingOverrides{MemoryOverrides: store}
	o := newOwnTopics(probe)
	probe.own = o
	if err := o.recall(ctx); err != nil || !o.has("old") || o.has("new") {
		t.Fatalf("%v, old %v, new %v", err, o.has("old"), o.has("new"))
	}
	if err := o.Save(ctx, map[string]Own{"new": {}}); err != nil || !probe.had {
		t.Errorf("%v, ours while it was stored: %v", err, probe.had)
	}
	probe.err = errors.New("no disk")
	if err := o.Save(ctx, map[string]Own{"new": {}, "other": {}}); err == nil || o.has("other") || !o.has("new") {
		t.Errorf("%v: other %v, new %v", err, o.has("other"), o.has("new"))
	}
	if err := o.Delete(ctx, []string{"new"}); err == nil || !o.has("new") {
		t.Errorf("%v: not forgotten, and ours: %v", err, o.has("new"))
	}
	probe.err = nil
	if err := o.Delete(ctx, []string{"new"}); err != nil || o.has("new") {
		t.Errorf("%v: forgotten, and ours: %v", err, o.has("new"))
	}
}

// TestOthersTopics: what other processes store and forget is seen, and what we store
// meanwhile stays ours.
func TestOthersTopics(t *testing.T) {
	ctx, store := t.Context(), new(MemoryOverrides)
	probe := &probingOverrides{MemoryOverrides: store}
	o := newOwnTopics(probe)
	probe.own = o
	if err := errors.Join(store.Save(ctx, map[string]Own{"a": {}, "b": {}}), o.recall(ctx)); err != nil || !o.has("a") || !o.has("b") {
		t.Fatalf("%v: a %v, b %v", err, o.has("a"), o.has("b"))
	}
	probe.during = func() { // recall is between its reading and its end
		probe.during = nil
		if err := o.Save(ctx, map[string]Own{"new": {}}); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(store.Delete(ctx, []string{"b"}), o.recall(ctx)); err != nil || !o.has("new") {
		t.Errorf("%v: what was stored meanwhile is ours: %v", err, o.has("new"))
	}
	if err := o.recall(ctx); err != nil || !o.has("a") || o.has("b") || !o.has("new") {
		t.Errorf("%v: a %v, b %v, new %v", err, o.has("a"), o.has("b"), o.has("new"))
	}
}

func (p *probingOverrides) Topics(ctx context.Context) ([]string, error) {
	names, err := p.MemoryOverrides.Topics(ctx)
	if p.during != nil {
		p.during()
	}
	return names, err
}

type probingOverrides struct {
	*MemoryOverrides
	own *ownTopics
	had bool
	err error

	during func() // called when Topics has read
}

func (p *probingOverrides) Save(ctx context.Context, all map[string]Own) error {
	p.had = p.own.has("new")
	if p.err != nil {
		return p.err
	}
	return p.MemoryOverrides.Save(ctx, all)
}

func (p *probingOverrides) Delete(ctx context.Context, topics []string) error {
	if p.err != nil {
		return p.err
	}
	return p.MemoryOverrides.Delete(ctx, topics)
}
