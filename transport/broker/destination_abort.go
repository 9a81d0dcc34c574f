package broker

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// markerVersion is the last of WriteTxnMarkers that says nothing of the protocol of
// the transaction (KIP-1228): the source's may be another one than this cluster's.
const markerVersion = 1

// openTransaction is one of a producer, in one partition.
type openTransaction struct {
	in cluster.Partition
	of producer
}

// abort has the leader write a transaction's marker, together with those that come while it
// does: each is answered when all replicas in sync have it, so one after the other took as long
// as that for each.
func (d *Destination) abort(ctx context.Context, leader int32, o openTransaction) error {
	failed, err := d.aborts.of(leader).ask(ctx, o, func(ctx context.Context, all []openTransaction) map[openTransaction]error {
		return d.abortAll(ctx, leader, all)
	})
	return cmp.Or(err, failed)
}

func (d *Destination) abortAll(ctx context.Context, leader int32, all []openTransaction) map[openTransaction]error {
	out := make(map[openTransaction]error, len(all))
	conn, err := d.m.brokers.Conn(ctx, leader, "markers")
	var resp kmsg.Response
	if err == nil {
		resp, err = conn.DoVersion(ctx, markersOf(all), markerVersion)
	}
	for _, o := range all {
		out[o] = cmp.Or(err, errNothing)
	}
	if err != nil {
		return out
	}
	codes := make(map[marked]error)
	for _, m := range resp.(*kmsg.WriteTxnMarkersResponse).Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				codes[marked{m.ProducerID, cluster.Partition{Topic: t.Topic, Partition: p.Partition}}] = wire.CodeError(p.ErrorCode)
			}
		}
	}
	for _, o := range all {
		if code, ok := codes[marked{o.of.id, o.in}]; ok {
			out[o] = code
		}
	}
	return out
}

// marked is what an answer to WriteTxnMarkers tells apart.
type marked struct {
	producer int64
	in       cluster.Partition
}

// markersOf is one marker for each producer, as it was in the logs, with the partitions that get
// it. A broker that finds a partition twice in one never answers.
func markersOf(all []openTransaction) *kmsg.WriteTxnMarkersRequest {
	type mark struct {
		id          int64
		epoch       int16
		coordinator int32
	}
	in := make(map[mark][]cluster.Partition)
	for _, o := range all {
		m := mark{o.of.id, o.of.epoch, max(o.of.coordinator, 0)}
		in[m] = append(in[m], o.in)
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	for m, names := range in {
		marker := kmsg.NewWriteTxnMarkersRequestMarker()
		marker.ProducerID, marker.ProducerEpoch, marker.CoordinatorEpoch = m.id, m.epoch, m.coordinator
		for name, partitions := range numbers(names) {
			topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			topic.Topic, topic.Partitions = name, partitions
			marker.Topics = append(marker.Topics, topic)
		}
		req.Markers = append(req.Markers, marker)
	}
	return req
}
