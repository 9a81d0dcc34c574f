package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// errSilentWrite ends the connection of a producer that wants no answer, as a real
// broker does when it cannot take a write with acks=0.
var errSilentWrite = errors.New("a write with acks=0 to a read-only mirror")

// produce refuses writes to what we lead. The real broker has the request as it
// came: it says who may not write at all, and takes what belongs to it. The records
// are not looked at.
func (c *client) produce(ctx context.Context, h header, b []byte) error {
	if silent(b) {
		return c.produceSilently(ctx, h, b)
	}
	answer, err := c.consult(ctx, b)
	if err != nil {
		return err
	}
	defer func() { c.server.answers.give(answer.held) }()
	resp := kmsg.NewPtrProduceResponse()
	if err := readAnswerBody(answer.bytes, h.version, resp); err != nil {
		return err
	}
	if !c.server.led.refuseWrites(resp) {
		return c.relay(answer.bytes)
	}
	return c.reply(h, resp, h.version)
}

// refuseWrites replaces what a real broker says of partitions that it does not lead
// because we do.
func (r *registry) refuseWrites(resp *kmsg.ProduceResponse) (changed bool) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if !absent(p.ErrorCode) {
				continue
			}
			led := r.find(fetchKey{t.TopicID, t.Topic, p.Partition})
			if led == nil {
				continue
			}
			text := readOnly(led)
			p.ErrorCode, p.ErrorMessage = int16(codePolicyViolation), &text
			p.CurrentLeader = kmsg.NewProduceResponseTopicPartitionCurrentLeader()
			changed = true
		}
	}
	return changed
}

// readOnly is what a producer's user reads.
func readOnly(p *lead.Partition) string {
	_, name := p.ID()
	return fmt.Sprintf("topic %s is a read-only mirror of another cluster until failover", name.Topic)
}

func (c *client) produceSilently(ctx context.Context, h header, b []byte) error {
	req := kmsg.NewPtrProduceRequest()
	decoded, err := c.decode(ctx, h, req)
	if err != nil {
		return err
	}
	var refused error
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if led := c.server.led.find(fetchKey{t.TopicID, t.Topic, p.Partition}); led != nil {
				refused = fmt.Errorf("%w: %s", errSilentWrite, readOnly(led))
			}
		}
	}
	decoded()
	return cmp.Or(c.pass(ctx, b), refused) // the rest belongs to others
}

// deleteRecords refuses to trim what we lead; the log start is the source's.
func (c *client) deleteRecords(ctx context.Context, h header, b []byte) error {
	answer, err := c.consult(ctx, b)
	if err != nil {
		return err
	}
	defer func() { c.server.answers.give(answer.held) }()
	resp := kmsg.NewPtrDeleteRecordsResponse()
	if err := readAnswerBody(answer.bytes, h.version, resp); err != nil {
		return err
	}
	changed := false
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if absent(p.ErrorCode) && c.server.led.byName(cluster.Partition{Topic: t.Topic, Partition: p.Partition}) != nil {
				p.ErrorCode, changed = int16(codePolicyViolation), true
			}
		}
	}
	if !changed {
		return c.relay(answer.bytes)
	}
	return c.reply(h, resp, h.version)
}
