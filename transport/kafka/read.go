package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// byNameFetch is the newest fetch version that names topics; later ones want ids.
const byNameFetch = 12

// Read returns whole batches from offset on, in memory of their own. It follows
// the leader until ctx ends.
func (c *Cluster) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	for try := 0; ; try++ {
		b, err := c.readOnce(ctx, p, offset, maxBytes, try > 0)
		if err == nil || !moved(err) {
			return b, at(p, err)
		}
		if !sleep(ctx, pause(min(try, leaderTries))) {
			return nil, at(p, err)
		}
	}
}

func (c *Cluster) readOnce(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32, fresh bool) ([]byte, error) {
	leaders, err := c.Leaders(ctx, []cluster.Partition{p}, fresh)
	if err != nil {
		return nil, err
	}
	if leaders[0].Err != nil {
		return nil, leaders[0].Err
	}
	conn, err := c.conn(ctx, leaders[0].Broker, slotRead)
	if err != nil {
		return nil, err
	}
	return read(ctx, conn, p, offset, maxBytes)
}

// read is one fetch outside of any session. Brokers send at least one whole batch
// even where it is larger than maxBytes; one that does not is asked again with
// room for it.
func read(ctx context.Context, conn *wire.Conn, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	for size := max(maxBytes, 1); ; {
		whole, needs, err := readUpTo(ctx, conn, p, offset, size)
		if err != nil || needs <= int64(size) {
			return whole, err
		}
		if needs > 1<<30 {
			return nil, &cluster.OffsetError{Partition: p, Span: cluster.Span{From: offset, To: offset}, Err: cluster.ErrCorrupt,
				Detail: fmt.Sprintf("a batch of %d bytes", needs)}
		}
		size = int32(needs)
	}
}

// readUpTo gives the whole batches of one answer; when the first was cut off, the
// bytes it needs.
func readUpTo(ctx context.Context, conn *wire.Conn, p cluster.Partition, offset int64, size int32) (whole []byte, needs int64, err error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.SessionEpoch = size, 1, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = p.Topic
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p.Partition, offset, size
	t.Partitions = append(t.Partitions, fp)
	req.Topics = append(req.Topics, t)

	version := min(byNameFetch, conn.MaxVersion(req.Key()))
	frame, err := conn.DoFrame(ctx, req, version)
	if err != nil {
		return nil, 0, err
	}
	defer frame.Release()
	answer := kmsg.NewPtrFetchResponse()
	answer.Version = version
	if err := answer.ReadFrom(frame.Bytes()); err != nil {
		return nil, 0, malformed("fetch", err)
	}
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return nil, 0, errMissing
	}
	got := &answer.Topics[0].Partitions[0]
	if err := wire.CodeError(got.ErrorCode); err != nil {
		return nil, 0, err
	}
	w := batch.Walk(got.RecordBatches)
	for w.Next() {
	}
	if err := w.Err(); err != nil {
		return nil, 0, err
	}
	end := len(got.RecordBatches) - len(w.Rest())
	if rest := batch.Header(w.Rest()); end == 0 && len(rest) >= batch.HeaderSize {
		return nil, int64(rest.Length()), nil
	}
	return slices.Clone(got.RecordBatches[:end]), 0, nil
}

func malformed(what string, err error) error {
	return fmt.Errorf("%w: malformed %s answer: %w", cluster.ErrUnknownOutcome, what, err)
}
