package kafkatest

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ready waits until node n answers clients and, as far as it knows, every
// running node is unfenced: Metadata lists only such brokers.
func (c *core) ready(ctx context.Context, n *node) error {
	cl, err := kgo.NewClient(append(c.ClientOpts(), kgo.SeedBrokers(n.addr()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		p := n.current()
		missing := c.missing(ctx, cl)
		if missing == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("kafkatest: node %d ended while starting: %w\n%s", n.id, p.err, n.logTail())
		case <-ctx.Done():
			return fmt.Errorf("kafkatest: node %d: %w; %w\n%s", n.id, context.Cause(ctx), missing, n.logTail())
		}
	}
}

// missing says what a client still lacks to see the whole cluster, nil if
// nothing. cl has one seed.
func (c *core) missing(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	seed := cl.SeedBrokers()[0]
	if _, err := seed.Request(ctx, kmsg.NewPtrApiVersionsRequest()); err != nil {
		return err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	answer, err := seed.Request(ctx, req)
	if err != nil {
		return err
	}
	alive := make(map[int]bool)
	for _, b := range answer.(*kmsg.MetadataResponse).Brokers {
		alive[int(b.NodeID)] = true
	}
	for _, n := range c.nodes {
		if n.running() && !alive[n.id] {
			return fmt.Errorf("broker %d is not in the metadata", n.id)
		}
	}
	return nil
}
