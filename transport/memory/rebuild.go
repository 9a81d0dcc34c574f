package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// Rebuild deletes a topic that has the id given and creates it again, empty. It needs
// Traits with TruncateRebuild.
func (cl *Client) Rebuild(ctx context.Context, name string, id cluster.TopicID, was cluster.NewTopic) (cluster.TopicID, error) {
	return call(ctx, cl, Op{Call: CallRebuild, Broker: -1, Names: []string{name}}, func() (cluster.TopicID, error) {
		c := cl.c
		switch {
		case c.traits.Truncation != fetcher.TruncateRebuild:
			return cluster.TopicID{}, fmt.Errorf("topic %s: rebuild: %w", name, errors.ErrUnsupported)
		case was.Name != name:
			return cluster.TopicID{}, fmt.Errorf("topic %s: %w: it is described as %q", name, cluster.ErrRefused, was.Name)
		}
		if t := c.topics[name]; t != nil && t.id != id {
			return t.id, nil
		} else if t != nil {
			if int(was.ReplicationFactor) > c.running {
				return cluster.TopicID{}, fmt.Errorf("topic %s: %w: it could not be created again", name, cluster.ErrUnavailable)
			}
			c.deleteTopic(t)
		}
		if err := c.createTopic(was); err != nil {
			return cluster.TopicID{}, err
		}
		return c.topics[name].id, nil
	})
}

// Describe gives a topic's id and what Rebuild needs to make it again.
func (cl *Client) Describe(ctx context.Context, name string) (cluster.TopicID, cluster.NewTopic, error) {
	type described struct {
		id  cluster.TopicID
		was cluster.NewTopic
	}
	d, err := call(ctx, cl, Op{Call: CallDescribe, Broker: -1, Names: []string{name}}, func() (described, error) {
		t := cl.c.topics[name]
		if t == nil {
			return described{}, fmt.Errorf("topic %s: %w", name, cluster.ErrUnknownTopic)
		}
		return described{t.id, cluster.NewTopic{
			Name: name, Partitions: int32(len(t.partitions)), ReplicationFactor: int16(t.factor), Configs: slices.Clone(t.configs),
		}}, nil
	})
	return d.id, d.was, err
}
