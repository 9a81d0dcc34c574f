package broker

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/epoch"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// RaiseEpochs makes our leader epochs at least what is asked for. Where that is
// further than the budget, batches have our epoch from now on instead of the source's.
// A partition that was handed back needs nothing: Fence has raised it.
func (d *Destination) RaiseEpochs(ctx context.Context, raises []fetcher.EpochRaise) []error {
	errs := make([]error, len(raises))
	image, err := d.joined(ctx)
	if err != nil {
		return fill(errs, err)
	}
	want := make(map[metalog.PartitionID]int32)
	at := make(map[metalog.PartitionID]int)
	var far []*holding
	for i, r := range raises {
		var id metalog.PartitionID
		p, err := d.find(image, r.Partition, &id)
		us := d.m.party()
		switch {
		case err != nil:
			errs[i] = err
		case p.LeaderEpoch >= r.Epoch && p.Leader >= 0:
		case !d.own.has(r.Partition.Topic) || d.holding(r.Partition).stopped():
		case p.Leader >= 0 && p.Leader != us.Broker:
			errs[i] = fmt.Errorf("%v: %w", r.Partition, notLeader(p))
		case d.holding(r.Partition).tooFar(r.Epoch-p.LeaderEpoch, d.cfg.EpochBudget):
			far = append(far, d.holding(r.Partition))
		default:
			want[id], at[id] = r.Epoch, i
		}
	}
	d.restamp(ctx, far)
	for id, err := range d.raiseTo(ctx, want) {
		errs[at[id]] = err
	}
	return errs
}

func (h *holding) stopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stretch.stopped
}

// tooFar decides whose epochs stand in a log from now on, and reports that they are
// ours.
func (h *holding) tooFar(distance, budget int32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stamp == keeps && distance > budget {
		h.stamp = willStamp
	}
	return h.stamp != keeps
}

// Stamps reports whether a partition's batches have our leader epoch; known while we lead it.
func (d *Destination) Stamps(p cluster.Partition) (stamps, known bool) {
	h := d.known(p)
	if h == nil {
		return false, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.led != nil && h.stamp != keeps, h.led != nil
}

func (d *Destination) byID(id metalog.PartitionID) *holding {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.led[id]
}

// restamp has our leader epoch written into the batches of those for which it was
// decided. It is raised first: a replica that was away while another process of ours
// was at work may hold other bytes of the present one.
func (d *Destination) restamp(ctx context.Context, hs []*holding) {
	image := d.m.log.Image()
	want := make(map[metalog.PartitionID]int32)
	var all []*holding
	for _, h := range hs {
		h.mu.Lock()
		if h.stamp == willStamp && h.led != nil {
			all = append(all, h)
			if p, ok := image.Partition(h.id); ok && !h.ours {
				want[h.id] = p.LeaderEpoch + 1
			}
		}
		h.mu.Unlock()
	}
	failed := d.raiseTo(ctx, want)
	for _, h := range all {
		h.mu.Lock()
		if h.led != nil && failed[h.id] == nil {
			h.led.Stamp()
			h.stamp = stamped
			d.cfg.Logger.Warn("batches of a partition have our leader epoch instead of the source's",
				"topic", h.name.Topic, "partition", h.name.Partition, "epoch", h.led.State().Epoch)
		}
		h.mu.Unlock()
	}
}

// settle says which leader epochs a log has whose replicas end in different ones: those
// of the longest, as far as it can be read, and behind that the latest that is told.
func (d *Destination) settle(ctx context.Context, h *holding, led *lead.Partition, s lead.State) {
	h.mu.Lock()
	id := h.id
	h.mu.Unlock()
	latest, owed := cluster.NoEpoch, make(map[int32]int64)
	for _, f := range s.Followers {
		if latest = max(latest, f.LastEpoch); f.Owes >= 0 {
			owed[f.Replica] = f.Owes
		}
	}
	found := d.scan(ctx, h.name, id, func() map[int32]int64 { return owed })
	history, err := settled(found, latest, func(offset int64) (glimpse, error) {
		return d.glimpse(ctx, found.replica, h.name, id, offset)
	})
	if err == nil && len(history) > 0 { // else it is tried again as long as it is waited for
		led.Know(history)
	}
}

// settled is the history of what was found of a log: as far as it could be read what stands there, and
// behind that the latest epoch that a replica told. A log whose end cannot be read yet is read up to there.
func settled(found scanned, latest int32, read func(offset int64) (glimpse, error)) (history epoch.History, err error) {
	history = found.history
	if len(history) == 0 && found.high > found.start && found.end > 0 {
		last, err := read(found.high - 1)
		if err == nil && last.some {
			history, err = historyOf(max(found.start, last.start), last, read)
		}
		if err != nil {
			return nil, err
		}
	}
	if found.high < found.end {
		history = history.Assign(latest, found.high)
	}
	return history, nil
}

// EpochEnds tells where leader epochs end, in our logs and in those of real leaders.
func (d *Destination) EpochEnds(ctx context.Context, queries []fetcher.EpochQuery) ([]fetcher.EpochAnswer, error) {
	out := make([]fetcher.EpochAnswer, len(queries))
	var ask []fetcher.EpochQuery
	var at []int
	for i, q := range queries {
		led := d.server.led.byName(q.Partition)
		if led == nil {
			ask, at = append(ask, q), append(at, i)
			continue
		}
		if led.State().Phase != lead.Leading {
			out[i].Err = fmt.Errorf("%v: %w: replicas have not said how far they are", q.Partition, cluster.ErrUnavailable)
			continue
		}
		if h := d.known(q.Partition); h != nil {
			h.learned(ctx)
		}
		out[i].EpochEnd = led.EpochEnd(q.Epoch)
	}
	if len(ask) == 0 {
		return out, ctx.Err()
	}
	answers, err := d.cfg.Admin.EpochEnds(ctx, ask)
	if err != nil {
		return nil, err
	}
	for k, i := range at {
		out[i] = answers[k]
	}
	return out, nil
}
