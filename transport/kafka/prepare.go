package kafka

import (
	"cmp"
	"context"
	"sort"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// How much of a run is prepared at a time: a long hole must not fill the memory, nor
// keep whoever halts the lane waiting.
const (
	prepareBytes  = 1 << 20
	preparePieces = 64
	// phantomRecords bound one batch of phantoms, which has 7 to 11 bytes for each.
	phantomRecords = 20_000
)

// preparation makes pieces that can be sent of a run that cannot be sent as it was
// handed over. It is a value: whoever prepares works on a copy, away from the lane's
// lock.
type preparation struct {
	given []cluster.Batch
	i     int   // of given: the first that is not prepared, or not to its end
	next  int64 // the first offset that is not prepared
	stamp int64 // timestamp of what stands before next; -1: not known
}

// prepare has the run prepared from an offset on.
func (r *run) prepare(from, stamp int64) {
	r.prep = &preparation{given: append([]cluster.Batch(nil), r.batches...), next: from, stamp: stamp}
	clear(r.batches)
	r.batches = r.batches[:0]
}

func (p *preparation) done() bool { return p.i == len(p.given) }

// below is how many of the batches that were handed over end at or before an offset.
func (p *preparation) below(end int64) int {
	return sort.Search(len(p.given), func(i int) bool { return p.given[i].Next > end })
}

// prepare makes the next pieces of a run. The lane sends nothing meanwhile, but what
// it has sent is under way.
func (c *Cluster) prepare(ctx context.Context, l *lane, r *run, p preparation) {
	l.mu.Lock()
	fill := l.fill
	l.mu.Unlock()
	stale := fill == nil || time.Since(fill.at) > fillTrust
	if stale {
		fill = c.topicFill(ctx, l.p.Topic)
	}
	from := p.next
	pieces, err := c.pieces(&p, fill)
	l.mu.Lock()
	l.looking = false
	if stale {
		l.fill = fill
	}
	if err != nil {
		l.fail(r, from, at(l.p, err))
	} else {
		r.batches = append(r.batches, pieces...)
		*r.prep = p
	}
	c.release(l)
}

// pieces prepares as much as is due at a time, and something at least.
func (c *Cluster) pieces(p *preparation, fill *topicFill) (pieces []cluster.Batch, err error) {
	for size := 0; !p.done() && size < prepareBytes && len(pieces) < preparePieces; {
		b := &p.given[p.i]
		before := len(pieces)
		switch {
		case b.Hole():
			pieces = append(pieces, c.filling(p, fill, b.Next, b.Gone))
		default:
			if pieces, err = c.rewritten(pieces, *b, fill); err != nil {
				return nil, err
			}
		}
		for _, piece := range pieces[before:] {
			size += len(piece.Bytes)
			p.next = piece.Next
		}
		if p.next == b.Next {
			p.i++
			if !b.Hole() {
				p.stamp = b.MaxTimestamp
			}
		}
	}
	return joined(pieces), nil
}

// joined makes one of holes that follow on each other: each costs a round trip.
func joined(pieces []cluster.Batch) []cluster.Batch {
	kept := pieces[:0]
	for _, b := range pieces {
		if n := len(kept); n > 0 && b.Hole() && kept[n-1].Hole() {
			kept[n-1].Next = b.Next
			continue
		}
		kept = append(kept, b)
	}
	return kept
}

// filling is the next batch that fills a hole which goes on to the given end; without
// bytes it is for markers.
func (c *Cluster) filling(p *preparation, fill *topicFill, to int64, gone bool) cluster.Batch {
	stamp := p.neighbour()
	piece := cluster.Batch{Base: p.next, Next: to, Epoch: cluster.NoEpoch, MaxTimestamp: stamp}
	switch {
	case gone && fill.deletes:
		n := min(to-p.next, fill.fillers())
		piece.Next = p.next + n
		piece.Bytes = c.fillers.of(int(n)).Append(nil, stamp)
	case c.cfg.GapFill == GapPhantoms:
		n := min(to-p.next, fill.phantoms())
		piece.Next = p.next + n
		piece.Bytes = batch.AppendPhantoms(nil, int(n), stamp, fill.key)
	}
	return piece
}

// neighbour is the timestamp for what fills a hole: the next record's or the one's
// before, so that look-ups by time and retention find nothing new.
func (p *preparation) neighbour() int64 {
	for _, b := range p.given[p.i:] {
		if !b.Hole() && b.MaxTimestamp >= 0 {
			return b.MaxTimestamp
		}
	}
	return cmp.Or(max(p.stamp, 0), time.Now().UnixMilli())
}
