package acceptance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	statekafka "github.com/clustermirror/mirror/store/kafka"
)

// stateAt opens the state of the mirrors into a cluster, which lies in that cluster.
func stateAt(t *testing.T, c *kafkatest.Cluster) *statekafka.Store {
	t.Helper()
	s, err := statekafka.New(statekafka.Config{Bootstrap: c.Bootstrap(), Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestFailbackThrice: a planned failover and a failback, three times in a row, with
// records of applications on both sides (E5). Only the delta is shipped each time,
// the logs are equal, and a group that moves along reads every record once.
func TestFailbackThrice(t *testing.T) {
	a, b := sites(t)
	const topic, group, parts = "thrice", "moves-along", 3
	initial, delta := sized(6_000, 200_000), sized(100, 1_000)
	a.CreateTopic(t, topic, parts, 3, nil)
	all := []int32{0, 1, 2}
	want, got := map[int32][]noted{}, map[int32][]noted{}
	write := func(c *kafkatest.Cluster, who string, n int) {
		for p, records := range note(t, c, topic, who, n, all...) {
			want[p] = append(want[p], records...)
		}
	}
	read := func(c *kafkatest.Cluster, n int) {
		for _, r := range consume(t, c, group, topic, n) {
			got[r.Partition] = append(got[r.Partition], r)
		}
	}
	write(a, "first", initial)
	read(a, parts*delta/2) // the group stays behind: its place is inside the log
	shipped := planned(t, "thrice-ab", a, b, topic)
	if least := int64(parts * initial * 900); shipped < least {
		t.Fatalf("%d bytes shipped at first, want at least %d: the count is of no use", shipped, least)
	}
	for round := range 3 {
		for _, leg := range []struct {
			name     string
			from, to *kafkatest.Cluster
		}{{"thrice-ba", b, a}, {"thrice-ab", a, b}} {
			read(leg.from, parts*delta/2)
			write(leg.from, fmt.Sprintf("%s-%d", leg.name, round), delta)
			read(leg.from, parts*delta/2)
			shipped := planned(t, leg.name, leg.from, leg.to, topic)
			t.Logf("round %d, %s: %d bytes shipped for %d records of 1 KB", round+1, leg.name, shipped, parts*delta)
			if most := int64(parts*delta*1100 + 10_000); shipped > most || shipped < int64(parts*delta*900) {
				t.Errorf("round %d, %s: %d bytes shipped, want at most %d: that is no delta", round+1, leg.name, shipped, most)
			}
		}
	}
	read(b, parts*(initial+6*delta)-len(got[0])-len(got[1])-len(got[2]))
	for _, p := range all {
		sameRecords(t, fmt.Sprintf("partition %d, read by a group on the move", p), want[p], got[p])
	}
}

// planned mirrors a topic until both logs are equal and moves over. It gives the
// bytes that were shipped. Each cluster holds the state of the mirrors into it.
func planned(t *testing.T, name string, from, to *kafkatest.Cluster, topic string) int64 {
	t.Helper()
	m := run(t, name, connect(t, from), connect(t, to), mirror.Options{
		Topics: mirror.Topics{Include: []string{topic}}, Store: stateAt(t, to), Positions: stateAt(t, from),
	})
	if err := m.Start(t.Context(), topic); err != nil { // it was stopped at the last failover
		t.Fatal(err)
	}
	if err := m.WaitMirrored(timeout(t, time.Minute), cluster.Partition{Topic: topic}, from.Ends(t.Context(), t, topic)[0]-1); err != nil {
		t.Fatalf("%v\n%+v", err, m.Status().Worst)
	}
	upTo(t, time.Minute, from, to, topic)
	shipped := m.Status().Bytes
	if err := m.Promote(timeout(t, time.Minute), topic); err != nil {
		t.Fatal(err)
	}
	if s := m.Status(); s.Truncated > 0 || s.States[coordinator.StateStopped] != s.Partitions {
		t.Errorf("%s: %d offsets were cut, states %v", name, s.Truncated, s.States)
	}
	m.end()
	return shipped
}

// TestLoop: a mirror the other way that is started while the first is at work is
// refused, and so is one that closes a ring of three. Nothing is written.
func TestLoop(t *testing.T) {
	a, b := sites(t)
	c := destination(t)
	const topic, parts = "loop", 2
	a.CreateTopic(t, topic, parts, 3, nil)
	note(t, a, topic, "app", 50, 0, 1)
	stateB, stateC := coordinator.NewMemory(), coordinator.NewMemory()
	include := mirror.Topics{Include: []string{topic}}
	ab := run(t, "loop-ab", connect(t, a), connect(t, b), mirror.Options{Topics: include, Store: stateB})
	upTo(t, time.Minute, a, b, topic)
	bc := run(t, "loop-bc", connect(t, b), connect(t, c), mirror.Options{Topics: include, Store: stateC, Positions: stateB})
	upTo(t, time.Minute, b, c, topic)

	before := fmt.Sprint(ends(t, a, topic))
	for _, back := range []struct {
		name      string
		from      *kafkatest.Cluster
		positions coordinator.Positions
		want      error
	}{{"loop-ba", b, stateB, mirror.ErrActive}, {"loop-ca", c, stateC, mirror.ErrLoop}} {
		m := run(t, back.name, connect(t, back.from), connect(t, a), mirror.Options{Topics: include, Positions: back.positions})
		e := m.event(30*time.Second, "refused", failed)
		if !errors.Is(e.Err, back.want) {
			t.Errorf("%s: refused with %v, want %v", back.name, e.Err, back.want)
		}
		t.Logf("%s: %v", back.name, e.Err)
		m.end()
		if now := fmt.Sprint(ends(t, a, topic)); now != before {
			t.Errorf("%s: the first cluster's ends were %s, are %s", back.name, before, now)
		}
	}
	note(t, a, topic, "later", 50, 0, 1)
	upTo(t, time.Minute, a, b, topic)
	upTo(t, time.Minute, b, c, topic)
	for _, m := range []*running{ab, bc} {
		if s := m.Status(); s.States[coordinator.StateMirroring] != parts || s.Health != "ok" {
			t.Errorf("%s: %v, %s", s.Mirror, s.States, strings.TrimSpace(fmt.Sprint(s.Worst)))
		}
	}
}
