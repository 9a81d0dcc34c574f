package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

// Producer is an idempotent or transactional producer. It is used by one goroutine.
type Producer struct {
	c     *Cluster
	id    int64
	epoch int16
	next  map[cluster.Partition]int32
	last  map[cluster.Partition]batch.Spec
	open  bool
	in    []cluster.Partition // of the open transaction
}

// Producer makes a producer with the next id of the cluster: 0, 1, 2, ...
func (c *Cluster) Producer() *Producer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	return c.newProducer(c.nextID-1, 0)
}

// ProducerWithID makes a producer with an id and epoch of the caller's choice.
func (c *Cluster) ProducerWithID(id int64, epoch int16) *Producer { return c.newProducer(id, epoch) }

func (c *Cluster) newProducer(id int64, epoch int16) *Producer {
	return &Producer{c: c, id: id, epoch: epoch, next: map[cluster.Partition]int32{}, last: map[cluster.Partition]batch.Spec{}}
}

// ID is the producer id.
func (pr *Producer) ID() int64 { return pr.id }

// Send writes one batch and returns its first offset. The broker refuses what is out
// of sequence (cluster.ErrOutOfOrder), answers a duplicate with the offset it has
// already, and a mirror topic refuses all (ErrReadOnly).
func (pr *Producer) Send(p cluster.Partition, records ...Record) (int64, error) {
	s := batch.Spec{
		Records:  encodable(records),
		Producer: &batch.Producer{ID: pr.id, Epoch: pr.epoch, Sequence: pr.next[p]},
	}
	if pr.open {
		s.Attributes = batch.AttrTransactional
	}
	base, err := pr.send(p, s)
	if err == nil {
		pr.next[p] += int32(len(records))
		pr.last[p] = s
		if pr.open && !slices.Contains(pr.in, p) {
			pr.in = append(pr.in, p)
		}
	}
	return base, err
}

// Resend writes the last batch of a partition again, as a producer does that got no
// answer.
func (pr *Producer) Resend(p cluster.Partition) (int64, error) {
	s, ok := pr.last[p]
	if !ok {
		return -1, fmt.Errorf("%v: %w: nothing was sent", p, cluster.ErrRefused)
	}
	return pr.send(p, s)
}

func (pr *Producer) send(p cluster.Partition, s batch.Spec) (int64, error) {
	c := pr.c
	c.mu.Lock()
	defer c.mu.Unlock()
	part, leader, err := c.writable(p)
	if err != nil {
		return -1, err
	}
	base, err := part.producers().admit(pr.id, pr.epoch, s.Producer.Sequence, len(s.Records))
	if err != nil || base >= 0 {
		return base, err
	}
	return c.write(part, leader, s), nil
}

// Begin begins a transaction: what is sent from now on is part of it.
func (pr *Producer) Begin() { pr.open = true }

// Commit ends the transaction: every partition it wrote to gets a marker.
func (pr *Producer) Commit() error { return pr.end(markCommit) }

// Abort ends the transaction: every partition it wrote to gets a marker.
func (pr *Producer) Abort() error { return pr.end(markAbort) }

func (pr *Producer) end(kind byte) error {
	c := pr.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(pr.in) > 0 {
		part, leader, err := c.writable(pr.in[0])
		if err != nil {
			return err // what is left is marked by the next try
		}
		c.mark(part, leader, pr.id, pr.epoch, kind)
		pr.in = pr.in[1:]
	}
	pr.open = false
	return nil
}

// AbortOpen ends the transactions that the source left open, as a coordinator would.
func (cl *Client) AbortOpen(ctx context.Context, ps []cluster.Partition) ([]fetcher.Aborted, error) {
	return call(ctx, cl, Op{Call: CallAbortOpen, Broker: -1, Partitions: ps}, func() ([]fetcher.Aborted, error) {
		out := make([]fetcher.Aborted, len(ps))
		for i, p := range ps {
			part, leader, err := cl.c.leading(p)
			if err == nil && part.mirrored() { // a new stretch has begun: this comes late
				err = fmt.Errorf("%v: %w", p, cluster.ErrFenced)
			}
			if out[i].Err = err; err != nil {
				continue
			}
			known := part.producers()
			for _, id := range known.openIDs() {
				cl.c.mark(part, leader, id, lastEpoch(leader, id), markAbort)
				out[i].Producers = append(out[i].Producers, id)
			}
		}
		return out, nil
	})
}

// lastEpoch is the epoch of the last batch of a producer: the sequence state may
// have been guarded away.
func lastEpoch(leader *replica, id int64) int16 {
	for _, s := range slices.Backward(leader.log.batches) {
		if h := batch.Header(s.bytes); h.ProducerID() == id {
			return h.ProducerEpoch()
		}
	}
	return 0
}

// GuardProducers makes the partitions forget the sequences of everybody who wrote
// until now: a new producer with a mirrored id begins anew.
func (cl *Client) GuardProducers(ctx context.Context, ps []cluster.Partition) []error {
	return callEach(ctx, cl, Op{Call: CallGuardProducers, Broker: -1, Partitions: ps}, len(ps), func(i int) error {
		part, leader, err := cl.c.leading(ps[i])
		if err == nil && part.guard != leader.log.end {
			part.guard = leader.log.end
			part.known = producers{}
		}
		return err
	})
}
