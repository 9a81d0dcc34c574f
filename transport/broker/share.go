package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// shareWait is how long the answer to a share group's fetch is kept back.
const shareWait = 500 * time.Millisecond

// shareFetch answers a consumer of a share group. What such a group has read is kept by a
// partition's leader, in its own log of state; we have none, so that nothing of a mirror is
// handed to share groups before it is writable. The real broker says that it does not lead,
// after which clients look for the leader, find us, and come again at once: they are kept
// waiting as one would be for whom there is no record.
func (c *client) shareFetch(ctx context.Context, h header, b []byte) error {
	answer, err := c.consult(ctx, b)
	if err != nil {
		return err
	}
	defer func() { c.server.answers.give(answer.held) }()
	resp := kmsg.NewPtrShareFetchResponse()
	if err := readAnswerBody(answer.bytes, h.version, resp); err != nil {
		return err
	}
	if c.server.led.shared(resp) {
		pause(ctx, shareWait)
	}
	return c.relay(answer.bytes)
}

// shared reports that a share group was refused what we lead, and got nothing else.
func (r *registry) shared(resp *kmsg.ShareFetchResponse) (refused bool) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if len(p.Records) > 0 {
				return false
			}
			refused = refused || absent(p.ErrorCode) && r.find(fetchKey{topic: t.TopicID, partition: p.Partition}) != nil
		}
	}
	return refused
}
