package kafka

import (
	"context"
	"fmt"
	"strconv"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/clustermirror/mirror/topics"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// configTopics is how many topics one DescribeConfigs request asks for.
const configTopics = 500

// TopicConfigs gives the explicit overrides of topics.
func (c *Cluster) TopicConfigs(ctx context.Context, names []string) ([]topics.ConfigsAnswer, error) {
	answers := make([]topics.ConfigsAnswer, len(names))
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
		answers[i].Err = errMissing
	}
	for from := 0; from < len(names); from += configTopics {
		req := kmsg.NewPtrDescribeConfigsRequest()
		for _, name := range names[from:min(from+configTopics, len(names))] {
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, name
			req.Resources = append(req.Resources, r)
		}
		conn, err := c.client.Any(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := conn.Do(ctx, req)
		if err != nil {
			return nil, err
		}
		resources := answer.(*kmsg.DescribeConfigsResponse).Resources
		for k := range resources {
			if i, ok := index[resources[k].ResourceName]; ok {
				answers[i] = overrides(&resources[k], answer.GetVersion())
			}
		}
	}
	for i, name := range names { // a name that was asked for twice
		answers[i] = answers[index[name]]
	}
	return answers, nil
}

func overrides(r *kmsg.DescribeConfigsResponseResource, version int16) topics.ConfigsAnswer {
	if err := saying(r.ErrorCode, r.ErrorMessage); err != nil {
		return topics.ConfigsAnswer{Err: fmt.Errorf("%s: %w", r.ResourceName, err)}
	}
	var a topics.ConfigsAnswer
	for _, e := range r.Configs {
		explicit := e.Source == kmsg.ConfigSourceDynamicTopicConfig || version == 0 && !e.IsDefault
		if explicit && e.Value != nil && !e.IsSensitive {
			a.Configs = append(a.Configs, cluster.TopicConfig{Name: e.Name, Value: *e.Value})
		}
	}
	return a
}

// effectiveConfig is one setting as it applies, defaults included. A broker's must
// be asked of that broker.
func (c *Cluster) effectiveConfig(ctx context.Context, kind kmsg.ConfigResourceType, resource, name string) (string, error) {
	conn, err := c.configConn(ctx, kind, resource)
	if err != nil {
		return "", err
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, resource, []string{name}
	req.Resources = append(req.Resources, r)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return "", err
	}
	for _, r := range answer.(*kmsg.DescribeConfigsResponse).Resources {
		if err := saying(r.ErrorCode, r.ErrorMessage); err != nil {
			return "", err
		}
		for _, e := range r.Configs {
			if e.Name == name && e.Value != nil {
				return *e.Value, nil
			}
		}
	}
	return "", fmt.Errorf("%w: the broker does not show %s", cluster.ErrRefused, name)
}

func (c *Cluster) configConn(ctx context.Context, kind kmsg.ConfigResourceType, resource string) (*wire.Conn, error) {
	if kind != kmsg.ConfigResourceTypeBroker {
		return c.client.Any(ctx)
	}
	id, err := strconv.ParseInt(resource, 10, 32)
	if err != nil {
		return nil, err
	}
	return c.conn(ctx, int32(id), slotAsk)
}
