package acceptance

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// The topics of TestUnplanned: two that lose records in partitions 0 and 2, of which one
// is copied again and one cut, and one that loses nothing.
const lossy, lucky, cutting = "unplanned-lossy", "unplanned-lucky", "unplanned-cut"

// disaster is a source that has died and what was lost with it.
type disaster struct {
	t              *testing.T
	a, b           *kafkatest.Cluster
	stateA, stateB *coordinator.Memory
	n              int
	cut            int64             // first offset that was lost
	tail           map[int32][]noted // of the topic that is cut
	tails          map[int32][]noted // what was lost, by partition
	was            map[string]shape
	back           func() // the source comes back
}

func (d *disaster) options() mirror.Options {
	return mirror.Options{Topics: mirror.Topics{Include: []string{lossy, lucky, cutting}}}
}

func (d *disaster) shapes() map[string]shape {
	return map[string]shape{lossy: shaped(d.t, d.a, lossy), lucky: shaped(d.t, d.a, lucky), cutting: shaped(d.t, d.a, cutting)}
}

// TestUnplanned: the way between two sites breaks, then the source dies with
// acknowledged records that were not mirrored (E2). The destination takes over while
// the source is dead. When that is back, its tails are saved record by record, the one
// topic that has some is copied again, and groups find their places; the other topic
// is left as it is. Then a new mirror goes the first way again, with the delta.
func TestUnplanned(t *testing.T) {
	d := &disaster{t: t, stateA: coordinator.NewMemory(), stateB: coordinator.NewMemory(), n: sized(300, 20_000)}
	d.a, d.b = sites(t)
	d.strike()
	for _, topic := range []string{lossy, lucky, cutting} {
		if at := note(t, d.b, topic, "after", d.n, 0, 1, 2)[0][0].Offset; at < d.cut {
			t.Fatalf("%s: the application's first record got offset %d, mirrored was up to %d", topic, at, d.cut)
		}
	}
	d.back()
	d.home()
	if !strings.HasPrefix(sourceVersion(), "2.") { // those cannot be joined
		d.homeByCut()
	}
	if at := note(t, d.a, lossy, "home", 10, 0, 1, 2)[0][0].Offset; at <= d.cut {
		t.Errorf("the application at home goes on at %d, lost was from %d on", at, d.cut)
	}
	// To the first mirror the topic is another one now.
	o := d.options()
	o.Topics.Exclude = []string{cutting}
	o.Store, o.Positions = d.stateB, d.stateA
	anew := run(t, "unplanned-anew", connect(t, d.a), connect(t, d.b), o)
	last := d.a.Ends(t.Context(), t, lossy)[0] - 1
	if err := anew.WaitMirrored(timeout(t, time.Minute), cluster.Partition{Topic: lossy}, last); err != nil {
		t.Fatalf("%v: %+v", err, anew.Status().Worst)
	}
	upTo(t, time.Minute, d.a, d.b, lossy, lucky)
	if s := anew.Status(); s.Bytes > 60_000 {
		t.Errorf("%d bytes shipped for 30 records of 1 KB", s.Bytes)
	}
}

// strike mirrors, breaks the way, has the source take records that are not mirrored,
// kills it, and stops the mirror.
func (d *disaster) strike() {
	t, a, b := d.t, d.a, d.b
	for _, topic := range []string{lossy, lucky, cutting} {
		a.CreateTopic(t, topic, 3, 2, map[string]string{"segment.bytes": "1048576", "min.insync.replicas": "1"})
		note(t, a, topic, "before", d.n, 0, 1, 2)
	}
	network := kafkatest.NewNetwork(t)
	o := d.options()
	o.Store, o.Positions, o.GroupTimeout = d.stateB, d.stateA, 2*time.Second
	there := run(t, "unplanned-ab", connect(t, a, func(c *kafka.Config) { c.Dial = network.Dial }), connect(t, b), o)
	upTo(t, time.Minute, a, b, lossy, lucky, cutting)
	for _, l := range network.Links(a.Bootstrap()...) {
		l.Blackhole(true)
	}
	d.tails = note(t, a, lossy, "lost", d.n/3, 0, 2)
	d.cut = d.tails[0][0].Offset
	d.tail = note(t, a, cutting, "lost", d.n/3, 0, 2)
	commit(t, a, "idle-inside", cutting, 0, d.cut/2)
	commit(t, a, "idle-tail", cutting, 2, d.cut+int64(d.n/6))
	commit(t, a, "idle-inside", lossy, 0, d.cut/2)
	commit(t, a, "idle-inside", lossy, 1, d.cut/3)
	commit(t, a, "idle-inside", lucky, 0, d.cut/4)
	commit(t, a, "idle-tail", lossy, 0, d.cut+int64(d.n/6)) // it has read lost records
	commit(t, a, "idle-tail", lossy, 2, d.cut+int64(d.n/6))
	d.was = d.shapes()
	d.back = died(t, a)
	if err := there.Stop(timeout(t, 30*time.Second), lossy, lucky, cutting); err != nil {
		t.Fatalf("stop with a dead source: %v", err)
	}
	there.end()
}

// home mirrors back, looks at all that is promised, and moves over.
func (d *disaster) home() {
	t, a, b, dir := d.t, d.a, d.b, d.t.TempDir()
	o := d.options()
	o.Topics.Exclude = []string{cutting}
	o.Store, o.Positions, o.Salvage, o.SyncInterval = d.stateA, d.stateB, mirror.SalvageTo(dir), time.Second
	m := run(t, "unplanned-ba", connect(t, b), connect(t, a, rebuilding), o)
	for p, end := range b.Ends(t.Context(), t, lossy) {
		err := m.WaitMirrored(timeout(t, 2*time.Minute), cluster.Partition{Topic: lossy, Partition: int32(p)}, end-1)
		if err != nil {
			t.Fatal(err)
		}
	}
	upTo(t, time.Minute, b, a, lossy, lucky)
	for p, tail := range d.tails {
		sameRecords(t, "the tail that was saved", tail, salvaged(t, dir, "unplanned-ba", cluster.Partition{Topic: lossy, Partition: p}, d.cut))
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*", "*", "*")); len(files) != len(d.tails) {
		t.Errorf("saved was %v, only %d partitions had a tail", files, len(d.tails))
	}
	madeAnew(t, a, lossy, d.was[lossy])
	if now := d.shapes(); now[lucky] != d.was[lucky] {
		t.Errorf("topic %s is %v, was %v: it had nothing to cut", lucky, now[lucky], d.was[lucky])
	}
	stands(t, a, "idle-inside", lossy, 0, d.cut/2)
	stands(t, a, "idle-inside", lossy, 1, d.cut/3)
	stands(t, a, "idle-inside", lucky, 0, d.cut/4)
	stands(t, a, "idle-tail", lossy, 0, d.cut) // what it read is gone, what comes it has not read
	stands(t, a, "idle-tail", lossy, 2, d.cut)
	if err := m.Promote(timeout(t, time.Minute), lossy, lucky); err != nil {
		t.Fatal(err)
	}
	m.end()
}

// homeByCut mirrors the third topic back: its tails are saved and cut, it is the same topic
// after it, and only the delta comes.
func (d *disaster) homeByCut() {
	t, a, b, dir := d.t, d.a, d.b, d.t.TempDir()
	o := d.options()
	o.Topics.Include = []string{cutting}
	o.Store, o.Positions, o.Salvage, o.SyncInterval = d.stateA, d.stateB, mirror.SalvageTo(dir), time.Second
	m := run(t, "unplanned-ba-cut", connect(t, b), connect(t, a, cutBy(t, a)), o)
	for p, end := range b.Ends(t.Context(), t, cutting) {
		if err := m.WaitMirrored(timeout(t, time.Minute), cluster.Partition{Topic: cutting, Partition: int32(p)}, end-1); err != nil {
			t.Fatalf("%v: %+v", err, m.Status().Worst)
		}
	}
	upTo(t, time.Minute, b, a, cutting)
	for p, tail := range d.tail {
		sameRecords(t, "the tail that was saved", tail, salvaged(t, dir, "unplanned-ba-cut", cluster.Partition{Topic: cutting, Partition: p}, tail[0].Offset))
	}
	if now := shaped(t, a, cutting); now != d.was[cutting] {
		t.Errorf("topic %s is %v, was %v", cutting, now, d.was[cutting])
	}
	s := m.Status()
	if most := int64(3 * d.n * 1100); s.Bytes > most || s.Truncated != int64(2*(d.n/3)) {
		t.Errorf("%d bytes shipped for %d records of 1 KB, %d offsets cut of %d", s.Bytes, 3*d.n, s.Truncated, 2*(d.n/3))
	}
	stands(t, a, "idle-inside", cutting, 0, d.cut/2)
	stands(t, a, "idle-tail", cutting, 2, d.tail[2][0].Offset)
	if err := m.Promote(timeout(t, time.Minute), cutting); err != nil {
		t.Fatal(err)
	}
	note(t, a, cutting, "home", 10, 0, 1, 2)
	m.end()
}
