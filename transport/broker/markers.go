package broker

import (
	"context"
	"crypto/x509"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// markers answers a transaction coordinator that wants to end a transaction in what
// we lead. It comes here when a producer has registered a partition of a mirror with
// its transaction, before its write was refused, and the coordinator would try again
// until somebody leads who can write, with the transactional id blocked. There is
// nothing to end: no record of this cluster's producers gets into the log, and the
// transactions that are open in it are ended where they come from. So it is done.
//
// Who is no coordinator is refused by the real broker.
func (c *client) markers(ctx context.Context, h header, b []byte) error {
	if cert := c.betweenBrokers(); cert != nil {
		return c.brokerMarkers(ctx, h, cert)
	}
	answer, err := c.consult(ctx, b)
	if err != nil {
		return err
	}
	defer func() { c.server.answers.give(answer.held) }()
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	if err := readAnswerBody(answer.bytes, h.version, resp); err != nil {
		return err
	}
	changed := false
	for i := range resp.Markers {
		for j := range resp.Markers[i].Topics {
			t := &resp.Markers[i].Topics[j]
			for n := range t.Partitions {
				p := &t.Partitions[n]
				// Asked for a marker, a broker without the partition says that it is unknown.
				missing := absent(p.ErrorCode) || p.ErrorCode == codeUnknownTopic
				if missing && c.server.led.byName(cluster.Partition{Topic: t.Topic, Partition: p.Partition}) != nil {
					p.ErrorCode, changed = 0, true
				}
			}
		}
	}
	if !changed {
		return c.relay(answer.bytes)
	}
	return c.reply(h, resp, h.version)
}

// brokerMarkers answers a coordinator that is known by his certificate, in whose name
// nobody else can be asked.
func (c *client) brokerMarkers(ctx context.Context, h header, cert *x509.Certificate) error {
	if err := c.isBroker(ctx, cert); err != nil {
		return err
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	decoded, err := c.decode(ctx, h, req)
	if err != nil {
		return err
	}
	defer decoded()
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	for _, m := range req.Markers {
		marker := kmsg.NewWriteTxnMarkersResponseMarker()
		marker.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic = t.Topic
			for _, n := range t.Partitions {
				part := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				part.Partition = n
				if c.server.led.byName(cluster.Partition{Topic: t.Topic, Partition: n}) == nil {
					part.ErrorCode = lead.NotLeader
				}
				topic.Partitions = append(topic.Partitions, part)
			}
			marker.Topics = append(marker.Topics, topic)
		}
		resp.Markers = append(resp.Markers, marker)
	}
	return c.reply(h, resp, h.version)
}
