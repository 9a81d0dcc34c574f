package kafka

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/topics"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var _ topics.Rehearsal = (*Cluster)(nil)

// RehearseCreate says what CreateTopics would answer (validateOnly).
func (c *Cluster) RehearseCreate(ctx context.Context, wanted []cluster.NewTopic) []topics.Rehearsed {
	out, errs := make([]topics.Rehearsed, len(wanted)), make([]error, len(wanted))
	if len(wanted) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.RequestTimeout)
	defer cancel()
	c.askCreate(ctx, wanted, errs, true, func(i int, t *kmsg.CreateTopicsResponseTopic) {
		out[i].ReplicationFactor = max(0, t.ReplicationFactor)
		for _, e := range t.Configs {
			if e.Value != nil {
				out[i].Configs = append(out[i].Configs, cluster.TopicConfig{Name: e.Name, Value: *e.Value})
			}
		}
	})
	for i, err := range errs {
		out[i].Err = err
	}
	return out
}

// RehearseAlter says what AlterTopics would answer (validateOnly).
func (c *Cluster) RehearseAlter(ctx context.Context, changes []topics.Changes) []error {
	return c.askAlter(ctx, changes, true)
}
