package kafkatest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicTimeoutMillis is how long the brokers may take over a topic.
const topicTimeoutMillis = 30_000

// CreateTopic creates a topic and waits until every running node that answers
// names a leader for each of its partitions. configs may be nil.
func (c *Cluster) CreateTopic(t testing.TB, name string, partitions int32, replicas int16, configs map[string]string) {
	t.Helper()
	cl := c.Client(t)
	if err := createTopic(t.Context(), cl, name, partitions, replicas, configs); err != nil {
		t.Fatal(err)
	}
	Eventually(t, topicTimeoutMillis*1e6, func(ctx context.Context) error {
		return leaders(ctx, cl, name, partitions)
	})
}

func createTopic(ctx context.Context, cl *kgo.Client, name string, partitions int32, replicas int16, configs map[string]string) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, replicas
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = k, kmsg.StringPtr(configs[k])
		topic.Configs = append(topic.Configs, config)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = topicTimeoutMillis
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("creating topic %s: %w", name, err)
	}
	return nil
}

// Configure replaces all settings of a topic. Brokers with a ZooKeeper learn of it
// a little later.
func (c *Cluster) Configure(t testing.TB, topic string, configs map[string]string) {
	t.Helper()
	resource := kmsg.NewAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		config := kmsg.NewAlterConfigsRequestResourceConfig()
		config.Name, config.Value = k, kmsg.StringPtr(configs[k])
		resource.Configs = append(resource.Configs, config)
	}
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("configuring topic %s: %v", topic, err)
	}
}

// leaders returns nil when every reachable node knows a leader of every
// partition.
func leaders(ctx context.Context, cl *kgo.Client, topic string, partitions int32) error {
	req := kmsg.NewPtrMetadataRequest()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, one)
	answers := 0
	for _, seed := range cl.SeedBrokers() {
		resp, err := req.RequestWith(ctx, seed)
		if err != nil {
			continue // a stopped node
		}
		answers++
		if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
			return err
		}
		led := 0
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				led++
			}
		}
		if led != int(partitions) {
			return fmt.Errorf("topic %s has a leader for %d of %d partitions", topic, led, partitions)
		}
	}
	if answers == 0 {
		return fmt.Errorf("no node answers")
	}
	return nil
}

// Ends returns the high watermark of each partition of a topic, by index.
func (c *Cluster) Ends(ctx context.Context, t testing.TB, topic string) []int64 {
	t.Helper()
	ends, err := c.offsets(ctx, topic, -1)
	if err != nil {
		t.Fatalf("ends of topic %s: %v", topic, err)
	}
	return ends
}

// Starts returns the log start offset of each partition of a topic, by index.
func (c *Cluster) Starts(ctx context.Context, t testing.TB, topic string) []int64 {
	t.Helper()
	starts, err := c.offsets(ctx, topic, -2)
	if err != nil {
		t.Fatalf("starts of topic %s: %v", topic, err)
	}
	return starts
}

// offsets asks ListOffsets for one of its special timestamps.
func (c *core) offsets(ctx context.Context, topic string, timestamp int64) ([]int64, error) {
	cl, err := kgo.NewClient(c.ClientOpts()...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	meta := kmsg.NewPtrMetadataRequest()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	meta.Topics = append(meta.Topics, one)
	known, err := meta.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(known.Topics[0].ErrorCode); err != nil {
		return nil, err
	}
	list := kmsg.NewListOffsetsRequestTopic()
	list.Topic = topic
	for _, p := range known.Topics[0].Partitions {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = p.Partition, timestamp
		list.Partitions = append(list.Partitions, part)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = append(req.Topics, list)
	resp, err := req.RequestWith(ctx, cl) // split by leader
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, len(list.Partitions))
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
		}
		offsets[p.Partition] = p.Offset
	}
	return offsets, nil
}
