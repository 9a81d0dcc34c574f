package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// byNameFetch is the newest fetch version that names topics; later ones want ids.
const byNameFetch = 12

// Read returns whole batches from offset on, in memory of their own. It follows
// the leader until ctx ends.
func (c *Cluster) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	got, err := c.readAt(ctx, p, offset, maxBytes, false)
	return got.whole, err
}

// ReadCommitted is Read up to the last stable offset, together with what was aborted.
func (c *Cluster) ReadCommitted(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, []fetcher.AbortedTransaction, error) {
	got, err := c.readAt(ctx, p, offset, maxBytes, true)
	return got.whole, got.aborted, err
}

var _ fetcher.CommittedReader = (*Cluster)(nil)

// reading is what was read at one place.
type reading struct {
	whole   []byte // whole batches
	needs   int64  // bytes that the first batch has, when it was cut off
	aborted []fetcher.AbortedTransaction
}

func (c *Cluster) readAt(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32, committed bool) (reading, error) {
	for try := 0; ; try++ {
		got, err := c.readOnce(ctx, p, offset, maxBytes, committed, try > 0)
		if err == nil || !moved(err) {
			return got, at(p, err)
		}
		if !sleep(ctx, pause(min(try, leaderTries))) {
			return reading{}, at(p, err)
		}
	}
}

func (c *Cluster) readOnce(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32, committed, fresh bool) (reading, error) {
	leaders, err := c.Leaders(ctx, []cluster.Partition{p}, fresh)
	if err != nil {
		return reading{}, err
	}
	if leaders[0].Err != nil {
		return reading{}, leaders[0].Err
	}
	conn, err := c.conn(ctx, leaders[0].Broker, slotRead)
	if err != nil {
		return reading{}, err
	}
	return readWhole(ctx, conn, p, offset, maxBytes, committed)
}

// read is one fetch outside of any session. Brokers send at least one whole batch
// even where it is larger than maxBytes; one that does not is asked again with
// room for it.
func read(ctx context.Context, conn *wire.Conn, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	got, err := readWhole(ctx, conn, p, offset, maxBytes, false)
	return got.whole, err
}

func readWhole(ctx context.Context, conn *wire.Conn, p cluster.Partition, offset int64, maxBytes int32, committed bool) (reading, error) {
	for size := max(maxBytes, 1); ; {
		got, err := readUpTo(ctx, conn, p, offset, size, committed)
		if err != nil || got.needs <= int64(size) {
			return got, err
		}
		if got.needs > 1<<30 {
			return reading{}, &cluster.OffsetError{Partition: p, Span: cluster.Span{From: offset, To: offset}, Err: cluster.ErrCorrupt,
				Detail: fmt.Sprintf("a batch of %d bytes", got.needs)}
		}
		size = int32(got.needs)
	}
}

// readUpTo gives the whole batches of one answer; when the first was cut off, the
// bytes it needs.
func readUpTo(ctx context.Context, conn *wire.Conn, p cluster.Partition, offset int64, size int32, committed bool) (out reading, err error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.SessionEpoch = size, 1, -1
	if committed {
		req.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic = p.Topic
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p.Partition, offset, size
	t.Partitions = append(t.Partitions, fp)
	req.Topics = append(req.Topics, t)

	version := min(byNameFetch, conn.MaxVersion(req.Key()))
	frame, err := conn.DoFrame(ctx, req, version)
	if err != nil {
		return out, err
	}
	defer frame.Release()
	answer := kmsg.NewPtrFetchResponse()
	answer.Version = version
	if err := answer.ReadFrom(frame.Bytes()); err != nil {
		return out, malformed("fetch", err)
	}
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return out, err
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return out, errMissing
	}
	got := &answer.Topics[0].Partitions[0]
	if err := wire.CodeError(got.ErrorCode); err != nil {
		return out, err
	}
	w := batch.Walk(got.RecordBatches)
	for w.Next() {
	}
	if err := w.Err(); err != nil {
		return out, err
	}
	end := len(got.RecordBatches) - len(w.Rest())
	if rest := batch.Header(w.Rest()); end == 0 && len(rest) >= batch.HeaderSize {
		out.needs = int64(rest.Length())
		return out, nil
	}
	out.whole, out.aborted = slices.Clone(got.RecordBatches[:end]), abortedOf(got)
	return out, nil
}

func abortedOf(p *kmsg.FetchResponseTopicPartition) (out []fetcher.AbortedTransaction) {
	for i := range p.AbortedTransactions {
		a := &p.AbortedTransactions[i]
		out = append(out, fetcher.AbortedTransaction{Producer: a.ProducerID, First: a.FirstOffset})
	}
	return out
}

func malformed(what string, err error) error {
	return fmt.Errorf("%w: malformed %s answer: %w", cluster.ErrUnknownOutcome, what, err)
}
