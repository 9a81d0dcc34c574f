package memory

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// GrowTopics gives topics more partitions, as a mirror does: a read-only topic is no
// hindrance.
func (cl *Client) GrowTopics(ctx context.Context, topics []cluster.Topic) []error {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	c := cl.c
	return callEach(ctx, cl, Op{Call: CallGrowTopics, Broker: -1, Names: names}, len(topics), func(i int) error {
		t := c.topics[topics[i].Name]
		if t == nil {
			return fmt.Errorf("topic %s: %w", topics[i].Name, cluster.ErrUnknownTopic)
		}
		if n := int(topics[i].Partitions); n > len(t.partitions) {
			if err := c.growTopic(t, n); err != nil {
				return err
			}
			c.changed()
		}
		return nil
	})
}
