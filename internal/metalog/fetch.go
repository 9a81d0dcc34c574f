package metalog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
)

const (
	maxWait  = 500 * time.Millisecond // how long the controller may hold a fetch
	maxBytes = 8 << 20                // of one fetch, and of one piece of a snapshot
	// commitPoll is how soon to ask again while records wait for the high
	// watermark and the controller cannot be told which one is known (below v18,
	// KIP-1166): it would hold the fetch until somebody appends.
	commitPoll = 5 * time.Millisecond
	// hwVersion is the first version of Fetch that takes the known high watermark.
	hwVersion = 18
	// logVersion is the first version of Fetch whose topic ids and tags are those
	// used here; controllers since 3.9 have it.
	logVersion = 17
)

// fetched is one answer to a fetch of the log.
type fetched struct {
	batches   []byte
	mark      int64     // high watermark
	snapshot  *position // where the log does not reach: begin with this snapshot
	diverging bool      // our position is not in the controller's log
}

// question is what one fetch asks.
type question struct {
	clusterID string
	from      position
	mark      int64 // known high watermark, -1 for none
	waiting   bool  // records wait to be committed
}

func (a *Active) fetch(ctx context.Context, q question) (*fetched, error) {
	version := min(a.MaxVersion(int16(kmsg.Fetch)), hwVersion)
	if version < logVersion {
		return nil, fmt.Errorf("%w: controller %v has Fetch up to version %d, %d is needed (Kafka 3.9)",
			errors.ErrUnsupported, a.Addr(), version, logVersion)
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(maxWait/time.Millisecond), 1, maxBytes, -1
	req.ReplicaState.ID, req.ReplicaState.Epoch = -1, -1 // an observer that the quorum does not list
	if q.clusterID != "" {
		req.ClusterID = &q.clusterID
	}
	part := kmsg.NewFetchRequestTopicPartition()
	part.CurrentLeaderEpoch, part.FetchOffset, part.LastFetchedEpoch = a.Epoch, q.from.offset, q.from.epoch
	part.LogStartOffset, part.PartitionMaxBytes = 0, maxBytes
	switch {
	case version >= hwVersion:
		part.HighWatermark = q.mark
	case q.waiting:
		req.MaxWaitMillis = int32(commitPoll / time.Millisecond)
	}
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID = [16]byte{15: 1} // Uuid.METADATA_TOPIC_ID
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	answer, err := a.DoVersion(ctx, req, version)
	if err != nil {
		return nil, err
	}
	return readFetched(answer.(*kmsg.FetchResponse))
}

func readFetched(resp *kmsg.FetchResponse) (*fetched, error) {
	if err := wire.CodeError(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("%w: fetch of the metadata log answers for %d topics", cluster.ErrCorrupt, len(resp.Topics))
	}
	p := &resp.Topics[0].Partitions[0]
	if err := wire.CodeError(p.ErrorCode); err != nil {
		return nil, err
	}
	f := &fetched{batches: p.RecordBatches, mark: p.HighWatermark, diverging: p.DivergingEpoch.EndOffset >= 0}
	if p.SnapshotID.EndOffset >= 0 {
		f.snapshot = &position{p.SnapshotID.EndOffset, p.SnapshotID.Epoch}
	}
	return f, nil
}

// snapshot reads a whole snapshot, piece by piece, into a loader that goes on
// behind it. Snapshots count as committed.
func (a *Active) snapshot(ctx context.Context, clusterID string, at position, into *loader) error {
	var rest []byte
	for read := int64(0); ; {
		piece, size, err := a.piece(ctx, clusterID, at, read)
		if err != nil {
			return err
		}
		read += int64(len(piece))
		rest = append(rest, piece...)
		n := 0
		for len(rest)-n >= batch.HeaderSize && batch.Header(rest[n:]).Length() <= len(rest)-n {
			h, err := first(rest[n:])
			if err != nil {
				return err
			}
			// The offsets inside a snapshot are its own.
			if err := into.batch(h); err != nil {
				return err
			}
			n += len(h)
		}
		rest = append(rest[:0], rest[n:]...)
		switch {
		case read >= size && len(rest) > 0:
			return fmt.Errorf("%w: snapshot %d-%d ends inside a batch", cluster.ErrCorrupt, at.offset, at.epoch)
		case read >= size:
			into.next, into.epoch = at.offset, at.epoch
			return nil
		case len(piece) == 0:
			return fmt.Errorf("%w: snapshot %d-%d stops at byte %d of %d", cluster.ErrCorrupt, at.offset, at.epoch, read, size)
		}
	}
}

func (a *Active) piece(ctx context.Context, clusterID string, at position, from int64) (piece []byte, size int64, err error) {
	req := kmsg.NewPtrFetchSnapshotRequest()
	req.ReplicaID, req.MaxBytes = -1, maxBytes
	if clusterID != "" {
		req.ClusterID = &clusterID
	}
	part := kmsg.NewFetchSnapshotRequestTopicPartition()
	part.CurrentLeaderEpoch, part.Position = a.Epoch, from
	part.SnapshotID.EndOffset, part.SnapshotID.Epoch = at.offset, at.epoch
	topic := kmsg.NewFetchSnapshotRequestTopic()
	topic.Topic = logTopic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	answer, err := a.Do(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	resp := answer.(*kmsg.FetchSnapshotResponse)
	if err := wire.CodeError(resp.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, 0, fmt.Errorf("%w: FetchSnapshot answers for %d topics", cluster.ErrCorrupt, len(resp.Topics))
	}
	p := &resp.Topics[0].Partitions[0]
	if p.Size < 0 || p.Size > math.MaxInt64/2 || p.Position != from {
		p.Bytes = nil // the caller says what is wrong
	}
	return p.Bytes, p.Size, wire.CodeError(p.ErrorCode)
}
