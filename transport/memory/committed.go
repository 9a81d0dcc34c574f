package memory

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

// abortedIn are the aborted transactions that overlap with what was read from an offset
// on, up to upper.
func (p *partition) abortedIn(offset, upper int64) (out []fetcher.AbortedTransaction) {
	for _, a := range p.producers().aborted {
		if a.Marker >= offset && a.First < upper {
			out = append(out, fetcher.AbortedTransaction{Producer: a.ProducerID, First: a.First})
		}
	}
	return out
}

// upTo is where whole batches end, from when there are none.
func upTo(records []byte, from int64) int64 {
	for w := batch.Walk(records); w.Next(); {
		from = w.Header().Next()
	}
	return from
}

// ReadCommitted gives whole batches below the last stable offset, and what of them was
// aborted.
func (cl *Client) ReadCommitted(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, []fetcher.AbortedTransaction, error) {
	var aborted []fetcher.AbortedTransaction
	b, err := call(ctx, cl, Op{Call: CallRead, Broker: -1, Partitions: []cluster.Partition{p}}, func() ([]byte, error) {
		part, r, err := cl.c.leading(p)
		if err != nil {
			return nil, err
		}
		if err := r.inRange(p, offset); err != nil {
			return nil, err
		}
		b := r.log.read(nil, offset, part.stable(), int(maxBytes), true)
		aborted = part.abortedIn(offset, upTo(b, offset))
		return b, nil
	})
	return b, aborted, err
}

// fillerID is the producer of what fills holes (Options.Fills). Clusters do not hand
// out ids as high.
const fillerID = batch.OwnProducers

// mostFilled is how many offsets one filler takes up.
const mostFilled = 1 << 30

// fill writes what no consumer sees into the offsets of a hole: markers of nobody's
// transaction.
func (r *run) fill(p *partition, leader *replica, b *cluster.Batch, at int64) {
	for left := b.Next - b.Base; left > 0; {
		n := min(left, mostFilled)
		leader.log.append(storedOf(batch.Encode(batch.Spec{
			Base: at, Next: at + n, LeaderEpoch: p.epoch, Attributes: batch.AttrControl | batch.AttrTransactional,
			Producer: &batch.Producer{ID: fillerID, Sequence: -1},
			Records:  []batch.Record{{Offset: at, Timestamp: b.MaxTimestamp, Key: []byte{0, 0, 0, markCommit}, Value: make([]byte, 6)}},
		})))
		at, left = at+n, left-n
	}
	p.act()
	p.wrote(p.stretch.mirror, b.Base)
}

var _ fetcher.CommittedReader = (*Client)(nil)
