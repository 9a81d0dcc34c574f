package broker

import (
	"time"

	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// expect has partitions ready before we are elected: a replica that asks for one that is
// not there lets it rest for a second (replica.fetch.backoff.ms), in which nobody leads.
// What their logs hold the replicas say themselves.
func (c *cutting) expect(ps []*cutPlan) map[metalog.PartitionID]*lead.Partition {
	image, us := c.d.m.log.Image(), c.d.m.party()
	ready := make(map[metalog.PartitionID]*lead.Partition)
	for _, p := range ps {
		part, ok := image.Partition(p.id)
		h := c.d.holding(p.Partition)
		h.mu.Lock()
		mine := ok && h.led == nil && !h.opening // else an earlier call has left it to us
		h.opening = h.opening || mine
		h.mu.Unlock()
		if !mine {
			continue
		}
		reals := us.reals(part.Replicas)
		led := lead.New(lead.Config{
			Topic: p.id.Topic, Partition: p.Partition, Epoch: part.LeaderEpoch, Followers: reals, Quorum: len(reals)/2 + 1,
			LogStart: p.LogStart, Window: c.d.cfg.Window,
		})
		led.Live(living(image, reals))
		ready[p.id] = led
		c.d.server.led.add(led)
	}
	return ready
}

// lead puts what was expected in the place of what would be opened, where we were elected.
func (c *cutting) lead(ps []*cutPlan, ready map[metalog.PartitionID]*lead.Partition) {
	image, us := c.d.m.log.Image(), c.d.m.party()
	for _, p := range ps {
		led := ready[p.id]
		if led == nil {
			continue
		}
		part, ok := image.Partition(p.id)
		elected := ok && part.Leader == us.Broker && p.Err == nil
		h := c.d.holding(p.Partition)
		h.mu.Lock()
		if h.opening = false; elected {
			h.id, h.led = p.id, led
		}
		h.mu.Unlock()
		if !elected {
			led.Close(errNotElected)
			c.d.server.led.remove(led)
			continue
		}
		c.d.mu.Lock()
		c.d.led[p.id] = h
		c.d.mu.Unlock()
		follow(led, image, part, us)
		led.Tick(time.Now())
	}
}
