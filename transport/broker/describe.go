package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

// describeProducers tells who has written to what we lead. Any replica can; where the real
// broker of the connection has none another one is asked, and what nobody says stays an
// error after which admin clients look again.
func (c *client) describeProducers(ctx context.Context, h header, b []byte) error {
	answer, err := c.consult(ctx, b)
	if err != nil {
		return err
	}
	defer func() { c.server.answers.give(answer.held) }()
	resp := kmsg.NewPtrDescribeProducersResponse()
	if err := readAnswerBody(answer.bytes, h.version, resp); err != nil {
		return err
	}
	open := c.server.led.undescribed(resp)
	if len(open) == 0 {
		return c.relay(answer.bytes)
	}
	for broker, some := range open {
		said, err := c.askFollower(ctx, broker, describeRequest(h.version, some))
		if err != nil {
			c.server.cfg.Logger.Debug("a follower cannot be asked for producers", "broker", broker, "error", err)
			continue
		}
		for _, t := range said.(*kmsg.DescribeProducersResponse).Topics {
			for _, p := range t.Partitions {
				if to := some[cluster.Partition{Topic: t.Topic, Partition: p.Partition}]; to != nil {
					*to = p
				}
			}
		}
	}
	return c.reply(h, resp, h.version)
}

// undescribed are the partitions that we lead and of which a real broker has no replica, by
// a follower that has one.
func (r *registry) undescribed(resp *kmsg.DescribeProducersResponse) map[int32]map[cluster.Partition]*kmsg.DescribeProducersResponseTopicPartition {
	out := make(map[int32]map[cluster.Partition]*kmsg.DescribeProducersResponseTopicPartition)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			name := cluster.Partition{Topic: t.Topic, Partition: p.Partition}
			led := r.byName(name)
			if !absent(p.ErrorCode) || led == nil {
				continue
			}
			s := led.State()
			if ids := holders(s, s.HighWatermark); len(ids) > 0 {
				if out[ids[0]] == nil {
					out[ids[0]] = make(map[cluster.Partition]*kmsg.DescribeProducersResponseTopicPartition)
				}
				out[ids[0]][name] = p
			}
		}
	}
	return out
}

func describeRequest(version int16, some map[cluster.Partition]*kmsg.DescribeProducersResponseTopicPartition) *kmsg.DescribeProducersRequest {
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Version = version
	for name := range some {
		topic := kmsg.NewDescribeProducersRequestTopic()
		topic.Topic, topic.Partitions = name.Topic, []int32{name.Partition}
		req.Topics = append(req.Topics, topic)
	}
	return req
}
