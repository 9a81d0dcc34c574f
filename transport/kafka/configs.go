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

// TopicConfigs gives the explicit overrides of topics, and what holds besides.
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
	if err := needing("DESCRIBE_CONFIGS on the topic", saying(r.ErrorCode, r.ErrorMessage)); err != nil {
		return topics.ConfigsAnswer{Err: fmt.Errorf("%s: %w", r.ResourceName, err)}
	}
	var a topics.ConfigsAnswer
	for _, e := range r.Configs {
		explicit := e.Source == kmsg.ConfigSourceDynamicTopicConfig || version == 0 && !e.IsDefault
		one := cluster.TopicConfig{Name: e.Name}
		if e.Value != nil {
			one.Value = *e.Value
		}
		switch {
		case !explicit:
			a.Defaults = append(a.Defaults, one)
		case e.Value != nil && !e.IsSensitive:
			a.Configs = append(a.Configs, one)
		}
	}
	return a
}

// AlterTopics changes settings of topics, and leaves those that are not named alone.
func (c *Cluster) AlterTopics(ctx context.Context, all []topics.Changes) []error {
	return c.askAlter(ctx, all, false)
}

// askAlter changes settings, or only asks whether they could be (dry).
func (c *Cluster) askAlter(ctx context.Context, all []topics.Changes, dry bool) []error {
	errs := make([]error, len(all))
	for from := 0; from < len(all); from += configTopics {
		to := min(from+configTopics, len(all))
		if err := c.alterTopics(ctx, all[from:to], errs[from:to], dry); err != nil {
			for i := range errs[from:to] {
				errs[from+i] = err
			}
		}
	}
	return errs
}

func (c *Cluster) alterTopics(ctx context.Context, some []topics.Changes, errs []error, dry bool) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = dry
	index := make(map[string]int, len(some))
	for i, t := range some {
		index[t.Topic], errs[i] = i, errMissing
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, t.Topic
		for _, ch := range t.Changes {
			one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			one.Name, one.Value, one.Op = ch.Name, ch.Value, kmsg.IncrementalAlterConfigOpSet
			if ch.Value == nil {
				one.Op = kmsg.IncrementalAlterConfigOpDelete
			}
			r.Configs = append(r.Configs, one)
		}
		req.Resources = append(req.Resources, r)
	}
	conn, err := c.client.Controller(ctx)
	if err != nil {
		return err
	}
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	for _, r := range answer.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if i, ok := index[r.ResourceName]; ok {
			errs[i] = needing("ALTER_CONFIGS on the topic", saying(r.ErrorCode, r.ErrorMessage))
			c.forgetFill(r.ResourceName)
		}
	}
	return nil
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
