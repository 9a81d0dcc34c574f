package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// producer is one that a log remembers; open is the first offset of its transaction,
// -1 when it has none.
type producer struct {
	id          int64
	epoch       int16
	coordinator int32
	open        int64
}

// wrote are those who have written to a log.
type wrote struct {
	all []producer
	err error
}

// producers asks a replica, which need not lead, who has written to a log
// (DescribeProducers, KIP-664).
func (d *Destination) producers(ctx context.Context, replica int32, name cluster.Partition) ([]producer, error) {
	w, err := d.writers.of(replica).ask(ctx, name, func(ctx context.Context, names []cluster.Partition) map[cluster.Partition]wrote {
		return d.writersOf(ctx, replica, names)
	})
	if err != nil {
		return nil, err
	}
	return w.all, w.err
}

func (d *Destination) writersOf(ctx context.Context, replica int32, names []cluster.Partition) map[cluster.Partition]wrote {
	req := kmsg.NewPtrDescribeProducersRequest()
	out := make(map[cluster.Partition]wrote, len(names))
	for topic, partitions := range numbers(names) {
		one := kmsg.NewDescribeProducersRequestTopic()
		one.Topic, one.Partitions = topic, partitions
		req.Topics = append(req.Topics, one)
	}
	conn, err := d.m.brokers.Conn(ctx, replica, "scan")
	var resp kmsg.Response
	if err == nil {
		resp, err = conn.Do(ctx, req)
	}
	for _, name := range names {
		out[name] = wrote{err: cmp.Or(err, errNothing)}
	}
	if err != nil {
		return out
	}
	for _, t := range resp.(*kmsg.DescribeProducersResponse).Topics {
		for _, p := range t.Partitions {
			w := wrote{err: saying(p.ErrorCode, p.ErrorMessage)}
			for _, a := range p.ActiveProducers {
				w.all = append(w.all, producer{a.ProducerID, int16(a.ProducerEpoch), a.CoordinatorEpoch, a.CurrentTxnStartOffset})
			}
			out[cluster.Partition{Topic: t.Topic, Partition: p.Partition}] = w
		}
	}
	return out
}

// numbers are the partitions by topic.
func numbers(names []cluster.Partition) map[string][]int32 {
	out := make(map[string][]int32)
	for _, name := range names {
		out[name.Topic] = append(out[name.Topic], name.Partition)
	}
	return out
}

// remember takes down what stands in logs that are about to be handed back.
func (d *Destination) remember(ctx context.Context, hs []*holding) {
	each(hs, func(h *holding) {
		led, err := h.lead()
		if err != nil {
			return
		}
		s := led.State()
		for _, f := range s.Followers {
			if !f.CaughtUp || f.Holds < s.Next {
				continue
			}
			all, err := d.producers(ctx, f.Replica, h.name)
			if err != nil {
				d.cfg.Logger.Info("asking who has written to a log", "topic", h.name.Topic, "partition", h.name.Partition, "replica", f.Replica, "error", err)
				continue
			}
			h.mu.Lock()
			h.fenced = fenced{known: true, end: s.Next, highest: highest(all)}
			h.mu.Unlock()
			return
		}
	})
}

// highest is the highest id that a cluster can come to; those of mirrors it cannot, and
// those that were given on the way.
func highest(all []producer) int64 {
	id := int64(-1)
	for _, p := range all {
		if batch.Counted(p.id) {
			id = max(id, p.id)
		}
	}
	return id
}

// each does something for all, some of them at once.
func each[T any](all []T, do func(T)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, maxScans)
	for _, one := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(one)
		})
	}
	group.Wait()
}

// AbortOpen ends the transactions that the source left open, in partitions that were
// handed back: the real leader writes their markers, as for kafka-transactions --abort.
// What began after the hand-back, or what a coordinator here knows of, is not touched.
func (d *Destination) AbortOpen(ctx context.Context, partitions []cluster.Partition) ([]fetcher.Aborted, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]fetcher.Aborted, len(partitions))
	at := make([]int, len(partitions))
	for i := range at {
		at[i] = i
	}
	each(at, func(i int) { out[i].Producers, out[i].Err = d.abortOpen(ctx, partitions[i]) })
	return out, ctx.Err()
}

func (d *Destination) abortOpen(ctx context.Context, name cluster.Partition) ([]int64, error) {
	leader, err := d.realLeader(name)
	if err != nil {
		return nil, err
	}
	all, err := d.producers(ctx, leader, name)
	if err != nil {
		return nil, fmt.Errorf("%v: who has a transaction open: %w", name, err)
	}
	h := d.holding(name)
	h.mu.Lock()
	known, end := h.fenced.known, h.fenced.end
	h.mu.Unlock()
	all = slices.DeleteFunc(all, func(p producer) bool { return p.open < 0 || known && p.open >= end })
	if len(all) == 0 {
		return nil, nil
	}
	if !known {
		if all, err = d.unknownHere(ctx, all); err != nil {
			return nil, fmt.Errorf("%v: which transactions are the cluster's own: %w", name, err)
		}
	}
	var ids []int64
	for _, p := range all {
		err := d.abort(ctx, leader, openTransaction{name, p})
		for deadline := time.Now().Add(patience); err != nil && aboutToLead(err) && time.Now().Before(deadline) && ctx.Err() == nil; {
			pause(ctx, 5*stepLook)
			err = d.abort(ctx, leader, openTransaction{name, p})
		}
		if err != nil {
			return ids, fmt.Errorf("%v: aborting the transaction of producer %d: %w", name, p.id, err)
		}
		ids = append(ids, p.id)
	}
	return ids, nil
}

// aboutToLead reports that a broker does not know yet that it leads.
func aboutToLead(err error) bool {
	return errors.Is(err, cluster.ErrNotLeader) || errors.Is(err, cluster.ErrUnknownTopic) || errors.Is(err, cluster.ErrUnavailable)
}

func (d *Destination) realLeader(name cluster.Partition) (int32, error) {
	var id metalog.PartitionID
	p, err := d.find(d.m.log.Image(), name, &id)
	if err != nil {
		return -1, err
	}
	if us := d.m.party(); p.Leader < 0 || us.own(p.Leader) {
		return -1, fmt.Errorf("%v: %w: no real broker leads", name, cluster.ErrNotLeader)
	}
	return p.Leader, nil
}

// unknownHere are the producers of whose transactions no coordinator of this cluster
// knows. Who may not see all transactions is told of none, without an error: then it cannot
// be said.
func (d *Destination) unknownHere(ctx context.Context, all []producer) ([]producer, error) {
	if err := d.m.seesTransactions(ctx); err != nil {
		return nil, err
	}
	req := kmsg.NewPtrListTransactionsRequest()
	for _, p := range all {
		req.ProducerIDFilters = append(req.ProducerIDFilters, p.id)
	}
	own := make(map[int64]bool)
	for _, broker := range d.realBrokers() {
		conn, err := d.m.brokers.Conn(ctx, broker, "scan")
		if err != nil {
			return nil, err
		}
		resp, err := conn.Do(ctx, req)
		if err != nil {
			return nil, err
		}
		answer := resp.(*kmsg.ListTransactionsResponse)
		if err := wire.CodeError(answer.ErrorCode); err != nil {
			return nil, fmt.Errorf("broker %d: %w", broker, err)
		}
		for _, t := range answer.TransactionStates {
			own[t.ProducerID] = true
		}
	}
	return slices.DeleteFunc(all, func(p producer) bool { return own[p.id] }), nil
}

// realBrokers are those that are up.
func (d *Destination) realBrokers() (ids []int32) {
	us := d.m.party()
	for b := range d.m.log.Image().Brokers() {
		if !b.Fenced && us.real(b.ID) {
			ids = append(ids, b.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
