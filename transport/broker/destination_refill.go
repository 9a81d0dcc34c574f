package broker

import (
	"context"
	"fmt"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
	"github.com/clustermirror/mirror/internal/metalog"
)

// refills are the ways to the sources of mirrors. It is safe for concurrent use.
type refills struct {
	mu   sync.Mutex
	from map[string]fetcher.Refill
}

// RefillFrom gives the way to a mirror's source while the mirror runs; nil takes it back.
func (d *Destination) RefillFrom(mirror string, read fetcher.Refill) {
	d.refills.mu.Lock()
	defer d.refills.mu.Unlock()
	if d.refills.from == nil {
		d.refills.from = make(map[string]fetcher.Refill)
	}
	if d.refills.from[mirror] = read; read == nil {
		delete(d.refills.from, mirror)
	}
}

func (r *refills) of(mirror string) fetcher.Refill {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from[mirror]
}

// refill reads again what a replica of a partition lacks and no other one has any more. The
// leader epochs are those that our log has there, whatever the source's are.
func (d *Destination) refill(ctx context.Context, topic cluster.TopicID, partition int32, offset int64, maxBytes int32) ([]byte, error) {
	h := d.byID(metalog.PartitionID{Topic: topic, Partition: partition})
	if h == nil {
		return nil, fmt.Errorf("%w: we do not lead it", cluster.ErrNotLeader)
	}
	led, err := h.lead()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	mirror := h.stretch.mirror
	h.mu.Unlock()
	read := d.refills.of(mirror)
	if read == nil {
		return nil, fmt.Errorf("%v: %w: no mirror into it is running", h.name, cluster.ErrUnavailable)
	}
	b, err := read(ctx, h.name, offset, maxBytes)
	if err != nil {
		return nil, err
	}
	if err := d.lifts.applyTo(b); err != nil {
		return nil, err
	}
	h.mu.Lock()
	first := !h.refilled && len(b) > 0
	h.refilled = h.refilled || first
	h.mu.Unlock()
	if first {
		d.cfg.Logger.Warn("a replica lacks records that no other one has: it gets them from the source", "topic", h.name.Topic,
			"partition", h.name.Partition, "offset", offset)
	}
	return stampedAs(b, led.State().History), nil
}

// stampedAs writes the leader epochs of a history into batches, as far as it knows them.
func stampedAs(b []byte, history epoch.History) []byte {
	w := batch.Walk(b)
	for w.Next() {
		h := w.Header()
		e := history.At(h.Next() - 1) // the log may begin inside of the batch
		if e == cluster.NoEpoch {
			return b[:w.Offset():w.Offset()]
		}
		h.SetLeaderEpoch(e)
	}
	return b
}
