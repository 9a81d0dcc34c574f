package broker

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// bounds are where a replica's log of a partition begins and ends.
type bounds struct {
	start, end int64
	err        error
}

// ends asks a replica where its log begins and ends: the debugging consumer (replica
// id -2) may ask those that do not lead, and is told the log end.
func (d *Destination) ends(ctx context.Context, replica int32, name cluster.Partition) (start, end int64, err error) {
	b, err := d.bounds.of(replica).ask(ctx, name, func(ctx context.Context, names []cluster.Partition) map[cluster.Partition]bounds {
		return d.boundsOf(ctx, replica, names)
	})
	if err != nil {
		return 0, 0, err
	}
	return b.start, b.end, b.err
}

func (d *Destination) boundsOf(ctx context.Context, replica int32, names []cluster.Partition) map[cluster.Partition]bounds {
	out := make(map[cluster.Partition]bounds, len(names))
	conn, err := d.m.brokers.Conn(ctx, replica, "scan")
	if err != nil {
		for _, name := range names {
			out[name] = bounds{err: err}
		}
		return out
	}
	const earliest, latest = -2, -1
	var starts map[cluster.Partition]offsetOf
	var asking sync.WaitGroup
	asking.Go(func() { starts = listOffsets(ctx, conn, names, earliest) })
	ends := listOffsets(ctx, conn, names, latest)
	asking.Wait()
	for _, name := range names {
		b := bounds{start: starts[name].at, end: ends[name].at, err: starts[name].err}
		if b.err == nil {
			b.err = ends[name].err
		}
		out[name] = b
	}
	return out
}

type offsetOf struct {
	at  int64
	err error
}

// listOffsets asks one broker, and has an answer for each partition.
func listOffsets(ctx context.Context, conn *wire.Conn, names []cluster.Partition, timestamp int64) map[cluster.Partition]offsetOf {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -2
	topics := make(map[string]int)
	out := make(map[cluster.Partition]offsetOf, len(names))
	for _, name := range names {
		at, ok := topics[name.Topic]
		if !ok {
			at = len(req.Topics)
			topics[name.Topic] = at
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = name.Topic
			req.Topics = append(req.Topics, topic)
		}
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp, part.CurrentLeaderEpoch = name.Partition, timestamp, -1
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, part)
		out[name] = offsetOf{err: errNothing}
	}
	resp, err := conn.Do(ctx, req)
	if err != nil {
		for name := range out {
			out[name] = offsetOf{err: err}
		}
		return out
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			out[cluster.Partition{Topic: t.Topic, Partition: p.Partition}] = offsetOf{p.Offset, wire.CodeError(p.ErrorCode)}
		}
	}
	return out
}
