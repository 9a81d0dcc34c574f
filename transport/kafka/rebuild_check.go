package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// probeName is appended to the name under which a creation is tried out: the cluster
// refuses the name itself while the topic stands, before it looks at anything else.
const probeName = ".rebuild-probe"

// creatable finds out whether a topic that stands could be created again, as far as a
// cluster tells: rights, settings, replicas. Nothing is created.
func (c *Cluster) creatable(ctx context.Context, was cluster.NewTopic) error {
	if err := c.mayCreate(ctx, was.Name); err != nil {
		return err
	}
	conn, err := c.client.Controller(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly = true
	req.TimeoutMillis = int32((c.cfg.RequestTimeout - c.cfg.RequestTimeout/4).Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	const longest = 249
	t.Topic = was.Name[:min(len(was.Name), longest-len(probeName))] + probeName
	t.NumPartitions, t.ReplicationFactor = was.Partitions, was.ReplicationFactor
	for _, s := range was.Configs {
		e := kmsg.NewCreateTopicsRequestTopicConfig()
		e.Name, e.Value = s.Name, &s.Value
		t.Configs = append(t.Configs, e)
	}
	req.Topics = append(req.Topics, t)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	topics := answer.(*kmsg.CreateTopicsResponse).Topics
	if len(topics) != 1 {
		return errMissing
	}
	switch err := saying(topics[0].ErrorCode, topics[0].ErrorMessage); {
	// INVALID_PARTITIONS, INVALID_CONFIG. What depends on the name (a right, a policy)
	// says nothing about the topic's own.
	case errors.Is(err, notController), errors.Is(err, tooFewBrokers), errors.Is(err, wire.Code(37)), errors.Is(err, wire.Code(40)):
		return err
	}
	return nil
}

// mayCreate: a topic is created with the right to CREATE it or any.
func (c *Cluster) mayCreate(ctx context.Context, topic string) error {
	conn, err := c.client.Any(ctx)
	if err != nil {
		return err
	}
	t, err := topicAt(ctx, conn, topic)
	if err != nil {
		return err
	}
	if allows(t.AuthorizedOperations) {
		return nil
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	if conn.MaxVersion(req.Key()) < 0 {
		return nil
	}
	req.IncludeClusterAuthorizedOperations = true
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	if got := answer.(*kmsg.DescribeClusterResponse); got.ErrorCode != 0 || allows(got.ClusterAuthorizedOperations) {
		return nil
	}
	return fmt.Errorf("%w: neither the topic nor the cluster allows CREATE", cluster.ErrAuthorization)
}

// allows reads a set of operations, bit by their numbers. -2^31 is what a broker
// answers that was not asked or does not tell.
func allows(operations int32) bool {
	const unknown = -1 << 31
	return operations == unknown || operations&(1<<kmsg.ACLOperationCreate) != 0
}
