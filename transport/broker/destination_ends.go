package broker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Ends tells how far each log has come, where its followers have said so, and begins
// (or goes on with) its stretch. A topic that a real broker leads is looked at as any
// client does, and stays as it is, until Stretch.New asks for it; what nobody leads and
// is ours is taken back.
func (d *Destination) Ends(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	image, err := d.joined(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.learnLifts(ctx); err != nil {
		return nil, err
	}
	out := make([]fetcher.End, len(stretches))
	ids := make([]metalog.PartitionID, len(stretches))
	var take []metalog.PartitionID
	for i, s := range stretches {
		out[i].LeaderEpoch = cluster.NoEpoch
		p, err := d.find(image, s.Partition, &ids[i])
		if err != nil {
			out[i].Err = err
		} else if d.needed(image, ids[i], p, s.New) {
			take = append(take, ids[i])
		}
	}
	failed := d.takeOver(ctx, take)
	image = d.m.log.Image()
	us := d.m.party()
	var foreign, ours []int
	for i, s := range stretches {
		if out[i].Err != nil {
			continue
		}
		out[i].TopicID = ids[i].Topic
		p, _ := image.Partition(ids[i])
		switch {
		case failed[ids[i]] != nil:
			out[i].Err = failed[ids[i]]
		case p != nil && p.Leader >= 0 && us.own(p.Leader) && p.Leader != us.Broker:
			out[i].Err = fmt.Errorf("%v: %w: broker %d of ours leads", s.Partition, cluster.ErrFenced, p.Leader)
		case p == nil || p.Leader == us.Broker:
			ours = append(ours, i)
		default:
			foreign = append(foreign, i)
		}
	}
	d.lookAt(ctx, stretches, foreign, out)
	d.begin(ctx, stretches, ours, out)
	return out, ctx.Err()
}

// joined waits until the metadata log shows us as a member.
func (d *Destination) joined(ctx context.Context) (metalog.Image, error) {
	if err := ctx.Err(); err != nil {
		return metalog.Image{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := d.m.WaitJoined(bounded); err != nil {
		if ctx.Err() != nil {
			return metalog.Image{}, ctx.Err()
		}
		return metalog.Image{}, fmt.Errorf("%w: we are no member of the cluster yet: %w", cluster.ErrUnavailable, err)
	}
	return d.m.log.Image(), nil
}

// find looks a partition up by its name.
func (d *Destination) find(image metalog.Image, p cluster.Partition, id *metalog.PartitionID) (*metalog.Partition, error) {
	topic, ok := image.TopicNamed(p.Topic)
	if ok {
		*id = metalog.PartitionID{Topic: topic.ID, Partition: p.Partition}
		if part, ok := image.Partition(*id); ok {
			return part, nil
		}
	}
	return nil, fmt.Errorf("%v: %w", p, cluster.ErrUnknownTopic)
}

// needed reports whether something has to be done so that we lead a partition, and
// nobody but us could.
func (d *Destination) needed(image metalog.Image, id metalog.PartitionID, p *metalog.Partition, fresh bool) bool {
	us := d.m.party()
	switch {
	case p.Leader == us.Broker:
		return d.own.has(topicName(image, id)) && len(us.reals(p.ISR)) > 0 && !d.control.open
	case p.Leader < 0:
		return fresh || d.own.has(topicName(image, id))
	}
	return fresh && us.real(p.Leader)
}

// errTiered: followers of ours would look for what is there, and we have nothing there.
var errTiered = fmt.Errorf("%w: remote.storage.enable is set: tiered storage cannot be mirrored into", cluster.ErrRefused)

func tiered(i metalog.Image, topic string) bool {
	return topicConfig(i, topic)["remote.storage.enable"] == "true"
}

// takeOver makes us the leader of partitions, and nobody else a possible one. The log
// of one that a real broker has led is looked into anew.
func (d *Destination) takeOver(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	failed := make(map[metalog.PartitionID]error)
	if len(ids) == 0 {
		return failed
	}
	image, us := d.m.log.Image(), d.m.party()
	var orphaned, led, narrow []metalog.PartitionID
	for _, id := range ids {
		switch p, ok := image.Partition(id); {
		case !ok:
			failed[id] = cluster.ErrUnknownTopic
		case p.Leader == us.Broker:
			narrow = append(narrow, id)
		case tiered(image, topicName(image, id)) && !d.own.has(topicName(image, id)):
			failed[id] = errTiered
		case p.Leader < 0:
			orphaned = append(orphaned, id)
		default:
			led = append(led, id)
		}
	}
	note := func(of []metalog.PartitionID, errs map[metalog.PartitionID]error) {
		for _, id := range of {
			if err := errs[id]; err != nil {
				failed[id] = fmt.Errorf("%w: taking %s-%d over: %w", cluster.ErrUnavailable, topicName(image, id), id.Partition, err)
			} else {
				narrow = append(narrow, id)
			}
		}
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(orphaned) > 0 {
		note(orphaned, d.control.reclaim(bounded, orphaned))
	}
	if len(led) > 0 {
		note(led, d.adopt(ctx, led))
	}
	if len(narrow) > 0 {
		tight, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for id, err := range d.control.narrow(tight, narrow) {
			failed[id] = fmt.Errorf("%w: keeping others from leading %s-%d: %w", cluster.ErrUnavailable, topicName(image, id), id.Partition, err)
		}
	}
	return failed
}

// adopt takes partitions from real leaders. Cuts that were missed are theirs to have made:
// what stands behind one by now may be what clients have written.
func (d *Destination) adopt(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	image, none := d.m.log.Image(), make(map[named]map[int32]int64)
	for _, id := range ids {
		none[named{topicName(image, id), id}] = nil
	}
	if err := d.missed.put(ctx, none); err != nil {
		failed := make(map[metalog.PartitionID]error)
		for _, id := range ids {
			failed[id] = err
		}
		return failed
	}
	return d.control.adopt(ctx, ids)
}

// lookAt tells how logs of real leaders stand: to us they are stopped.
func (d *Destination) lookAt(ctx context.Context, stretches []fetcher.Stretch, at []int, out []fetcher.End) {
	if len(at) == 0 {
		return
	}
	ps := make([]cluster.Partition, len(at))
	for k, i := range at {
		ps[k] = stretches[i].Partition
	}
	answers, err := d.cfg.Admin.Offsets(ctx, ps)
	for k, i := range at {
		if err != nil {
			out[i].Err = err
			continue
		}
		o := answers[k]
		out[i].LogStart, out[i].LogEnd, out[i].HighWatermark, out[i].Err = o.LogStart, o.HighWatermark, o.HighWatermark, o.Err
		out[i].Stopped = true
	}
}

// begin goes on with stretches that we lead, as soon as their logs' ends are known.
func (d *Destination) begin(ctx context.Context, stretches []fetcher.Stretch, at []int, out []fetcher.End) {
	hs := make([]*holding, len(at))
	for k, i := range at {
		hs[k] = d.holding(stretches[i].Partition)
	}
	ready := d.ready(ctx, hs)
	d.restamp(ctx, hs)
	for k, i := range at {
		s, h := stretches[i], hs[k]
		if err := ready[k]; err != nil {
			out[i].Err = err
			continue
		}
		why := fmt.Errorf("%v: %w: the log end was read before the answer came", s.Partition, cluster.ErrTimeout)
		if err := h.forget(ctx, why); err != nil {
			out[i].Err = err
			continue
		}
		h.begin(s, &out[i])
	}
}

// ready waits until followers have said how far they are, all that are waited for.
func (d *Destination) ready(ctx context.Context, hs []*holding) []error {
	errs := make([]error, len(hs))
	watcher := lead.NewWatcher()
	tick := time.NewTicker(stepLook)
	defer tick.Stop()
	seen := make(map[*lead.Partition]bool)
	defer func() {
		for led := range seen {
			led.Ignore(watcher)
		}
	}()
	open := make([]int, len(hs))
	for k := range open {
		open[k] = k
	}
	for deadline := time.Now().Add(patience); ; {
		open = slices.DeleteFunc(open, func(k int) bool {
			led, err := hs[k].lead()
			if errs[k] = err; err != nil {
				return false
			}
			if !seen[led] {
				seen[led] = true
				led.Observe(watcher)
			}
			s := led.State()
			if s.Disputed {
				d.settle(ctx, hs[k], led, s)
			}
			return s.Phase == lead.Leading
		})
		if len(open) == 0 || ctx.Err() != nil || !time.Now().Before(deadline) {
			break
		}
		watcher.Take(nil)
		select {
		case <-watcher.Wake():
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	for _, k := range open {
		if led, err := hs[k].lead(); err == nil {
			errs[k] = fmt.Errorf("%v: %w: replicas have not said how far they are: %s", hs[k].name, cluster.ErrUnavailable, saidBy(led.State()))
		}
	}
	return errs
}

// stepLook is how often it is looked whether we lead what we wait for.
const stepLook = 20 * time.Millisecond

// saidBy says for people what replicas have said.
func saidBy(s lead.State) string {
	out := ""
	for _, f := range s.Followers {
		switch {
		case !f.Live:
			out += fmt.Sprintf(" %d is away,", f.Replica)
		case !f.Known:
			out += fmt.Sprintf(" %d is awaited,", f.Replica)
		default:
			out += fmt.Sprintf(" %d is at %d,", f.Replica, f.Offset)
		}
	}
	if out == "" {
		return "there are none"
	}
	return out[1 : len(out)-1]
}

// begin goes on with the stretch, or begins another one.
func (h *holding) begin(s fetcher.Stretch, e *fetcher.End) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.led == nil {
		e.Err = fmt.Errorf("%v: %w: we do not lead it", h.name, cluster.ErrNotLeader)
		return
	}
	now := &h.stretch
	state := h.led.State()
	e.LogStart, e.LogEnd, e.HighWatermark = state.LogStart, state.Next, state.HighWatermark
	if e.LeaderEpoch = state.Epoch; h.stamp == stamped {
		e.LeaderEpoch = math.MaxInt32 // above all that the source can come to
	}
	switch {
	case now.mirror != "" && now.mirror != s.Mirror && now.acted && !now.stopped:
		e.Err = fmt.Errorf("%v: %w: %s", s.Partition, cluster.ErrActive, now.mirror)
		return
	case s.New || now.mirror != s.Mirror:
		*now = stretch{mirror: s.Mirror}
	case now.stopped:
		e.Stopped = true
		return
	}
	e.Ours, e.Inherited = now.acted, h.inherited
	now.begun = true
}
