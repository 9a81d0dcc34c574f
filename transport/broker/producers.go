package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// A log remembers the producers of the source by their ids. If the cluster handed out
// one of them later, a broker would take the first batches of its new owner for ones
// that it has, and drop them with success. So the cluster's ids are kept ahead of those
// that are mirrored: blocks of them are asked for as a broker until the controller is
// past, and real brokers use up those that they have. That is done while mirroring, so
// that a stop finds nothing to do.

const (
	// aheadBy is how far past the highest mirrored id is gone at a time: real brokers
	// then have blocks to use up for every so many ids of the source, not for each.
	aheadBy = 10_000
	// aheadBlocks are asked for in a second at most, while mirroring: 1,000 ids and a
	// record of the metadata log each.
	aheadBlocks = 100
	// aheadEvery is how often it is looked for real brokers that came back.
	aheadEvery = 5 * time.Second
	// maxInits bounds the ids that one broker is asked for: it may have two blocks.
	maxInits = 10_000
)

// ErrProducerIDs: producers of the source have ids that the cluster is too far from.
var ErrProducerIDs = errors.New("producer ids of the source are too far ahead")

// guard is how far the cluster's producer ids are known to be.
type guard struct {
	highest atomic.Int64  // in what was appended, -1 none
	news    chan struct{} // highest has grown
	turn    chan struct{} // taken by who asks for ids

	mu   sync.Mutex
	past map[int32]passed // by real broker
}

// passed is that a real broker hands out no id at or below one. As long as its epoch
// stays it has not started again, and not read ids that it had forgotten.
type passed struct{ epoch, id int64 }

func newGuard() *guard {
	g := &guard{news: make(chan struct{}, 1), turn: make(chan struct{}, 1), past: make(map[int32]passed)}
	g.highest.Store(-1)
	return g
}

// highestOf is the highest id in batches that a cluster can come to, or that is too far, -1
// without any: those of mirrors it cannot.
func highestOf(batches []cluster.Batch) int64 {
	id := int64(-1)
	for _, b := range batches {
		if h := batch.Header(b.Bytes); h.Magic() == 2 && h.ProducerID() < batch.OwnProducers {
			id = max(id, h.ProducerID())
		}
	}
	return id
}

// tooFar says so when an id is further from those that the cluster hands out next than
// it is made to pass over. It is pure.
func tooFar(id, next, budget int64) error {
	if id-next < budget {
		return nil
	}
	return fmt.Errorf("%w: id %d, the cluster is at %d, and at most %d are passed over: %w",
		ErrProducerIDs, id, next, budget, errors.ErrUnsupported)
}

// mind takes down whose batches are appended, and gives producers other ids that are too
// far ahead. It costs a look into each header.
func (d *Destination) mind(p cluster.Partition, batches []cluster.Batch) error {
	g := d.guard
	id, err := d.lifts.apply(batches)
	if err != nil {
		return fmt.Errorf("%v: %w", p, err)
	}
	for {
		known := g.highest.Load()
		if id <= known {
			return nil
		}
		if _, lifted := d.ProducersFrom(); !lifted && tooFar(id, d.m.log.Image().NextProducerID, d.cfg.ProducerIDBudget) != nil {
			d.lifts.need.Store(id)
			g.tell()
			return fmt.Errorf("%v: producer id %d: %w", p, id, errDeciding)
		}
		if g.highest.CompareAndSwap(known, id) {
			break
		}
	}
	g.tell()
	return nil
}

// tell has keepAhead look.
func (g *guard) tell() {
	select {
	case g.news <- struct{}{}:
	default:
	}
}

// keepAhead keeps the cluster ahead of what is appended, until ctx ends.
func (d *Destination) keepAhead(ctx context.Context) error {
	ticker := time.NewTicker(aheadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-d.guard.news:
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		d.liftNow(ctx)
		for id := d.guard.highest.Load(); id >= 0 && !d.isPast(id+aheadBy/2); {
			done, err := d.pass(ctx, id+aheadBy, aheadBlocks)
			if err != nil && ctx.Err() == nil {
				d.cfg.Logger.Info("keeping ahead of the source's producer ids", "id", id, "error", err)
			}
			pause(ctx, time.Second) // it has time
			if done || err != nil {
				break
			}
		}
	}
}

// isPast reports that nobody who is up hands out an id, or one below it, any more.
func (d *Destination) isPast(id int64) bool {
	image := d.m.log.Image()
	return image.NextProducerID > id && len(d.behind(image, id)) == 0
}

// behind are the real brokers that are up and may hand out an id.
func (d *Destination) behind(image metalog.Image, id int64) (out []*metalog.Broker) {
	us := d.m.party()
	d.guard.mu.Lock()
	defer d.guard.mu.Unlock()
	for b := range image.Brokers() {
		if p, ok := d.guard.past[b.ID]; !b.Fenced && us.real(b.ID) && (!ok || p.epoch != b.Epoch || p.id < id) {
			out = append(out, b)
		}
	}
	return out
}

// GuardProducers sees to it that the cluster hands out no producer id any more that a
// mirrored log remembers.
func (d *Destination) GuardProducers(ctx context.Context, partitions []cluster.Partition) []error {
	errs := make([]error, len(partitions))
	if err := ctx.Err(); err != nil {
		return fill(errs, err)
	}
	at, ids := make([]int, len(partitions)), make([]int64, len(partitions))
	for i := range at {
		at[i] = i
	}
	each(at, func(i int) { ids[i], errs[i] = d.highestID(ctx, partitions[i]) })
	for i := range partitions {
		if errs[i] != nil || ids[i] < 0 {
			continue
		}
		err := tooFar(ids[i], d.m.log.Image().NextProducerID, d.cfg.ProducerIDBudget)
		for done := false; err == nil && !done; {
			done, err = d.pass(ctx, ids[i], aheadBlocks)
		}
		if err != nil {
			errs[i] = fmt.Errorf("%v: %w", partitions[i], err)
		}
	}
	return errs
}

// highestID is the highest that a log remembers.
func (d *Destination) highestID(ctx context.Context, name cluster.Partition) (int64, error) {
	h := d.holding(name)
	h.mu.Lock()
	known, id := h.fenced.known, h.fenced.highest
	h.mu.Unlock()
	if known {
		return id, nil
	}
	leader, err := d.realLeader(name)
	if err != nil {
		return -1, err
	}
	all, err := d.producers(ctx, leader, name)
	if err != nil {
		return -1, fmt.Errorf("%v: who has written to it: %w", name, err)
	}
	return highest(all), nil
}

// pass has no id up to the one given handed out any more. It asks for so many blocks at
// most, and reports whether that was enough.
func (d *Destination) pass(ctx context.Context, id int64, blocks int) (done bool, err error) {
	select {
	case d.guard.turn <- struct{}{}:
		defer func() { <-d.guard.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	next := d.m.log.Image().NextProducerID
	link := &controller{quorum: d.m.quorum}
	defer link.drop()
	for ; next <= id; blocks-- {
		if blocks == 0 {
			return false, nil
		}
		if next, err = d.block(ctx, link); err != nil {
			return false, fmt.Errorf("asking for a block of producer ids: %w", err)
		}
	}
	brokers := d.behind(d.m.log.Image(), id)
	errs := make([]error, len(brokers))
	var group sync.WaitGroup
	for i, b := range brokers {
		group.Go(func() { errs[i] = d.useUp(ctx, b.ID, id) })
	}
	group.Wait()
	d.guard.mu.Lock()
	defer d.guard.mu.Unlock()
	for i, b := range brokers {
		if errs[i] == nil {
			d.guard.past[b.ID] = passed{b.Epoch, id}
		}
	}
	return true, errors.Join(errs...)
}

// block asks for a block of ids and gives the first one behind it.
func (d *Destination) block(ctx context.Context, link *controller) (next int64, err error) {
	self, req := d.m.Self(), kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = self.Broker, self.Epoch
	resp, err := link.do(ctx, req)
	if err != nil {
		return 0, err
	}
	answer := resp.(*kmsg.AllocateProducerIDsResponse)
	return answer.ProducerIDStart + int64(answer.ProducerIDLen), wire.CodeError(answer.ErrorCode)
}

// useUp has a broker hand out ids until it is past one.
func (d *Destination) useUp(ctx context.Context, broker int32, id int64) error {
	conn, err := d.m.brokers.Conn(ctx, broker, "scan")
	if err != nil {
		return err
	}
	for range maxInits {
		resp, err := conn.Do(ctx, kmsg.NewPtrInitProducerIDRequest())
		if err != nil {
			return err
		}
		answer := resp.(*kmsg.InitProducerIDResponse)
		err = wire.CodeError(answer.ErrorCode)
		switch {
		case errors.Is(err, cluster.ErrUnavailable): // a block is on its way
		case err != nil:
			return fmt.Errorf("broker %d hands out no producer id: %w", broker, err)
		case answer.ProducerID > id:
			return nil
		}
	}
	return fmt.Errorf("%w: broker %d is not past producer id %d after %d", cluster.ErrUnavailable, broker, id, maxInits)
}
