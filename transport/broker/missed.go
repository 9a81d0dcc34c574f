package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Missed are cuts that replicas of a topic have not made, because they were away: by
// partition and by replica, where the log is to be cut. Whoever leads next has them made.
type Missed struct {
	Topic cluster.TopicID           `json:"id"`
	Cuts  map[int32]map[int32]int64 `json:"cuts"`
}

func (m Missed) clone() Missed {
	cuts := make(map[int32]map[int32]int64, len(m.Cuts))
	for p, at := range m.Cuts {
		cuts[p] = maps.Clone(at)
	}
	return Missed{m.Topic, cuts}
}

func cloneMissed(all map[string]Missed) map[string]Missed {
	out := make(map[string]Missed, len(all))
	for topic, m := range all {
		out[topic] = m.clone()
	}
	return out
}

// replaceMissed puts topics' cuts in the place of what there is.
func replaceMissed(there, all map[string]Missed) {
	for topic, m := range all {
		if there[topic] = m.clone(); len(m.Cuts) == 0 {
			delete(there, topic)
		}
	}
}

// missed are the cuts that are stored, as far as this process knows: it is the only one
// that stores any as long as it leads.
type missed struct {
	store Overrides
	turn  chan struct{} // taken by who asks the store, or has the fields below changed
	since time.Time     // when it was last asked for; needs the turn
	// unsure: storing has failed, and it may be stored all the same. It needs the turn.
	unsure bool

	mu  sync.Mutex
	all map[string]Missed
}

func newMissed(store Overrides) *missed {
	return &missed{store: store, turn: make(chan struct{}, 1), all: make(map[string]Missed)}
}

func (m *missed) lock(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *missed) unlock() { <-m.turn }

// load asks for what is stored, unless that was done since a moment. It needs the turn.
func (m *missed) load(ctx context.Context, since time.Time) error {
	if m.since.After(since) {
		return nil
	}
	now := time.Now()
	all, err := m.store.Missed(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all, m.since = all, now
	return nil
}

// refresh asks for what is stored by others: who takes over while the store does not answer has to
// do with what is known.
func (m *missed) refresh(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	return m.load(ctx, time.Now())
}

// sure asks again where storing has failed, and reports that it did.
func (m *missed) sure(ctx context.Context) (again bool, err error) {
	if err := m.lock(ctx); err != nil {
		return false, err
	}
	defer m.unlock()
	if !m.unsure {
		return false, nil
	}
	if err := m.load(ctx, time.Now()); err != nil {
		return false, err
	}
	m.unsure = false
	return true, nil
}

// of gives the cuts of a partition, as they were stored at a moment or later; with an error
// those that were known before.
func (m *missed) of(ctx context.Context, topic string, id metalog.PartitionID, since time.Time) (map[int32]int64, error) {
	err := m.lock(ctx)
	if err == nil {
		err = m.load(ctx, since)
		m.unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if stored := m.all[topic]; stored.Topic == id.Topic {
		return maps.Clone(stored.Cuts[id.Partition]), err
	}
	return nil, err
}

// named is a partition with its topic's name.
type named struct {
	topic string
	id    metalog.PartitionID
}

// put has other cuts in the place of those of partitions. Without any they have none.
func (m *missed) put(ctx context.Context, now map[named]map[int32]int64) error {
	if len(now) == 0 {
		return nil
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	if err := m.load(ctx, time.Time{}); err != nil {
		return fmt.Errorf("which cuts replicas have missed: %w", err)
	}
	changed := m.with(now)
	if len(changed) == 0 {
		return nil
	}
	if err := m.store.SaveMissed(ctx, changed); err != nil {
		m.unsure, m.since = true, time.Time{}
		return fmt.Errorf("storing which cuts replicas have missed: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	replaceMissed(m.all, changed)
	return nil
}

// with are the topics that are others with the cuts of partitions replaced.
func (m *missed) with(now map[named]map[int32]int64) map[string]Missed {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := make(map[string]Missed)
	for p, cuts := range now {
		next, begun := changed[p.topic]
		if !begun {
			next = m.all[p.topic].clone()
		}
		if next.Topic != p.id.Topic { // it was made anew
			next = Missed{Topic: p.id.Topic, Cuts: make(map[int32]map[int32]int64)}
		}
		if next.Cuts[p.id.Partition] = cuts; len(cuts) == 0 {
			delete(next.Cuts, p.id.Partition)
		}
		changed[p.topic] = next
	}
	maps.DeleteFunc(changed, func(topic string, next Missed) bool { return len(next.Cuts) == 0 && len(m.all[topic].Cuts) == 0 })
	return changed
}

// known are the partitions that have cuts stored.
func (m *missed) known() map[named]map[int32]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[named]map[int32]int64)
	for topic, stored := range m.all {
		for p, cuts := range stored.Cuts {
			out[named{topic, metalog.PartitionID{Topic: stored.Topic, Partition: p}}] = maps.Clone(cuts)
		}
	}
	return out
}

// missedBy begins to find out which cuts replicas have missed. Where the store does not
// answer in time, what is known has to do.
func (d *Destination) missedBy(ctx context.Context, name cluster.Partition, id metalog.PartitionID) (wait func() map[int32]int64) {
	found, began := make(chan map[int32]int64, 1), time.Now()
	go func() {
		bounded, cancel := context.WithTimeout(ctx, recalling)
		defer cancel()
		cuts, err := d.missed.of(bounded, name.Topic, id, began)
		if err != nil && ctx.Err() == nil {
			d.cfg.Logger.Warn("not known whether a replica has missed a cut", "topic", name.Topic, "partition", name.Partition, "error", err)
		}
		found <- cuts
	}()
	return func() map[int32]int64 {
		cuts := <-found
		found <- cuts
		return cuts
	}
}

// noteMissed stores what replicas owe after cuts. The cut is not done before: from then on
// the log grows, and may come to look as it did.
func (d *Destination) noteMissed(ctx context.Context, leds []*lead.Partition, errs []error) {
	stored, now := d.missed.known(), make(map[named]map[int32]int64)
	var at []int
	for i, led := range leds {
		if led == nil || errs[i] != nil {
			continue
		}
		p, owing := nameOf(led), led.Owing()
		if len(owing) == 0 && len(stored[p]) == 0 {
			continue
		}
		for replica, offset := range owing {
			d.cfg.Logger.Warn("a replica is away and has to cut when it is back", "topic", p.topic, "partition", p.id.Partition,
				"broker", replica, "from", offset)
		}
		now[p], at = owing, append(at, i)
	}
	if err := d.missed.put(ctx, now); err != nil {
		for _, i := range at {
			errs[i] = err
		}
		return
	}
	for _, i := range at {
		leds[i].Served(slices.Collect(maps.Keys(now[nameOf(leds[i])])))
	}
}

func nameOf(led *lead.Partition) named {
	topic, name := led.ID()
	return named{name.Topic, metalog.PartitionID{Topic: topic, Partition: name.Partition}}
}

// keepMissed forgets stored cuts when they are made.
func (d *Destination) keepMissed(ctx context.Context) error {
	for ; ctx.Err() == nil; pause(ctx, tickEvery) {
		d.recount(ctx)
		stored := d.missed.known()
		if len(stored) == 0 {
			continue
		}
		image, now := d.m.log.Image(), make(map[named]map[int32]int64)
		for p, cuts := range stored {
			if left, some := d.leftOf(image, p, cuts); some {
				now[p] = left
			}
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		err := d.missed.put(bounded, now)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				d.cfg.Logger.Info("cuts that were made are still noted", "error", err)
			}
			continue
		}
		for p, left := range now {
			if h := d.byID(p.id); h != nil {
				if led, err := h.lead(); err == nil {
					led.Served(slices.Collect(maps.Keys(left)))
				}
			}
		}
	}
	return nil
}

// recount has replicas count that owe nothing by what is stored, after storing has failed.
func (d *Destination) recount(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, recalling)
	defer cancel()
	if again, _ := d.missed.sure(bounded); !again {
		return
	}
	stored := d.missed.known()
	for _, h := range d.allLed() {
		if led, err := h.lead(); err == nil {
			led.Served(slices.Collect(maps.Keys(stored[nameOf(led)])))
		}
	}
}

// leftOf are the cuts of a partition that are not made; some, that others are.
func (d *Destination) leftOf(image metalog.Image, p named, cuts map[int32]int64) (left map[int32]int64, some bool) {
	if _, ok := image.Partition(p.id); !ok {
		return nil, image.Version > 0 && d.hasTurn()
	}
	h := d.byID(p.id)
	if h == nil {
		return nil, false
	}
	led, err := h.lead()
	if err != nil {
		return nil, false
	}
	done := led.Cut(slices.Collect(maps.Keys(cuts)))
	left = maps.Clone(cuts)
	for _, replica := range done {
		delete(left, replica)
	}
	return left, len(done) > 0
}
