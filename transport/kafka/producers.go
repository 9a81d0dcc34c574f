package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeProducers asks what the broker remembers of the producers of many
// partitions. Where it does not tell (too old, not authorized), found is not
// called: the last batch of the log says it as well.
func describeProducers(ctx context.Context, conn *wire.Conn, partitions []cluster.Partition, idx []int, errs []error, found func(i int, p *kmsg.DescribeProducersResponseTopicPartition)) error {
	req := kmsg.NewPtrDescribeProducersRequest()
	if conn.MaxVersion(req.Key()) < 0 {
		return nil
	}
	for _, g := range byTopic(partitions, idx) {
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic = g.topic
		for _, i := range g.idx {
			t.Partitions = append(t.Partitions, partitions[i].Partition)
		}
		req.Topics = append(req.Topics, t)
	}
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	want := expect(partitions, idx)
	topics := answer.(*kmsg.DescribeProducersResponse).Topics
	for t := range topics {
		for k := range topics[t].Partitions {
			p := &topics[t].Partitions[k]
			i, ok := want.take(topics[t].Topic, p.Partition)
			if !ok {
				continue
			}
			switch err := saying(p.ErrorCode, p.ErrorMessage); {
			case err == nil:
				found(i, p)
			case !errors.Is(err, cluster.ErrAuthorization):
				errs[i] = err
			}
		}
	}
	want.missing(errs)
	return nil
}

// defaultExpiry is Kafka's own default of producer.id.expiration.ms.
const defaultExpiry = 24 * time.Hour

// expiryCache holds producer.id.expiration.ms, read once.
type expiryCache struct{ ms atomic.Int64 }

// producerExpiry is how long the destination remembers a producer id after the
// timestamp of its last record.
func (c *Cluster) producerExpiry(ctx context.Context) time.Duration {
	if ms := c.expiry.ms.Load(); ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	conn, err := c.client.Any(ctx)
	if err != nil {
		return defaultExpiry
	}
	value, err := c.effectiveConfig(ctx, kmsg.ConfigResourceTypeBroker, fmt.Sprint(conn.Addr().ID), "producer.id.expiration.ms")
	ms, bad := strconv.ParseInt(value, 10, 64)
	if err != nil || bad != nil || ms <= 0 {
		c.cfg.Logger.DebugContext(ctx, "producer id expiration cannot be read, default taken", "error", err)
		return defaultExpiry
	}
	c.expiry.ms.Store(ms)
	return time.Duration(ms) * time.Millisecond
}
