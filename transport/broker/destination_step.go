package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// keepStep keeps what we lead in step with the metadata log and with time.
func (d *Destination) keepStep(ctx context.Context) error {
	var opening sync.WaitGroup
	defer opening.Wait()
	version, self, moved := uint64(0), int32(-1), false
	recalled := time.Now()
	for next := time.Now().Add(tickEvery); ctx.Err() == nil; {
		bounded, cancel := context.WithDeadline(ctx, next)
		image, delta, err := d.m.log.Next(bounded, version)
		cancel()
		if now := d.m.Self().Broker; now != self || version == 0 {
			self, delta.All = now, true
		} else if err != nil {
			delta = metalog.Delta{}
		}
		if image.Version > 0 && self >= 0 {
			version = image.Version
			d.step(ctx, &opening, image, delta)
			d.mu.Lock()
			d.seen = image
			d.mu.Unlock()
			if ids := d.strange(image, delta); len(ids) > 0 {
				opening.Go(func() {
					_ = d.recall(ctx)
					for _, id := range ids {
						d.look(ctx, &opening, d.m.log.Image(), id)
					}
				})
			}
			if d.m.Self().moved && !moved {
				moved = true
				opening.Go(func() { d.move(ctx) })
			}
		}
		if now := time.Now(); !now.Before(next) {
			next = now.Add(tickEvery)
			d.tick(now)
			if now.Sub(recalled) > recallEvery {
				recalled = now
				opening.Go(func() { d.keepKnowing(ctx) })
			}
		}
	}
	return nil
}

// keepKnowing looks for what other processes store.
func (d *Destination) keepKnowing(ctx context.Context) {
	if d.recall(ctx) != nil || d.hasTurn() {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, recalling)
	defer cancel()
	_ = d.missed.refresh(bounded) // the next look is soon
}

// move has replicas look for us where we are now: a leader of the same epoch they look
// for where it was.
func (d *Destination) move(ctx context.Context) {
	image, err := d.joined(ctx)
	if err != nil {
		return // what we lead then is led in a later epoch
	}
	want, self := make(map[metalog.PartitionID]int32), d.m.Self().Broker
	for id, p := range image.Partitions() {
		if p.Leader == self && d.own.has(topicName(image, id)) {
			want[id] = p.LeaderEpoch + 1
		}
	}
	if err := failedWith(d.raiseTo(ctx, want)); err != nil {
		d.cfg.Logger.Warn("replicas do not know our new address", "error", err)
	}
}

// tick advances what depends on time.
func (d *Destination) tick(now time.Time) {
	for _, h := range d.allLed() {
		if led, err := h.lead(); err == nil {
			led.Tick(now)
		}
	}
}

func (d *Destination) allLed() []*holding {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*holding, 0, len(d.led))
	for _, h := range d.led {
		all = append(all, h)
	}
	return all
}

// step takes in what has changed. It costs nothing for what has not.
func (d *Destination) step(ctx context.Context, opening *sync.WaitGroup, image metalog.Image, delta metalog.Delta) {
	look := make(map[metalog.PartitionID]struct{}, len(delta.Partitions))
	for id := range delta.Partitions {
		look[id] = struct{}{}
	}
	if delta.All || len(delta.Brokers) > 0 { // who is alive changes what we wait for
		d.mu.Lock()
		for id := range d.led {
			look[id] = struct{}{}
		}
		d.mu.Unlock()
	}
	if delta.All {
		self := d.m.Self().Broker
		for id, p := range image.Partitions() {
			if p.Leader == self {
				look[id] = struct{}{}
			}
		}
	}
	for id := range look {
		d.look(ctx, opening, image, id)
	}
}

// look brings one partition in step.
func (d *Destination) look(ctx context.Context, opening *sync.WaitGroup, image metalog.Image, id metalog.PartitionID) {
	us := d.m.party()
	p, there := image.Partition(id)
	topic, named := image.Topic(id.Topic)
	if there && slices.Contains(p.Replicas, us.Broker) {
		d.server.haste.begin(time.Now())
	}
	switch {
	case !there || !named || p.Leader >= 0 && p.Leader != us.Broker:
		d.mu.Lock()
		h := d.led[id]
		d.mu.Unlock()
		if h == nil {
			return
		}
		why := fmt.Errorf("%v: %w", h.name, cluster.ErrUnknownTopic)
		if there && named {
			why = fmt.Errorf("%v: %w", h.name, notLeader(p))
			if us.real(p.Leader) && h.mirrored() {
				d.cfg.Logger.Warn("a real broker leads a partition that is being mirrored: it can be written to",
					"topic", h.name.Topic, "partition", h.name.Partition, "broker", p.Leader)
				d.fallen.put(h.name)
			}
		}
		d.close(h, id, why)
	case p.Leader == us.Broker && d.own.has(topic.Name):
		h := d.holding(cluster.Partition{Topic: topic.Name, Partition: id.Partition})
		h.mu.Lock()
		led, is := h.led, h.id
		open := led == nil && !h.opening
		h.opening = h.opening || open
		if open {
			h.inherited = d.inherited(id, p)
		}
		h.mu.Unlock()
		switch {
		case led != nil && is == id:
			follow(led, image, p, us)
		case led != nil: // the topic was made anew
			d.close(h, is, fmt.Errorf("%v: %w", h.name, cluster.ErrTopicReplaced))
			d.look(ctx, opening, image, id)
		case open:
			opening.Go(func() { d.open(ctx, opening, h, id) })
		}
	}
}

// follow tells a partition what the metadata log says of it.
func follow(led *lead.Partition, image metalog.Image, p *metalog.Partition, us party) {
	reals := us.reals(p.Replicas)
	led.Follow(reals)
	led.InSync(us.reals(p.ISR))
	led.Live(living(image, reals))
	led.Lead(p.LeaderEpoch)
}

// living are those of brokers that are up.
func living(image metalog.Image, brokers []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(brokers), func(id int32) bool {
		b, ok := image.Broker(id)
		return !ok || b.Fenced
	})
}

// open begins to lead a partition: what stands in its log is looked into first, so
// that followers are not compared with less than is known.
func (d *Destination) open(ctx context.Context, opening *sync.WaitGroup, h *holding, id metalog.PartitionID) {
	image, us := d.m.log.Image(), d.m.party()
	p, ok := image.Partition(id)
	h.mu.Lock()
	fresh := h.fresh && ok && p.LeaderEpoch == 0 // nobody has led it before
	h.fresh = false
	inherited := h.inherited
	h.mu.Unlock()
	found := scanned{proven: fresh}
	var owed map[int32]int64
	if !fresh {
		missed := d.missedBy(ctx, h.name, id)
		if found.start = lead.StartUnknown; !inherited {
			found = d.scan(ctx, h.name, id, missed)
		}
		owed = missed()
		image = d.m.log.Image()
		p, ok = image.Partition(id)
	}
	var led *lead.Partition
	if ok && p.Leader == us.Broker && ctx.Err() == nil {
		reals := us.reals(p.Replicas)
		led = lead.New(lead.Config{
			Topic: id.Topic, Partition: h.name, Epoch: p.LeaderEpoch, Followers: reals, InSync: us.reals(p.ISR), Quorum: cmp.Or(d.cfg.Quorum, len(reals)/2+1),
			History: found.history, Proven: found.proven, LogStart: found.start, HighWatermark: found.high, Window: d.cfg.Window,
			Owed: owed,
		})
		led.Live(living(image, reals))
		led.Tick(time.Now())
	}
	h.mu.Lock()
	h.opening, h.ours = false, fresh
	if led != nil {
		h.id, h.led, h.stamp, h.refilled = id, led, keeps, false
		h.stretch.begun = false
		if h.learning = nil; inherited {
			learning := make(chan struct{})
			h.learning = learning
			opening.Go(func() { defer close(learning); d.learn(ctx, h, led, id, owed) })
		}
	}
	h.mu.Unlock()
	if led != nil {
		d.mu.Lock()
		d.led[id] = h
		d.mu.Unlock()
		d.server.led.add(led)
		d.cfg.Logger.Info("we lead a partition", "topic", h.name.Topic, "partition", h.name.Partition, "epoch", p.LeaderEpoch)
	}
	if led != nil {
		opening.Go(func() {
			pause(ctx, lead.GatherFor+stepLook)
			led.Tick(time.Now())
		})
	}
	if ctx.Err() == nil { // what has changed meanwhile was left to us
		d.look(ctx, opening, d.m.log.Image(), id)
	}
}

// close ends leading a partition.
func (d *Destination) close(h *holding, id metalog.PartitionID, why error) {
	h.mu.Lock()
	led := h.led
	if led == nil || h.id != id {
		h.mu.Unlock()
		return
	}
	h.led, h.stretch.begun = nil, false
	h.mu.Unlock()
	d.mu.Lock()
	delete(d.led, id)
	d.mu.Unlock()
	led.Close(why)
	d.server.led.remove(led)
	d.cfg.Logger.Info("we lead a partition no more", "topic", h.name.Topic, "partition", h.name.Partition, "why", why)
}

// closeAll ends leading, of everything.
func (d *Destination) closeAll(why error) {
	for _, h := range d.allLed() {
		h.mu.Lock()
		id := h.id
		h.mu.Unlock()
		d.close(h, id, why)
	}
}

// coming reports that a partition is one of ours that we may be elected for at any moment, or
// have been: its followers need not go away.
func (d *Destination) coming(k fetchKey) (soon, elected bool) {
	image, us := d.m.log.Image(), d.m.party()
	topic, ok := image.Topic(k.topic)
	if k.topic.IsZero() {
		topic, ok = image.TopicNamed(k.name)
	}
	if !ok || !d.own.has(topic.Name) {
		return false, false
	}
	p, ok := image.Partition(metalog.PartitionID{Topic: topic.ID, Partition: k.partition})
	if !ok || !slices.Contains(p.Replicas, us.Broker) {
		return false, false
	}
	return p.Leader < 0 || us.own(p.Leader), p.Leader == us.Broker
}
