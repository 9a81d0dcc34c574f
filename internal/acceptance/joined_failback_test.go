package acceptance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/logdir"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// voyage moves a topic between two sites, joining the one that it goes to.
type voyage struct {
	t     *testing.T
	topic string
	parts int32
	us    map[*kafkatest.Cluster]*member
	// groups is how long a stop may copy offsets of groups. Default: 2 s.
	groups time.Duration
	// change of what joins. Default: none.
	change func(*broker.DestinationConfig)
	// alike makes logs of both sites the same where they need not be. Default: they are.
	alike func(logdir.Log)
	cut   []cluster.Span // in the way that is under way
}

// leg is one way of a voyage.
type leg struct {
	*running
	from, to *kafkatest.Cluster
	network  *kafkatest.Network
}

// sail mirrors from one site to the other until they are the same.
func (v *voyage) sail(name string, from, to *kafkatest.Cluster) *leg {
	v.t.Helper()
	v.cut = nil
	l := &leg{from: from, to: to, network: kafkatest.NewNetwork(v.t)}
	source := connect(v.t, from, func(c *kafka.Config) { c.Dial = l.network.Dial })
	var change []func(*broker.DestinationConfig)
	if v.change != nil {
		change = append(change, v.change)
	}
	l.running = run(v.t, name, source, v.us[to].destination(change...), mirror.Options{
		Topics: mirror.Topics{Include: []string{v.topic}}, Store: stateAt(v.t, to), Positions: stateAt(v.t, from),
		GroupTimeout: cmp.Or(v.groups, 2*time.Second),
		Events: mirror.Events{
			Truncated: func(e mirror.TruncatedEvent) { v.cut = append(v.cut, e.Span) },
			Groups:    func(e mirror.GroupsEvent) { v.t.Logf("%s: offsets of groups: %+v, %v", name, e.Report, e.Err) },
		},
	})
	complain(v.t, name, l.running)
	if err := l.Start(timeout(v.t, time.Minute), v.topic); err != nil { // it was stopped the last time
		v.t.Fatal(err)
	}
	for p, end := range from.Ends(v.t.Context(), v.t, v.topic) {
		if err := l.WaitMirrored(timeout(v.t, time.Minute), cluster.Partition{Topic: v.topic, Partition: int32(p)}, end-1); err != nil {
			v.t.Fatalf("%v\n%+v", err, l.Status().Worst)
		}
	}
	upTo(v.t, time.Minute, from, to, v.topic)
	alike := v.alike
	if alike == nil {
		alike = func(logdir.Log) {}
	}
	sameLogs(v.t, time.Minute, from, to, leaders(v.t, from, v.topic)[0], v.topic, v.parts, alike)
	return l
}

// shipped is what the source has sent, and what of it was records.
func (l *leg) shipped() (all, records int64) {
	for _, link := range l.network.Links(l.from.Bootstrap()...) {
		all += link.Bytes(kafkatest.Read)
	}
	return all, l.Status().Bytes
}

// land fails over: the source is out of reach where it is dead.
func (l *leg) land(topic string, dead bool) {
	l.t.Helper()
	act := l.Promote
	if dead {
		act = l.Stop
	}
	if err := act(timeout(l.t, time.Minute), topic); err != nil {
		l.t.Fatal(err)
	}
	l.end()
	if s := l.Status(); s.States[coordinator.StateStopped] != s.Partitions {
		l.t.Errorf("states are %v", s.States)
	}
}

// TestJoinedThrice: three failovers to a site that is joined, and failbacks to one that is.
// Each time the way breaks before the source has given its last records: in one epoch (E2)
// and in a new one that the other site has never heard of (E1). They are cut, on every
// replica, exactly; only what is new is shipped (E5), and logs are the same byte for byte.
func TestJoinedThrice(t *testing.T) {
	_, a := sites(t) // of a version that can be joined
	b := joinable(t, "4.4.0")
	v := &voyage{t: t, topic: "voyage", parts: 2, us: map[*kafkatest.Cluster]*member{
		a: {t: t, k: a, first: 140}, b: {t: t, k: b, first: 140},
	}}
	first, delta, tail := sized(4_000, 100_000), sized(100, 1_000), 30
	a.CreateTopic(t, v.topic, v.parts, 3, nil)
	a.Load(t.Context(), t, kafkatest.LoadSpec{Topic: v.topic, Partitions: v.parts, Records: first * int(v.parts), ValueSize: 1000, BatchBytes: 16 << 10})
	id := shaped(t, a, v.topic).ID
	for round := range 3 {
		note(t, a, v.topic, fmt.Sprint("there-", round), delta, 0, 1)
		there := v.sail("voyage-there", a, b)
		n := delta
		if round == 0 {
			n += first
		}
		v.bears(there, round, n, delta)
		for _, link := range there.network.Links(a.Bootstrap()...) {
			link.Blackhole(true)
		}
		if round == 1 {
			v.newEpoch(a)
		}
		lost := note(t, a, v.topic, "lost", tail, 0)[0][0].Offset
		there.land(v.topic, true)
		note(t, b, v.topic, fmt.Sprint("after-", round), delta, 0, 1)

		back := v.sail("voyage-back", b, a)
		v.bears(back, round, delta, delta)
		back.land(v.topic, false)
		if want := []cluster.Span{{From: lost, To: lost + int64(tail)}}; !slices.Equal(v.cut, want) {
			t.Errorf("round %d: cut were %v, want %v", round+1, v.cut, want)
		}
	}
	if now := shaped(t, a, v.topic).ID; now != id {
		t.Errorf("the topic is %v, was %v: it was made anew", now, id)
	}
	for _, us := range v.us {
		us.away()
	}
}

// TestJoinedEmptied: the source has lost everything to an unclean election, and has written
// other records at the same offsets, when the other site takes over (E3). Mirrored back, all of
// them go, on every replica, and what was lost comes back. In the long form.
func TestJoinedEmptied(t *testing.T) {
	for range sized(0, 1) {
		_, a := sites(t) // of a version that can be joined
		b := joinable(t, "4.4.0")
		v := &voyage{t: t, topic: "emptied", parts: 1, us: map[*kafkatest.Cluster]*member{
			a: {t: t, k: a, first: 150}, b: {t: t, k: b, first: 150},
		}}
		placed(t, a, v.topic, v.parts, 1, 2)
		a.Stop(2) // with nothing
		note(t, a, v.topic, "first", 300, 0)
		there := v.sail("emptied-there", a, b)
		for _, link := range there.network.Links(a.Bootstrap()...) {
			link.Blackhole(true)
		}
		unclean(t, a, v.topic)
		if at := note(t, a, v.topic, "instead", 50, 0)[0][0].Offset; at != 0 {
			t.Fatalf("the new leader goes on at %d: it is not empty", at)
		}
		a.Restart(1)
		there.land(v.topic, true)
		note(t, b, v.topic, "after", 20, 0)
		back := v.sail("emptied-back", b, a)
		back.land(v.topic, false)
		if want := []cluster.Span{{From: 0, To: 50}}; !slices.Equal(v.cut, want) {
			t.Errorf("cut were %v, want %v", v.cut, want)
		}
		for _, us := range v.us {
			us.away()
		}
	}
}

// bears checks what was shipped for n records in each partition, of 1 KB each: besides them
// the source shows, of each partition, a batch at some places where logs are compared, which
// has one round's records at most.
func (v *voyage) bears(l *leg, round, n, delta int) {
	v.t.Helper()
	all, records := l.shipped()
	least, batch := int64(n)*int64(v.parts)*900, int64(delta)*int64(v.parts)*1100
	v.t.Logf("round %d: %d records of 1 KB came in %d bytes, the source sent %d", round+1, n*int(v.parts), records, all)
	if most := least*12/10 + 4*batch + 200_000; all > most || records < least {
		v.t.Errorf("round %d: the source sent %d bytes, want at most %d, of which records were %d, want at least %d", round+1, all, most, records, least)
	}
}

// newEpoch has other replicas lead, so that there is a leader epoch the other site has not
// heard of.
func (v *voyage) newEpoch(c *kafkatest.Cluster) {
	v.t.Helper()
	cl := c.Client(v.t)
	was := leaders(v.t, c, v.topic)
	kafkatest.Eventually(v.t, 30*time.Second, func(ctx context.Context) error {
		m, err := metadataOf(ctx, cl, v.topic)
		if err == nil {
			err = rotate(ctx, cl, m)
		}
		if err != nil {
			return err
		}
		if now, err := leadersNow(ctx, cl, v.topic); err != nil || slices.Equal(now, was) {
			return fmt.Errorf("leaders are %v still, %v", now, err)
		}
		return nil
	})
}
