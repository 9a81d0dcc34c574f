package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Availability is what clients have of mirror topics when no process of ours is alive.
type Availability uint8

const (
	// Strict: nobody leads them, so nobody can write to them, and nobody reads.
	Strict Availability = iota
	// Open: real brokers are in the in-sync set and one of them is elected, so that readers
	// go on. Then the topics are writable too. When we are back they are compared with the
	// source and taken again; what was written meanwhile is a foreign write. What counts as
	// written is on every replica in sync, so one that is slow slows all down until it is
	// out of the set.
	Open
)

func (a Availability) String() string {
	if int(a) < len(availabilities) {
		return availabilities[a]
	}
	return fmt.Sprintf("Availability(%d)", a)
}

var availabilities = []string{"strict", "open"}

// ParseAvailability is the reverse of String.
func ParseAvailability(text string) (Availability, error) {
	if n := slices.Index(availabilities, text); n >= 0 {
		return Availability(n), nil
	}
	return Strict, fmt.Errorf("%q is neither strict nor open", text)
}

const (
	// openEvery is how often it is looked who may be in sync.
	openEvery = 500 * time.Millisecond
	// openLags is after how long a replica is out that lacks what a quorum had then.
	openLags = 5 * time.Second
	// openMoment bounds a request: meanwhile our epochs are not raised.
	openMoment = 2 * time.Second
)

// mark is what a quorum held of a partition at some time.
type mark struct {
	quorum int64
	at     time.Time
}

// keepOpen has the real replicas that hold all there is in the in-sync sets of what we
// lead, and no others.
func (d *Destination) keepOpen(ctx context.Context) error {
	marks := make(map[metalog.PartitionID]mark)
	for ; ctx.Err() == nil; pause(ctx, openEvery) {
		want := d.openSets(marks, time.Now())
		for some := range slices.Chunk(byTopic(d.m.log.Image(), want), maxAdopt) {
			sets := make(map[metalog.PartitionID][]int32, len(some))
			for _, id := range some {
				sets[id] = want[id]
			}
			bounded, cancel := context.WithTimeout(ctx, openMoment)
			err := failedWith(d.control.widen(bounded, sets))
			cancel()
			if err != nil && ctx.Err() == nil {
				d.cfg.Logger.Info("real brokers cannot take over yet", "error", err)
			}
		}
	}
	return nil
}

// openSets are the real brokers that should be in sync, of partitions where others are.
func (d *Destination) openSets(marks map[metalog.PartitionID]mark, now time.Time) map[metalog.PartitionID][]int32 {
	image, us := d.m.log.Image(), d.control.party()
	want, seen := make(map[metalog.PartitionID][]int32), make(map[metalog.PartitionID]bool)
	for _, h := range d.allLed() {
		h.mu.Lock()
		led, id := h.led, h.id
		h.mu.Unlock()
		p, ok := image.Partition(id)
		if led == nil || !ok || p.Leader != us.Broker || !d.own.has(h.name.Topic) {
			continue
		}
		isr := us.reals(p.ISR)
		led.InSync(isr) // before others are let in
		s := led.State()
		if s.Phase != lead.Leading {
			continue
		}
		seen[id] = true
		m, known := marks[id]
		late := known && now.Sub(m.at) >= openLags
		stay := staying(s, isr, m, late)
		if !known || late {
			marks[id] = mark{s.Quorum, now}
		}
		coming := slices.DeleteFunc(living(image, us.reals(p.Replicas)), func(r int32) bool { return slices.Contains(isr, r) })
		if set := append(stay, led.Admit(coming)...); !sameSet(set, isr) {
			want[id] = set
		}
	}
	for id := range marks {
		if !seen[id] {
			delete(marks, id)
		}
	}
	return want
}

// staying are those of an in-sync set that stay in it: they fetch, and when it is late they
// hold what a quorum held at the mark. It is pure.
func staying(s lead.State, isr []int32, m mark, late bool) (stay []int32) {
	for _, f := range s.Followers {
		lags := late && f.Known && f.Holds < m.quorum
		if slices.Contains(isr, f.Replica) && f.Live && !lags {
			stay = append(stay, f.Replica)
		}
	}
	return stay
}

// widen makes real brokers of the in-sync sets of partitions that we lead those given.
func (c *control) widen(ctx context.Context, want map[metalog.PartitionID][]int32) map[metalog.PartitionID]error {
	ids, release := c.claims.some(byTopic(c.m.log.Image(), want))
	defer release()
	return c.drive(ctx, ids, func(us party, i metalog.Image, id metalog.PartitionID) act { return decideWiden(us, i, id, want[id]) })
}

func decideWiden(us party, i metalog.Image, id metalog.PartitionID, reals []int32) act {
	p, ok := i.Partition(id)
	if !ok || p.Leader != us.Broker {
		return end(nil)
	}
	isr := slices.DeleteFunc(slices.Clone(p.ISR), us.real)
	for _, r := range living(i, reals) {
		if slices.Contains(p.Replicas, r) {
			isr = append(isr, r)
		}
	}
	switch {
	case sameSet(isr, p.ISR):
		return end(nil)
	case !us.able():
		return act{}
	}
	return act{verb: syncs, to: isr}
}

// fallen are partitions that real brokers came to lead while a mirror was at work on them.
// It is safe for concurrent use.
type fallen struct {
	news chan struct{} // capacity 1
	mu   sync.Mutex
	list []cluster.Partition
}

func newFallen() *fallen { return &fallen{news: make(chan struct{}, 1)} }

func (f *fallen) put(p cluster.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, p)
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// Lost waits until a real broker leads partitions that are being mirrored, after we were
// gone for longer than our session or an operator had it elected, and gives those.
func (d *Destination) Lost(ctx context.Context) ([]cluster.Partition, error) {
	select {
	case <-d.fallen.news:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.fallen.mu.Lock()
	defer d.fallen.mu.Unlock()
	out := d.fallen.list
	d.fallen.list = nil
	return out, nil
}
