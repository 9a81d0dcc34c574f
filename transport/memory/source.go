package memory

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// Leaders says who leads; there is no memory of leaders, every answer is fresh.
func (cl *Client) Leaders(ctx context.Context, ps []cluster.Partition, _ bool) ([]fetcher.LeaderAnswer, error) {
	return call(ctx, cl, Op{Call: CallLeaders, Broker: -1, Partitions: ps}, func() ([]fetcher.LeaderAnswer, error) {
		out := make([]fetcher.LeaderAnswer, len(ps))
		for i, p := range ps {
			part, err := cl.c.find(p)
			if err != nil {
				out[i] = fetcher.LeaderAnswer{Leader: cluster.Leader{Broker: -1, Epoch: cluster.NoEpoch}, Err: err}
				continue
			}
			out[i] = fetcher.LeaderAnswer{Leader: part.leads(), TopicID: part.topic.id}
			if part.leader < 0 {
				out[i].Err = fmt.Errorf("%v: %w: no leader", p, cluster.ErrUnavailable)
			}
		}
		return out, nil
	})
}

// leads is the partition's leader as metadata tells it.
func (p *partition) leads() cluster.Leader {
	l := cluster.Leader{Broker: -1, Epoch: p.epoch}
	if r := p.lead(); r != nil {
		l.Broker = r.broker
	}
	return l
}

// Offsets gives log starts and high watermarks.
func (cl *Client) Offsets(ctx context.Context, ps []cluster.Partition) ([]fetcher.OffsetsAnswer, error) {
	return call(ctx, cl, Op{Call: CallOffsets, Broker: -1, Partitions: ps}, func() ([]fetcher.OffsetsAnswer, error) {
		out := make([]fetcher.OffsetsAnswer, len(ps))
		for i, p := range ps {
			_, r, err := cl.c.leading(p)
			if out[i].Err = err; err == nil {
				out[i].Offsets = cluster.Offsets{LogStart: r.log.start, HighWatermark: r.high}
			}
		}
		return out, nil
	})
}

// LogOffsets is Offsets for one partition (the reader that package verify wants).
func (cl *Client) LogOffsets(ctx context.Context, p cluster.Partition) (cluster.Offsets, error) {
	answers, err := cl.Offsets(ctx, []cluster.Partition{p})
	if err != nil {
		return cluster.Offsets{}, err
	}
	return answers[0].Offsets, answers[0].Err
}

// EpochEnds answers OffsetForLeaderEpoch.
func (cl *Client) EpochEnds(ctx context.Context, queries []fetcher.EpochQuery) ([]fetcher.EpochAnswer, error) {
	ps := make([]cluster.Partition, len(queries))
	for i, q := range queries {
		ps[i] = q.Partition
	}
	return call(ctx, cl, Op{Call: CallEpochEnds, Broker: -1, Partitions: ps}, func() ([]fetcher.EpochAnswer, error) {
		out := make([]fetcher.EpochAnswer, len(queries))
		for i, q := range queries {
			out[i].EpochEnd = cluster.EpochEnd{Epoch: cluster.NoEpoch, EndOffset: -1}
			part, r, err := cl.c.leading(q.Partition)
			if err == nil {
				err = part.checkEpoch(q.Current)
			}
			if out[i].Err = err; err == nil {
				out[i].EpochEnd = r.log.epochs.endOf(q.Epoch, r.log.end)
			}
		}
		return out, nil
	})
}

// checkEpoch compares the leader epoch that a client believes in with the present
// one (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH).
func (p *partition) checkEpoch(believed int32) error {
	switch {
	case believed < 0 || believed == p.epoch:
		return nil
	case believed < p.epoch:
		return fmt.Errorf("%v: %w: FENCED_LEADER_EPOCH, %d is older than %d", p.id, cluster.ErrLeaderEpoch, believed, p.epoch)
	}
	return fmt.Errorf("%v: %w: UNKNOWN_LEADER_EPOCH, %d is newer than %d", p.id, cluster.ErrLeaderEpoch, believed, p.epoch)
}

// Read gives whole batches below the high watermark.
func (cl *Client) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	return call(ctx, cl, Op{Call: CallRead, Broker: -1, Partitions: []cluster.Partition{p}}, func() ([]byte, error) {
		_, r, err := cl.c.leading(p)
		if err != nil {
			return nil, err
		}
		if err := r.inRange(p, offset); err != nil {
			return nil, err
		}
		return r.log.read(nil, offset, r.high, int(maxBytes), true), nil
	})
}

// inRange refuses offsets that are not in the log (OFFSET_OUT_OF_RANGE). The log end
// is in range, though nothing can be read there.
func (r *replica) inRange(p cluster.Partition, offset int64) error {
	if offset >= r.log.start && offset <= r.log.end {
		return nil
	}
	return &cluster.OffsetError{
		Partition: p, Span: cluster.Span{From: offset, To: offset}, Err: cluster.ErrOutOfRange,
		Detail: fmt.Sprintf("log is [%d,%d)", r.log.start, r.log.end),
	}
}
