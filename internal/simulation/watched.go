package simulation

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
)

// watched is a process's destination: what the process is about to do is compared
// with what is stored.
type watched struct {
	*memory.Client
	p *process
}

// owns notes the owner epoch under which the process has written last.
func (p *process) owns(part cluster.Partition, epoch int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner == nil {
		p.owner = map[cluster.Partition]int32{}
	}
	p.owner[part] = epoch
}

// owned is the stored record of a partition, if it is the process's own still.
func (p *process) owned(part cluster.Partition) (coordinator.Record, bool) {
	rec, ok := p.w.record(p.mirror, part)
	p.mu.Lock()
	defer p.mu.Unlock()
	return rec, ok && !p.dead && p.hold == nil && p.owner[part] == rec.OwnerEpoch
}

// bereft reports whether another process has taken a partition over since.
func (p *process) bereft() bool {
	for part, rec := range p.w.records(p.destination(), p.mirror) {
		p.mu.Lock()
		mine, known := p.owner[part]
		p.mu.Unlock()
		if known && mine < rec.OwnerEpoch {
			return true
		}
	}
	return false
}

// Append checks that nothing is appended at rest, and no epoch that is not on record
// (I7). A hole has to be reported (I9).
func (d *watched) Append(part cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	p, o := d.p, d.p.w.oracle
	if rec, ok := p.owned(part); ok {
		if rec.State == coordinator.StateStopped || rec.State == coordinator.StatePaused {
			o.found("I4", "%s appends to %v, which is %s", p.name, part, rec.State)
		}
		for _, b := range batches {
			// Where the first epoch begins may not be known exactly.
			known := rec.Epochs.At(b.Base) == b.Epoch || len(rec.Epochs) > 0 && rec.Epochs[0].Epoch == b.Epoch
			if b.Epoch >= 0 && !known {
				o.found("I7", "%s appends to %v [%d,%d) of epoch %d, on record is %v", p.name, part, b.Base, b.Next, b.Epoch, rec.Epochs)
			}
		}
	}
	first := batches[0].Base
	d.Client.Append(part, batches, free, func(r fetcher.Result) {
		if r.Batches > 0 && !p.w.calm {
			o.landed(p, part, first)
		}
		done(r)
	})
}

// landed looks for a hole before a batch that was appended.
func (o *oracle) landed(p *process, part cluster.Partition, first int64) {
	_, views, err := o.w.look(p.destination(), part)
	if err != nil {
		return
	}
	end := views[0].start
	for _, h := range views[0].batches {
		if h.Base() == first && end < first {
			o.gap(p, part, cluster.Span{From: end, To: first})
		}
		end = h.Next()
	}
}

func (o *oracle) gap(p *process, part cluster.Partition, span cluster.Span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gaps = append(o.gaps, removal{p, part, span})
}

// Truncate checks that the cut is on record (I8), and notes what goes (I9).
func (d *watched) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	p, o := d.p, d.p.w.oracle
	ends := make([]int64, len(cuts))
	for i, c := range cuts {
		if rec, ok := p.owned(c.Partition); ok && (rec.State != coordinator.StateULERecovery && rec.Previous != coordinator.StateULERecovery || rec.Cut != c.Offset) {
			o.found("I8", "%s cuts %v at %d, on record is %s with cut %d", p.name, c.Partition, c.Offset, rec.State, rec.Cut)
		}
		_, views, err := p.w.look(p.destination(), c.Partition)
		if rec, ok := p.owned(c.Partition); ok && err == nil && views[0].start < views[0].end && !p.w.permitted(p, rec) {
			o.found("I9", "%s cuts %v at %d, which nothing allows", p.name, c.Partition, c.Offset)
		}
		if err == nil {
			ends[i] = views[0].end
		}
	}
	errs := d.Client.Truncate(ctx, cuts)
	for i, c := range cuts {
		st, err := p.w.clusters[p.destination()].State(c.Partition)
		if errs[i] != nil || err != nil {
			continue
		}
		o.mu.Lock()
		o.cutAt[place{p.destination(), c.Partition}] = true
		o.cuts = append(o.cuts, removal{p, c.Partition, cluster.Span{From: c.Offset, To: ends[i]}})
		o.mu.Unlock()
		if _, mine := p.owned(c.Partition); !mine {
			continue // whoever took over may have appended before the answer came
		}
		for _, r := range st.Replicas {
			if r.LogEnd > c.Offset && (r.Owes < 0 || r.Owes > c.Offset) {
				o.found("I8", "%s has cut %v at %d, broker %d's replica ends at %d and owes nothing", p.name, c.Partition, c.Offset, r.Broker, r.LogEnd)
			}
		}
	}
	return errs
}

// Trim checks that the log start moves no further than the source's.
func (d *watched) Trim(ctx context.Context, cuts []fetcher.Cut) []error {
	p := d.p
	for _, c := range cuts {
		st, err := p.w.clusters[p.source()].State(c.Partition)
		if err != nil {
			continue
		}
		start := p.w.oracle.trimmedTo(c.Partition)
		for _, r := range st.Replicas {
			start = max(start, r.LogStart)
		}
		if c.Offset > start {
			p.w.oracle.found("I12", "%s trims %v to %d, the source starts at %d", p.name, c.Partition, c.Offset, start)
		}
	}
	return d.Client.Trim(ctx, cuts)
}

// Fence checks that the position is stored before the log is opened to others, that
// it is where the log ends, and that nothing below it can be lost (I6).
func (d *watched) Fence(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	p, o := d.p, d.p.w.oracle
	for _, s := range stretches {
		rec, ok := p.owned(s.Partition)
		st, views, err := p.w.look(p.destination(), s.Partition)
		if !ok || err != nil || !st.Mirrored {
			continue
		}
		switch {
		case rec.State == coordinator.StateStopping && !rec.Appended && !rec.Aligned: // handed back untouched
		case rec.State != coordinator.StateStopping || !rec.HasPosition:
			o.found("I6", "%s fences %v, on record is %s with position %v", p.name, s.Partition, rec.State, rec.HasPosition)
		case p.w.setup.Kind == "produce":
		case views[0].end > rec.Position.Offset:
			o.found("I6", "%s fences %v, which ends at %d, with position %d", p.name, s.Partition, views[0].end, rec.Position.Offset)
		case views[0].high < rec.Position.Offset && !o.wasUnclean(p.destination(), s.Partition):
			o.found("I6", "%s fences %v at high watermark %d, with position %d", p.name, s.Partition, views[0].high, rec.Position.Offset)
		}
	}
	ends, err := d.Client.Fence(ctx, stretches)
	for i, e := range ends {
		if e.Err == nil {
			o.mu.Lock()
			o.fenced[stretch{p.mirror, stretches[i].Partition}] = e.TopicID
			o.mu.Unlock()
		}
	}
	return ends, err
}
