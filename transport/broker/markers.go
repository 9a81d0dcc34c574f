package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
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
