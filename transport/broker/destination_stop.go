package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// fenceLead is how far our leader epoch is above the last mirrored one when a partition
// is handed back: the source may have had elections that we have not seen.
const fenceLead = 10

// fenced is what stood in a log when it was handed back.
type fenced struct {
	known   bool
	end     int64
	highest int64 // producer id; -1 none
}

// Fence ends stretches: nothing is appended any more, what was is on the real replicas,
// and one of them leads. From then on clients may write. A partition that a real broker
// leads already stays as it is.
func (d *Destination) Fence(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	image, err := d.joined(ctx)
	if err != nil {
		return nil, err
	}
	f := &fencing{
		d: d, stretches: stretches, out: make([]fetcher.End, len(stretches)), ids: make([]metalog.PartitionID, len(stretches)),
		hs: make([]*holding, len(stretches)),
	}
	for i, s := range stretches {
		f.out[i].LeaderEpoch = cluster.NoEpoch
		if _, f.out[i].Err = d.find(image, s.Partition, &f.ids[i]); f.out[i].Err != nil {
			continue
		}
		f.hs[i] = d.holding(s.Partition)
		if f.out[i].Err = f.hs[i].stop(s); f.out[i].Err == nil {
			f.out[i].Err = f.hs[i].forget(ctx, fmt.Errorf("%v: %w: the mirror was stopped", s.Partition, cluster.ErrFenced))
		}
	}
	f.goBack(ctx)
	f.tell(ctx)
	return f.out, ctx.Err()
}

// stop takes no appends from now on.
func (h *holding) stop(s fetcher.Stretch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := &h.stretch
	if now.mirror != "" && now.mirror != s.Mirror && now.acted && !now.stopped {
		return fmt.Errorf("%v: %w: %s", s.Partition, cluster.ErrActive, now.mirror)
	}
	now.mirror, now.stopped, now.begun = s.Mirror, true, false
	return nil
}

// fencing is one call of Fence.
type fencing struct {
	d         *Destination
	stretches []fetcher.Stretch
	out       []fetcher.End
	ids       []metalog.PartitionID
	hs        []*holding
}

// inHand are the indexes of those that are in our hands and have no error.
func (f *fencing) inHand() (at []int) {
	image, us := f.d.m.log.Image(), f.d.m.party()
	for i, id := range f.ids {
		if f.out[i].Err == nil && !handedBack(us, image, id) {
			at = append(at, i)
		}
	}
	return at
}

// led are those in our hands that no real broker leads. Where one does, an operator has
// had it elected, or an earlier call came as far as that: only our replica has to go.
func (f *fencing) led() (at []int, hs []*holding) {
	image, us := f.d.m.log.Image(), f.d.m.party()
	for _, i := range f.inHand() {
		if p, ok := image.Partition(f.ids[i]); !ok || p.Leader < 0 || us.own(p.Leader) {
			at, hs = append(at, i), append(hs, f.hs[i])
		}
	}
	return at, hs
}

// goBack hands partitions back when real replicas have all of them.
func (f *fencing) goBack(ctx context.Context) {
	d := f.d
	at, _ := f.led()
	var orphaned []metalog.PartitionID
	image := d.m.log.Image()
	for _, i := range at {
		if p, ok := image.Partition(f.ids[i]); ok && p.Leader < 0 {
			orphaned = append(orphaned, f.ids[i])
		}
	}
	f.fail(d.takeOver(ctx, orphaned))
	at, hs := f.led()
	for k, err := range d.ready(ctx, hs) {
		f.out[at[k]].Err = err
	}
	f.replicated(ctx)
	at, hs = f.led()
	d.remember(ctx, hs)
	raise := make(map[metalog.PartitionID]int32)
	for k, h := range hs {
		if epoch, ok := h.above(); ok {
			raise[f.ids[at[k]]] = epoch
		}
	}
	f.fail(d.raiseTo(ctx, raise))
	var back []metalog.PartitionID
	for _, i := range f.inHand() {
		back = append(back, f.ids[i])
	}
	if len(back) > 0 {
		bounded, cancel := context.WithTimeout(ctx, 4*patience)
		defer cancel()
		f.fail(d.control.handBack(bounded, back, d.caughtUp))
	}
}

func (f *fencing) fail(errs map[metalog.PartitionID]error) {
	for i, id := range f.ids {
		if err := errs[id]; err != nil && f.out[i].Err == nil {
			f.out[i].Err = err
		}
	}
}

// replicated waits until everything is below the high watermark.
func (f *fencing) replicated(ctx context.Context) {
	watcher := lead.NewWatcher()
	at, hs := f.led()
	for _, h := range hs {
		if led, err := h.lead(); err == nil {
			led.Observe(watcher)
			defer led.Ignore(watcher)
		}
	}
	timer := time.NewTimer(2 * patience)
	defer timer.Stop()
	for over := false; ; {
		waiting := false
		for k, h := range hs {
			led, err := h.lead()
			if err == nil {
				if s := led.State(); s.HighWatermark < s.Next {
					err = fmt.Errorf("%v: %w: high watermark %d stays below log end %d: %s", h.name, cluster.ErrUnavailable, s.HighWatermark, s.Next, saidBy(s))
					waiting = true
				}
			}
			f.out[at[k]].Err = err
		}
		if !waiting || over || ctx.Err() != nil {
			return
		}
		watcher.Take(nil)
		select {
		case <-watcher.Wake():
		case <-timer.C:
			over = true
		case <-ctx.Done():
		}
	}
}

// above is the leader epoch that a partition is to be handed back with, if there is
// something in its log.
func (h *holding) above() (epoch int32, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.led == nil || h.stamp == stamped {
		return 0, false
	}
	s := h.led.State()
	if len(s.History) == 0 && !h.stretch.acted {
		return 0, false
	}
	epoch = fenceLead
	if n := len(s.History); n > 0 {
		epoch += max(s.History[n-1].Epoch, 0)
	}
	return epoch, s.Epoch < epoch
}

// caughtUp are the real replicas that hold everything, and have nothing to cut.
func (d *Destination) caughtUp(id metalog.PartitionID) (out []int32) {
	h := d.byID(id)
	if h == nil {
		return nil
	}
	led, err := h.lead()
	if err != nil {
		return nil
	}
	s := led.State()
	if s.Phase != lead.Leading {
		return nil
	}
	for _, f := range s.Followers {
		if f.CaughtUp && f.Holds >= s.Next && f.Owes < 0 {
			out = append(out, f.Replica)
		}
	}
	return out
}

// tell fills in how the logs ended.
func (f *fencing) tell(ctx context.Context) {
	d := f.d
	var real []int
	for i, s := range f.stretches {
		if f.out[i].Err != nil {
			continue
		}
		d.close(f.hs[i], f.ids[i], fmt.Errorf("%v: %w: the mirror was stopped", s.Partition, cluster.ErrFenced))
		real = append(real, i)
	}
	d.lookAt(ctx, f.stretches, real, f.out)
	image := d.m.log.Image()
	for _, i := range real {
		f.out[i].TopicID = f.ids[i].Topic
		if p, ok := image.Partition(f.ids[i]); ok {
			f.out[i].LeaderEpoch = p.LeaderEpoch
		}
	}
}
