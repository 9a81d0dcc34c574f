package mirror_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// writer appends to all partitions until stop is called, and gives the last
// offsets.
func writer(t testing.TB, p *pair, topic string, parts int32) (stop func() map[cluster.Partition]int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.a.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	last := map[cluster.Partition]int64{}
	done := make(chan error, 1)
	go func() {
		defer cl.Close()
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			var records []*kgo.Record
			for part := range parts {
				records = append(records, &kgo.Record{Topic: topic, Partition: part, Value: fmt.Appendf(nil, "record %d of %d", n, part)})
			}
			for _, r := range cl.ProduceSync(context.Background(), records...) {
				if r.Err != nil {
					done <- r.Err
					return
				}
				last[at(topic, r.Record.Partition)] = r.Record.Offset
			}
			<-tick.C
		}
		done <- nil
	}()
	return func() map[cluster.Partition]int64 {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return last
	}
}

func keys(m map[cluster.Partition]int64) []cluster.Partition {
	var ps []cluster.Partition
	for p := range m {
		ps = append(ps, p)
	}
	return ps
}

// TestC11_1_Restarts: new mirrors one after the other, each ended at a random
// moment, some with the net cut at the end, leave identical logs.
func TestC11_1_Restarts(t *testing.T) {
	p := newPair(t, 3, "orders")
	stop := writer(t, p, "orders", 3)
	for i := range 25 {
		// New clients too: nothing is remembered but by the clusters.
		r := start(t, newMirror(t, connect(t, p.a, p.net), connect(t, p.b, p.net), quick("orders")))
		after := time.NewTimer(time.Duration(rand.IntN(150)) * time.Millisecond)
		<-after.C
		if i%3 == 0 {
			for _, l := range p.toDestination() {
				l.Cut()
			}
		}
		r.stop(t)
	}
	last := stop()
	r := run(t, p, quick("orders"))
	mirrored(t, r, last)
	equal(t, p.source, p.destination, keys(last)...)
}

// TestC11_3_TwoEngines: two processes run one mirror at once. One of them goes on
// at any time, the other may be fenced; when one ends, the other can take over.
// The logs are identical, none of them has anything twice.
func TestC11_3_TwoEngines(t *testing.T) {
	p := newPair(t, 3, "orders")
	stop := writer(t, p, "orders", 3)
	one := run(t, p, quick("orders"))
	one.progress(t, at("orders", 0), 50)
	two := start(t, newMirror(t, connect(t, p.a, p.net), connect(t, p.b, p.net), quick("orders")))
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if n := two.Status().Partitions; n != 3 {
			return fmt.Errorf("the second one has %d partitions", n)
		}
		return nil
	})
	for part := range int32(3) {
		p.grows(t, at("orders", part), 300)
	}
	one.stop(t)
	for _, part := range two.Status().Worst {
		if part.State == coordinator.StateFailed && !part.Retriable {
			t.Errorf("%v has failed for good: %s", part.Partition, part.Reason)
		}
	}
	two.progress(t, at("orders", 0), 50)
	last := stop()
	mirrored(t, two, last)
	equal(t, p.source, p.destination, keys(last)...)
}

// grows waits until the destination itself has n more records than now.
func (p *pair) grows(t testing.TB, q cluster.Partition, n int64) {
	t.Helper()
	from := p.b.PartitionInfo(q.Topic, q.Partition).HighWatermark
	kafkatest.Eventually(t, patience, func(context.Context) error {
		if now := p.b.PartitionInfo(q.Topic, q.Partition).HighWatermark; now < from+n {
			return fmt.Errorf("%v went from %d to %d", q, from, now)
		}
		return nil
	})
}

// progress waits until the destination has n more records than now, as a mirror
// sees it.
func (r *running) progress(t testing.TB, p cluster.Partition, n int64) {
	t.Helper()
	from := int64(-1)
	kafkatest.Eventually(t, patience, func(context.Context) error {
		s, ok := r.partition(p)
		if ok && s.DestinationEnd >= 0 && from < 0 {
			from = s.DestinationEnd
		}
		if from < 0 || s.DestinationEnd < from+n {
			return fmt.Errorf("from %d: %s", from, r.describe(p))
		}
		return nil
	})
}

// TestTwoMirrors: several mirrors in a process, which share clients of clusters:
// A to B twice with different topics, and B to C, where B is destination of one and
// source of the other (a chain).
func TestTwoMirrors(t *testing.T) {
	p := newPair(t, 2, "orders", "payments")
	c := newCluster(t, "C")
	third := connect(t, c, p.net)
	o := quick("orders")
	first := start(t, newMirror(t, p.source, p.destination, o))
	o = quick("payments")
	second := start(t, newMirror(t, p.source, p.destination, o))
	o = quick("orders", "payments")
	chain := start(t, newMirror(t, p.destination, third, o))
	last := map[cluster.Partition]int64{}
	load := func() {
		for part := range int32(2) {
			for _, topic := range []string{"orders", "payments"} {
				last[at(topic, part)] = write(t, p.a, topic, part, 100) + 99
			}
		}
	}
	load()
	mirrored(t, chain, last)
	if got := topicNames(first.Mirror); len(got) != 1 || got[0] != "orders" {
		t.Errorf("first has %v", got)
	}
	if got := topicNames(second.Mirror); len(got) != 1 || got[0] != "payments" {
		t.Errorf("second has %v", got)
	}
	first.stop(t) // the others go on, over the same clients
	load()
	for part := range int32(2) {
		mirrored(t, second, map[cluster.Partition]int64{at("payments", part): last[at("payments", part)]})
		mirrored(t, chain, map[cluster.Partition]int64{at("payments", part): last[at("payments", part)]})
	}
	if s, _ := first.partition(orders); s.DestinationEnd != 100 {
		t.Errorf("the first one went on: %s", show(s))
	}
	equal(t, p.source, third, at("payments", 0), at("payments", 1))
}

// TestBothWays: two mirrors that are source and destination of each other, each
// with topics of its own.
func TestBothWays(t *testing.T) {
	p := newPair(t, 1, "east")
	if err := p.b.CreateTopic("west", 1, nil); err != nil {
		t.Fatal(err)
	}
	out := run(t, p, quick("east"))
	back := start(t, newMirror(t, p.destination, p.source, quick("west")))
	write(t, p.a, "east", 0, 100)
	write(t, p.b, "west", 0, 50)
	mirrored(t, out, map[cluster.Partition]int64{at("east", 0): 99})
	mirrored(t, back, map[cluster.Partition]int64{at("west", 0): 49})
	equal(t, p.source, p.destination, at("east", 0), at("west", 0))
	out.stop(t)
	write(t, p.b, "west", 0, 50)
	mirrored(t, back, map[cluster.Partition]int64{at("west", 0): 99})
}
