package lead

import (
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Append hands over batches in rising order; offsets between them may be missing. free is
// called when nobody reads the bytes any more (it may be nil); until then they may be
// written to, and are stamped. done is called when the quorum holds the run, with the
// offset after it, or when it never will, with an error and how far it has come. After
// an error every run is refused until Forget.
func (p *Partition) Append(batches []cluster.Batch, free func(), done func(next int64, landed int, err error)) {
	r := &run{free: free, batches: len(batches), done: done}
	p.mu.Lock()
	defer p.unlock()
	r.holds.Add(1) // ours, so that it is freed when it is refused as well
	err := p.admit(batches)
	if err == nil {
		for i := range batches {
			p.take(&batches[i], r)
		}
		r.end = p.end
		p.runs = append(p.runs, r)
		p.changed = p.changed || len(batches) > 0
		p.advance()
	} else {
		r.err, r.end, p.refusing = err, p.end, true
		p.runs = append(p.runs, r)
		p.land()
	}
	p.free(r.let(nil))
}

// admit says whether a run can be taken, all of it.
func (p *Partition) admit(batches []cluster.Batch) error {
	switch {
	case p.phase == Closed:
		return p.closed()
	case !p.found:
		return p.early()
	case p.refusing:
		return fmt.Errorf("%v: %w: an append before has failed", p.partition, cluster.ErrOutOfOrder)
	}
	end := p.end
	latest, _ := p.history.Latest()
	last := latest.Epoch
	for i := range batches {
		b := &batches[i]
		// An empty log may begin inside a batch, and has the whole of it then (see read).
		inside := end == p.end && b.Base < end && b.Next > end && p.end == p.start
		switch {
		case b.Hole():
			return fmt.Errorf("%v: %w: a hole at offset %d", p.partition, errors.ErrUnsupported, b.Base)
		case b.Next <= b.Base || b.Base < end && !inside:
			return fmt.Errorf("%v: %w: batch [%d,%d) where the log ends at %d", p.partition, cluster.ErrOutOfOrder, b.Base, b.Next, end)
		case p.stamp || b.Epoch < 0:
		case b.Epoch > p.epoch: // followers would drop it without a word
			return fmt.Errorf("%v: %w: batch at offset %d has epoch %d, ours is %d", p.partition, cluster.ErrLeaderEpoch, b.Base, b.Epoch, p.epoch)
		case b.Epoch < last:
			return fmt.Errorf("%v: %w: batch at offset %d has epoch %d after %d", p.partition, cluster.ErrDiverged, b.Base, b.Epoch, last)
		default:
			last = b.Epoch
		}
		end = b.Next
	}
	return nil
}

// take puts a batch at the end of the log.
func (p *Partition) take(b *cluster.Batch, r *run) {
	epoch := b.Epoch
	if h := batch.Header(b.Bytes); len(h) >= batch.HeaderSize && h.Magic() == 2 {
		if p.stamp {
			epoch = p.epoch
			h.SetLeaderEpoch(epoch)
		}
		p.open.note(h)
	}
	p.history = p.history.Assign(epoch, max(b.Base, p.start))
	p.window.push(entry{base: b.Base, next: b.Next, bytes: b.Bytes, run: r})
	p.end = b.Next
}

// tell answers a run.
func (p *Partition) tell(r *run, next int64, landed int, err error) {
	if r.err != nil {
		next, landed, err = p.high, 0, r.err
	}
	done := r.done
	p.call(func() { done(next, landed, err) })
}

// fail answers the runs that reach behind offset with an error.
func (p *Partition) fail(offset int64, err error) {
	n := len(p.runs)
	for n > 0 && p.runs[n-1].end > offset {
		n--
	}
	for _, r := range p.runs[n:] {
		p.tell(r, p.high, r.batches-p.window.lacking(r, p.high), err)
		p.refusing = true
	}
	clear(p.runs[n:])
	p.runs = p.runs[:n]
}

// free gives back the bytes of runs that nobody holds.
func (p *Partition) free(runs []*run) {
	for _, r := range runs {
		if r.free != nil {
			p.call(r.free)
		}
	}
}

// Forget answers what is under way with err and takes appends again. What was taken stays
// in the log: the next append belongs at State.Next.
func (p *Partition) Forget(err error) {
	p.mu.Lock()
	defer p.unlock()
	p.fail(-1, err)
	p.refusing = false
}

// Base is where the batch that holds offset begins, the offset itself when none does;
// false when the batch has left the window.
func (p *Partition) Base(offset int64) (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.base(offset)
}
