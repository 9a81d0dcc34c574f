package live

import (
	"bytes"
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// producer is a real one that stands for one of the log's.
type producer struct {
	txn   *string // nil: idempotent only
	id    int64
	epoch int16
	zoos  int16 // the epoch that it has in the log
}

// replay writes a log with zoo.Options.Produced into a partition behind what is there,
// and answers at which offset it begins. Every batch and marker then has the place that
// the log says, counted from there.
func (w *writer) replay(ctx context.Context, p cluster.Partition, l *zoo.Log) (from int64, err error) {
	if from, err = w.offset(ctx, p, latest); err != nil {
		return 0, err
	}
	producers := map[int64]*producer{}
	for _, b := range l.Batches {
		h := batch.Header(bytes.Clone(b.Bytes))
		as, err := w.producer(ctx, p, producers, h, b.Transaction != nil)
		if err != nil {
			return 0, err
		}
		if b.Marker {
			err = w.end(ctx, as, b.Transaction.Fate == zoo.Committed)
			if err == nil {
				err = w.reaches(ctx, p, latest, from+b.Next)
			}
		} else {
			err = w.append(ctx, p, as, h, from+b.Base)
		}
		if err != nil {
			return 0, fmt.Errorf("%v offset %d (%s): %w", p, from+b.Base, b.Says, err)
		}
	}
	return from, nil
}

// producer finds the one that stands for a batch's. One that has another epoch in the
// log than before was fenced, and begins anew.
func (w *writer) producer(ctx context.Context, p cluster.Partition, known map[int64]*producer, h batch.Header, transactional bool) (*producer, error) {
	if h.ProducerID() < 0 {
		return &producer{id: -1, epoch: -1}, nil
	}
	as := known[h.ProducerID()]
	if as != nil && as.zoos == h.ProducerEpoch() {
		return as, nil
	}
	if as == nil {
		as = &producer{}
		known[h.ProducerID()] = as
		if transactional {
			as.txn = kmsg.StringPtr(txnOf(p, h.ProducerID()))
		}
	}
	as.zoos = h.ProducerEpoch()
	return as, w.begin(ctx, as)
}

// txnOf is the id under which a producer of the log writes.
func txnOf(p cluster.Partition, producer int64) string {
	return fmt.Sprintf("%v of %d", p, producer)
}

// begin gets an id and an epoch from the cluster.
func (w *writer) begin(ctx context.Context, as *producer) error {
	return until(ctx, func() error {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = as.txn, 15*60_000
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, w.cl)
		if err != nil {
			return err
		}
		as.id, as.epoch = resp.ProducerID, resp.ProducerEpoch
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

// append writes one batch where it has to be.
func (w *writer) append(ctx context.Context, p cluster.Partition, as *producer, h batch.Header, at int64) error {
	if as.txn != nil {
		if err := w.add(ctx, p, as); err != nil {
			return err
		}
	}
	h.Patch(batch.Patch{LeaderEpoch: -1, ProducerID: as.id, ProducerEpoch: as.epoch, BaseSequence: h.BaseSequence()})
	got, err := w.produce(ctx, p, as.txn, h)
	if err == nil && got != at {
		err = fmt.Errorf("it got offset %d", got)
	}
	return err
}

// add makes the partition part of the transaction.
func (w *writer) add(ctx context.Context, p cluster.Partition, as *producer) error {
	return until(ctx, func() error {
		topic := kmsg.NewAddPartitionsToTxnRequestTopic()
		topic.Topic, topic.Partitions = p.Topic, []int32{p.Partition}
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = *as.txn, as.id, as.epoch
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, w.cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	})
}

// end commits or aborts the transaction.
func (w *writer) end(ctx context.Context, as *producer, commit bool) error {
	return until(ctx, func() error {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = *as.txn, as.id, as.epoch, commit
		resp, err := req.RequestWith(ctx, w.cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}
